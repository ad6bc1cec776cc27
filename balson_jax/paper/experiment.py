"""The paper's experiment: one polynomial, many noisy data sets, seven methods, error and sparsity of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .. import metrics, reference
from ..fit import fit
from ..problem import linear_problem
from ..samplers import IS, ISIRS, RS, RSIRS
from . import data, published

NUM_TEST = 1000
EXACT = "IP, sum = C"
"""Beside the paper's methods: interior point with equality, which shares the samplers' constraint."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the experiment leaves open. The paper does not give alpha, draws, rounds, or the rule for the precision.

    Attributes:
      datasets: how many noisy data sets.
      seed: of the data and of the draws.
      alpha: concentration of the symmetric Dirichlet prior.
      match: rule for the precision of the approximating Dirichlet.
      rounds: rounds of RSIRS and ISIRS.
      num_draws: draws of each sampler and round.
    """

    datasets: int = 100
    seed: int = 0
    alpha: float = 0.5
    match: str = "ratio"
    rounds: int = 3
    num_draws: int = 4096


@dataclasses.dataclass(frozen=True)
class Results:
    """Estimates and their scores by method, one row or number per data set.

    Attributes:
      theta: ``(datasets, K)``.
      mse: mean squared error of the curve at the test points, ``(datasets,)``.
      sparsity: Hoyer's, ``(datasets,)``.
    """

    settings: Settings
    theta: dict[str, np.ndarray]
    mse: dict[str, np.ndarray]
    sparsity: dict[str, np.ndarray]


def run(settings: Settings, report: Callable[[str], None] = lambda name: None) -> Results:
    """Run all methods on the same data sets.

    Args:
      settings: what the experiment leaves open.
      report: called with the name of each method before it runs.
    """
    data_key, fit_key = jax.random.split(jax.random.key(settings.seed))
    design = data.polynomial_design(data.inputs())
    targets = data.targets(data_key, settings.datasets)
    problem = linear_problem(design, targets, noise=data.NOISE, prior=settings.alpha)
    common = {"num_draws": settings.num_draws, "match": settings.match}
    samplers = {
        "RS": RS(**common),
        "IS": IS(**common),
        "RSIRS": RSIRS(**common, rounds=settings.rounds),
        "ISIRS": ISIRS(**common, rounds=settings.rounds),
    }
    estimators: dict[str, Callable[[], jax.Array]] = {
        "LASSO": lambda: reference.lasso_within(design, targets, 1.0),
        "IP": lambda: reference.interior_point(design, targets, 1.0, "at_most"),
        "Bayesian LASSO": lambda: reference.bayesian_lasso(fit_key, design, targets).median,
        **{name: lambda method=method: fit(fit_key, problem, method).theta for name, method in samplers.items()},
        EXACT: lambda: reference.interior_point(design, targets, 1.0, "equal"),
    }
    assert tuple(estimators) == (*published.METHODS, EXACT)
    theta = {}
    for name, estimate in estimators.items():
        report(name)
        theta[name] = np.asarray(estimate())
    test = data.polynomial_design(data.inputs(NUM_TEST))
    truth = test @ jnp.asarray(data.TRUE_THETA)
    mse = {name: np.asarray(metrics.mean_squared_error(value @ test.T, truth)) for name, value in theta.items()}
    sparsity = {name: np.asarray(metrics.hoyer_sparsity(value)) for name, value in theta.items()}
    return Results(settings, theta, mse, sparsity)
