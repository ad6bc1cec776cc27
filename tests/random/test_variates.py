"""The drop-ins for ``jax.random``: shapes, dtypes, keys and transformations as there, and the same distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from scipy import special, stats

from balson_jax import random

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("alpha_shape", "shape"),
    [
        ((3,), None),
        ((3,), ()),
        ((3,), (4,)),
        ((2, 3), None),
        ((2, 3), (2,)),
        ((2, 3), (5, 2)),
        ((1, 3), (4, 2)),
        ((2, 1, 3), (2, 4)),
        ((3,), (0,)),
        ((0, 3), None),
        ((1, 1, 3), (6, 4, 2)),
        ((3,), 4),
    ],
)
def test_shapes_are_those_of_jax_random(alpha_shape, shape):
    alpha = jnp.ones(alpha_shape)
    whole = None if shape is None else (shape, 3) if isinstance(shape, int) else (*shape, 3)
    calls = {
        "loggamma": lambda module: module.loggamma(KEY, alpha, whole),
        "gamma": lambda module: module.gamma(KEY, alpha, whole),
        "beta": lambda module: module.beta(KEY, alpha, 2.0, whole),
        "dirichlet": lambda module: module.dirichlet(KEY, alpha, shape),
    }
    for call in calls.values():
        ours, theirs = (jax.eval_shape(lambda: call(module)) for module in (random, jax.random))  # noqa: B023
        assert ours == theirs
    np.testing.assert_allclose(random.dirichlet(KEY, alpha, shape).sum(-1), 1, atol=1e-6)


@pytest.mark.slow
def test_dtypes_are_those_of_jax_random(dtype):
    alpha = np.ones(3)
    assert random.dirichlet(KEY, alpha).dtype == jax.random.dirichlet(KEY, alpha).dtype
    for kind in (jnp.float16, jnp.bfloat16, jnp.float32):
        for draw in (random.dirichlet, random.gamma, random.loggamma):
            found = draw(KEY, alpha, dtype=kind)
            assert found.dtype == kind
            assert jnp.isfinite(found).all()
        assert random.beta(KEY, 1, 2, dtype=kind).dtype == kind
    assert random.gamma(KEY, 3).dtype == dtype


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"shape=\(4,\) is not what the shape \(3,\) of a broadcasts to"):
        random.gamma(KEY, jnp.ones(3), (4,))
    with pytest.raises(ValueError, match=r"shape=\(3,\) is not what the shape \(2,\) of alpha"):
        random.dirichlet(KEY, jnp.ones((2, 3)), (3,))
    with pytest.raises(ValueError, match="alpha is a single number"):
        random.dirichlet(KEY, 1.0)
    with pytest.raises(ValueError, match="dtype=int32 is not a floating dtype"):
        random.loggamma(KEY, 1.0, dtype=jnp.int32)


def test_concentrations_out_of_their_domain():
    draws = random.gamma(KEY, jnp.array([0.0, -1.0, jnp.nan, 1e-3, 1.0]))
    assert draws[0] == 0
    assert jnp.isnan(draws[1:3]).all()
    assert jnp.isfinite(draws[3:]).all()
    share = random.dirichlet(KEY, jnp.array([0.0, 1.0, 2.0]), (100,))
    assert (share[:, 0] == 0).all()
    np.testing.assert_allclose(share.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_any_typed_key_and_old_keys(kind):
    draws = random.dirichlet(jax.random.key(3, impl=kind), jnp.array([0.2, 1.0, 4.0]), (100_000,))
    np.testing.assert_allclose(draws.mean(0), np.array([0.2, 1.0, 4.0]) / 5.2, atol=5e-3)
    old = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(random.gamma(old, 2.0, (5,)), random.gamma(jax.random.key(3), 2.0, (5,)))


def test_vmap_and_jit_agree_with_a_loop():
    keys, alphas = jax.random.split(KEY, 3), jnp.array([[0.1, 1.0], [2.0, 0.7], [5.0, 30.0]])
    loop = jnp.stack([random.dirichlet(key, alpha, (6,)) for key, alpha in zip(keys, alphas, strict=True)])
    batch = jax.jit(jax.vmap(lambda key, alpha: random.dirichlet(key, alpha, (6,))))(keys, alphas)
    np.testing.assert_allclose(batch, loop, rtol=2e-5, atol=1e-7)


def test_many_concentrations_are_blocked_without_a_seam(monkeypatch):
    alpha = jnp.geomspace(1e-3, 1e6, 1000)
    whole = random.loggamma(KEY, alpha, (3, 1000))
    monkeypatch.setattr("balson_jax.random.variates.BLOCK", 128)
    np.testing.assert_allclose(random.loggamma(KEY, alpha, (3, 1000)), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.03), (0.5, 2.0), (3.0, 1.0), (200.0, 1e4)])
def test_beta_variates(a, b):
    draws = np.asarray(random.beta(KEY, a, b, (100_000,)), np.float64)
    inside = draws[(draws > 1e-30) & (draws < 1 - 1e-6)]
    low, high = stats.beta.cdf(1e-30, a, b), stats.beta.cdf(1 - 1e-6, a, b)
    uniforms = (stats.beta.cdf(inside, a, b) - low) / (high - low)
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-3
    assert abs((draws <= 1e-30).mean() - low) < 4 * np.sqrt(low / draws.size) + 1e-9


@thinned("alpha", [(0.3, 0.7, 1.2)], [(0.01, 0.02, 0.03), (1.0, 2.0, 5.0), (1e3, 1e5, 1e6)])
def test_dirichlet_moments_per_row_and_shared(alpha):
    count = 200_000
    shared = random.dirichlet(KEY, jnp.array(alpha), (count,))
    own = random.dirichlet(KEY, jnp.broadcast_to(jnp.array(alpha), (count, 3)))
    exact = stats.dirichlet(alpha)
    for draws in (shared, own):
        draws = np.asarray(draws, np.float64)
        error = draws.std(0) / np.sqrt(count)
        assert (np.abs(draws.mean(0) - exact.mean()) < 4 * error + 1e-7).all()
        squares = np.square(draws - exact.mean())
        assert (np.abs(squares.mean(0) - exact.var()) < 4 * squares.std(0) / np.sqrt(count) + 1e-5 * exact.var()).all()


@thinned("alpha", [], [0.05, 0.4, 0.8, 3.0, 40.0])
def test_mean_derivatives_agree_with_implicit_ones_of_jax(alpha, x64):
    """d E[ln(1 + g)] / d alpha by our path and by ``jax.random.loggamma``'s implicit derivative."""

    def slopes(draw):
        return jax.vmap(jax.grad(lambda a, key: jnp.log1p(jnp.exp(draw(key, a)))), (None, 0))(
            jnp.array(alpha), jax.random.split(KEY, 20_000)
        )

    ours, theirs = np.asarray(slopes(random.loggamma)), np.asarray(slopes(jax.random.loggamma))
    error = np.hypot(ours.std(), theirs.std()) / np.sqrt(ours.size)
    assert abs(ours.mean() - theirs.mean()) < 4 * error


def test_no_components_and_huge_concentrations():
    assert random.dirichlet(KEY, jnp.ones(0), (3,)).shape == (3, 0)
    share = random.dirichlet(KEY, jnp.array([1e38, 3e38, 1.0]))
    np.testing.assert_allclose(share, [0.25, 0.75, 0], atol=1e-5)


def test_logs_never_underflow():
    assert jnp.isfinite(random.loggamma(KEY, jnp.array([1e-37, 2e-38, 1e-3]), (1000, 3))).all()
    draws = random.loggamma(KEY, 1e-3, (1_000_000,))
    assert jnp.isfinite(draws).all()
    assert abs(float(draws.mean()) - special.digamma(1e-3)) < 4 * 1e3 / 1e3
