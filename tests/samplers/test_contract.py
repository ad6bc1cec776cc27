"""One contract for every method: jit, vmap, batches, precisions, tracing, chunks, and what ends in a status."""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import DESIGN, FAST, TARGETS, TOGETHER, forget_programs, thinned
from examples.metropolis import Metropolis

import balson_jax as balson
from balson_jax.execution import programs
from balson_jax.targets import find_optimum

SMALL = {
    **FAST,
    "is-proposal": balson.IS(num_draws=1000, proposal=(0.9, 0.8, 1.2), match="kl"),
    "rsirs": balson.RSIRS(num_draws=500, rounds=2),
    "isirs": balson.ISIRS(num_draws=500, rounds=2, match="geometric"),
    "isirs-fresh": balson.ISIRS(num_draws=500, rounds=2, reuse_data=False, points="pseudo", match="mean"),
    "tg": balson.TG(num_draws=1024, match="kl"),
    "hit_and_run": balson.HitAndRun(target_ess=1.0, keep=64, match="kl"),
    "variational": balson.Variational(num_draws=1024),
    "metropolis": Metropolis(num_steps=1024, keep=64),  # written outside the package
}
# A method compiles for seconds, so the short run tries those whose code differs, and the long run tries all.
STRONG = ["tg", "hit_and_run", "variational", "metropolis"]
every_method = thinned("name", ["is"], [name for name in SMALL if name != "is"])
one_at_least = thinned("name", ["is"], ["rs", "isirs", "tg", "hit_and_run", "metropolis"])
# Programs that only this test compiles: a method of each kind.
one_of_each_kind = thinned("name", ["is"], ["rs", "tg", "hit_and_run"])

NUM_PROBLEMS, (NUM_ROWS, NUM_COMPONENTS) = TOGETHER, DESIGN.shape
PRIOR, NOISE = (0.8, 1.0, 1.5), 0.7
KEY = jax.random.key(42)


def problem(target=TARGETS[0], **options):
    return balson.linear_problem(DESIGN, target, noise=NOISE, prior=PRIOR, **options)


@functools.cache
def single_fit(name: str, index: int = 0):
    return balson.fit(KEY, problem(TARGETS[index]), SMALL[name])


def assert_close(found, expected, rtol=2e-4, atol=2e-4):
    """Compare posteriors to rounding; different programs round differently, and weights amplify it a little."""
    found, expected = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree) for tree in (found, expected))
    chex.assert_trees_all_close(found, expected, rtol=rtol, atol=atol)


def assert_same(name, found, expected):
    """Compare two programs for a posterior: to rounding, or for chains, which magnify it, to Monte Carlo error."""
    if not SMALL[name].is_chain:
        assert_close(found, expected)
        return
    error = np.asarray(expected.std) * np.sqrt(1 / np.asarray(found.ess) + 1 / np.asarray(expected.ess))
    np.testing.assert_array_less(np.abs(np.asarray(found.mean) - expected.mean), 5 * error)
    np.testing.assert_array_less(np.abs(np.asarray(found.std) - expected.std), 5 * error)
    assert int(found.status) == int(expected.status)


@thinned("name", [], ["is", "rs"])  # without jit each operation is a program of its own, a minute for other methods
def test_jit_equals_eager(name):
    eager = programs.fit_from.__wrapped__(KEY, problem(), find_optimum(problem(), KEY, SMALL[name].needs), SMALL[name])
    assert_same(name, eager, single_fit(name))


@pytest.mark.slow
@one_of_each_kind
def test_inside_a_jit_of_the_users(name):
    design = jnp.asarray(DESIGN)  # a constant of the traced function

    def fit(target):
        one = balson.linear_problem(design, target, noise=jnp.float32(0.7), prior=jnp.array([0.8, 1.0, 1.5]))
        return balson.fit(KEY, one, SMALL[name])

    assert_same(name, jax.jit(fit)(jnp.asarray(TARGETS[0])), single_fit(name))


@every_method
def test_a_batch_that_shares_a_design_equals_a_loop(name):
    batch = balson.fit(KEY, problem(TARGETS), SMALL[name])
    assert batch.mean.shape == (NUM_PROBLEMS, NUM_COMPONENTS)
    assert batch.ess.shape == batch.status.shape == batch.total.shape == (NUM_PROBLEMS,)
    for index in range(NUM_PROBLEMS):
        assert_same(name, jax.tree.map(lambda leaf, i=index: leaf[i], batch), single_fit(name, index))


@thinned("name", [], ["is", "rs", "isirs", "tg", "hit_and_run", "metropolis"])
def test_vmap_equals_a_loop(name):
    keys = jax.random.split(KEY, 2)
    mapped = jax.vmap(lambda key, y: balson.fit(key, problem(y), SMALL[name]))(keys, jnp.asarray(TARGETS[:2]))
    for index in range(2):
        one = balson.fit(keys[index], problem(TARGETS[index]), SMALL[name])
        assert_same(name, jax.tree.map(lambda leaf, i=index: leaf[i], mapped), one)


@thinned("name", [], ["rs", "isirs", *STRONG])
def test_own_designs_and_batch_axes(name):
    designs = np.stack([DESIGN, DESIGN[:, ::-1], 2 * DESIGN, DESIGN, DESIGN + 1, DESIGN]).reshape(2, 3, *DESIGN.shape)
    targets = np.stack([TARGETS[:3], TARGETS[2:]])
    batch = balson.fit(KEY, balson.linear_problem(designs, targets, noise=0.7), SMALL[name])
    assert batch.batch_shape == (2, 3)
    one = balson.fit(KEY, balson.linear_problem(designs[1, 0], targets[1, 0], noise=0.7), SMALL[name])
    assert_same(name, jax.tree.map(lambda leaf: leaf[1, 0], batch), one)


@pytest.mark.slow
@one_of_each_kind
def test_more_problems_than_a_block_holds(name, monkeypatch):
    method, sizes = SMALL[name], []
    whole = balson.fit(KEY, problem(TARGETS), method)
    elements = method.elements(NUM_COMPONENTS) // (NUM_COMPONENTS if method.draws_are_shared else 1)
    assemble = programs.posterior_of

    def counted(key, flat, target, found, method):
        sizes.append(len(found.ess))
        return assemble(key, flat, target, found, method)

    for limit in ("BLOCK_ELEMENTS", "SMALL_ELEMENTS"):
        monkeypatch.setattr(programs, limit, 2 * elements)
    monkeypatch.setattr(programs, "posterior_of", counted)
    forget_programs()
    try:
        parts = balson.fit(KEY, problem(TARGETS), method)
        assert set(sizes) == {2}
        for index in range(NUM_PROBLEMS):
            assert_same(name, *(jax.tree.map(lambda leaf, i=index: leaf[i], both) for both in (parts, whole)))
    finally:
        forget_programs()


@one_at_least
def test_batch_of_one_and_empty_batch(name):
    one = balson.fit(KEY, problem(TARGETS[:1]), SMALL[name])
    assert one.mean.shape == (1, NUM_COMPONENTS)
    assert_same(name, jax.tree.map(lambda leaf: leaf[0], one), single_fit(name))
    none = balson.fit(KEY, problem(TARGETS[:0]), SMALL[name])
    assert none.mean.shape == (0, NUM_COMPONENTS)
    assert none.status.shape == (0,)
    assert "0 problems" in repr(none)


@one_at_least
def test_dtype_follows_the_inputs_and_both_precisions_agree(name):
    single = single_fit(name)
    with jax.enable_x64(True):
        double = balson.fit(jax.random.key(42), problem(), SMALL[name])
        assert balson.linear_problem(DESIGN.astype(np.float32), TARGETS[0].astype(np.float32)).dtype == jnp.float32
    for found, kind in ((single, "float32"), (double, "float64")):
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {kind, "int32"}
    # Points differ below the 32nd bit (Sobol) or altogether (pseudo-random): agreement is to Monte Carlo error.
    error = np.asarray(single.mean_stderr, np.float64) + np.asarray(double.mean_stderr)
    tolerance = 10 * error + 5 * np.asarray(double.std) / np.sqrt(500)
    assert (np.abs(np.asarray(single.mean, np.float64) - np.asarray(double.mean)) < tolerance).all()


@one_at_least
def test_one_trace_for_calls_of_equal_shape(name):
    balson.fit(KEY, problem(), SMALL[name])
    before = programs._fit_brief._cache_size()
    for seed in range(3):
        balson.fit(jax.random.key(seed), problem(TARGETS[seed]), SMALL[name])
    assert programs._fit_brief._cache_size() == before


@thinned("name", ["rs"], ["is", "isirs-fresh"])
def test_the_chunk_does_not_change_the_result(name):
    method = SMALL[name] if name == "rs" else dataclasses.replace(SMALL[name], num_draws=36_000)
    small, large = (balson.fit(KEY, problem(), dataclasses.replace(method, chunk=chunk)) for chunk in (1, method.chunk))
    assert_close(small, large, rtol=1e-4, atol=1e-4)
    if name == "rs":
        assert small.ess / small.acceptance_rate > 1024  # the smallest chunk is a block


@thinned("kind", ["threefry2x32"], ["rbg"])
def test_any_typed_key_and_old_keys_work(kind):
    found = balson.fit(jax.random.key(0, impl=kind), problem(), SMALL["is"])
    assert jnp.isfinite(found.mean).all()
    old, new = jax.random.PRNGKey(3), jax.random.key(3)
    assert_close(balson.fit(old, problem(), SMALL["is"]), balson.fit(new, problem(), SMALL["is"]), 0, 0)


def test_posteriors_and_problems_are_pytrees():
    found = single_fit("is")
    rebuilt = jax.tree.unflatten(jax.tree.structure(found), jax.tree.leaves(found))
    assert_close(rebuilt, found, 0, 0)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, found)
    np.testing.assert_allclose(doubled.mean, 2 * found.mean)
    assert "methods=('is',)" in repr(jax.tree.map(lambda leaf: None, found))
    assert isinstance(jax.device_put(problem()), balson.Problem)


@thinned("mapped_leaf", [], ["prior", "total and noise"])
def test_vmap_over_any_leaf_of_a_problem(mapped_leaf):
    """A problem is a pytree: map over its prior, or over its total and noise, and leave the rest alone."""
    one, method = problem(), SMALL["is"]

    def mapped(**leaves):
        axes = jax.tree.map(lambda leaf: None, one)
        axes = dataclasses.replace(axes, **dict.fromkeys(leaves, 0))
        return jax.vmap(lambda p: balson.fit(KEY, p, method), in_axes=(axes,))(dataclasses.replace(one, **leaves))

    if mapped_leaf == "prior":
        leaves = {"prior": jnp.array([PRIOR, (2.0, 1.0, 0.5)])}
    else:
        leaves = {"total": jnp.array([1.0, 2.0]), "noise": jnp.array([NOISE, 0.3])}
    found = mapped(**leaves)
    other = dataclasses.replace(one, **{name: values[1] for name, values in leaves.items()})
    assert_close(found.mean[0], single_fit("is").mean)
    assert_close(found.mean[1], balson.fit(KEY, other, method).mean)


@pytest.mark.slow
def test_posteriors_survive_transport(tmp_path):
    """Saved and loaded, donated, put on a device: the same numbers, and the methods still work."""
    options = {"constraint": "signed_at_most", "noise": "estimate"}
    found = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, **options), SMALL["is"])
    found.save(tmp_path / "posterior.npz")
    loaded = balson.Posterior.load(tmp_path / "posterior.npz")
    assert jax.tree.structure(loaded) == jax.tree.structure(found)
    chex.assert_trees_all_equal(loaded, jax.tree.map(np.asarray, found))
    assert repr(loaded[2]) == repr(found[2])
    np.testing.assert_array_equal(loaded.interval(0.5), found.interval(0.5))
    moved = jax.device_put(loaded)
    np.testing.assert_array_equal(moved.sample(KEY, 3), found.sample(KEY, 3))
    donated = jax.jit(lambda p: jax.tree.map(lambda leaf: leaf + 0, p), donate_argnums=0)(jax.device_put(loaded))
    chex.assert_trees_all_equal(donated, found)
    np.savez(tmp_path / "other.npz", x=np.ones(2))
    with pytest.raises(ValueError, match="is not a saved posterior"):
        balson.Posterior.load(tmp_path / "other.npz")


# --- derivatives -----------------------------------------------------------------------------------------------------


DIFFERENTIABLE = {
    "is": balson.IS(num_draws=256),
    "isirs": balson.ISIRS(num_draws=256, rounds=2),
    "fresh": balson.ISIRS(num_draws=256, rounds=2, reuse_data=False),
}
ARGUMENTS = ("design", "target", "noise", "prior", "total")


@pytest.mark.parametrize(
    ("name", "rank", "constraint", "estimates"),
    [
        pytest.param("is", "few rows", "equal", False, marks=pytest.mark.slow),
        pytest.param("is", "deficient", "at_most", True, marks=pytest.mark.slow),
        pytest.param("fresh", "deficient", "at_most", True, marks=pytest.mark.slow),
        pytest.param("isirs", "full", "signed", False, marks=pytest.mark.slow),
        pytest.param("is", "full", "signed_at_most", True, marks=pytest.mark.slow),
    ],
)
def test_derivatives_against_finite_differences(name, rank, constraint, estimates, x64):
    design = jnp.asarray(DESIGN)
    if rank == "deficient":
        design = design.at[:, 1].set(design[:, 0])
    rows = 2 if rank == "few rows" else NUM_ROWS

    def objective(design, target, noise, prior, total):
        level = balson.InverseGamma(noise, 0.3 * noise) if estimates else noise
        problem = balson.linear_problem(
            design,
            target,
            noise=level,
            prior=prior,
            total=total,
            constraint=constraint,
            weights=jnp.linspace(0.0, 1.0, rows),
        )
        posterior = balson.fit(jax.random.key(1), problem, DIFFERENTIABLE[name])
        return posterior.mean @ jnp.arange(1.0, 4.0) + 0.1 * posterior.log_evidence + posterior.std.sum()

    values = [design[:rows], jnp.asarray(TARGETS[0][:rows]), jnp.array(0.7), jnp.array([0.8, 1.3, 2.0]), jnp.array(1.2)]
    evaluate = jax.jit(jax.value_and_grad(objective, argnums=range(5)))
    gradients = evaluate(*values)[1]
    rng = np.random.default_rng(0)
    for position, argument in enumerate(ARGUMENTS):
        direction = rng.normal(size=values[position].shape)
        step = 1e-5
        ends = []
        for sign in (1, -1):
            moved = list(values)
            moved[position] = values[position] + sign * step * direction
            ends.append(float(evaluate(*moved)[0]))
        expected = (ends[0] - ends[1]) / (2 * step)
        found = float((gradients[position] * direction).sum())
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-8), argument


def test_methods_without_derivatives_refuse_to_be_differentiated():
    for name in [name for name, method in SMALL.items() if not method.has_derivatives]:
        with pytest.raises(TypeError, match="this method has no derivatives"):
            jax.grad(lambda y, name=name: balson.fit(KEY, problem(y), SMALL[name]).mean[0])(jnp.asarray(TARGETS[0]))


# --- what ends in a status -------------------------------------------------------------------------------------------


@one_at_least
@pytest.mark.parametrize("broken", ["target", "design", "noise", "prior", "total"])
def test_troubles_inside_a_trace_end_in_status(name, broken):
    values = {"design": DESIGN, "target": TARGETS[0], "noise": 0.5, "prior": np.ones(3), "total": 1.0}
    values = {name: jnp.asarray(value) for name, value in values.items()}
    bad = jnp.nan if broken in ("target", "design") else -1.0
    values[broken] = jnp.full_like(values[broken], bad)
    found = balson.fit(KEY, _traced_problem(**values), SMALL[name])
    assert found.status == balson.Status.NONFINITE
    assert jnp.isnan(found.mean).all()
    assert jnp.isnan(jnp.stack(found.interval())).all()
    with pytest.raises(balson.FitError, match="NONFINITE"):
        found.raise_for_status()


@thinned("setting", [], ["proposal", "defensive"])
def test_troubles_of_a_traced_method_end_in_status(setting):
    make, value = {
        "proposal": (lambda v: balson.IS(1000, proposal=v), (-0.5, 1.0, 1.0)),
        "defensive": (lambda v: balson.ISIRS(500, defensive=v), 1.5),
    }[setting]
    found = jax.jit(lambda v: balson.fit(KEY, problem(), make(v)))(jnp.array(value))
    assert balson.Status.NONFINITE in balson.Status(int(found.status))


@pytest.mark.slow
def test_a_narrow_posterior_is_the_same_in_a_batch_and_alone():
    """A thousand times narrower than the prior: the batch must not lose the variance to cancellation."""
    target, method = np.array([0.05, 0.95]), balson.IS(1 << 20)
    alone = balson.fit(KEY, balson.linear_problem(np.eye(2), target, noise=3e-4), method)
    batch = balson.fit(KEY, balson.linear_problem(np.eye(2), np.stack([target, target]), noise=3e-4), method)
    assert alone.status == 0
    np.testing.assert_allclose(batch.std[0], alone.std, rtol=2e-3)
    np.testing.assert_allclose(alone.std, 3e-4 / np.sqrt(2), rtol=0.1)


_traced_problem = jax.jit(balson.linear_problem)


def test_one_bad_problem_does_not_harm_the_others():
    targets = jnp.asarray(TARGETS).at[2, 3].set(jnp.nan)
    found = balson.fit(KEY, jax.jit(problem)(targets), SMALL["rs"])  # made inside a trace, where a NaN is not refused
    assert (found.status != 0).tolist() == [False, False, True, False, False]
    assert_close(jax.tree.map(lambda leaf: leaf[3], found), single_fit("rs", 3))
    with pytest.raises(balson.FitError, match=r"1 of 5 problems, first at index \[2\]"):
        found.raise_for_status()


@thinned("name", ["is"], ["isirs", "rs", "rsirs"])
def test_a_collapsed_fit_says_so(name):
    target = DESIGN @ [0.2, 0.5, 0.3] + 1e-4 * np.random.default_rng(3).normal(size=NUM_ROWS)
    method = {**FAST, "rsirs": balson.RSIRS(max_proposals=1 << 16), "isirs": balson.ISIRS()}[name]
    found = balson.fit(KEY, balson.linear_problem(DESIGN, target, noise=1e-4), method)
    status = balson.Status(int(found.status))
    assert balson.Status.LOW_ESS in status
    if name.endswith("rs") and name.startswith("rs"):
        assert balson.Status.BUDGET in status
    else:
        assert balson.Status.HIGH_PARETO_K in status
    for leaf in jax.tree.leaves(found):
        assert not jnp.isnan(leaf).any()
    assert found.mean.sum() == pytest.approx(1, abs=1e-4)
    assert found.theta.sum() == pytest.approx(1, abs=1e-4)
    with pytest.raises(balson.FitError, match="LOW_ESS"):
        found.raise_for_status()


def test_rejection_uses_what_the_budget_gave():
    found = balson.fit(KEY, problem(), balson.RS(num_draws=100_000, max_proposals=20_000))
    assert found.status == balson.Status.BUDGET
    assert 100 < found.ess < 20_000
    assert found.ess == pytest.approx(20_000 * float(found.acceptance_rate), rel=1e-4)
    truth = quadrature.posterior(DESIGN, TARGETS[0], PRIOR, noise=NOISE)
    assert (np.abs(found.mean - truth.mean) < 4 * np.sqrt(truth.variance / float(found.ess))).all()
