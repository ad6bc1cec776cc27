"""The method that chooses: what it takes, whether its posteriors are calibrated, and NUTS beside it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import pixels, spectra, thinned
from scipy import stats

import balson_jax as balson
from balson_jax import dirichlet

KEY = jax.random.key(7)
Z = 4


@pytest.mark.slow
def test_weak_strong_and_hopeless_problems_in_one_batch():
    """Each gets its own status; one program serves them all."""
    rng = np.random.default_rng(0)
    design = spectra(rng, 40, 4)
    levels = np.array([3.0, 3.0, 0.003, 0.003, 0.5])
    theta = rng.dirichlet(np.ones(4), 5)
    targets = theta @ design.T + levels[:, None] * rng.normal(size=(5, 40))
    targets[4] += 1e7  # rounding in float32 is larger than the noise
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=levels))
    assert found.method[:4].tolist() == ["tg"] * 4
    assert (found.ess[:4] >= 400).all()
    assert (found.status[:4] == 0).all()
    assert balson.Status.ROUNDING in balson.Status(int(found.status[4]))
    assert found.batch_shape == (5,)
    assert found[2].method == "tg"
    # Rounding is beyond remedy: the first method that was tried stays.
    assert found.method[4] == "tg"


@pytest.mark.slow
def test_every_problem_gets_the_method_that_serves_it():
    """Thirty components: a flat prior is served by a proposal, a sparse one needs chains."""
    rng = np.random.default_rng(0)
    design = spectra(rng, 60, 30)
    targets = rng.dirichlet(np.full(30, 0.3), 2) @ design.T + 0.03 * rng.normal(size=(2, 60))
    prior = np.array([1.0, 0.3])[:, None] * np.ones(30)
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=0.03, prior=prior))
    assert found.method.tolist() == ["tg", "hit_and_run"]
    assert (found.ess >= 400).all()
    assert (found.status == 0).all()
    assert found[1].method == "hit_and_run"
    assert "hit_and_run: 1, tg: 1" in repr(found)


@thinned("num_rows", [], [6, 100])
def test_the_verdict_does_not_depend_on_the_key(num_rows):
    """Pixels of unknown noise, half of them pure, the others on edges and inside: method and status agree for 99 %."""
    rng = np.random.default_rng(3)
    design = spectra(rng, num_rows, 4)
    theta = rng.dirichlet(np.full(4, 0.3), 500)
    theta[::2] = np.eye(4)[rng.integers(0, 4, 250)]
    targets = theta @ design.T + 0.02 * rng.normal(size=(500, num_rows))
    fits = [balson.fit(jax.random.key(key), balson.linear_problem(design, targets)) for key in range(4)]
    verdicts = np.stack([np.char.add(fit.method, np.asarray(fit.status).astype(str)) for fit in fits])
    assert (verdicts == verdicts[0]).all(0).mean() > 0.99
    assert (np.stack([fit.pareto_k for fit in fits]) > 0.5).mean() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["estimate", 0.02])
def test_no_problem_of_twenty_components_with_a_flat_prior_needs_chains(noise):
    rng = np.random.default_rng(0)
    design = spectra(rng, 156, 20)
    targets = rng.dirichlet(np.ones(20), 64) @ design.T + 0.02 * rng.normal(size=(64, 156))
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=noise))
    assert set(found.method) == {"tg"}
    assert (found.status == 0).all()


@pytest.mark.parametrize("keep", [0, 512, 4096, 65_536])
def test_every_rung_keeps_the_same_number_of_draws(keep):
    rungs = balson.Auto(keep=keep).rungs(balson.linear_problem(np.eye(3), np.ones(3) / 3))
    assert {rung.method.name for rung in rungs[:-1]} == {"tg"}
    assert rungs[-1].method.name == "hit_and_run"
    assert {rung.method.keep for rung in rungs} == {keep}
    assert all(getattr(rung.method, "num_draws", keep) >= keep for rung in rungs)


@pytest.mark.slow
def test_problems_that_climb_keep_many_draws():
    """Problems of one batch that end on different rungs, with more kept draws than the first rungs used to draw."""
    rng = np.random.default_rng(0)
    design = spectra(rng, 40, 4)
    levels = np.array([3.0, 0.003])
    targets = rng.dirichlet(np.ones(4), 2) @ design.T + levels[:, None] * rng.normal(size=(2, 40))
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=levels), balson.Auto(keep=4096))
    assert found.method.tolist() == ["tg", "tg"]
    assert found.draws.shape == (2, 4096, 4)
    np.testing.assert_allclose(found.draw_weights.sum(-1), 1, rtol=1e-5)


@pytest.mark.slow
def test_a_target_that_was_not_reached_is_flagged(monkeypatch):
    monkeypatch.setattr("balson_jax.samplers.auto.MAX_MOVES", 64)
    problem, _ = pixels(0, 2, 40, 4, 0.01)
    found = balson.fit(KEY, problem, balson.Auto(target_ess=1e6))
    assert (found.ess < 1e6).all()
    assert all(balson.Status.BUDGET in balson.Status(int(status)) for status in found.status)
    with pytest.raises(balson.FitError, match="BUDGET"):
        found.raise_for_status()


@pytest.mark.slow
def test_auto_on_one_problem_of_a_batch_and_on_none():
    rng = np.random.default_rng(5)
    design = spectra(rng, 40, 4)
    targets = rng.dirichlet(np.ones(4), 3) @ design.T + 0.003 * rng.normal(size=(3, 40))
    found, alone, none = (
        balson.fit(KEY, balson.linear_problem(design, part, noise=0.003)) for part in (targets, targets[1], targets[:0])
    )
    assert alone.method == found.method[1] == "tg"
    np.testing.assert_allclose(alone.mean, found.mean[1], atol=4 * float(alone.std.max()) / np.sqrt(400))
    assert none.batch_shape == (0,)


@pytest.mark.slow
def test_auto_inside_a_trace_makes_a_fixed_choice():
    problem, _ = pixels(0, 3, 40, 4, 0.01)
    inside = jax.jit(lambda p: balson.fit(KEY, p))(problem)
    assert inside.method == "tg"
    np.testing.assert_allclose(inside.mean, balson.fit(KEY, problem, "tg").mean, rtol=1e-4)


@thinned("num_components,prior,walking", [], [(20, 0.3, 1), (40, 0.5, 2)])
def test_auto_walks_where_no_proposal_serves(num_components, prior, walking):
    """The second problem of 20 components is a limiting case: rounding decides whether half a million draws serve."""
    problem, theta = pixels(1, 2, 156, num_components, 0.01, prior=prior)
    found = balson.fit(KEY, problem)
    assert found.method.tolist()[:walking] == ["hit_and_run"] * walking
    found.raise_for_status()
    assert (found.rhat < 1.01).all()
    assert (found.ess >= 400).all()
    # The truth is one draw of each posterior.
    assert (np.abs(found.mean - theta) < 6 * np.asarray(found.std)).all()
    with pytest.raises(ValueError, match="was fitted by a method that doesn't tell the evidence"):
        balson.compare({"walked": found[np.flatnonzero(found.method == "hit_and_run")]})


@pytest.mark.slow
def test_misfit_of_the_dirichlet():
    """One where the posterior is a Dirichlet; large where components are correlated."""
    flat = balson.linear_problem(np.zeros((2, 3)), np.zeros(2), noise=1.0, prior=(1.0, 2.0, 4.0))
    assert float(balson.fit(KEY, flat).dirichlet_misfit) == pytest.approx(1, abs=0.02)
    correlated, _ = pixels(3, 1, 100, 4, 0.01)
    found = balson.fit(KEY, correlated)
    variance = np.asarray(dirichlet.variance(found.alpha))
    ratio = variance / np.square(found.std)
    assert float(found.dirichlet_misfit[0]) == pytest.approx(float(np.maximum(ratio, 1 / ratio).max()), rel=1e-3)
    assert found.dirichlet_misfit[0] > 2


# --- calibration -----------------------------------------------------------------------------------------------------


@thinned("num_components", [], [5, 20])
def test_calibration_of_auto(num_components):
    """Theta from the prior, data from theta: ranks are uniform and 90 % intervals cover 90 %."""
    problem, theta = pixels(11, 1000, 60, num_components, 0.03)
    found = balson.fit(jax.random.key(3), problem)
    assert (found.status == 0).mean() > 0.99
    lower, upper = found.interval(0.9)
    covered = ((theta >= lower) & (theta <= upper)).mean()
    assert 0.87 < covered < 0.93
    ranks = (np.asarray(found.draw_weights)[..., None] * (np.asarray(found.draws) < theta[:, None])).sum(1)
    for component in range(num_components):
        counts = np.histogram(ranks[:, component], np.linspace(0, 1, 11))[0]
        assert stats.chisquare(counts).pvalue > 1e-3 / num_components, component


@pytest.mark.slow
def test_against_nuts():
    """NumPyro's NUTS on collinear columns, for a prior below and above one.

    In normal variables, ``2 prior`` for each component, whose sums of squares are gamma variables: there a prior below
    one has no corners in which NUTS gets lost.
    """
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions, infer
    from numpyro.diagnostics import summary

    for num_components, prior in ((5, 0.5), (5, 2.0), (20, 0.5)):
        problem, _ = pixels(21, 1, 80, num_components, 0.03, prior=prior)
        rng = np.random.default_rng(21)
        design = spectra(rng, 80, num_components)
        target = rng.dirichlet(np.ones(num_components), 1) @ design.T + 0.03 * rng.normal(size=(1, 80))

        def model(design=design, target=target, prior=prior):
            shape = (design.shape[1], round(2 * prior))
            normal = numpyro.sample("normal", distributions.Normal(0, 1).expand(shape).to_event(2))
            gamma = jnp.square(normal).sum(-1)
            theta = numpyro.deterministic("theta", gamma / gamma.sum())
            numpyro.sample("y", distributions.Normal(jnp.asarray(design) @ theta, 0.03), obs=target[0])

        with jax.enable_x64(True):
            kernel = infer.NUTS(model, target_accept_prob=0.95)
            options = {"num_chains": 4, "chain_method": "vectorized", "progress_bar": False}
            mcmc = infer.MCMC(kernel, num_warmup=2000, num_samples=10_000, **options)
            mcmc.run(jax.random.key(0))
            theta = np.asarray(mcmc.get_samples(group_by_chain=True)["theta"])
            squares = np.square(theta - theta.mean((0, 1)))
            first, second = (summary({"x": x})["x"] for x in (theta, squares))
        assert (first["r_hat"] < 1.01).all()
        assert (second["r_hat"] < 1.01).all()
        found = balson.fit(KEY, problem)
        found.raise_for_status()
        ess = float(found.ess[0])
        error = first["std"] * np.sqrt(1 / first["n_eff"] + 1 / ess)
        np.testing.assert_array_less(np.abs(np.asarray(found.mean[0]) - first["mean"]), Z * error)
        error = second["std"] * np.sqrt(1 / second["n_eff"] + 1 / ess)
        np.testing.assert_array_less(np.abs(np.square(found.std[0]) - second["mean"]), Z * error)


def parabola(theta, _):
    return jnp.stack([(theta[0] - 0.5) ** 2, 0 * theta[0]])


@pytest.mark.slow
def test_a_gaussian_that_sees_one_of_two_peaks_says_so():
    """Thousands of effective draws about one peak; only the searches for the optimum know of the other."""
    targets = jnp.array([0.04, 0.0]) + 4e-6 * jax.random.normal(KEY, (24, 2))
    found = [
        balson.fit(jax.random.key(i), balson.model_problem(parabola, None, target, 2, noise=4e-5), balson.TG(4096))
        for i, target in enumerate(targets)
    ]
    one_sided = [fit for fit in found if fit.ess > 1000]
    assert len(one_sided) >= 4
    assert all(int(fit.status) & balson.Status.HIGH_PARETO_K for fit in one_sided)
    single = balson.model_problem(lambda theta, _: theta, None, jnp.array([0.3, 0.7]), 2, noise=4e-4)
    assert int(balson.fit(KEY, single, balson.TG(4096)).status) == 0


@pytest.mark.slow
def test_auto_sees_both_peaks_of_a_model():
    """Where a Gaussian at the optimum would see one of them."""
    problem = balson.model_problem(parabola, None, jnp.array([0.04, 0.0]), 2, noise=4e-4)
    found = balson.fit(KEY, problem)
    found.raise_for_status()
    assert found.method != "tg"
    assert float(found.mean[0]) == pytest.approx(0.5, abs=0.03)
    assert float(found.std[0]) == pytest.approx(0.2, abs=0.01)
