"""A common concentration that is not known: against quadrature over it, and what is refused."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import DESIGN, FAST, TARGETS
from examples.metropolis import Metropolis

import balson_jax as balson
from balson_jax.execution import mixtures

KEY, METHOD = jax.random.key(3), FAST["is"]
RANGE = balson.CommonConcentration(0.1, 4.0, 6)
Z = 4.0


def problem(targets=TARGETS, **options):
    return balson.linear_problem(DESIGN, targets, **{"noise": 0.7, "prior": RANGE, **options})


@pytest.fixture(scope="module")
def found():
    return balson.fit(KEY, problem(), METHOD)


def mixture(target, values, shares):
    """Return weights, mean, variance and log-evidence of the mixture by quadrature."""
    parts = [quadrature.posterior(DESIGN, target, value * np.ones(3), noise=0.7) for value in values]
    logs = np.array([part.log_evidence for part in parts]) + np.log(shares)
    total = np.logaddexp.reduce(logs)
    weights = np.exp(logs - total)
    mean = sum(w * part.mean for w, part in zip(weights, parts, strict=True))
    variance = sum(w * (part.variance + np.square(part.mean - mean)) for w, part in zip(weights, parts, strict=True))
    return weights, mean, variance, total


def test_against_quadrature(found):
    """Five targets; errors of quasi-random draws are far below those allowed for independent ones."""
    assert (found.status == 0).all()
    assert found.method == "is"
    for i, target in enumerate(TARGETS):
        weights, mean, variance, evidence = mixture(target, RANGE.values(), RANGE.shares())
        own = found[i]
        assert float(own.log_evidence) == pytest.approx(evidence, abs=Z * float(own.log_evidence_stderr) + 1e-3)
        np.testing.assert_allclose(own.concentration.weights, weights, atol=0.01)
        np.testing.assert_array_less(np.abs(own.mean - mean), Z * own.mean_stderr + 1e-5)
        np.testing.assert_array_less(np.abs(own.std - np.sqrt(variance)), Z * own.std_stderr + 1e-5)
        # 512 kept draws of equal weight.
        np.testing.assert_allclose(own.draw_weights, 1 / 512, rtol=1e-5)
        np.testing.assert_array_less(np.abs(np.mean(own.draws, 0) - mean), Z * np.sqrt(variance / 512))
        assert float(own.concentration.mean) == pytest.approx(weights @ RANGE.values(), rel=0.02)
        assert own.mean.sum() == pytest.approx(1, abs=1e-5)


def test_a_grid_stands_for_an_integral():
    """Ends of intervals, and the mean logarithm, hardly depend on the number of values."""
    values = {num: dataclasses.replace(RANGE, num=num) for num in (6, 40)}
    ends = {}
    for num, own in values.items():
        weights, *_ = mixture(TARGETS[0], own.values(), own.shares())
        grid = [jnp.asarray(part) for part in (own.values(), weights)]
        ends[num] = np.log(np.array(balson.ConcentrationPosterior(*grid, *(grid[1],) * 3).interval(0.8)))
    np.testing.assert_allclose(ends[6], ends[40], atol=0.1)


def test_one_problem_and_what_it_prints(found):
    one = balson.fit(KEY, problem(TARGETS[1]), METHOD)
    np.testing.assert_allclose(one.mean, found.mean[1], atol=1e-4)
    np.testing.assert_allclose(one.concentration.weights, found.concentration.weights[1], atol=1e-4)
    row = next(line for line in repr(one).splitlines() if line.split()[:1] == ["prior"])
    assert float(row.split()[1]) == pytest.approx(float(one.concentration.mean), abs=1e-3)


def test_it_is_saved_and_loaded(found, tmp_path):
    found.save(tmp_path / "posterior.npz")
    loaded = balson.Posterior.load(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(loaded.concentration.weights, found.concentration.weights)
    np.testing.assert_allclose(loaded[2].concentration.interval(), found[2].concentration.interval(), rtol=1e-5)


@pytest.mark.slow
def test_inside_jit_and_other_targets(found):
    inside = jax.jit(lambda p: balson.fit(KEY, p, METHOD))(problem())
    np.testing.assert_allclose(inside.mean, found.mean, atol=1e-4)
    np.testing.assert_allclose(
        balson.fit(KEY, problem().with_targets(TARGETS[:2]), METHOD).mean, found.mean[:2], atol=1e-4
    )
    streamed = balson.fit_stream(KEY, problem(TARGETS[:1]), TARGETS, METHOD, chunk=3, progress=False)
    np.testing.assert_allclose(streamed.mean, found.mean, atol=1e-4)
    np.testing.assert_allclose(streamed.concentration.weights, found.concentration.weights, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["at_most", "signed", "signed_at_most"])
def test_other_constraints_and_unknown_noise(constraint):
    """The mixture of single fits, nuisance columns and all; the slack keeps its concentration."""
    options = {"constraint": constraint, "noise": "estimate", "intercept": True, "slack_prior": 2.0}
    found = balson.fit(KEY, problem(TARGETS[0], **options), METHOD)
    singles = [balson.fit(KEY, problem(TARGETS[0], **{**options, "prior": value}), METHOD) for value in RANGE.values()]
    logs = np.array([float(own.log_evidence) for own in singles]) + np.log(RANGE.shares())
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(found.concentration.weights, weights, atol=2e-3)
    for part in ("", "noise", "nuisance", *(["slack"] if constraint.endswith("at_most") else [])):
        mean, *means = (np.asarray((getattr(own, part) if part else own).mean) for own in (found, *singles))
        np.testing.assert_allclose(
            mean, sum(w * own for w, own in zip(weights, means, strict=True)), rtol=0.01, atol=2e-3
        )
    assert found.residual >= found.least_residual - 1e-5


def test_a_part_that_cannot_be_trusted_is_told(found):
    """A flag of a part that carries weight, or may carry it, is one of the whole; that of another is not."""
    parts = balson.fit(KEY, mixtures.on_grid(problem()), METHOD)
    arguments = [jnp.asarray(own, jnp.float32) for own in (RANGE.values(), RANGE.shares())]
    plain = dataclasses.replace(problem(), hyperprior=None)

    def mixed(**changes):
        return mixtures._mixed(KEY, plain, dataclasses.replace(parts, **changes), *arguments, "ratio")

    heaviest = int(np.argmax(found.concentration.weights[0]))
    flagged = parts.status.at[heaviest, 0].set(int(balson.Status.HIGH_RHAT))
    status = mixed(status=flagged).status
    assert status[0] == balson.Status.HIGH_RHAT
    assert (status[1:] == 0).all()
    # A part without weight, unless its evidence may be far larger.
    low = parts.log_evidence.at[heaviest, 0].add(-20)
    assert mixed(status=flagged, log_evidence=low).status[0] == 0
    wide = parts.log_evidence_stderr.at[heaviest, 0].set(jnp.inf)
    assert mixed(status=flagged, log_evidence=low, log_evidence_stderr=wide).status[0] != 0
    # Evidences that say little of the weights leave few effective draws.
    rough = mixed(log_evidence_stderr=jnp.full_like(parts.log_evidence_stderr, 5.0))
    assert (rough.status & int(balson.Status.LOW_ESS)).all()
    assert (rough.mean_stderr > 3 * found.mean_stderr).any()


def test_a_value_of_no_weight_leaves_no_nan():
    """Rejection sampling may accept nothing at one value of the grid; its moments do not exist."""
    mixing = mixtures._Mixing(jnp.array([[1.0], [0.0]]), jnp.array([[0.1], [1.0]]))
    np.testing.assert_allclose(mixing.squares(jnp.array([[[0.3]], [[jnp.nan]]])), [[0.09]], rtol=1e-6)


def test_what_is_refused():
    for method in (Metropolis(), balson.ISIRS(256)):
        with pytest.raises(ValueError, match='prior="estimate" weighs concentrations by their evidence'):
            balson.fit(KEY, problem(), method)
    with pytest.raises(ValueError, match='the problem has prior="estimate", which weighs a grid already'):
        balson.tune(KEY, problem(), noise=[0.1, 1.0])
    with pytest.raises(ValueError, match='prior="estimate" has a grid of concentrations'):
        balson.warm_up(3, METHOD, prior="estimate")
    with pytest.raises(ValueError, match="prior='learn'"):
        problem(prior="learn")
    with pytest.raises(ValueError, match=r"smallest=2.0 and largest=1.0 must be positive, and in order"):
        balson.CommonConcentration(2.0, 1.0)
    with pytest.raises(ValueError, match="num=1"):
        balson.CommonConcentration(num=1)
    with pytest.raises(ValueError, match='prior="estimate" doesn\'t go with an UncertainDesign'):
        balson.linear_problem(balson.UncertainDesign(DESIGN, std=0.1), TARGETS[0], prior="estimate")


@pytest.mark.slow
def test_inclusion_is_that_of_the_mixture():
    """Ten components: probabilities from all draws are those of the values of the grid, by their weights."""
    rng = np.random.default_rng(0)
    design = rng.random((12, 10)).astype(np.float32)
    target = (design @ np.r_[0.6, 0.4, np.zeros(8)] + 0.1 * rng.normal(size=12)).astype(np.float32)
    own = balson.CommonConcentration(0.1, 1.0, 3)
    mixed = balson.fit(KEY, balson.linear_problem(design, target, noise=0.1, prior=own), METHOD)
    priors = np.broadcast_to(own.values()[:, None], (3, 10)).astype(np.float32)
    parts = balson.fit(KEY, balson.linear_problem(design, target, noise=0.1, prior=priors), METHOD)
    weights = np.asarray(mixed.concentration.weights)
    np.testing.assert_allclose(mixed.present, weights @ np.asarray(parts.present), rtol=1e-3, atol=1e-5)
    assert not np.allclose(mixed.present, parts.present[0], atol=1e-3)
    assert (mixed.present_stderr > 0).any()
