"""Nuisance columns: against a wide Gaussian prior, a problem projected by hand, and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned

import balson_jax as balson

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
ROWS = 15
DESIGN = RNG.normal(size=(ROWS, 3))
TREND = np.stack([np.linspace(-1, 1, ROWS), np.linspace(-1, 1, ROWS) ** 2], -1)
THETA = np.array([0.5, 0.3, 0.2])
BASELINE = np.array([4.0, -2.0, 1.0])
ALL = np.column_stack([np.ones(ROWS), TREND])
TARGET = DESIGN @ THETA + ALL @ BASELINE + 0.2 * RNG.normal(size=ROWS)
METHOD = balson.IS(16_384)


def fitted(target=TARGET, method=METHOD, **options):
    return balson.fit(KEY, balson.linear_problem(DESIGN, target, nuisance=TREND, intercept=True, **options), method)


@pytest.fixture(scope="module")
def known():
    return fitted(noise=0.2)


def test_a_problem_projected_by_hand(known):
    """Rows rotated so that the first three see the nuisance columns, and the others don't."""
    rotation = np.linalg.qr(ALL, mode="complete")[0][:, 3:]
    plain = balson.fit(KEY, balson.linear_problem(rotation.T @ DESIGN, rotation.T @ TARGET, noise=0.2), METHOD)
    np.testing.assert_allclose(known.mean, plain.mean, atol=1e-4)
    np.testing.assert_allclose(known.std, plain.std, atol=1e-4)
    size = np.linalg.slogdet(ALL.T @ ALL)[1]
    assert float(known.log_evidence) == pytest.approx(float(plain.log_evidence) - 0.5 * size, abs=1e-3)
    assert float(known.num_rows) == ROWS - 3


@pytest.mark.slow
def test_the_limit_of_a_wide_gaussian_prior(known, x64):
    """Coefficients of variance w are part of the noise; the evidence then lacks the density of the prior at zero."""
    wide = 1e6
    covariance = 0.04 * np.eye(ROWS) + wide * ALL @ ALL.T
    problem = balson.linear_problem(DESIGN, TARGET, noise=balson.Correlated(covariance))
    found = balson.fit(KEY, problem, METHOD)
    error = 4 * np.hypot(np.max(known.mean_stderr), np.max(found.mean_stderr))
    np.testing.assert_allclose(known.mean, found.mean, atol=error)
    np.testing.assert_allclose(known.std, found.std, atol=2 * error)
    constant = 1.5 * np.log(2 * np.pi * wide)
    assert float(known.log_evidence) == pytest.approx(
        float(found.log_evidence) + constant, abs=4 * np.hypot(known.log_evidence_stderr, found.log_evidence_stderr)
    )


@thinned("noise", [0.2], ["estimate"])
def test_coefficients_against_a_gibbs_sampler_of_all(noise):
    """Mean, standard deviation and draws against draws from the exact conditionals, given theta from the fit."""
    found = fitted(noise=noise)
    nuisance = found.nuisance
    assert np.abs(np.asarray(nuisance.mean) - BASELINE).max() < 5 * float(np.max(nuisance.std))
    rng = np.random.default_rng(1)
    theta = np.asarray(found.sample(jax.random.key(1), 40_000), np.float64)
    left = TARGET - theta @ DESIGN.T
    centre = left @ np.linalg.pinv(ALL).T
    half = 0.5 * np.square(left - centre @ ALL.T).sum(-1)
    level = 0.2 if noise == 0.2 else np.sqrt(half / rng.gamma(0.5 * (ROWS - 3), size=len(half)))[:, None]
    draws = centre + level * rng.normal(size=centre.shape) @ np.linalg.cholesky(np.linalg.inv(ALL.T @ ALL)).T
    # 512 kept draws of theta stand behind these: one standard error is std / sqrt(512).
    spread = draws.std(0)
    np.testing.assert_allclose(nuisance.mean, draws.mean(0), atol=4 * spread.max() / np.sqrt(512))
    np.testing.assert_allclose(nuisance.std, spread, rtol=4 / np.sqrt(2 * 512) * 1.5)
    own, weights = np.asarray(nuisance.draws), np.asarray(found.draw_weights)
    mean = weights @ own
    np.testing.assert_allclose(mean, nuisance.mean, atol=5 * spread.max() / np.sqrt(512))
    np.testing.assert_allclose(np.sqrt(weights @ np.square(own - mean)), nuisance.std, rtol=0.25)


def test_draws_given_theta_are_exact(known):
    """Standardised, what is left of each draw after its conditional mean is normal."""
    theta = np.asarray(known.draws, np.float64)
    centre = (TARGET - theta @ DESIGN.T) @ np.linalg.pinv(ALL).T
    factor = np.linalg.cholesky(ALL.T @ ALL) / 0.2
    z = (np.asarray(known.nuisance.draws) - centre) @ factor
    assert np.abs(z.mean(0)).max() < 4 / np.sqrt(len(z))
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(3), atol=5 * np.sqrt(2 / len(z)))


def test_predictions_include_them(known):
    curve = known.predict(DESIGN, nuisance=TREND)
    np.testing.assert_allclose(curve.mean, DESIGN @ known.mean + ALL @ known.nuisance.mean, rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(curve.mean) - TARGET).max() < 1
    each = np.asarray(known.draws) @ DESIGN.T + np.asarray(known.nuisance.draws) @ ALL.T
    weights = np.asarray(known.draw_weights)
    np.testing.assert_allclose(curve.std, np.sqrt(weights @ np.square(each - weights @ each)), rtol=1e-3)
    with pytest.raises(ValueError, match="nuisance has shape None; pass the"):
        known.predict(DESIGN)
    with pytest.raises(ValueError, match="had no nuisance"):
        balson.fit(KEY, balson.linear_problem(DESIGN, TARGET, noise=1.0), METHOD).predict(DESIGN, nuisance=TREND)


def test_table_file_and_batch(known, tmp_path):
    assert "intercept" in repr(known)
    assert "nuis.[1]" in repr(known)
    known.save(tmp_path / "found.npz")
    again = balson.Posterior.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(again.nuisance.draws, known.nuisance.draws)
    assert again.nuisance.intercept
    assert known.nuisance.draws.shape == (512, 3)


@pytest.mark.slow
def test_gaps_weights_and_the_stream():
    """A batch whose problems miss different rows equals fits one by one without them."""
    targets = np.stack([TARGET, TARGET + 0.1, TARGET])
    targets[0, 2] = targets[1, 7] = np.nan
    options = {"noise": 0.2, "nuisance": TREND, "intercept": True, "missing": "drop"}
    weights = np.linspace(0.5, 2, ROWS)
    problem = balson.linear_problem(DESIGN, targets, weights=weights, **options)
    found = balson.fit(KEY, problem, balson.TG(4096))
    assert (found.status == 0).all()
    stream = balson.fit_stream(KEY, problem, targets, balson.TG(4096), chunk=2, progress=False)
    np.testing.assert_allclose(stream.nuisance.mean, found.nuisance.mean, atol=0.02)
    for i, gap in ((0, 2), (1, 7)):
        kept = np.arange(ROWS) != gap
        own = {**options, "nuisance": TREND[kept], "weights": weights[kept]}
        alone = balson.fit(KEY, balson.linear_problem(DESIGN[kept], targets[i][kept], **own), balson.TG(4096))
        np.testing.assert_allclose(found.mean[i], alone.mean, atol=2e-3)
        np.testing.assert_allclose(found.nuisance.mean[i], alone.nuisance.mean, atol=5e-3)
        assert float(found.log_evidence[i]) == pytest.approx(float(alone.log_evidence), abs=0.02)


@pytest.mark.parametrize(
    "method", [balson.TG(1024), balson.RS(500, max_proposals=2_000_000), balson.HitAndRun(), balson.Variational(4096)]
)
@pytest.mark.slow
def test_every_method_tells_them(method, known):
    found = fitted(method=method, noise=0.2)
    error = 5 * float(np.max(known.nuisance.std)) / np.sqrt(400)
    np.testing.assert_allclose(found.nuisance.mean, known.nuisance.mean, atol=error)
    np.testing.assert_allclose(found.nuisance.std, known.nuisance.std, rtol=0.2)


@pytest.mark.slow
def test_inside_a_trace_and_derivatives(x64):
    """The evidence's derivative in a nuisance column agrees with a difference quotient."""

    def evidence(shift):
        problem = balson.linear_problem(
            DESIGN, TARGET, nuisance=TREND + shift * jnp.sin(jnp.arange(ROWS))[:, None], noise=0.2
        )
        return balson.fit(KEY, problem, balson.IS(1024)).log_evidence

    slope = float(jax.grad(evidence)(0.1))
    steps = [float(jax.jit(evidence)(0.1 + step)) for step in (-1e-5, 1e-5)]
    assert slope == pytest.approx((steps[1] - steps[0]) / 2e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nuisance": TREND[:5]}, r"nuisance has shape \(5, 2\); pass"),
        ({"nuisance": np.ones((ROWS, 1)), "intercept": True}, "2 columns .* of which 1 are independent"),
        ({"nuisance": RNG.normal(size=(ROWS, ROWS))}, "leave more rows than columns"),
        ({"nuisance": np.full((ROWS, 1), np.nan)}, "nuisance"),
        ({"intercept": 2}, "intercept"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        balson.linear_problem(DESIGN, TARGET, **options)


def test_columns_that_the_design_holds_are_told():
    with pytest.warns(UserWarning, match="1 of the 2 directions in which the design tells theta lie in the span"):
        balson.linear_problem(DESIGN, TARGET, nuisance=DESIGN[:, :1] - DESIGN[:, 1:2])
