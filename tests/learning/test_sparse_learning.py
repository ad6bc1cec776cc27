"""Learning and comparing with unknown concentrations, and with chains, whose evidence judges what was learned."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from cases import DESIGN, TARGETS
from examples.metropolis import Metropolis

import balson_jax as balson
from balson_jax.experiments.scenes import Scene, simulate

KEY = jax.random.key(0)
RANGE = balson.CommonConcentration(0.1, 2.0, 3)


@pytest.fixture(scope="module")
def scene():
    return simulate(5, "correlated", num_pixels=40, num_bands=30, num_materials=3)


def quietly(scene, **options):
    return balson.learn(KEY, scene.design, scene.targets, progress=False, rounds=1, **options)


@pytest.mark.slow
def test_noise_is_learned_while_the_concentration_is_integrated_out(scene):
    learned = quietly(scene, prior=RANGE, method=balson.TG(2048))
    assert learned.problem.hyperprior == RANGE
    assert learned.gain > 5
    assert "integrated out" in repr(learned)
    found = balson.fit(KEY, learned.problem_for(scene.targets[:4]), balson.TG(2048))
    assert found.concentration.weights.shape == (4, 3)
    np.testing.assert_allclose(found.concentration.weights.sum(-1), 1, rtol=1e-5)


@pytest.mark.slow
def test_chains_judge_by_their_evidence():
    """Without it every round would be worth as little as the first, and nothing would be learned."""
    rng = np.random.default_rng(1)
    levels = np.where(np.arange(10) < 5, 1.0, 0.1)
    targets = rng.dirichlet(np.ones(3), 40) @ DESIGN.T + levels * rng.normal(size=(40, 10))
    scene = Scene(DESIGN, targets, None)
    options = {"noise": "rows", "prior": 1.0, "level": "common"}
    walked = quietly(scene, method=balson.HitAndRun(target_ess=50.0, keep=64), **options)
    drawn = quietly(scene, method=balson.TG(4096), **options)
    assert walked.chosen == drawn.chosen == 1
    assert walked.gain > 2
    for found, other in zip(walked.history, drawn.history, strict=True):
        # The mean of eight problems held out, each known to about a tenth of a nat.
        assert found.log_evidence == pytest.approx(other.log_evidence, abs=0.3)


def test_methods_that_cannot_judge_are_refused(scene):
    with pytest.raises(ValueError, match="'metropolis' doesn't estimate the evidence, by which learn judges"):
        quietly(scene, method=Metropolis())


@pytest.mark.slow
def test_models_compare_by_chains_as_by_draws():
    """A known concentration, and an unknown one."""
    options = {"sparse": {"prior": 0.3}, "unknown": {"prior": RANGE}}
    problems = {name: balson.linear_problem(DESIGN, TARGETS[:2], noise=0.7, **own) for name, own in options.items()}
    drawn = balson.compare(problems, key=KEY, method=balson.IS(num_draws=1 << 17))
    walked = balson.compare(problems, key=KEY, method=balson.HitAndRun(target_ess=50.0, keep=64))
    order = [walked.names.index(name) for name in drawn.names]
    error = np.hypot(walked.log_evidence_stderr[order], drawn.log_evidence_stderr)
    # Four t variates of 7 degrees of freedom.
    np.testing.assert_array_less(np.abs(walked.log_evidence[order] - drawn.log_evidence), 6 * error)
    np.testing.assert_allclose(walked.weights.sum(0), 1, rtol=1e-5)
    assert (walked.status == 0).all()
