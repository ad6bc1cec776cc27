"""Every bad input raises a ``ValueError`` that names the argument, the value or index, and the remedy."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, FAST, TARGETS

import balson_jax as balson
from balson_jax.samplers import resolve

DESIGN, TARGET = DESIGN[:6], TARGETS[0, :6]
PEAKED, SPARSE = (balson.linear_problem(DESIGN, TARGET, prior=prior) for prior in (2.0, 0.5))
UNKNOWN = balson.linear_problem(DESIGN, TARGET, prior=balson.CommonConcentration(0.5, 4.0, 3))


def with_nan(array, index, value=np.nan):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": TARGET[:4]}, r"target has shape \(4,\) but design has 6 rows"),
        ({"target": np.ones((2, 6)), "design": np.ones((3, 6, 3))}, r"batch axes \(2,\) of target .* \(3,\)"),
        ({"target": 1.0}, "target is a single number"),
        ({"design": TARGET}, r"design has shape \(6,\); it needs two axes"),
        ({"design": DESIGN[:0], "target": TARGET[:0]}, "no rows; pass at least one"),
        ({"design": DESIGN[:, :1]}, "K=1 component; pass at least 2 columns"),
        ({"design": with_nan(DESIGN, (4, 1))}, r"design\[4, 1\] is nan; remove"),
        ({"design": with_nan(DESIGN, (4, 1), np.inf)}, r"design\[4, 1\] is inf; remove"),
        ({"target": with_nan(TARGET, 2)}, r"target\[2\] is nan; remove"),
        ({"total": 0.0}, "total is 0.0; total must be positive"),
        ({"total": [1.0, np.inf], "target": np.stack([TARGET, TARGET])}, r"total\[1\] is inf"),
        ({"noise": -1}, "noise is -1.0; noise must be positive"),
        ({"noise": np.nan}, "noise is nan; noise must be positive"),
        ({"noise": np.ones(4)}, r"noise has shape \(4,\); pass a number"),
        ({"noise": np.ones(6), "target": np.ones((6, 6))}, "one per problem or one per row"),
        ({"noise": "unknown"}, "noise='unknown' is unknown; pass a positive number or array, or \"estimate\""),
        ({"prior": [1.0, 0.0, 1.0]}, r"prior\[1\] is 0.0; prior must be positive"),
        ({"prior": np.ones(2)}, r"prior has shape \(2,\); pass a number, 3 concentrations"),
        ({"design": DESIGN * 1j}, "design is complex"),
        ({"target": np.array(["a"] * 6)}, "target holds 'a'; pass real numbers"),
        ({"target": np.array([None] * 6)}, "target holds None; pass real numbers"),
        ({"prior": None}, "prior is None; pass real numbers, or leave it out"),
        ({"prior": "sparse"}, "unknown prior='sparse'; choose one of estimate"),
        ({"prior": balson.CommonConcentration}, "prior is the class CommonConcentration; pass an instance of it"),
        ({"prior": np.array(["estimate"])}, "prior holds 'estimate'; pass real numbers"),
        ({"noise": balson.InverseGamma}, "noise is the class InverseGamma; pass an instance of it"),
        ({"noise": np.ones((6, 1))}, r"noise has shape \(6, 1\) and target no batch; pass noise\[:, 0\]"),
        ({"noise": np.float32(-0.3)}, "noise is -0.3; noise must be positive"),
        (
            {"design": DESIGN.T, "target": TARGET},
            r"design has 3 rows; the last axis of target must match: pass design.T",
        ),
        ({"target": TARGET[:, None]}, r"must match: pass target\[:, 0\]"),
        ({"target": np.ones((6, 4))}, r"target has shape \(6, 4\) but design has 6 rows; .* must match: pass target.T"),
        ({"design": [[1.0, 2.0], [3.0]]}, "design is not a rectangular array"),
        ({"weights": -np.ones(6)}, r"weights\[0\] is -1.0; weights must be finite and not negative"),
        ({"weights": np.zeros(6)}, "weights: all-zero weights leave no row; keep at least one"),
        ({"weights": np.ones(5)}, r"weights has shape \(5,\); pass an array of shape \(6,\)"),
        ({"weights": np.eye(6)[:2] * 0, "target": np.stack([TARGET, TARGET])}, r"leave no row of problem \[0\]"),
        ({"mask": np.zeros(6, bool)}, "mask: the mask leaves no row"),
        ({"mask": np.ones(6)}, "mask has dtype float.*; pass booleans, True for rows that count"),
        ({"missing": "skip"}, "unknown missing='skip'; choose one of raise, drop"),
        ({"target": np.full((2, 6), np.nan), "missing": "drop"}, r"leave no row of problem \[0\]"),
        ({"target": np.full(6, np.nan), "missing": "drop"}, "target: missing values leave no row"),
        (
            {"target": with_nan(TARGET, 2, np.inf), "missing": "drop"},
            r"target\[2\] is inf; missing='drop' drops NaN only",
        ),
        ({"target": with_nan(TARGET, 2)}, "or pass missing='drop' if NaN means missing"),
        (
            {"noise": balson.Correlated(-np.eye(6))},
            "covariance is not positive definite: its smallest eigenvalue is -1",
        ),
        ({"noise": balson.Correlated(np.triu(np.ones((6, 6))))}, "covariance is not symmetric"),
        (
            {"noise": balson.Correlated(np.eye(5))},
            r"covariance has shape \(5, 5\); pass \(6, 6\), a row and",
        ),
        ({"noise": balson.Correlated(cholesky=-np.eye(6))}, "cholesky has a diagonal entry that isn't positive"),
        ({"noise": balson.Correlated(cholesky=np.triu(np.ones((6, 6))))}, "cholesky has numbers above its diagonal"),
        ({"noise": balson.Correlated(np.eye(6), scale="x")}, "scale='x' of Correlated: pass a number"),
        ({"mask": "abc"}, "mask has dtype <U3; pass booleans"),
        ({"noise": balson.Correlated()}, "takes a covariance or its Cholesky factor: pass one of the two"),
        ({"noise": balson.InverseGamma(-1.0, 1.0)}, "noise.shape is -1.0; noise.shape must be finite and not negative"),
        ({"noise": balson.InverseGamma(np.ones(2), 1.0), "target": np.ones((3, 6))}, "of noise.shape don't broadcast"),
        ({"slack_prior": 0.0, "constraint": "at_most"}, "slack_prior is 0.0; slack_prior must be positive"),
        ({"design": DESIGN[:, :0], "constraint": "signed"}, "K=0 component; pass at least 1"),
        ({"prior": np.ones(4), "constraint": "signed"}, r"3 concentrations \(or 6, for each sign\)"),
        ({"row_axes": 2}, r"design has shape \(6, 3\); it needs 2 axes of rows and one of components"),
        ({"row_axes": 2, "design": np.ones((2, 3, 3))}, r"target has shape \(6,\); it needs 2 axes of rows"),
        ({"constraint": "ball"}, "unknown constraint='ball'; choose one of equal, at_most, signed, signed_at_most"),
    ],
)
def test_bad_problems(arguments, message):
    arguments = {"design": DESIGN, "target": TARGET} | arguments
    with pytest.raises(ValueError, match=message):
        balson.linear_problem(**arguments)


def curve(theta, x):
    return theta[0] + theta[1] * x


def branching(theta, x):
    return x if theta[0] > 0 else -x


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"predict": "linear"}, "predict is a str; pass a function of theta and inputs"),
        ({"predict": lambda theta, x: theta}, r"predict returned shape \(2,\), but target has shape \(6,\); expected"),
        ({"predict": lambda theta, x: (theta, x)}, "predict returned a tuple; expected one array"),
        ({"predict": lambda theta, x: jnp.arange(6)}, "predict returned dtype int32; expected real numbers like"),
        (
            {"predict": branching},
            "predict can't be traced by JAX .*TracerBoolConversionError.*: write it with jax.numpy",
        ),
        ({"predict": lambda theta, x: np.asarray(theta)}, "predict can't be traced by JAX"),
        ({"num_params": 1}, "num_params=1: K=1 component; pass at least 2 parameters, as one alone is theta = total"),
        ({"num_params": 0, "constraint": "signed"}, "num_params=0 must be at least 1"),
        ({"num_params": 2.0}, "num_params is 2.0; it must be an integer"),
        ({"target": with_nan(TARGET, 2)}, "or pass missing='drop' if NaN means missing"),
        ({"inputs": {"x": np.arange(6.0), "name": "a"}}, "inputs holds 'a'; pass arrays of numbers"),
        ({"bound": -1.0}, "bound is -1.0; bound must be finite and not negative"),
        ({"prior": "estimate"}, "prior is 'estimate'; pass real numbers"),
        ({"prior": balson.CommonConcentration()}, "prior is a CommonConcentration; pass real numbers"),
        ({"bound": "guess"}, "unknown bound='guess'; choose one of search"),
        ({"weights": np.zeros(6)}, "all-zero weights leave no row"),
    ],
)
def test_bad_models(arguments, message):
    arguments = {"predict": curve, "inputs": np.arange(6.0), "target": TARGET, "num_params": 2} | arguments
    with pytest.raises(ValueError, match=message):
        balson.model_problem(**arguments)


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: balson.IS(num_draws=1), "num_draws=1 must be at least 2"),
        (lambda: balson.IS(num_draws=1e6), "num_draws is 1000000.0; it must be an integer"),
        (lambda: balson.RS(num_draws=0), "num_draws=0 must be at least 2"),
        (lambda: balson.RS(max_proposals=0), "max_proposals=0 must be at least 1"),
        (lambda: balson.RS(max_proposals=2**31), "max_proposals=2147483648 must be below"),
        (lambda: balson.IS(num_draws=2**31), "num_draws=2147483648 must be below"),
        (lambda: balson.ISIRS(rounds=-1), "rounds=-1 must be at least 0"),
        (lambda: balson.RSIRS(chunk=0), "chunk=0 must be at least 1"),
        (lambda: balson.IS(keep=100), "keep=100 must be 0 or a power of two from 8 to 65,536"),
        (lambda: balson.TG(num_draws=2048, keep=4096), "keep=4096 exceeds num_draws=2048; draw at least as many"),
        (lambda: balson.IS(match="median"), "unknown match='median'; choose one of ratio, geometric, mean, kl"),
        (lambda: balson.TG(num_draws=1), "num_draws=1 must be at least 2"),
        (lambda: balson.TG(rounds=-1), "rounds=-1 must be at least 0"),
        (lambda: balson.Variational(steps=0), "steps=0 must be at least 1"),
        (lambda: balson.Variational(keep=3), "keep=3 must be 0 or a power of two"),
        (lambda: balson.HitAndRun(max_moves=0), "max_moves=0 must be at least 1"),
        (lambda: balson.HitAndRun(walkers=24), "walkers=24 must be a power of two, at least 8"),
        (lambda: balson.HitAndRun(walkers=16.0), "walkers is 16.0; it must be an integer of at least 8"),
        (lambda: balson.HitAndRun(walls="thick"), "unknown walls='thick'"),
        (lambda: balson.TG(diagnose_tail="no"), "diagnose_tail='no' must be True or False"),
        (lambda: balson.HitAndRun(match="median"), "unknown match='median'"),
        (lambda: balson.HitAndRun(evidence="yes"), "evidence='yes' must be True or False"),
        (lambda: balson.Auto(evidence=1), "evidence=1 must be True or False"),
        (lambda: balson.Auto(keep=100), "keep=100 must be 0 or a power of two"),
        (lambda: balson.IS(points="halton"), "unknown points='halton'; choose one of sobol, pseudo"),
    ],
)
def test_bad_methods(construct, message):
    with pytest.raises(ValueError, match=message):
        construct()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "nuts"}, "unknown method='nuts'; choose one of auto, rs, is, rsirs, isirs"),
        (
            {"method": balson.IS},
            "method is the class IS; pass one of auto, rs, .*, or an instance of Auto, RS",
        ),
        ({"method": balson.IS(proposal=np.ones(2))}, r"proposal has shape \(2,\); pass 3 concentrations"),
        ({"method": balson.IS(proposal=[1.0, -1.0, 1.0])}, r"proposal\[1\] is -1.0"),
        ({"method": balson.HitAndRun(walls="hard"), "problem": PEAKED}, "walls='hard' needs a prior of 1 for all"),
        ({"method": balson.HitAndRun(walls="soft"), "problem": SPARSE}, "walls='soft' needs a prior of at least 1"),
        (
            {"method": balson.HitAndRun(walls="rates"), "problem": PEAKED},
            "walls='rates' needs a prior of at most 1, not one from 2 to 2; leave it out",
        ),
        (
            {"method": balson.HitAndRun(walls="rates", evidence=True), "problem": UNKNOWN},
            r"not one from 1\.4\d+ to 4; leave",
        ),
        ({"method": "rsirs", "problem": UNKNOWN}, "which 'rsirs' doesn't estimate; pass method=.auto"),
        ({"method": balson.Auto(target_ess=0.0), "problem": UNKNOWN}, "target_ess is 0.0"),
        ({"method": balson.IS(proposal=np.ones(2)), "problem": UNKNOWN}, r"proposal has shape \(2,\); pass 3"),
        ({"method": balson.HitAndRun(target_ess=-1.0)}, "target_ess is -1.0"),
        ({"method": balson.Auto(target_ess=0.0)}, "target_ess is 0.0"),
        ({"method": balson.HitAndRun(target_ess=np.ones(2))}, r"target_ess has shape \(2,\); pass one number"),
        ({"method": balson.ISIRS(defensive=1.5)}, r"defensive=1\.5 must lie between 0 and 1"),
        ({"method": balson.ISIRS(defensive=np.ones(2))}, r"defensive has shape \(2,\); pass one number"),
        ({"method": balson.ISIRS(defensive="x")}, "defensive is 'x'; pass real numbers"),
        (
            {"problem": balson.linear_problem(np.ones((1, 1100)), [1.0], noise=1.0)},
            "up to 1023 components, not 1100; pass poi",
        ),
        ({"key": 0}, "key is 0, not a PRNG key; make one with jax.random.key"),
        ({"key": np.arange(2.0)}, "key has dtype float32|float64"),
        ({"key": jax.random.split(jax.random.key(0), 3)}, r"key has shape \(3,\); pass one key, and jax.vmap"),
        ({"problem": DESIGN}, "problem is a ndarray; make one with"),
    ],
)
def test_bad_fits(arguments, message):
    problem = balson.linear_problem(DESIGN, TARGET)
    arguments = {"key": jax.random.key(0), "problem": problem, "method": "is"} | arguments
    with pytest.raises(ValueError, match=message):
        balson.fit(**arguments)


def test_bad_calls_of_a_posterior():
    found = balson.fit(jax.random.key(0), balson.linear_problem(DESIGN, TARGET, noise=0.5), FAST["is"])
    with pytest.raises(ValueError, match=r"level=90 must lie between 0 and 1; pass 0.9 for 90 %"):
        found.interval(90)
    with pytest.raises(ValueError, match=r"n is a \w+; it must be an integer of at least 1"):
        found.sample(jax.random.key(0), jax.random.key(0))
    with pytest.raises(ValueError, match=r"level=1\.0 must lie between"):
        found.interval(1.0)
    with pytest.raises(ValueError, match="n=0 must be at least 1"):
        found.sample(jax.random.key(0), 0)
    with pytest.raises(ValueError, match="must have 3 components"):
        found.predict(np.ones((4, 2)))
    # As a fit with keep=0 of a constraint whose marginals no matched Beta describes.
    bare = dataclasses.replace(
        found,
        draws=found.draws[:0],
        draw_weights=found.draw_weights[:0],
        constraint=balson.linear_problem(DESIGN, TARGET, constraint="signed").constraint,
    )
    for call in (bare.interval, lambda: bare.sample(jax.random.key(0), 3), lambda: bare.predict(DESIGN)):
        with pytest.raises(ValueError, match="kept: fit with a method whose keep is above 0"):
            call()
    with pytest.raises(ValueError, match="problem is a ModelProblem; least_squares needs one of linear_problem"):
        balson.least_squares(balson.model_problem(curve, np.arange(6.0), TARGET, 2))
    with pytest.raises(ValueError, match="model returned a dict; expected one array"):
        found.predict(lambda theta: {"a": theta})
    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda posterior: posterior.raise_for_status())(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2.0, 1.0), "smallest=2.0 and largest=1.0 must be positive, and in order"),
        ((0.0, 1.0), "smallest=0.0 and largest=1.0 must be positive, and in order"),
        ((0.1, np.inf), "smallest=0.1 and largest=inf must be positive"),
        ((np.nan, 1.0), "smallest=nan and largest=1.0 must be"),
        (("small", 1.0), "smallest is 'small'; pass real numbers"),
        ((0.1, [1.0, 2.0]), r"largest has shape \(2,\); pass one number"),
        ((0.1, 1.0, 1), "num=1 must be at least 2"),
        ((0.1, 1.0, 2.5), "num is 2.5; it must be an integer"),
    ],
)
def test_bad_ranges_of_concentrations(arguments, message):
    with pytest.raises(ValueError, match=message):
        balson.CommonConcentration(*arguments)


def test_ranges_of_concentrations_take_any_scalars():
    """They are static, so that scalars of NumPy and JAX must become numbers of Python."""
    found = balson.CommonConcentration(np.float32(0.25), jnp.array(4.0), np.int64(3))
    assert found == balson.CommonConcentration(0.25, 4.0, 3)
    assert hash(found) == hash(balson.CommonConcentration(0.25, 4.0, 3))
    np.testing.assert_allclose(found.shares().sum(), 1)
    with pytest.raises(ValueError, match="smallest has a value that is not known inside a trace; pass one number"):
        jax.jit(lambda value: balson.CommonConcentration(value, 1.0).values())(0.1)


def test_bad_calls_of_a_concentration():
    grid = jnp.array([0.1, 1.0, 10.0])
    found = balson.ConcentrationPosterior(grid, jnp.array([0.25, 0.5, 0.25]), grid, grid, grid)
    with pytest.raises(ValueError, match=r"level=90 must lie between 0 and 1; pass 0.9 for 90 %"):
        found.interval(90)
    with pytest.raises(ValueError, match=r"level has shape \(2,\); pass one number"):
        found.interval(np.ones(2) / 2)


def test_integers_lists_and_half_precision_are_accepted():
    integers = balson.linear_problem([[1, 0], [0, 1]], [1, 0])
    assert integers.dtype == jnp.float32
    half = balson.linear_problem(jnp.eye(2, dtype=jnp.bfloat16), jnp.ones(2, jnp.float16))
    assert half.dtype == jnp.float32


def test_bad_calls_with_a_problem():
    problem = balson.linear_problem(DESIGN, TARGET)
    with pytest.raises(ValueError, match=r"omega has shape \(5,\); its last axis must have the problem's 3 components"):
        balson.density.log_likelihood(problem, np.ones(5) / 5)
    with pytest.raises(ValueError, match=r"mesh is a int; make one with jax.make_mesh"):
        balson.parallel.shard(problem, 2)
    with pytest.raises(ValueError, match="problem is a ndarray; make one with"):
        balson.parallel.shard(DESIGN, 2)


@pytest.mark.parametrize("name", ["IS", "HitAndRun", "hitandrun", "Auto"])
def test_methods_go_by_their_classes_names_too(name):
    problem = balson.linear_problem(DESIGN, TARGET)
    assert type(resolve(name, problem)).__name__.lower() == name.lower()
