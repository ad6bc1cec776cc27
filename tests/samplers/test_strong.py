"""Samplers for strong data: truncated Gaussian, hit-and-run, variational, and the method that chooses among them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, TARGETS, pixels, spectra, thinned
from quadrature import posterior as exact_posterior
from scipy import stats

import balson_jax as balson
from balson_jax import dirichlet
from balson_jax.proposals import DirichletProposal
from balson_jax.random.points import GENERATORS, coordinates
from balson_jax.samplers.variational import bound
from balson_jax.targets import Optimum, target_of
from balson_jax.targets.optimum import simplex_optima
from balson_jax.weighting import moments
from balson_jax.weighting.convergence import judge

KEY = jax.random.key(7)
Z = 4
METHODS = {
    "tg": balson.TG(num_draws=65_536, points="pseudo"),
    "hit_and_run": balson.HitAndRun(target_ess=4000.0),
    "variational": balson.Variational(num_draws=262_144),
}
PRIORS = (0.3, 1.0, 5.0)


# --- against quadrature ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "num_components"),
    [
        ("tg", 3),
        pytest.param("hit_and_run", 3, marks=pytest.mark.slow),
        pytest.param("variational", 3, marks=pytest.mark.slow),
        pytest.param("tg", 2, marks=pytest.mark.slow),
        pytest.param("hit_and_run", 2, marks=pytest.mark.slow),
        pytest.param("variational", 2, marks=pytest.mark.slow),
    ],
)
def test_against_quadrature(name, num_components):
    """Asymmetric problems, weak and strong, for priors with poles, flat, and peaked."""
    rng = np.random.default_rng(num_components)
    design = rng.normal(size=(6, num_components)) + np.arange(num_components)
    truth = rng.dirichlet(0.5 + np.arange(num_components))
    grid = [(prior * np.linspace(0.8, 1.2, num_components), noise) for prior in PRIORS for noise in (0.1, 1.0)]
    grid += [(np.ones(num_components), 0.3)]
    targets = np.stack([1.5 * design @ truth + noise * rng.normal(size=6) for _, noise in grid])
    problem = balson.linear_problem(
        design,
        targets,
        noise=np.array([noise for _, noise in grid]),
        prior=np.stack([prior for prior, _ in grid]),
        total=1.5,
    )
    found = balson.fit(KEY, problem, METHODS[name])
    assert not np.isnan(found.mean).any()
    trusted = np.asarray(found.status) == 0
    assert trusted.all() if name != "variational" else trusted.sum() >= 3
    for i, (prior, noise) in enumerate(grid):
        if not trusted[i]:
            continue
        exact = exact_posterior(design, targets[i], prior, noise=noise, total=1.5)
        error = np.sqrt(exact.variance / float(found.ess[i]))
        np.testing.assert_array_less(np.abs(found.mean[i] / 1.5 - exact.mean), Z * error + 1e-6)
        spread = exact.rs_variance_error / np.sqrt(float(found.ess[i]))
        np.testing.assert_array_less(np.abs((found.std[i] / 1.5) ** 2 - exact.variance), Z * spread + 1e-6)
        if name == "hit_and_run":
            assert np.isnan(found.log_evidence[i])
            # Kept draws are equally likely, and as good as so many independent ones of the chains, at most.
            np.testing.assert_allclose(found.draw_weights[i], 1 / 512, rtol=1e-5)
            kept = np.asarray(found.draws[i], np.float64).mean(0) / 1.5
            worth = min(512, float(found.ess[i]))
            np.testing.assert_array_less(np.abs(kept - exact.mean), Z * np.sqrt(exact.variance / worth) + 1e-6)
        else:
            tolerance = Z / np.sqrt(float(found.ess[i])) + float(found.log_evidence_stderr[i])
            assert abs(float(found.log_evidence[i]) - exact.log_evidence) < tolerance


@pytest.mark.slow
def test_a_tail_without_weight_is_no_alarm():
    """Nearly equal weights, the largest of which look like a heavy tail, and a bound that tells that they are none."""
    design, prior = np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([0.05, 0.9])
    target = design @ [0.2, 0.8]
    found = balson.fit(KEY, balson.linear_problem(design, target, noise=1.0, prior=prior), balson.TG(points="pseudo"))
    exact = exact_posterior(design, target, prior, noise=1.0)
    assert found.status == 0
    assert found.ess > 0.9 * 16_384
    assert found.pareto_k <= 0
    np.testing.assert_array_less(np.abs(found.mean - exact.mean), Z * np.sqrt(exact.variance / float(found.ess)))


@thinned("walls,num_components", [], [("soft", 3), ("hard", 3), ("hard", 2), ("soft", 2), ("rates", 3), ("rates", 2)])
def test_bounces_against_quadrature(walls, num_components):
    """Walkers that fly off walls: hard ones for a uniform prior, soft ones for peaked ones; rates for sparse ones."""
    rng = np.random.default_rng(10 + num_components)
    design = rng.normal(size=(6, num_components)) + np.arange(num_components)
    truth = rng.dirichlet(0.5 + np.arange(num_components))
    peaked = [np.linspace(1, 6, num_components), np.linspace(2.5, 1, num_components)]
    sparse = [np.linspace(0.1, 0.9, num_components), np.linspace(1, 0.05, num_components)]
    priors = {"hard": [], "soft": peaked, "rates": sparse}[walls] + [np.ones(num_components)]
    grid = [(prior, noise) for prior in priors for noise in (0.1, 0.4, 2.0)]
    targets = np.stack([design @ truth + noise * rng.normal(size=6) for _, noise in grid])
    noise, prior = np.array([noise for _, noise in grid]), np.stack([prior for prior, _ in grid])
    problem = balson.linear_problem(design, targets, noise=noise, prior=prior)
    found = balson.fit(KEY, problem, balson.HitAndRun(target_ess=4000.0, walls=walls))
    assert (found.status == 0).all()
    for i in range(len(grid)):
        exact = exact_posterior(design, targets[i], prior[i], noise=noise[i])
        worth = np.sqrt(float(found.ess[i]))
        np.testing.assert_array_less(np.abs(found.mean[i] - exact.mean), Z * np.sqrt(exact.variance) / worth)
        np.testing.assert_array_less(
            np.abs(found.std[i] ** 2 - exact.variance), Z * exact.rs_variance_error / worth + 1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize("prior", [0.4, 1.0, 2.5])
def test_bounces_agree_with_straight_lines(prior):
    """Twenty components, unknown noise, and what is left of the sum: flights beside slices along lines."""
    rng = np.random.default_rng(6)
    design = spectra(rng, 40, 19)
    target = 0.8 * design @ rng.dirichlet(np.ones(19)) + 0.03 * rng.normal(size=40)
    problem = balson.linear_problem(design, target, constraint="at_most", prior=prior)
    flown, walked = (
        balson.fit(KEY, problem, balson.HitAndRun(target_ess=3000.0, walls=walls)) for walls in (None, "none")
    )
    assert flown.status == walked.status == 0
    error = walked.std * np.sqrt(1 / flown.ess + 1 / walked.ess)
    np.testing.assert_array_less(np.abs(flown.mean - walked.mean), Z * error)
    # A standard deviation is known as well as that of an exponential distribution, at worst.
    np.testing.assert_array_less(np.abs(flown.std - walked.std), Z * np.sqrt(2) * error)
    assert float(flown.noise.mean) == pytest.approx(float(walked.noise.mean), rel=0.02)
    assert float(flown.slack.mean) == pytest.approx(float(walked.slack.mean), abs=Z * 2 * float(error.max()))


@pytest.mark.slow
def test_walls_that_do_not_suit_the_prior_are_flagged():
    """Inside a trace, where the prior's value isn't known beforehand."""

    def status(prior):
        problem = balson.linear_problem(np.eye(3), np.ones(3) / 3, noise=0.3, prior=prior)
        return balson.fit(KEY, problem, balson.HitAndRun(target_ess=1.0, keep=64, walls="soft")).status

    found = jax.jit(jax.vmap(status))(jnp.array([[1.0, 2.0, 3.0], [0.5, 2.0, 3.0]]))
    assert balson.Status.NONFINITE not in balson.Status(int(found[0]))
    assert balson.Status.NONFINITE in balson.Status(int(found[1]))


@thinned("walls", [], ["none", "soft"])
def test_kept_draws_of_chains_fill_all_slots_and_stand_for_the_posterior(walls):
    """Many more draws than walkers, so that slots are filled by records at different times."""
    design, target, prior = np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([0.4, 0.9]), (1.5, 1.2)
    problem = balson.linear_problem(design, target, noise=0.4, prior=prior)
    # So few moves that only the slots make the rounds go on.
    method = balson.HitAndRun(walkers=8, keep=4096, max_moves=1, walls=walls)
    found = balson.fit(KEY, problem, method)
    assert found.draws.shape == (4096, 2)
    np.testing.assert_allclose(found.draw_weights, 1 / 4096, rtol=1e-6)
    x = (np.arange(1 << 16) + 0.5) / (1 << 16)
    omega = np.stack([x, 1 - x], -1)
    log_density = -np.square(target - omega @ design.T).sum(-1) / (2 * 0.4**2) + np.log(omega) @ (np.array(prior) - 1)
    below = np.cumsum(np.exp(log_density - log_density.max()))
    ranks = np.interp(np.asarray(found.draws[:, 0]), x, below / below[-1])
    assert (np.abs(np.diff(np.sort(ranks))) > 0).mean() > 0.99
    # Kept draws are worth fewer independent ones than their number: as many as the chains say, at most.
    worth = min(4096, float(found.ess))
    for probability in (0.1, 0.3, 0.5, 0.8):
        error = np.sqrt(probability * (1 - probability) / worth)
        assert abs((ranks < probability).mean() - probability) < Z * error
    assert abs(float(found.draws[:, 0].mean() - found.mean[0])) < Z * float(found.std[0]) / np.sqrt(worth)


def test_walkers_do_not_follow_the_kept_draws():
    assert {balson.HitAndRun(keep=keep).num_walkers(4) for keep in (0, 512, 65_536)} == {16}
    assert balson.HitAndRun().num_walkers(40) > 20


def test_verdicts_on_chains_that_are_known():
    """Independent draws; draws that are repeated; a chain elsewhere; a chain that is wider than the others."""
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(4, 8, 256))
    repeated = np.repeat(rng.normal(size=(4, 8, 64)), 4, axis=-1)
    shifted, wide = draws.copy(), draws.copy()
    shifted[3] += 2
    wide[3] *= 3

    def summary(batch):
        return moments.summarise(jnp.zeros((1, 256)), {"omega": batch}, jnp.asarray(256), None, moments.Sizes(0, 0))

    @jax.jit
    def verdict(chains):
        batches = jnp.asarray(chains, jnp.float32).reshape(32, 1, 1, 256)
        return judge(jax.vmap(summary)(batches), num_chains=4)

    found = verdict(draws)
    # The largest of four estimates of the error, from 3 to 31 degrees of freedom, is on the safe side.
    assert 8192 / 5 < float(found.ess[0]) <= 8192
    assert float(found.rhat[0]) < 1.01
    found = verdict(repeated)
    assert 2048 / 5 < float(found.ess[0]) < 2048 * 2
    np.testing.assert_allclose(found.mean_stderr["omega"], np.sqrt(repeated.var() / found.ess)[:, None], rtol=1e-3)
    assert float(verdict(shifted).rhat[0]) > 1.3
    assert float(verdict(wide).rhat[0]) > 1.1


@pytest.mark.slow
def test_intervals_of_chains_against_the_exact_distribution_function():
    """Kept draws of two components, by the probability below the interval's ends."""
    design, target = np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([0.4, 0.9])
    problem = balson.linear_problem(design, target, noise=0.4, prior=(0.6, 1.4))
    found = balson.fit(KEY, problem, balson.HitAndRun(target_ess=20_000.0, keep=4096))
    x = (np.arange(1 << 16) + 0.5) / (1 << 16)
    omega = np.stack([x, 1 - x], -1)
    log_density = -np.square(target - omega @ design.T).sum(-1) / (2 * 0.4**2) + np.log(omega) @ [-0.4, 0.4]
    mass = np.exp(log_density - log_density.max())
    for end, probability in zip(found.interval(0.8), (0.1, 0.9), strict=True):
        below = mass[x < float(end[0])].sum() / mass.sum()
        assert abs(below - probability) < Z * np.sqrt(0.1 * 0.9 / 4096) + 1e-3


@thinned("name", [], ["hit_and_run", "tg", "variational"])
def test_extreme_priors_against_quadrature(name):
    """Poles that hold nearly all of the mass below the smallest float, and priors stronger than the data."""
    design = np.array([[1, 0.2], [0.3, 1], [0.5, -0.4]])
    cases = [
        ((0.01, 1000.0), 1e4, 0.003),
        ((0.01, 0.01), 0.3, 0.003),
        ((0.05, 0.9), 1e4, 0.003),
        ((1000.0, 1000.0), 1e4, 0.3),
        ((1000.0, 1000.0), 0.01, 0.3),
        ((1.0, 1.0), 0.01, 0.3),
    ]
    targets = np.stack([design @ [first, 1 - first] for _, _, first in cases])
    noise, prior = np.array([case[1] for case in cases]), np.stack([case[0] for case in cases])
    method = METHODS[name] if name == "hit_and_run" else name
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=noise, prior=prior), method)
    assert (found.status == 0).all()
    for i in range(len(cases)):
        exact = exact_posterior(design, targets[i], prior[i], noise=noise[i])
        std = np.sqrt(exact.variance[0])
        assert float(found.mean[i, 0]) == pytest.approx(exact.mean[0], abs=Z * std / np.sqrt(float(found.ess[i])))
        spread = exact.rs_variance_error[0] / np.sqrt(float(found.ess[i]))
        assert abs(float(found.std[i, 0]) ** 2 - exact.variance[0]) < Z * spread + 1e-9


@pytest.mark.slow
def test_densities_of_concentrated_dirichlets_keep_their_digits():
    """In float32, where the logarithms of gamma functions alone are off by several nats."""
    for alpha in ([4e5, 2.8e6], [50.0, 1e7, 3.0], [1e3, 2e3, 0.5], [0.3, 0.8], [1.0, 1.0, 1.0]):
        alpha = jnp.array(alpha)
        points = coordinates(GENERATORS["sobol"], KEY, 1024, start=0, dtype=alpha.dtype)
        log_omega, found = DirichletProposal(alpha).draw(points)
        omega = np.exp(np.asarray(log_omega, np.float64))
        exact = stats.dirichlet(np.asarray(alpha, np.float64)).logpdf(omega / omega.sum(0))
        np.testing.assert_allclose(found, exact, atol=2e-3)


# --- the hard cases --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_columns_than_rows_and_duplicated_columns():
    """N = 60, K = 200, each column twice: chains agree, and so do the marginals of equal columns."""
    rng = np.random.default_rng(0)
    half = spectra(rng, 60, 100)
    design = np.concatenate([half, half], 1)
    target = design @ rng.dirichlet(np.full(200, 0.3)) + 0.01 * rng.normal(size=60)
    found = balson.fit(KEY, balson.linear_problem(design, target, noise=0.01), balson.HitAndRun(target_ess=400.0))
    found.raise_for_status()
    assert found.rhat < 1.01
    difference = np.asarray(found.mean[:100] - found.mean[100:])
    error = np.hypot(found.mean_stderr[:100], found.mean_stderr[100:])
    # Standard errors have about seven degrees of freedom: 8 of them in 100 pairs is a false alarm once in a hundred.
    np.testing.assert_array_less(np.abs(difference), 8 * error)
    np.testing.assert_allclose(found.std[:100], found.std[100:], rtol=0.5)


@pytest.mark.slow
def test_chains_keep_the_digits_of_a_component_close_to_one():
    """In float32, against float64: sums of many numbers close to one would be off by more than the spread."""
    rng = np.random.default_rng(5)
    design = rng.normal(size=(4, 6))
    design[:, 4], design[:, 1] = 0, design[:, 0]
    target = 10 * rng.normal(size=4)
    options = {"noise": 1e-3, "prior": (1, 1, 8, 1, 1.5, 3)}
    method = balson.HitAndRun(target_ess=3000.0)
    short = balson.fit(KEY, balson.linear_problem(design, target, **options), method)
    with jax.enable_x64(True):
        long = balson.fit(KEY, balson.linear_problem(design, target, **options), method)
    assert short.mean.dtype == jnp.float32
    assert short.status == long.status == 0
    mean, std = np.asarray(long.mean), np.asarray(long.std)
    assert 1e-7 < 1 - mean.max() < 1e-4
    error = Z * std * np.sqrt(1 / float(short.ess) + 1 / float(long.ess))
    ulp = np.finfo(np.float32).eps * mean
    np.testing.assert_array_less(np.abs(np.asarray(short.mean) - mean), error + ulp)
    np.testing.assert_array_less(np.abs(np.asarray(short.std) - std), np.sqrt(2) * error + ulp)


@pytest.mark.slow
def test_walkers_come_in_from_afar(x64):
    """Three rows that are known to a millionth: most starting places are thousands of standard deviations away."""
    rng = np.random.default_rng(5)
    design = rng.normal(size=(3, 6))
    problem = balson.linear_problem(design, design @ [0.05, 0.1, 0.15, 0.2, 0.25, 0.25], noise=1e-6, prior=2.0)
    found = balson.fit(KEY, problem, balson.HitAndRun(max_moves=1 << 14))
    assert found.status == 0
    # As wide as the plane of perfect fits is, whatever the noise.
    louder = balson.linear_problem(design, design @ [0.05, 0.1, 0.15, 0.2, 0.25, 0.25], noise=1e-3, prior=2.0)
    other = balson.fit(KEY, louder, balson.HitAndRun(max_moves=1 << 14))
    error = Z * np.sqrt(1 / float(found.ess) + 1 / float(other.ess))
    np.testing.assert_allclose(found.std, other.std, rtol=error)


@thinned("noise", [], [1e-4, 1e-2, 1.0, 1e2, 1e4])
def test_any_noise_and_targets_far_outside_the_cone(noise):
    """No NaN, no exception, a mean on the simplex; what can't be trusted is flagged."""
    rng = np.random.default_rng(1)
    design = spectra(rng, 30, 4)
    inside = design @ [0.1, 0.2, 0.3, 0.4]
    targets = np.stack([inside + noise * rng.normal(size=30), inside + 50, -20 * inside, inside + 1e4])
    problem = balson.linear_problem(design, targets, noise=noise)
    found = balson.fit(KEY, problem)
    for field in ("mean", "std", "theta", "alpha", "ess", "draws", "dirichlet_misfit"):
        assert np.isfinite(getattr(found, field)).all(), field
    np.testing.assert_allclose(found.mean.sum(-1), 1, atol=1e-4)
    optimum = np.asarray(balson.least_squares(problem).theta)
    ok = np.asarray(found.status) == 0
    assert ok[0]
    assert (np.asarray(found.ess)[ok] >= 400).all()
    if noise <= 1e-2:
        # Little noise: the posterior is at the optimum, within a few of its standard deviations and the float's digits.
        away = np.abs(found.mean - optimum)
        assert (away <= 6 * np.asarray(found.std) + 1e-4)[ok].all()


@pytest.mark.slow
def test_chains_agree_with_the_truncated_gaussian_where_both_serve():
    """Unknown noise and a constraint that lifts: two methods that share no code but the density."""
    rng = np.random.default_rng(4)
    design = spectra(rng, 25, 3)
    target = 0.8 * design @ [0.5, 0.1, 0.4] + 0.02 * rng.normal(size=25)
    problem = balson.linear_problem(design, target, constraint="at_most", prior=(0.7, 1.0, 2.0))
    gaussian = balson.fit(KEY, problem, balson.TG(num_draws=65_536))
    chains = balson.fit(KEY, problem, balson.HitAndRun(target_ess=6000.0))
    assert gaussian.status == chains.status == 0
    error = gaussian.std * np.sqrt(1 / gaussian.ess + 1 / chains.ess)
    np.testing.assert_array_less(np.abs(gaussian.mean - chains.mean), Z * error)
    np.testing.assert_allclose(gaussian.std, chains.std, rtol=Z / np.sqrt(float(chains.ess)))
    assert float(gaussian.noise.mean) == pytest.approx(float(chains.noise.mean), rel=0.02)
    assert float(gaussian.slack.mean) == pytest.approx(float(chains.slack.mean), abs=Z * float(error.max()) * 2)


def exponential(theta, inputs):
    return jnp.exp(inputs @ theta) - 1


@thinned("name", [], ["tg", "hit_and_run", "variational"])
def test_models_that_are_not_linear(name):
    """A model against plain importance sampling with many draws."""
    rng = np.random.default_rng(5)
    inputs = jnp.asarray(rng.uniform(size=(20, 3)), jnp.float32)
    target = exponential(jnp.array([0.2, 0.5, 0.3]), inputs) + 0.05 * rng.normal(size=20)
    problem = balson.model_problem(exponential, inputs, target, 3, noise=0.05, prior=(0.8, 1.0, 1.5))
    exact = balson.fit(KEY, problem, balson.IS(num_draws=1 << 20))
    method = {
        "tg": balson.TG(),
        "hit_and_run": balson.HitAndRun(target_ess=2000.0),
        "variational": balson.Variational(num_draws=65_536),
    }[name]
    found = balson.fit(KEY, problem, method)
    assert found.status == 0
    assert found.ess > 1000
    if name != "hit_and_run":
        # Quasi-random points are worth more than their number, also if an eighth of them is for the prior.
        assert (found.mean_stderr < 0.5 * found.std / np.sqrt(found.ess)).all()
    error = exact.std * np.sqrt(1 / found.ess + 1 / exact.ess)
    np.testing.assert_array_less(np.abs(found.mean - exact.mean), Z * error)
    np.testing.assert_allclose(found.std, exact.std, rtol=Z / np.sqrt(float(found.ess)))


# --- variational -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_variational_draws_of_one_problem_against_quadrature():
    prior = np.array([0.8, 1.0, 1.5])
    problem = balson.linear_problem(DESIGN, TARGETS[0], noise=0.7, prior=prior)
    found = balson.fit(KEY, problem, balson.Variational(num_draws=8192))
    exact = exact_posterior(DESIGN, TARGETS[0], prior, noise=0.7)
    assert found.status == 0
    assert found.ess > 1000
    root = np.sqrt(float(found.ess))
    np.testing.assert_array_less(np.abs(found.mean - exact.mean), Z * np.sqrt(exact.variance) / root)
    np.testing.assert_array_less(np.abs(found.std**2 - exact.variance), Z * exact.rs_variance_error / root)
    assert abs(float(found.log_evidence) - exact.log_evidence) < Z / root
    # The closest Dirichlet is no worse than the prior, and close to the posterior's mean.
    np.testing.assert_allclose(dirichlet.mean(found.alpha), exact.mean, atol=0.5 * np.sqrt(exact.variance.max()))


@pytest.mark.slow
def test_the_variational_bound_and_its_maximum():
    """The closed form against draws of the Dirichlet; below the evidence; stationary at the answer."""
    problem, _ = pixels(0, 4, 12, 4, 0.3, prior=(0.7, 1.0, 1.5, 2.0))
    density = target_of(problem.flatten_batch(), Optimum(simplex_optima(problem), None))
    alpha = jnp.array([2.0, 0.5, 7.0, 3.0]) * jnp.ones((4, 1))
    draws = balson.random.dirichlet(KEY, alpha[0], (200_000,))
    terms = density.log_ratio(draws.T)
    error = Z * np.asarray(terms.std(-1)) / np.sqrt(draws.shape[0])
    expected = terms.mean(-1) - dirichlet.kl_divergence(alpha, density.prior)
    np.testing.assert_array_less(np.abs(bound(density, jnp.log(alpha)) - expected), error + 1e-4)
    found = balson.fit(KEY, problem, "variational")
    best = bound(density, jnp.log(found.alpha))
    evidence = found.log_evidence - density.log_peak
    np.testing.assert_array_less(best, evidence + Z * found.log_evidence_stderr + 1e-3)
    slope = jax.grad(lambda x: bound(density, x).sum())(jnp.log(found.alpha))
    assert float(jnp.abs(slope).max()) < 5e-3
    for seed in range(20):
        other = found.alpha * jnp.exp(0.3 * jax.random.normal(jax.random.key(seed), found.alpha.shape))
        assert (bound(density, jnp.log(other)) <= best + 1e-4).all()


@pytest.mark.slow
def test_derivatives_of_the_strong_methods(x64):
    """Of the mean by TG against differences of long runs; of the closest alpha against differences, exactly."""
    rng = np.random.default_rng(2)
    design = spectra(rng, 20, 3)
    target = jnp.asarray(design @ [0.3, 0.5, 0.2] + 0.1 * rng.normal(size=20))
    direction = jnp.asarray(rng.normal(size=20))

    def alpha_of(step):
        problem = balson.linear_problem(design, target + step * direction, noise=0.1)
        return balson.fit(KEY, problem, balson.Variational(num_draws=64)).alpha[1]

    numeric = (alpha_of(1e-4) - alpha_of(-1e-4)) / 2e-4
    assert float(jax.grad(alpha_of)(0.0)) == pytest.approx(float(numeric), rel=1e-4)

    def mean_of(step, num_draws):
        problem = balson.linear_problem(design, target + step * direction, noise=0.1)
        return balson.fit(KEY, problem, balson.TG(num_draws=num_draws)).mean[1]

    numeric = (mean_of(1e-2, 1 << 20) - mean_of(-1e-2, 1 << 20)) / 2e-2
    assert float(jax.grad(mean_of)(0.0, 1 << 17)) == pytest.approx(float(numeric), rel=0.02)
