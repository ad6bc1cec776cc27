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
