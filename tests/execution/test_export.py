"""Everything lowers for accelerators that this machine need not have."""

from __future__ import annotations

import jax
import jax.export
import jax.numpy as jnp
from cases import thinned

import balson_jax as balson
from balson_jax import random
from balson_jax.random.points import sobol


def problem(num_problems: int | None = 3) -> balson.Problem:
    shape = (6,) if num_problems is None else (num_problems, 6)
    design = jnp.linspace(0, 1, 6)[:, None] ** jnp.arange(3)
    return balson.linear_problem(design, jnp.ones(shape), noise=1.0)


def fit_with(method):
    # Exported programs take plain arrays: a seed, not a typed key.
    return lambda seed, problem: balson.fit(jax.random.key(seed), problem, method)


def gradient(seed, problem):
    return jax.grad(lambda p: balson.fit(jax.random.key(seed), p, "is").log_evidence.sum())(problem)


def decay(theta, times):
    return theta[0] * jnp.exp(-theta[1] * times)


def beyond(constraint: str) -> balson.Problem:
    """Unknown noise, gaps, and a constraint that lifts."""
    design = jnp.linspace(0, 1, 6)[:, None] ** jnp.arange(3)
    targets = jnp.ones((3, 6)).at[0, 1].set(jnp.nan) + 0.1 * jnp.arange(6)
    return balson.linear_problem(design, targets, constraint=constraint, missing="drop")


def intervals(seed, problem):
    """Shortest and central intervals, predictions, and the posterior of the nuisance columns."""
    found = balson.fit(jax.random.key(seed), problem, balson.TG(1024))
    assert found.nuisance is not None
    return found.hdi(0.9), found.interval(0.9), found.std_stderr, found.residual, found.nuisance.std


def correlated(seed, targets, covariance):
    """Noise as ``learn`` finds it: a covariance, with a level for each problem."""
    design = jnp.linspace(0, 1, 6)[:, None] ** jnp.arange(3)
    noise = balson.Correlated(covariance, scale="estimate")
    return balson.fit(jax.random.key(seed), balson.linear_problem(design, targets, noise=noise, prior=0.3), "tg").hdi()


SEED = jnp.uint32(0)
FUNCTIONS = {
    "intervals": lambda: (
        intervals,
        SEED,
        balson.linear_problem(jnp.linspace(0, 1, 6)[:, None] ** jnp.arange(1, 4), jnp.arange(6.0), intercept=True),
    ),
    "correlated": lambda: (correlated, SEED, jnp.ones((3, 6)), jnp.eye(6) + 0.5),
    "rs": lambda: (fit_with("rs"), SEED, problem()),
    "is": lambda: (fit_with("is"), SEED, problem()),
    "is alone": lambda: (fit_with(balson.IS(match="kl")), SEED, problem(None)),
    "rsirs": lambda: (fit_with("rsirs"), SEED, problem()),
    "isirs": lambda: (fit_with("isirs"), SEED, problem()),
    "auto": lambda: (fit_with("auto"), SEED, problem()),
    "hit_and_run": lambda: (fit_with("hit_and_run"), SEED, beyond("signed")),
    "variational": lambda: (fit_with("variational"), SEED, problem()),
    "tg model": lambda: (
        fit_with("tg"),
        SEED,
        balson.model_problem(decay, jnp.arange(6.0), jnp.ones((3, 6)), 2, noise=1.0),
    ),
    "pmc": lambda: (fit_with(balson.ISIRS(reuse_data=False)), SEED, problem()),
    "signed": lambda: (fit_with("is"), SEED, beyond("signed_at_most")),
    "at most": lambda: (fit_with("rs"), SEED, beyond("at_most")),
    "model": lambda: (
        fit_with("is"),
        SEED,
        balson.model_problem(decay, jnp.arange(6.0), jnp.ones((3, 6)), 2, noise=1.0),
    ),
    "gaps": lambda: (
        lambda design, targets: balson.linear_problem(design, targets, missing="drop"),
        jnp.ones((6, 3)),
        jnp.ones((4, 6)),
    ),
    "gradient": lambda: (gradient, SEED, problem()),
    "linear_problem": lambda: (balson.linear_problem, jnp.ones((6, 3)), jnp.ones((4, 6))),
    "least_squares": lambda: (balson.least_squares, problem()),
    "dirichlet": lambda: (lambda seed, a: random.dirichlet(jax.random.key(seed), a, (1000,)), SEED, jnp.ones(5)),
    "beta": lambda: (lambda seed, a: random.beta(jax.random.key(seed), a, a), SEED, jnp.ones(5)),
    "sobol": lambda: (lambda seed: sobol(jax.random.key(seed), 5, 1024), SEED),
}


LONG = ["correlated", "hit_and_run", "intervals", "pmc", "rs", "signed", "tg model"]
"""Functions that take seconds to trace."""


@thinned("platform", ["cuda"], ["tpu", "rocm"])
@thinned("name", [name for name in FUNCTIONS if name not in LONG], LONG)
def test_lowers(name, platform):
    function, *arguments = FUNCTIONS[name]()
    exported = jax.export.export(jax.jit(function), platforms=[platform])(*arguments)
    assert exported.platforms == (platform,)
    assert len(exported.mlir_module_serialized) > 1000


# --- many columns of which few matter: presence, unknown concentrations, evidence of chains ---------------------------


def columns(num_components: int, prior) -> balson.Problem:
    design = jnp.cos(jnp.arange(1.0, 7)[:, None] * jnp.arange(num_components))
    return balson.linear_problem(design, jnp.ones((3, 6)), noise=1.0, prior=prior)


RANGE = balson.CommonConcentration(0.1, 2.0, 3)


def presence(seed, problem):
    """Probabilities of inclusion from all draws and from kept ones, and what follows from them."""
    found = balson.fit(jax.random.key(seed), problem, balson.IS(1024))
    assert found.present is not None
    return found.inclusion(), found.present_stderr, found.inclusion(0.05), found.support(0.9)


def concentrations(seed, problem):
    found = balson.fit(jax.random.key(seed), problem, balson.IS(1024))
    return found.concentration.interval(0.8), found.concentration.mean, found.concentration.std, found.hdi()


SPARSE = {
    "presence": lambda: (presence, columns(9, 0.3)),
    "concentrations": lambda: (concentrations, columns(3, RANGE)),
    "concentrations by auto": lambda: (fit_with("auto"), columns(3, RANGE)),
    "concentrations by chains": lambda: (fit_with("hit_and_run"), columns(3, RANGE)),
    "evidence": lambda: (fit_with(balson.HitAndRun(evidence=True)), beyond("signed_at_most")),
    "evidence of a model": lambda: (fit_with(balson.HitAndRun(evidence=True)), FUNCTIONS["model"]()[-1]),
    "rates": lambda: (fit_with(balson.HitAndRun(walls="rates", evidence=True)), columns(9, 0.3)),
    "auto": lambda: (fit_with(balson.Auto(evidence=True)), columns(33, 1.0)),
}


@thinned("name", ["presence"], [name for name in SPARSE if name != "presence"])
def test_sparse_priors_lower_for_all_platforms_at_once(name):
    function, problem = SPARSE[name]()
    exported = jax.export.export(jax.jit(function), platforms=["cuda", "tpu", "rocm"])(SEED, problem)
    assert exported.platforms == ("cuda", "tpu", "rocm")
    assert len(exported.mlir_module_serialized) > 1000
