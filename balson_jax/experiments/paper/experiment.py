"""The paper's experiment: error and sparsity of seven methods on many noisy data sets from one polynomial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ... import metrics, reference
from ...dirichlet import MatchRule
from ...fit import fit
from ...problems.linear import linear_problem
from ...samplers import IS, ISIRS, RS, RSIRS
from . import data, published

TOTAL = 1.0
OLS, EXACT = "OLS", "IP, sum = C"
EXTRAS = (OLS, EXACT)
"""Methods not in the paper: unconstrained least squares, and interior point with the samplers' constraint."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the experiment. The paper does not give alpha, the rule for the precision, rounds or draws.

    Attributes:
      datasets: number of noisy data sets.
      seed: seed of the data and of the draws.
      truth: name of the true coefficients, a key of ``data.TRUTHS``.
      alpha: concentration of the symmetric Dirichlet prior.
      match: rule for the precision of the approximating Dirichlet.
      rounds: number of rounds of RSIRS and ISIRS.
      num_draws: draws per sampler and round.
    """

    datasets: int = 100
    seed: int = 0
    truth: str = "paper"
    alpha: float = 0.1
    match: MatchRule = "ratio"
    rounds: int = 10
    num_draws: int = 4096

    @property
    def theta(self) -> tuple[float, ...]:
        """The true coefficients."""
        return data.TRUTHS[self.truth]

    def keys(self) -> tuple[jax.Array, jax.Array]:
        """Return the keys of the data and of the draws."""
        data_key, fit_key = jax.random.split(jax.random.key(self.seed))
        return data_key, fit_key


@dataclasses.dataclass(frozen=True)
class Results:
    """Estimates and their scores by method, one row or number per data set.

    Attributes:
      settings: the settings of the experiment.
      theta: estimates, ``(datasets, K)``.
      mse: mean squared error of the curve at the test points, ``(datasets,)``.
      sparsity: Hoyer sparsity of theta, ``(datasets,)``.
      doubtful: number of fits with a status other than OK, by sampler.
    """

    settings: Settings
    theta: dict[str, np.ndarray]
    mse: dict[str, np.ndarray]
    sparsity: dict[str, np.ndarray]
    doubtful: dict[str, int]


def run(settings: Settings, report: Callable[[str], None] = lambda name: None) -> Results:
    """Run all methods on the same data sets.

    Args:
      settings: the settings of the experiment.
      report: called with the name of each method before it runs.
    """
    fit_key = settings.keys()[1]
    design, targets = observations(settings)
    problem = linear_problem(design, targets, total=TOTAL, noise=data.NOISE, prior=settings.alpha)
    references: dict[str, Callable[[], jax.Array]] = {
        "LASSO": lambda: reference.lasso_within(design, targets, TOTAL),
        "IP": lambda: reference.interior_point(design, targets, TOTAL, "at_most"),
        "Bayesian LASSO": lambda: reference.bayesian_lasso(fit_key, design, targets).median,
        OLS: lambda: reference.ordinary(design, targets),
        EXACT: lambda: reference.interior_point(design, targets, TOTAL, "equal"),
    }
    theta, doubtful = {}, {}
    for name, estimate in references.items():
        report(name)
        theta[name] = np.asarray(estimate())
    for name, method in samplers(settings).items():
        report(name)
        posterior = fit(fit_key, problem, method)
        theta[name], doubtful[name] = np.asarray(posterior.theta), int((posterior.status != 0).sum())
    assert set(theta) == {*published.METHODS, *EXTRAS}
    scores = {name: score(value, settings.theta) for name, value in theta.items()}
    mse, sparsity = ({name: pair[i] for name, pair in scores.items()} for i in (0, 1))
    return Results(settings, theta, mse, sparsity, doubtful)


def observations(settings: Settings) -> tuple[jax.Array, jax.Array]:
    """Return the design, ``(N, K)``, and the targets of all data sets, ``(datasets, N)``."""
    targets = data.targets(settings.keys()[0], settings.datasets, settings.theta)
    return data.polynomial_design(data.inputs(), len(settings.theta)), targets


def samplers(settings: Settings) -> dict[str, RS | IS | RSIRS | ISIRS]:
    """Return the four samplers, configured by the settings.

    Their weights are the likelihood, which is bounded, so Pareto k is not needed.
    """
    common = {"num_draws": settings.num_draws, "match": settings.match}
    weighted = {**common, "diagnose_tail": False}
    return {
        "RS": RS(**common),
        "IS": IS(**weighted),
        "RSIRS": RSIRS(**weighted, rounds=settings.rounds),
        "ISIRS": ISIRS(**weighted, rounds=settings.rounds),
    }


def score(theta: jax.Array | np.ndarray, truth: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean squared error of the curve at the test points and the sparsity of estimates ``(..., K)``."""
    error = metrics.mean_squared_error(data.curve(jnp.asarray(theta)), data.curve(truth))
    return np.asarray(error), np.asarray(metrics.hoyer_sparsity(theta))
