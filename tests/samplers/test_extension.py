"""A sampler written outside the package goes everywhere that the built-in ones go."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from examples.metropolis import Metropolis

import balson_jax as balson
from balson_jax.samplers import Rung

KEY = jax.random.key(1)
DESIGN = np.array([[1.0, 0.1, 0.4], [0.2, 0.9, 0.3], [0.5, 0.6, -0.2], [0.9, -0.3, 0.1]])
TARGETS = np.random.default_rng(0).dirichlet(np.ones(3), 5) @ DESIGN.T
METHOD = Metropolis(num_steps=4096)


@pytest.fixture(scope="module")
def whole():
    return balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=0.5), METHOD)


def test_the_posterior_is_right_and_says_how_it_was_made(whole):
    exact = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=0.5), balson.IS(num_draws=1 << 16))
    assert (whole.status == 0).all()
    assert whole.method == "metropolis"
    error = exact.std * np.sqrt(1 / whole.ess + 1 / exact.ess)[:, None]
    np.testing.assert_array_less(np.abs(whole.mean - exact.mean), 4.5 * error)
    np.testing.assert_array_less(np.abs(whole.std - exact.std), 4.5 * error)
    assert "metropolis" in repr(whole)
    assert "R-hat" in repr(whole[0])
    assert np.isnan(whole.log_evidence).all()
    with pytest.raises(ValueError, match="doesn't tell the evidence"):
        balson.compare({"a": whole})


def test_it_is_streamed(whole):
    found = balson.fit_stream(KEY, DESIGN, TARGETS, METHOD, chunk=5, progress=False, noise=0.5)
    np.testing.assert_allclose(found.mean, whole.mean, atol=1e-4)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ladder(balson.Auto):
    """A ladder of two rungs, the last of which is a method of one's own."""

    name = "ladder"

    def rungs(self, problem):
        few = balson.IS(num_draws=64, keep=64)
        return [Rung(few), Rung(Metropolis(num_steps=4096, keep=64))]


@pytest.mark.slow
def test_it_is_a_rung_of_a_ladder(whole):
    found = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=0.5), Ladder(target_ess=200.0))
    assert found.method.tolist() == ["metropolis"] * 5
    assert (found.ess >= 200).all()
    np.testing.assert_array_less(np.abs(found.mean - whole.mean), 0.1)
