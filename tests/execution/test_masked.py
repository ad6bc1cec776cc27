"""A ladder inside a trace: the same methods and numbers as outside, and no rung for problems that don't need it."""

from __future__ import annotations

import dataclasses

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import spectra

import balson_jax as balson
from balson_jax.samplers import Rung

KEY = jax.random.key(7)
COUNT = 11
RNG = np.random.default_rng(1)
DESIGN = spectra(RNG, 12, 3)
LEVELS = np.where(np.arange(COUNT) % 3 == 1, 0.02, 1.0)  # four strong problems
TARGETS = RNG.dirichlet([1.0, 2.0, 3.0], COUNT) @ DESIGN.T + LEVELS[:, None] * RNG.normal(size=(COUNT, 12))
TARGETS[5] = 1e30  # beyond float32: no method helps


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counted(balson.RS):
    """Rejection sampling that tells for how many blocks it ran."""

    name = "counted"
    blocks = []  # noqa: RUF012

    def run(self, key, target, axes=()):
        jax.debug.callback(lambda valid: self.blocks.append(int(valid.sum())), target.valid)
        return super().run(key, target, axes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Short(balson.Auto):
    """A ladder of two methods that compile fast."""

    name = "short"

    def rungs(self, problem):
        return [Rung(balson.IS(num_draws=512, keep=8)), Rung(Counted(num_draws=256, keep=8))]


METHOD = Short(target_ess=200.0, rungs_inside_jit=2)


def problem(targets=TARGETS, levels=LEVELS):
    return balson.linear_problem(DESIGN, targets, noise=levels, prior=(1.0, 2.0, 3.0))


def assert_same(found, expected):
    assert found.methods == expected.methods
    np.testing.assert_array_equal(found.choice, expected.choice)
    np.testing.assert_array_equal(found.status, expected.status)
    for field in ("mean", "std", "ess", "draws"):
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol=1e-3, atol=1e-5, err_msg=field)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four problems, the last of which has a copy in it."""
    monkeypatch.setattr("balson_jax.execution.programs.BLOCK_ELEMENTS", 4 * 3 * 512)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.slow
def test_inside_jit_the_ladder_is_climbed_as_outside(small_blocks):
    outside = balson.fit(KEY, problem(), METHOD)
    assert outside.method.tolist() == np.where(LEVELS < 1, "counted", "is").tolist()
    Counted.blocks.clear()
    inside = jax.jit(lambda p: balson.fit(KEY, p, METHOD))(problem())
    jax.effects_barrier()
    assert_same(inside, outside)
    assert Counted.blocks == [4], "the four problems that climb are one block, and others are not computed"


@pytest.mark.slow
def test_vmap_and_no_problems():
    whole = balson.fit(KEY, problem(), METHOD)
    mapped = jax.vmap(lambda target, level: balson.fit(KEY, problem(target, level), METHOD))
    assert_same(mapped(jnp.asarray(TARGETS, jnp.float32), jnp.asarray(LEVELS, jnp.float32)), whole)
    none = jax.jit(lambda p: balson.fit(KEY, p, METHOD))(problem(TARGETS[:0], 1.0))
    assert none.batch_shape == (0,)
    assert none.methods == whole.methods


def test_a_ladder_has_the_derivatives_that_all_its_methods_have():
    def mean(target, method):
        return balson.fit(KEY, problem(target, 1.0), method).mean[0]

    with pytest.raises(TypeError, match="no derivatives"):
        jax.grad(mean)(jnp.asarray(TARGETS[0]), METHOD)


@pytest.mark.parametrize("rungs", [0, 6, 2.5])
def test_numbers_of_rungs_out_of_range(rungs):
    with pytest.raises(ValueError, match="rungs_inside_jit"):
        balson.fit(KEY, problem(), balson.Auto(rungs_inside_jit=rungs))


def test_more_kept_draws_than_the_method_inside_a_trace_makes_by_default():
    for wide in (problem(), balson.linear_problem(np.eye(40), np.ones(40), noise=1.0)):
        found = jax.eval_shape(lambda own: balson.fit(KEY, own, balson.Auto(keep=1 << 16)), wide)
        assert found.draws.shape[-2] == 1 << 16


# --- the ladder of Auto ----------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class First(balson.Auto):
    """The first rungs of ``Auto``, outside a trace too."""

    def rungs(self, problem):
        return super().rungs(problem)[: self.rungs_inside_jit]


def mixed(count=6, num_components=5):
    """Problems of several strengths and priors, of unknown noise."""
    rng = np.random.default_rng(0)
    design = spectra(rng, 40, num_components)
    prior = np.where(np.arange(count)[:, None] % 2, 0.2, 1.0) * np.ones(num_components)
    levels = np.geomspace(0.3, 0.003, count)[:, None]
    targets = np.stack([rng.dirichlet(own) for own in prior]) @ design.T + levels * rng.normal(size=(count, 40))
    return balson.linear_problem(design, targets, prior=prior)


@pytest.mark.slow
@pytest.mark.parametrize(("rungs", "target_ess"), [(2, 500.0), (3, 6000.0)])
def test_auto_inside_jit_takes_the_draws_it_takes_outside(rungs, target_ess):
    method = First(target_ess=target_ess, rungs_inside_jit=rungs)
    outside = balson.fit(KEY, mixed(), method)
    assert_same(jax.jit(lambda p: balson.fit(KEY, p, method))(mixed()), outside)


@pytest.mark.slow
def test_auto_inside_jit_walks_where_it_walks_outside():
    """A model for which draws from the prior serve, and one for which they don't."""
    design, targets = jnp.asarray(DESIGN), np.tile(DESIGN @ [0.2, 0.5, 0.3], (2, 1))
    whole = balson.model_problem(lambda theta, _: design @ theta, None, targets, 3, noise=jnp.array([1.0, 1e-4]))
    outside = balson.fit(KEY, whole)
    inside = jax.jit(lambda p: balson.fit(KEY, p, balson.Auto(rungs_inside_jit=2)))(whole)
    assert inside.method.tolist() == outside.method.tolist() == ["is", "hit_and_run"]
    assert (inside.status == 0).all()
    assert (outside.status == 0).all()
    error = outside.std * np.sqrt(1 / outside.ess + 1 / inside.ess)[:, None]
    np.testing.assert_array_less(np.abs(inside.mean - outside.mean), 4.5 * error + 1e-6)


@pytest.mark.slow
def test_the_whole_ladder_lowers_for_gpus():
    function = jax.jit(lambda seed, p: balson.fit(jax.random.key(seed), p, balson.Auto(rungs_inside_jit=5)))
    exported = jax.export.export(function, platforms=["cuda"])(jnp.uint32(0), mixed())
    assert exported.platforms == ("cuda",)
    assert len(exported.mlir_module_serialized) > 1000


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TwoSizes(balson.Auto):
    """Few draws for weak problems, and more for the others."""

    def rungs(self, problem):
        return [Rung(balson.IS(num_draws=512, keep=8)), Rung(balson.IS(num_draws=4096, keep=8))]


@pytest.mark.slow
def test_derivatives_are_those_of_the_method_that_serves():
    """Forward and reverse, of problems that end on the first rung and on the second."""
    whole = problem(TARGETS[:4], LEVELS[:4])
    method = TwoSizes(target_ess=200.0, rungs_inside_jit=2)
    rungs = method.rungs(whole)

    def evidence(own, key):
        return lambda scale: balson.fit(key, dataclasses.replace(whole, total=whole.total * scale), own).log_evidence

    def slope(*args):
        return jax.jit(lambda scale: jax.jvp(evidence(*args), (scale,), (jnp.ones_like(scale),)))(jnp.float32(1))

    values, slopes = slope(method, KEY)
    by_rung = [slope(rung.method, jax.random.fold_in(KEY, number)) for number, rung in enumerate(rungs)]
    second = np.abs(values - by_rung[1][0]) < np.abs(values - by_rung[0][0])
    assert 0 < second.sum() < 4
    for found, first, last in zip((values, slopes), *by_rung, strict=True):
        np.testing.assert_allclose(found, np.where(second, last, first), rtol=1e-4)
    backward = jax.jit(jax.grad(lambda scale: evidence(method, KEY)(scale).sum()))(jnp.float32(1))
    np.testing.assert_allclose(backward, slopes.sum(), rtol=1e-3)
