"""Cut normal variates against SciPy's special functions in double precision and against mpmath in more."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from balson_jax.random.truncated_normal import cut, mills


def intervals(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals of all kinds: narrow and wide, about the middle, in either tail, far out."""
    rng = np.random.default_rng(0)
    sign = rng.choice([-1.0, 1.0], count)
    low = sign * 10 ** rng.uniform(-2, 4, count)
    width = 10 ** rng.uniform(-8, 2, count)
    low[::5] = -width[::5] * rng.uniform(size=len(width[::5]))  # astride of the middle
    return low.astype(np.float32), width.astype(np.float32)


def exact_mass(low, high):
    if low > 0:
        return (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2
    if high < 0:
        return exact_mass(-high, -low)
    return 1 - exact_mass(high, mpmath.inf) - exact_mass(-low, mpmath.inf)


def test_quantiles_and_densities_of_all_kinds_of_intervals_in_float32():
    count = 400
    low, width = intervals(count)
    probability = np.linspace(0.003, 0.997, count)[np.random.default_rng(1).permutation(count)].astype(np.float32)
    interval = cut(jnp.asarray(low), jnp.asarray(width))
    from_low, from_high = interval.quantile(jnp.asarray(probability), jnp.asarray(1 - probability))
    log_density = np.asarray(interval.log_density(from_low, from_high), np.float64)
    from_low, from_high = (np.asarray(part, np.float64) for part in (from_low, from_high))
    assert (from_low >= 0).all()
    assert (from_high >= 0).all()
    np.testing.assert_allclose(from_low + from_high, width, rtol=1e-5)
    with mpmath.workdps(60):
        for i in range(count):
            start, end = mpmath.mpf(float(low[i])), mpmath.mpf(float(low[i])) + mpmath.mpf(float(width[i]))
            place = start + from_low[i] if from_low[i] < from_high[i] else end - from_high[i]
            whole = exact_mass(start, end)
            below, above = exact_mass(start, place) / whole, exact_mass(place, end) / whole
            # Relative to the smaller side; in float32 a complement below 0.003 has few digits.
            assert float(below) == pytest.approx(probability[i], rel=2e-3), (low[i], width[i])
            assert float(above) == pytest.approx(1 - probability[i], rel=2e-3), (low[i], width[i])
            expected = -(place**2) / 2 - mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(whole)
            assert float(expected) == pytest.approx(log_density[i], abs=2e-5 * (1 + abs(log_density[i])))


def test_mills_ratio_in_both_precisions(x64):
    x = np.concatenate([[0.0], 10 ** np.linspace(-6, 8, 300)])
    with mpmath.workdps(40):
        wide = [mpmath.mpf(float(v)) for v in x[:200]]
        exact = [mpmath.erfc(v / mpmath.sqrt(2)) * mpmath.exp(v**2 / 2) * mpmath.sqrt(mpmath.pi / 2) for v in wide]
    exact = np.array([float(value) for value in exact])
    np.testing.assert_allclose(mills(jnp.asarray(x))[:200], exact, rtol=2e-13)
    np.testing.assert_allclose(mills(jnp.asarray(x, jnp.float32))[:200], exact, rtol=4e-7)
    np.testing.assert_allclose(mills(jnp.asarray(x))[-20:] * x[-20:], 1, rtol=1e-9)


def test_draws_have_the_moments_of_a_cut_normal():
    """Mean and variance of a uniform grid of quantiles against the formulas with densities at the ends."""
    grid = (np.arange(1 << 14) + 0.5) / (1 << 14)
    for low, width in ((-1.0, 3.0), (2.0, 0.5), (-6.0, 4.5), (0.3, 50.0)):
        interval = cut(jnp.float32(low), jnp.float32(width))
        from_low, _ = jax.jit(interval.quantile)(jnp.asarray(grid, jnp.float32), jnp.asarray(1 - grid, jnp.float32))
        with mpmath.workdps(40):
            whole = exact_mass(mpmath.mpf(low), mpmath.mpf(low + width))
            mean = (mpmath.npdf(low) - mpmath.npdf(low + width)) / whole
            square = 1 + (low * mpmath.npdf(low) - (low + width) * mpmath.npdf(low + width)) / whole
        found = low + np.asarray(from_low, np.float64)
        assert found.mean() == pytest.approx(float(mean), abs=1e-4)
        assert found.var() == pytest.approx(float(square - mean**2), abs=3e-4)


def test_distances_from_both_ends_add_up():
    """For all probabilities: a draw at x leaves exactly the rest of the interval."""
    low, width = jnp.array([[-1.25], [-6.0], [0.5], [3.0], [-2.0]]), jnp.array([[3.28], [7.0], [2.0], [40.0], [0.01]])
    below = jnp.linspace(1e-6, 1 - 1e-6, 200_001)
    from_low, from_high = cut(low, width).quantile(below, 1 - below)
    np.testing.assert_allclose(from_low + from_high, jnp.broadcast_to(width, from_low.shape), rtol=1e-4)
