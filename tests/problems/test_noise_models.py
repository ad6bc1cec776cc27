"""One contract for every noise model, those of the package and one written outside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from examples.two_levels import TwoLevels
from scipy import special

import balson_jax as balson
from balson_jax.problems.noise import Known
from balson_jax.targets import functions as density

KEY = jax.random.key(4)
MODELS = {
    "known": Known(0.4),
    "scale-invariant": balson.InverseGamma(),
    "inverse gamma": balson.InverseGamma(2.0, 0.3),
    "two levels": TwoLevels(0.2, 0.9),
}
every_model = pytest.mark.parametrize("name", MODELS)
DESIGN = np.array([[1.0, 0.1], [0.2, 0.9], [0.5, 0.6], [0.9, -0.3], [0.4, 0.4]])
TARGETS = DESIGN @ [0.3, 0.7] + 0.4 * np.random.default_rng(1).normal(size=(2, 5))
METHOD = balson.IS(num_draws=1 << 14)


def problem(name: str, target=TARGETS):
    return balson.linear_problem(DESIGN, target, noise=MODELS[name], prior=(0.8, 1.5))


@every_model
def test_ratios_are_differences_of_log_likelihoods(name, x64):
    noise = MODELS[name]
    num_rows, base, excess = jnp.array(7.0), jnp.array(0.8), jnp.array([1e-9, 0.1, 2.0, 300.0])
    expected = noise.log_likelihood(num_rows, base + excess) - noise.log_likelihood(num_rows, base)
    np.testing.assert_allclose(noise.log_ratio(num_rows, base, excess), expected, atol=1e-9)
    np.testing.assert_allclose(noise.far_log_ratio(num_rows, base, base + excess), expected, atol=1e-9)
    assert (jnp.diff(noise.log_ratio(num_rows, base, excess)) < 0).all()
    assert float(noise.likeliest_level(num_rows, base)) > 0


@thinned("name", ["two levels"], ["known", "inverse gamma", "scale-invariant"])
def test_the_posterior_agrees_with_a_grid(name):
    """Two components: the posterior of the first on a fine grid, from the public density in float64."""
    found = balson.fit(KEY, problem(name), METHOD)
    assert (found.status == 0).all()
    first = (np.arange(1 << 14) + 0.5) / (1 << 14)
    with jax.enable_x64(True):
        omega = np.stack([first, 1 - first], -1)[:, None]
        logs = np.asarray(density.log_posterior(problem(name), omega)) - np.log(len(first))
    evidence = special.logsumexp(logs, axis=0)
    p = np.exp(logs - evidence)
    mean = first @ p
    std = np.sqrt(np.square(first) @ p - mean**2)
    error = std / np.sqrt(np.asarray(found.ess))
    np.testing.assert_array_less(np.abs(found.mean[:, 0] - mean), 4 * error)
    np.testing.assert_array_less(np.abs(found.std[:, 0] - std), 4 * error)
    np.testing.assert_array_less(np.abs(found.log_evidence - evidence), 4 / np.sqrt(np.asarray(found.ess)))
    assert (found.noise is not None) == MODELS[name].estimates_level


@thinned("name", ["two levels"], ["known", "scale-invariant", "inverse gamma"])
def test_a_batch_equals_a_loop(name):
    batch = balson.fit(KEY, problem(name), METHOD)
    one = balson.fit(KEY, problem(name, TARGETS[1]), METHOD)
    for field in ("mean", "std", "log_evidence", "ess"):
        np.testing.assert_allclose(getattr(batch, field)[1], getattr(one, field), rtol=2e-4, err_msg=field)


@thinned("name", ["two levels"], ["known", "inverse gamma", "scale-invariant"])
def test_bad_numbers_are_named_and_end_in_a_status_inside_a_trace(name):
    bad = jax.tree.map(lambda leaf: -1.0, MODELS[name])
    with pytest.raises(ValueError, match=r"noise\.\w+ is -1\.0"):
        balson.linear_problem(DESIGN, TARGETS, noise=bad)
    traced = jax.jit(lambda noise: balson.linear_problem(DESIGN, TARGETS, noise=noise))
    found = balson.fit(KEY, traced(jax.tree.map(jnp.asarray, bad)), METHOD)
    assert (found.status == balson.Status.NONFINITE).all()
    assert jnp.isnan(found.mean).all()


@every_model
def test_posteriors_are_saved_and_streamed(name, tmp_path):
    whole = balson.fit(KEY, problem(name), METHOD)
    whole.save(tmp_path / "posterior.npz")
    assert repr(balson.Posterior.load(tmp_path / "posterior.npz")) == repr(whole)
    streamed = balson.fit_stream(KEY, problem(name), TARGETS, METHOD, chunk=2, progress=False)
    np.testing.assert_allclose(streamed.mean, whole.mean, rtol=1e-5)


class Hidden(balson.InverseGamma):
    """A mixture of precisions whose level nobody asks for."""

    estimates_level = False


jax.tree_util.register_dataclass(Hidden, ["shape", "scale"], [])


def test_chains_draw_precisions_whether_or_not_the_level_is_estimated():
    method = balson.HitAndRun(target_ess=100.0, keep=128)
    plain, hidden = (
        balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=noise, prior=(0.8, 1.5)), method)
        for noise in (balson.InverseGamma(2.0, 0.3), Hidden(2.0, 0.3))
    )
    assert hidden.noise is None
    error = plain.std * np.sqrt(1 / plain.ess + 1 / hidden.ess)[:, None]
    np.testing.assert_array_less(np.abs(hidden.mean - plain.mean), 4.5 * error)
    np.testing.assert_array_less(np.abs(hidden.std - plain.std), 4.5 * error)


@thinned("name", [], list(MODELS))
def test_proposals_and_chains_agree(name):
    """Weighted draws of a truncated Gaussian, chains, and the default."""
    found = [balson.fit(KEY, problem(name), method) for method in ("is", "tg", "hit_and_run", "auto")]
    for other in found[1:]:
        error = found[0].std * np.sqrt(1 / found[0].ess + 1 / other.ess)[:, None]
        np.testing.assert_array_less(np.abs(other.mean - found[0].mean), 4.5 * error)
        np.testing.assert_array_less(np.abs(other.std - found[0].std), 4.5 * error)
