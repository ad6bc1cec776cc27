"""Blocks of fixed sizes: one program serves any number of problems, and the answer doesn't depend on the blocks."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from cases import num_programs, thinned

import balson_jax as balson
from balson_jax.execution import blocks

RNG = np.random.default_rng(0)
DESIGN = RNG.random((12, 4)).astype(np.float32)


def problems(count: int, noise: float = 0.02, **options) -> balson.Problem:
    targets = RNG.dirichlet(np.ones(4), count) @ DESIGN.T + noise * RNG.normal(size=(count, 12))
    return balson.linear_problem(DESIGN, targets.astype(np.float32), **options)


@pytest.fixture
def compiled():
    """Seconds of each compilation while a test runs."""
    seconds, on = [], [True]

    def listen(event, duration, **_):
        if on[0] and event.endswith("backend_compile_duration"):
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seconds
    on[0] = False


def test_another_batch_key_or_difficulty_compiles_nothing(compiled):
    """The default, with problems that climb and others that don't."""
    balson.fit(jax.random.key(0), problems(40))
    known, _ = num_programs(), compiled.clear()
    for key, (count, noise) in enumerate(((7, 0.02), (300, 0.005), (41, 0.04))):
        found = balson.fit(jax.random.key(key), problems(count, noise))
        assert not np.asarray(found.status).any()
    assert num_programs() == known
    assert sum(compiled) < 0.5


@pytest.mark.slow
def test_what_problems_share_makes_no_difference_to_the_program():
    """Totals and designs of their own, more rows, fewer rows than components; and one more for other priors."""
    method = balson.TG(num_draws=1024)
    balson.fit(jax.random.key(0), problems(3, noise=0.1, total=1.0), method)
    known = num_programs()
    balson.fit(jax.random.key(0), problems(3, total=np.array([1.0, 2.0, 3.0])), method)
    assert num_programs() == known
    balson.fit(jax.random.key(0), problems(2, prior=np.array([[1.0], [2.0]]) * np.ones(4)), method)
    balson.fit(jax.random.key(0), problems(2, prior=0.5), method)
    assert num_programs() == known + 1
    designs = RNG.random((5, 30, 4)).astype(np.float32)
    balson.fit(jax.random.key(0), balson.linear_problem(designs, designs.sum(-1) / 4 + 0.01), method)
    short = RNG.random((3, 4)).astype(np.float32)
    balson.fit(jax.random.key(0), balson.linear_problem(short, RNG.random((6, 3)).astype(np.float32)), method)
    assert num_programs() == known + 1


@thinned("method", [], [balson.IS(num_draws=4000), balson.TG(num_draws=1024)])
def test_blocks_are_not_seen_in_the_answer(method, monkeypatch):
    """Seventy problems in blocks of sixteen, or one by one, or as one program inside a trace."""
    problem = problems(70, noise=0.3)
    whole = balson.fit(jax.random.key(1), problem, method)
    traced = jax.jit(lambda problem: balson.fit(jax.random.key(1), problem, method))(problem)
    monkeypatch.setattr(blocks, "CAPACITY", 16)
    cut = balson.fit(jax.random.key(1), problem, method)
    # Kept draws are left out: rounding may exchange two of nearly equal score.
    for name in ("mean", "std", "mean_stderr", "ess", "log_evidence"):
        expected = getattr(whole, name)
        np.testing.assert_allclose(getattr(cut, name), expected, rtol=2e-4, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(getattr(traced, name), expected, rtol=2e-4, atol=1e-6, err_msg=name)
    for i in (0, 69):
        alone = balson.fit(
            jax.random.key(1), problem.map_leaves(lambda leaf, n, i=i: leaf[i] if leaf.ndim > n else leaf), method
        )
        np.testing.assert_allclose(alone.mean, whole.mean[i], rtol=2e-4, atol=1e-6)


@pytest.mark.slow
def test_known_numbers_inside_a_trace():
    """A fit of constants inside a user's jit is part of his program."""
    problem = problems(2, noise=0.3)
    found = jax.jit(lambda x: x + balson.fit(jax.random.key(0), problem, balson.IS(num_draws=1000)).mean)(0.0)
    assert found.shape == (2, 4)


def test_used_draws_are_whole_chunks():
    with pytest.raises(ValueError, match="used=1000 must be a multiple of 1024 up to num_draws=4096"):
        balson.fit(jax.random.key(0), problems(2), balson.TG(num_draws=4096, chunk=1024, used=np.int32(1000)))


def test_models_share_their_inputs_in_blocks():
    """A batch of three models makes a block of four, and large inputs are not copied."""
    inputs = np.linspace(0, 1, 5000)
    problem = balson.model_problem(
        lambda theta, x: theta[0] + theta[1] * x, inputs, RNG.normal(size=(3, 5000)), 2, noise=1.0
    )
    flat = blocks.Flat(problem)
    assert flat.room(3) == 4
    assert max(leaf.size for leaf in jax.tree.leaves(flat._take(np.zeros(4, int), True))) == 4 * 5000
    assert sum(leaf.size for leaf in jax.tree.leaves(flat._take(np.zeros(4, int), True))) < 6 * 5000


@pytest.mark.slow
def test_warm_up(compiled):
    """After it a fit compiles nothing worth mentioning."""
    balson.warm_up(5, balson.IS(num_draws=1000), noise=0.1)
    compiled.clear()
    design = RNG.random((50, 5)).astype(np.float32)
    for target in (design[:, 0], RNG.random((9, 50)).astype(np.float32)):
        balson.fit(jax.random.key(3), balson.linear_problem(design, target, noise=1.0), balson.IS(num_draws=1000))
    assert sum(compiled) < 0.5
    with pytest.raises(ValueError, match="num_params=1 must be at least 2"):
        balson.warm_up(1)


@pytest.mark.slow
def test_a_thousand_problems_then_others(compiled):
    balson.fit(jax.random.key(0), problems(1000))
    known, _ = num_programs(), compiled.clear()
    for key, (count, noise) in enumerate(((37, 0.02), (300, 0.002), (2000, 0.05))):
        balson.fit(jax.random.key(10 + key), problems(count, noise))
    assert num_programs() == known
    assert sum(compiled) < 0.5
