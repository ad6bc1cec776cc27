"""Points of the cube and the gamma quantile, against SciPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from numpy.polynomial import chebyshev
from scipy import special, stats
from scipy.stats import qmc

from balson_jax import random
from balson_jax.random import gamma_quantile as gamma
from balson_jax.random import points, tabulate, tabulate_sobol
from balson_jax.random.simplex import log_dirichlet
from balson_jax.random.sobol import dealt, sobol

ALPHAS = (1e-3, 0.01, 0.1, 0.476, 0.5, 1.0, 2.0, 10.0, 1e3, 1e6)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_quantile_tables_are_what_the_script_writes(name):
    np.testing.assert_allclose(gamma._table(name), tabulate.tabulate(*gamma.SIZES[name]), rtol=0, atol=2e-6)


def test_the_sobol_table_is_what_the_script_writes():
    from balson_jax.random import sobol as module

    assert (tabulate_sobol.tabulate() == module._directions()).all()


@pytest.mark.parametrize(("name", "tolerance"), [("float32", 2e-6), ("float64", 2e-8)])
def test_the_quantile_is_accurate_over_its_whole_range(name, tolerance):
    """Absolute error in ln g, in float64 arithmetic; below s = 0.01 the truth is the expansion about the normal."""
    t_max, _, _ = gamma.SIZES[name]
    t = np.linspace(-t_max, t_max, 501)[:, None]
    s = np.geomspace(0.01, gamma.S_MAX, 80)[None]
    exact = tabulate.log_quantile(t, 1 / s**2)
    with np.load(gamma.TABLE) as tables:
        table = tables[name]
    found = s * chebyshev.chebgrid2d(t[:, 0] / t_max, 2 * s[0] / gamma.S_MAX - 1, table)
    assert np.abs(found - exact).max() < tolerance
    # Between s = 0 and s = 0.01: Cornish-Fisher for ln(g / alpha) / s, whose error is of order s^3.
    s = np.array([[1e-3, 2e-3]])
    z = tabulate.normal_score(t)
    expansion = (
        s * z + s**2 * (z**2 - 1) / 3 - s**2 * z**2 / 2 + s**3 * ((z**3 - 7 * z) / 36 - z * (z**2 - 1) / 3 + z**3 / 3)
    )
    found = s * chebyshev.chebgrid2d(t[:, 0] / t_max, 2 * s[0] / gamma.S_MAX - 1, table)
    assert np.abs(found - expansion).max() < tolerance


@jax.jit
def log_gamma(bits, boost, alpha):
    return gamma.lift(gamma.unlifted(bits, alpha), boost, alpha)


@jax.jit
def million_log_gammas(alpha):
    return random.loggamma(jax.random.key(1), alpha, (1_000_000,), dtype=alpha.dtype)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gamma_draws_follow_the_gamma_distribution(alpha, dtype):
    draws = np.asarray(million_log_gammas(jnp.asarray(alpha, dtype)))
    assert np.isfinite(draws).all()
    uniforms = stats.gamma.cdf(np.exp(draws.astype(np.float64)), alpha)
    if alpha < 0.1:  # exp underflows: the lower tail in logarithms, P(ln g < x) = exp(alpha x) / Gamma(alpha + 1)
        tail = np.exp(alpha * draws.astype(np.float64) - special.gammaln(alpha + 1))
        uniforms = np.where(draws < -20, tail, uniforms)
    assert stats.kstest(uniforms, "uniform").pvalue > 1e-3


def test_every_bit_pattern_gives_a_finite_draw(dtype):
    kind = points.bits_dtype(dtype)
    largest = np.iinfo(kind).max
    middle = largest // 2
    bits = jnp.array([0, 1, middle, middle + 1, largest - 1, largest], kind)[None]
    for alpha in ALPHAS:
        draws = log_gamma(bits, bits, jnp.array([alpha], dtype))
        assert jnp.isfinite(draws).all()
        assert (jnp.diff(draws[0]) >= 0).all()


@thinned("alpha", [], [(0.01, 0.02, 0.03), (0.3, 0.7, 1.2), (1.0, 2.0, 5.0), (1e3, 1e5, 1e6)])
def test_moments_of_dirichlet_draws(alpha):
    count = 256 * points.BLOCK
    cube = points.coordinates(points.pseudo, jax.random.key(2), count, start=0, dtype=jnp.float32)
    draws = np.asarray(jnp.exp(log_dirichlet(cube, jnp.array(alpha, jnp.float32))), np.float64)
    exact = stats.dirichlet(alpha)
    error = draws.std(-1) / np.sqrt(count)
    assert (np.abs(draws.mean(-1) - exact.mean()) < 4 * error + 1e-7).all()
    squares = np.square(draws - exact.mean()[:, None])
    assert (np.abs(squares.mean(-1) - exact.var()) < 4 * squares.std(-1) / np.sqrt(count) + 1e-5 * exact.var()).all()
    np.testing.assert_allclose(draws.sum(0), 1, atol=1e-5)


@thinned("alpha", [], [0.1, 0.6, 3.0, 50.0])
def test_derivative_in_alpha_is_the_implicit_one(alpha, x64):
    """dx/dalpha = -(dF/dalpha) / density by finite differences of SciPy's cdf; on average also for lifted draws."""
    bits = points.pseudo(jax.random.key(3), 2, 4 * points.BLOCK, dtype=jnp.float64)

    def draw(a):
        return log_gamma(bits[:1], bits[1:], a[None])[0]

    value, slope = jax.jvp(draw, (jnp.array(alpha),), (jnp.array(1.0),))
    if alpha >= gamma.ALPHA_MIN:
        x, step = np.exp(value), 1e-6 * alpha
        rise = (stats.gamma.cdf(x, alpha + step) - stats.gamma.cdf(x, alpha - step)) / (2 * step)
        implicit = -rise / stats.gamma.pdf(x, alpha) / x
        middle = (x > stats.gamma.ppf(0.01, alpha)) & (x < stats.gamma.ppf(0.99, alpha))
        np.testing.assert_allclose(slope[middle], implicit[middle], rtol=1e-4)
        jaxs = jax.lax.random_gamma_grad(jnp.full(x.shape, alpha), jnp.asarray(x)) / x
        np.testing.assert_allclose(slope, jaxs, rtol=1e-4, atol=1e-6)
    # E[ln g] = digamma(alpha), so the mean slope is trigamma(alpha).
    slope = np.asarray(slope)
    assert abs(slope.mean() - special.polygamma(1, alpha)) < 4 * slope.std() / np.sqrt(slope.size)


def test_sobol_points_are_scipys():
    expected = qmc.Sobol(64, scramble=False, bits=32).random(1 << 16)
    found = sobol(None, 64, 1 << 16)
    np.testing.assert_array_equal(np.asarray(found, np.float64).T / 2**32, expected)


def test_dealt_points_are_the_same_points():
    """Each block of 1,024 in another order: positions equal modulo 64 hold a run of 16 points, all over the cube."""
    plain, spread = (np.asarray(sobol(None, 5, 1 << 12, deal=deal)) for deal in (False, True))
    for block in range(4):
        rows = slice(1024 * block, 1024 * (block + 1))
        assert {*map(tuple, plain[:, rows].T)} == {*map(tuple, spread[:, rows].T)}
    number = dealt(np.arange(1 << 12), 1 << 12)
    np.testing.assert_array_equal(spread, plain[:, number])
    slot = spread[:, :1024][:, 7::64] >> 28  # the leading hexadecimal digit
    assert all(len(set(row)) == 16 for row in slot.tolist())
    assert len(set((plain[0, :1024][7::64] >> 28).tolist())) == 1


def test_sobol_chunks_are_pieces_of_one_sequence(dtype):
    key = jax.random.key(0)
    whole = sobol(key, 7, 1 << 12, dtype=dtype)
    pieces = [sobol(key, 7, 1 << 10, start=jnp.int32(i << 10), dtype=dtype) for i in range(4)]
    np.testing.assert_array_equal(whole, jnp.concatenate(pieces, axis=1))


def test_scrambled_sobol_is_uniform_and_stratified():
    for seed in range(3):
        bits = np.asarray(sobol(jax.random.key(seed), 32, 1 << 12))
        for size in (1 << 4, 1 << 8, 1 << 12):
            for first in range(0, 1 << 12, size):
                cells = bits[:, first : first + size] >> np.uint32(32 - int(np.log2(size)))
                assert (np.sort(cells, axis=1) == np.arange(size)).all()
    first_points = np.asarray(jax.vmap(lambda key: sobol(key, 4, 1)[:, 0])(jax.random.split(jax.random.key(1), 5000)))
    for coordinate in first_points.T:
        assert stats.kstest(coordinate / 2**32, "uniform").pvalue > 1e-3


def test_points_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="n=1000 must be a power of two"):
        sobol(jax.random.key(0), 2, 1000)
    with pytest.raises(ValueError, match="dims=3000 exceeds"):
        sobol(jax.random.key(0), 3000, 1024)
    with pytest.raises(ValueError, match="n=1500 must be a multiple of 1024"):
        points.pseudo(jax.random.key(0), 2, 1500)


def test_pseudo_points_are_numbered():
    key = jax.random.key(4)
    whole = points.pseudo(key, 3, 4 * points.BLOCK)
    np.testing.assert_array_equal(whole[:, 2048:3072], points.pseudo(key, 3, points.BLOCK, start=2048))
    uniform = points.uniform(whole)
    assert (uniform > 0).all()
    assert (uniform < 1).all()
    assert stats.kstest(np.asarray(uniform).ravel(), "uniform").pvalue > 1e-3
