"""Small systems of linear equations, against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from balson_jax import elimination


def rows(rng, size, condition):
    left, _, right = np.linalg.svd(rng.normal(size=(5, size + 3, size)), full_matrices=False)
    return (left * np.geomspace(1, 1 / condition, size)) @ right


@pytest.mark.parametrize("size", [1, 5, 23])
def test_against_numpy(size):
    rng = np.random.default_rng(size)
    columns, sides = rows(rng, size, 10.0), rng.normal(size=(5, size, 2))
    matrix = np.swapaxes(columns, 1, 2) @ columns
    found = elimination.solve_positive(jnp.asarray(matrix, jnp.float32), jnp.asarray(sides, jnp.float32))
    exact = np.linalg.solve(matrix, sides)
    # Backward stability: errors are some roundings times the condition number, 100.
    np.testing.assert_allclose(found, exact, rtol=0, atol=100 * 8 * np.finfo("float32").eps * np.abs(exact).max())


@pytest.mark.parametrize("size", [1, 5, 23])
def test_the_factor_keeps_digits_that_a_gram_matrix_loses(size):
    """The least singular value is 3e-4 of the largest, whose square is below the rounding of float32."""
    columns = rows(np.random.default_rng(size), size, 3e3)
    factor = elimination.triangular_factor(jnp.asarray(columns, jnp.float32))
    exact = np.linalg.qr(columns)[1]
    exact = exact * np.sign(np.diagonal(exact, axis1=1, axis2=2))[:, :, None]
    np.testing.assert_allclose(factor, exact, rtol=0, atol=3e-6)
    last = np.abs(np.asarray(factor)[:, -1, -1] / exact[:, -1, -1] - 1)
    assert (last < 3e3 * 8 * np.finfo("float32").eps).all()
    inverse = elimination.triangular_inverse(jnp.asarray(exact, jnp.float32))
    np.testing.assert_allclose(
        inverse @ exact, np.broadcast_to(np.eye(size), exact.shape), atol=2e-2 * (size > 1) + 1e-6
    )
