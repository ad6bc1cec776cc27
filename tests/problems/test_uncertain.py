"""Uncertain designs: the exact likelihood against NumPy, posteriors against quadrature, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from examples.two_levels import TwoLevels
from scipy import stats

import balson_jax as balson
from balson_jax import UncertainDesign, density

KEY = jax.random.key(5)
RNG = np.random.default_rng(0)
SOURCES = np.array([[10.0, 2.0, 5.0], [1.0, 8.0, 6.0]])
TARGET = np.array([6.0, 4.5])
KINDS = {
    "std": {"std": np.array([[0.8, 0.5, 1.0], [0.3, 0.6, 0.9]])},
    "scale": {"scale": np.array([0.1, 0.05, 0.2])},
    "factors": {"factors": 0.5 * RNG.normal(size=(2, 2, 3))},
    "all": {"std": 0.3, "scale": 0.1, "factors": 0.3 * RNG.normal(size=(1, 2, 3))},
}
METHOD = balson.TG(16_384)


def covariances(mean, std=None, scale=None, factors=None):
    """Return the covariance of each column's error, ``(P, N, N)``."""
    num_rows, num_params = mean.shape
    found = np.zeros((num_params, num_rows, num_rows))
    for k in range(num_params):
        if std is not None:
            found[k] += np.diag(np.square(np.broadcast_to(std, mean.shape)[:, k]))
        if scale is not None:
            found[k] += np.square(np.broadcast_to(scale, num_params)[k]) * np.outer(mean[:, k], mean[:, k])
        for factor in () if factors is None else factors:
            found[k] += np.outer(factor[:, k], factor[:, k])
    return found


def log_likelihoods(theta, variance, mean, target, parts):
    """Return the Gaussian log-likelihoods of draws ``(L, P)``, by NumPy."""
    matrices = np.einsum("lk,kij->lij", np.square(theta), parts) + variance * np.eye(len(target))
    residual = target - theta @ mean.T
    square = np.einsum("li,li->l", residual, np.linalg.solve(matrices, residual[:, :, None])[:, :, 0])
    return -0.5 * (square + np.linalg.slogdet(2 * np.pi * matrices)[1])


def grid(num_params):
    """Return points of the simplex and their weights under the flat prior, by Gauss and Legendre."""
    nodes, shares = np.polynomial.legendre.leggauss(64)
    u, shares = 0.5 + 0.5 * nodes, 0.5 * shares
    if num_params == 2:
        return np.stack([u, 1 - u], -1), shares
    a, b = (part.ravel() for part in np.meshgrid(u, u, indexing="ij"))
    return np.stack([a, (1 - a) * b, (1 - a) * (1 - b)], -1), 2 * (1 - a) * np.outer(shares, shares).ravel()


def quadrature(mean, target, parts, noise):
    """Return mean, standard deviation and log-evidence under the flat prior."""
    theta, weights = grid(mean.shape[1])
    if noise == "estimate":
        # The total variance of a row has the scale-invariant prior: what errors add at equal shares, and the noise.
        added = np.trace(parts.sum(0)) / mean.shape[1] ** 2 / len(target)
        logs = np.linspace(np.log(1e-8), np.log(1e7), 400)
        prior = np.exp(logs) / (np.exp(logs) + added) * (logs[1] - logs[0])
        values = sum(
            share * np.exp(log_likelihoods(theta, np.exp(at), mean, target, parts))
            for at, share in zip(logs, prior, strict=True)
        )
    else:
        values = np.exp(log_likelihoods(theta, noise**2, mean, target, parts))
    weights = weights * values
    evidence = weights.sum()
    middle = weights @ theta / evidence
    return middle, np.sqrt(weights @ np.square(theta - middle) / evidence), np.log(evidence)


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_against_numpy(kind, x64):
    """Known noise and many rows: with entries' own errors they stay, else they are reduced."""
    rng = np.random.default_rng(1)
    mean, target, theta = rng.normal(size=(9, 3)), rng.normal(size=9), rng.dirichlet(np.ones(3), 50)
    own = {"std": 0.3, "scale": 0.2, "factors": rng.normal(size=(2, 9, 3))}
    own = own if kind == "all" else {kind: own[kind]}
    problem = balson.linear_problem(UncertainDesign(mean, **own), target, noise=0.4)
    expected = log_likelihoods(theta, 0.16, mean, target, covariances(mean, **own))
    np.testing.assert_allclose(density.log_likelihood(problem, theta), expected, rtol=1e-9)


@thinned(
    "kind,noise",
    [("std", "estimate")],
    [
        ("factors", 0.3),
        ("std", 0.3),
        ("scale", 0.3),
        ("all", 0.3),
        ("scale", "estimate"),
        ("factors", "estimate"),
        ("all", "estimate"),
    ],
)
def test_three_components_against_quadrature(kind, noise):
    found = balson.fit(KEY, balson.linear_problem(UncertainDesign(SOURCES, **KINDS[kind]), TARGET, noise=noise), METHOD)
    assert int(found.status) == 0
    mean, std, evidence = quadrature(SOURCES, TARGET, covariances(SOURCES, **KINDS[kind]), noise)
    # Eight replicates tell an error to a quarter; the largest of the components' is seldom small by chance.
    np.testing.assert_array_less(np.abs(found.mean - mean), 4 * float(np.max(found.mean_stderr)))
    np.testing.assert_array_less(np.abs(found.std - std), 4 * float(np.max(found.std_stderr)))
    assert abs(float(found.log_evidence) - evidence) < 5 * float(found.log_evidence_stderr)
    # The mean is not that of a design without errors.
    plain = balson.fit(KEY, balson.linear_problem(SOURCES, TARGET, noise=0.3), METHOD)
    assert (np.abs(np.asarray(plain.std) - std) / np.asarray(found.std_stderr)).max() > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("std", balson.IS(65_536)),
        ("std", balson.HitAndRun()),
        ("scale", balson.HitAndRun()),
        ("scale", balson.ISIRS(reuse_data=False)),
        ("std", "auto"),
    ],
)
def test_two_components_by_other_methods(kind, method):
    mean, own = SOURCES[:, :2], {"std": 0.8} if kind == "std" else {"scale": 0.15}
    found = balson.fit(KEY, balson.linear_problem(UncertainDesign(mean, **own), TARGET, noise=0.3), method)
    expected, std, evidence = quadrature(mean, TARGET, covariances(mean, **own), 0.3)
    np.testing.assert_array_less(np.abs(found.mean - expected), 6 * np.asarray(found.mean_stderr) + 1e-4)
    np.testing.assert_allclose(found.std, std, rtol=0.1)
    if np.isfinite(found.log_evidence):
        assert abs(float(found.log_evidence) - evidence) < 6 * float(found.log_evidence_stderr)


@pytest.mark.slow
def test_rejection_sampling():
    design = UncertainDesign(SOURCES, std=0.5)
    accepted = balson.fit(KEY, balson.linear_problem(design, TARGET, noise=1.0), balson.RS(2000))
    weighted = balson.fit(KEY, balson.linear_problem(design, TARGET, noise=1.0), METHOD)
    assert not accepted.certified
    np.testing.assert_allclose(accepted.mean, weighted.mean, atol=5 * float(np.max(accepted.mean_stderr)))


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["at_most", "signed", "signed_at_most"])
def test_constraints_against_plain_draws(constraint, x64):
    """A million draws of the prior, weighted by NumPy's likelihood."""
    design = UncertainDesign(SOURCES, std=0.5)
    problem = balson.linear_problem(design, TARGET, noise=1.0, constraint=constraint)
    found = balson.fit(KEY, problem, METHOD)
    omega = np.random.default_rng(2).dirichlet(np.ones(problem.num_components), 1_000_000)
    theta = np.asarray(problem.constraint.unlift(jnp.asarray(omega)))
    logs = log_likelihoods(theta, 1.0, SOURCES, TARGET, covariances(SOURCES, std=0.5))
    weights = np.exp(logs - logs.max())
    expected = weights @ theta / weights.sum()
    error = np.sqrt(np.square(weights) @ np.square(theta - expected)) / weights.sum()
    np.testing.assert_array_less(np.abs(found.mean - expected), 5 * np.hypot(error, found.mean_stderr))


def test_no_error_is_the_plain_problem():
    plain = balson.linear_problem(SOURCES, TARGET, noise=0.3)
    for none in ({}, {"std": 0.0}, {"scale": np.zeros(3)}, {"factors": np.zeros((2, 2, 3))}):
        same = balson.linear_problem(UncertainDesign(SOURCES, **none), TARGET, noise=0.3)
        assert jax.tree.structure(same) == jax.tree.structure(plain)
        np.testing.assert_array_equal(same.factor, plain.factor)
    tiny = balson.linear_problem(UncertainDesign(SOURCES, std=1e-6), TARGET, noise=0.3)
    omega = np.random.default_rng(0).dirichlet(np.ones(3), 20)
    np.testing.assert_allclose(density.log_likelihood(tiny, omega), density.log_likelihood(plain, omega), rtol=1e-4)


@pytest.mark.slow
def test_gaps_and_weights():
    """Rows that a problem misses don't count: not in the determinant either."""
    rng = np.random.default_rng(3)
    mean, weights = rng.normal(size=(7, 3)), np.linspace(0.5, 2, 7)
    targets = rng.normal(size=(2, 7))
    targets[0, 2] = targets[1, 5] = np.nan
    omega = rng.dirichlet(np.ones(3), 10)
    for own in ({"std": 0.3}, {"scale": 0.2}):
        design = UncertainDesign(mean, **own)
        problem = balson.linear_problem(design, targets, noise=0.4, weights=weights, missing="drop")
        for i, gap in ((0, 2), (1, 5)):
            kept = np.arange(7) != gap
            design = UncertainDesign(mean[kept], **own)
            alone = balson.linear_problem(design, targets[i, kept], noise=0.4, weights=weights[kept])
            both = density.log_likelihood(problem, omega[:, None])[:, i]
            np.testing.assert_allclose(both, density.log_likelihood(alone, omega), rtol=2e-4)


@pytest.mark.slow
def test_the_stream():
    targets = TARGET + np.arange(5)[:, None] / 10
    problem = balson.linear_problem(UncertainDesign(SOURCES, std=0.5), targets, noise=0.3)
    found = balson.fit(KEY, problem, METHOD)
    stream = balson.fit_stream(KEY, problem, targets, METHOD, chunk=2, progress=False)
    np.testing.assert_allclose(stream.mean, found.mean, atol=5 * float(np.max(found.mean_stderr)))


def test_replicates():
    rng = np.random.default_rng(4)
    bundles = [rng.normal(size=(count, 6)) for count in (5, 3)]
    found = UncertainDesign.from_replicates(bundles)
    for k, own in enumerate(bundles):
        np.testing.assert_allclose(found.mean[:, k], own.mean(0), rtol=1e-5)
        expected = (1 + 1 / len(own)) * np.cov(own.T)
        np.testing.assert_allclose(covariances(found.mean, factors=found.factors)[k], expected, atol=1e-6)
    by_rows = UncertainDesign.from_replicates(bundles, rows=True)
    np.testing.assert_allclose(by_rows.std[:, 0], np.sqrt(1.2) * bundles[0].std(0, ddof=1), rtol=1e-6)


@pytest.mark.slow
def test_the_level_of_the_noise(tmp_path):
    """Many rows with small errors of the design: the level is told, its interval holds it, and files keep it."""
    rng = np.random.default_rng(6)
    mean = rng.normal(size=(60, 3))
    target = mean @ [0.5, 0.3, 0.2] + 0.3 * rng.normal(size=60)
    found = balson.fit(KEY, balson.linear_problem(UncertainDesign(mean, std=0.02), target), METHOD)
    plain = balson.fit(KEY, balson.linear_problem(mean, target), METHOD)
    assert float(found.noise.mean) == pytest.approx(float(plain.noise.mean), rel=0.02)
    np.testing.assert_allclose(found.noise.interval(0.9), plain.noise.interval(0.9), rtol=0.03)
    np.testing.assert_allclose(found.mean, plain.mean, atol=0.01)
    found.save(tmp_path / "found.npz")
    np.testing.assert_array_equal(balson.Posterior.load(tmp_path / "found.npz").noise.quantiles, found.noise.quantiles)
    assert "noise" in repr(found)


@pytest.mark.slow
def test_inside_a_trace_and_derivatives(x64):
    def evidence(std):
        problem = balson.linear_problem(UncertainDesign(SOURCES, std=std), TARGET, noise=0.3)
        return balson.fit(KEY, problem, balson.TG(1024)).log_evidence

    slope = float(jax.grad(evidence)(0.5))
    ends = [float(jax.jit(evidence)(0.5 + step)) for step in (-1e-5, 1e-5)]
    # The proposal is a constant to the derivative, and moves in the quotient: they agree up to Monte Carlo error.
    assert slope == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=0.05)


@pytest.mark.slow
def test_consumers_of_three_sources():
    """Two tracers, three sources, 300 consumers, an unknown residual error: one call."""
    rng = np.random.default_rng(7)
    theta = rng.dirichlet(np.ones(3), 300)
    std = np.array([[0.8, 0.5, 1.0], [0.3, 0.6, 0.9]])
    own = SOURCES + std * rng.normal(size=(300, 2, 3))
    targets = np.einsum("bnk,bk->bn", own, theta) + 0.3 * rng.normal(size=(300, 2))
    found = balson.fit(KEY, balson.linear_problem(UncertainDesign(SOURCES, std=std), targets, noise=0.3))
    assert (found.status == 0).all()
    lower, upper = (np.asarray(end) for end in found.interval(0.9))
    assert 0.87 < ((theta > lower) & (theta < upper)).mean() < 0.93
    unknown = balson.fit(KEY, balson.linear_problem(UncertainDesign(SOURCES, std=std), targets))
    assert (unknown.status == 0).mean() > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["std", "scale", "factors"])
def test_ranks_are_uniform(kind):
    """1,000 data sets drawn from prior, design and noise."""
    rng = np.random.default_rng(8)
    mean = rng.normal(size=(4, 3))
    own = {"std": {"std": 0.4}, "scale": {"scale": 0.3}, "factors": {"factors": 0.4 * rng.normal(size=(2, 4, 3))}}[kind]
    roots = [np.linalg.cholesky(part + 1e-12 * np.eye(4)) for part in covariances(mean, **own)]
    theta = rng.dirichlet(np.ones(3), 1000)
    errors = np.stack([rng.normal(size=(1000, 4)) @ root.T for root in roots], -1)
    targets = np.einsum("bnk,bk->bn", mean + errors, theta) + 0.2 * rng.normal(size=(1000, 4))
    found = balson.fit(KEY, balson.linear_problem(UncertainDesign(mean, **own), targets, noise=0.2))
    assert (found.status == 0).all()
    lower, upper = (np.asarray(end) for end in found.interval(0.9))
    assert 0.87 < ((theta > lower) & (theta < upper)).mean() < 0.93
    draws, weights = np.asarray(found.draws), np.asarray(found.draw_weights)
    ranks = (weights[:, :, None] * (draws < theta[:, None])).sum(1)
    for k in range(3):
        assert stats.kstest(ranks[:, k], "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"std": -0.1}, "std"),
        ({"std": np.ones((3, 3))}, r"std has shape \(3, 3\); pass one that broadcasts to \(2, 3\)"),
        ({"scale": np.ones(2)}, r"scale has shape \(2,\)"),
        ({"factors": np.ones((2, 3))}, r"factors has shape \(2, 3\); pass \(F, 2, 3\)"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        balson.linear_problem(UncertainDesign(SOURCES, **options), TARGET, noise=0.3)


def test_what_does_not_go_together():
    design = UncertainDesign(SOURCES, std=0.1)
    with pytest.raises(ValueError, match="don't go with correlated noise"):
        balson.linear_problem(design, TARGET, noise=balson.Correlated(np.eye(2)))
    with pytest.raises(ValueError, match="needs a known level, or an InverseGamma"):
        balson.linear_problem(design, TARGET, noise=TwoLevels(0.2, 0.9))
    with pytest.raises(ValueError, match="don't go with an UncertainDesign"):
        balson.linear_problem(design, TARGET, noise=0.1, intercept=True)
    with pytest.raises(ValueError, match=r"replicates\[1\] has 4 rows, and replicates\[0\] 3"):
        UncertainDesign.from_replicates([np.ones((2, 3)), np.ones((2, 4))])
    with pytest.raises(ValueError, match="at least two measurements"):
        UncertainDesign.from_replicates([np.ones((1, 3))])


@pytest.mark.slow
def test_exports_for_other_devices():
    problem = balson.linear_problem(UncertainDesign(SOURCES, std=0.5, scale=0.1), TARGET, noise=0.3)
    run = jax.jit(lambda key, problem: balson.fit(key, problem, balson.TG(1024)).mean)
    for platform in ("cuda", "tpu"):
        assert jax.export.export(run, platforms=[platform])(KEY, problem).platforms == (platform,)


@pytest.mark.slow
def test_it_is_a_design_for_a_stream_and_not_for_learning(tmp_path):
    targets = np.stack([TARGET, TARGET + 0.1])
    design = UncertainDesign(SOURCES, std=0.5)
    options = {"noise": 0.3, "chunk": 2, "progress": False, "out": tmp_path / "out"}
    found = balson.fit_stream(KEY, design, targets, balson.IS(1024), **options)
    direct = balson.fit(KEY, balson.linear_problem(design, targets, noise=0.3), balson.IS(1024))
    np.testing.assert_allclose(found.mean, direct.mean, rtol=1e-3)
    with pytest.raises(ValueError, match="design"):
        balson.fit_stream(KEY, UncertainDesign(SOURCES, std=0.6), targets, balson.IS(1024), **options)
    with pytest.raises(ValueError, match="pass its mean"):
        balson.learn(KEY, design, targets)
