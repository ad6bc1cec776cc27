"""The experiment: how often each method recovers theta, over the number of rows and of components present."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import jax
import numpy as np

from ...fit import fit
from ...least_squares import least_squares
from ...posteriors.posterior import Posterior
from ...problems.linear import LinearProblem, linear_problem
from ...reference import lasso_within
from ...samplers import HitAndRun
from ...targets.base import PRESENT_SHARE
from .data import Case, Cell, Problems, joined, make

MEAN, SPARSE, MODE = "posterior mean", "sparse", "theta"
OURS = (MEAN, SPARSE, MODE)
"""Point estimates of a posterior: its mean, ``posterior.sparse``, and the sparse mode of the matched Dirichlet."""

LASSO = "LASSO"
"""Method of comparison: least squares with an L1 norm of at most 1."""

NNLS = "nonnegative LS"
"""Method of comparison: least squares without negative components."""

EXACT = "constrained LS"
"""Method of comparison: least squares without negative components, with a sum of 1."""

RECOVERED = 0.1
"""Theta is recovered if the relative error of an estimate is at most this."""

METHOD = HitAndRun(target_ess=100.0, max_moves=1 << 12, walkers=8, keep=256)
"""Chains, because no proposal serves this many components. They are short: a mean needs few draws."""

MAX_STEPS = 10_000
"""Number of iterations of nonnegative least squares, at most."""

NOISE = 0.03
CASES = (
    Case("gaussian", "equal", 0.0),
    Case("gaussian", "equal", NOISE),
    Case("gaussian", "signed", 0.0),
    Case("gaussian", "signed", NOISE),
    Case("fourier", "equal", 0.0),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the experiment.

    Attributes:
      num_components: K.
      shares_of_rows: N / K of the grid.
      shares_present: s / N of the grid.
      trials: number of problems of a cell.
      seed: seed of the data and of the draws.
      prior: concentrations of the Dirichlet prior.
      level: noise level that fits of noiseless rows assume, as a share of their root mean square.
      cases: kinds of problems.
    """

    num_components: int = 30
    shares_of_rows: tuple[float, ...] = (0.2, 0.35, 0.5, 0.65, 0.8)
    shares_present: tuple[float, ...] = (0.1, 0.25, 0.4, 0.55, 0.7)
    trials: int = 6
    seed: int = 0
    prior: float = 0.1
    level: float = 0.01
    cases: tuple[Case, ...] = CASES

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the grid, those with few rows first."""
        rows = [round(share * self.num_components) for share in self.shares_of_rows]
        return tuple(Cell(count, max(1, round(share * count))) for count in rows for share in self.shares_present)

    @property
    def most_rows(self) -> int:
        """The largest number of rows."""
        return max(cell.num_rows for cell in self.cells)


QUICK = Settings(
    num_components=20, shares_of_rows=(0.3, 0.6), shares_present=(0.2, 0.5), trials=4, cases=(CASES[0], CASES[3])
)
"""Settings of a run of a minute, most of it compilation."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What the methods made of the problems of one case, for each cell and trial.

    Attributes:
      case: the kind of problems.
      error: relative errors ``|estimate - theta| / |theta|``, ``(cells, trials)`` by method.
      support: whether components of more than a hundredth are those of the truth, ``(cells, trials)`` by method; that
        of the posterior mean is ``posterior.support()``.
      expected: relative error that the posterior itself expects of its mean, ``(cells, trials)``.
      inclusion: probabilities that components are present, ``(cells, trials, K)``.
      present: whether they are.
      trusted: whether the status of the fit is OK, ``(cells, trials)``.
    """

    case: Case
    error: dict[str, np.ndarray]
    support: dict[str, np.ndarray]
    expected: np.ndarray
    inclusion: np.ndarray
    present: np.ndarray
    trusted: np.ndarray

    def recovered(self, method: str) -> np.ndarray:
        """Return the share of problems that a method recovers, ``(cells,)``."""
        return (self.error[method] <= RECOVERED).mean(-1)

    @property
    def others(self) -> tuple[str, ...]:
        """The methods of comparison."""
        return tuple(name for name in self.error if name not in OURS)

    @property
    def best_other(self) -> np.ndarray:
        """The share of problems that the best method of comparison recovers, ``(cells,)``."""
        return np.max([self.recovered(name) for name in self.others], 0)


@dataclasses.dataclass(frozen=True)
class Results:
    """The outcomes of all cases, and the settings that gave them."""

    settings: Settings
    outcomes: tuple[Outcome, ...]


def run(settings: Settings, report: Callable[[str], None] = lambda name: None) -> Results:
    """Run all methods on the same problems.

    Args:
      settings: the settings of the experiment.
      report: called with a description before each of ``len(cases) * len(shares_of_rows)`` parts.
    """
    return Results(settings, tuple(_run_case(settings, number, report) for number in range(len(settings.cases))))


def _run_case(settings: Settings, number: int, report: Callable[[str], None]) -> Outcome:
    """Return the outcome of one case; all problems with the same number of rows are one batch."""
    case, parts = settings.cases[number], []
    groups = itertools.groupby(enumerate(settings.cells), lambda numbered: numbered[1].num_rows)
    for place, (num_rows, cells) in enumerate(groups):
        report(f"{case.name}: {num_rows} rows")
        problems = [
            make(
                np.random.default_rng([settings.seed, number, own]),
                case,
                cell,
                settings.num_components,
                settings.trials,
            )
            for own, cell in cells
        ]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.seed), number), place)
        parts.append(solve(key, case, joined(problems), settings))

    def gathered(values: list[np.ndarray]) -> np.ndarray:
        whole = np.concatenate(values)
        return whole.reshape(len(settings.cells), settings.trials, *whole.shape[1:])

    error, support = (
        {name: gathered([getattr(part, field)[name] for part in parts]) for name in getattr(parts[0], field)}
        for field in ("error", "support")
    )
    fields = ("expected", "inclusion", "present", "trusted")
    rest = {name: gathered([getattr(part, name) for part in parts]) for name in fields}
    return Outcome(case, error, support, **rest)


def solve(key: jax.Array, case: Case, problems: Problems, settings: Settings) -> Outcome:
    """Return what the methods make of problems of one shape; the arrays have one leading axis, of problems."""
    problems = problems.padded(settings.most_rows)
    problem = as_problem(case, problems, settings)
    posterior = fit(key, problem, METHOD)
    estimates = {
        MEAN: np.asarray(posterior.mean),
        SPARSE: posterior.sparse(problem),
        MODE: np.asarray(posterior.theta),
        **compared(case, problems, problem),
    }
    present = np.abs(problems.theta) > PRESENT_SHARE
    length = np.linalg.norm(problems.theta, axis=-1)
    found = {name: np.abs(values) > PRESENT_SHARE for name, values in estimates.items()}
    found[MEAN] = np.asarray(posterior.support())
    return Outcome(
        case,
        {name: np.linalg.norm(values - problems.theta, axis=-1) / length for name, values in estimates.items()},
        {name: (values == present).all(-1) for name, values in found.items()},
        expected_error(posterior),
        np.asarray(posterior.inclusion()),
        present,
        np.asarray(posterior.status) == 0,
    )


def as_problem(case: Case, problems: Problems, settings: Settings) -> LinearProblem:
    """Return the batch of linear problems; fits of noiseless rows assume a little noise."""
    design, target = (array.astype(np.float32) for array in problems[:2])
    noise = case.noise or settings.level
    return linear_problem(design, target, noise=noise, prior=settings.prior, constraint=case.constraint)


def compared(case: Case, problems: Problems, problem: LinearProblem) -> dict[str, np.ndarray]:
    """Return the estimates of the methods of comparison, ``(problems, K)`` by name.

    With signs the constrained optimum is LASSO's.
    """
    if case.signed:
        return {LASSO: np.asarray(least_squares(problem).theta)}
    from scipy.optimize import nnls

    design, target = (array.astype(np.float32) for array in problems[:2])
    return {
        LASSO: np.asarray(lasso_within(design, target)),
        NNLS: np.stack([nnls(*one, maxiter=MAX_STEPS)[0] for one in zip(*problems[:2], strict=True)]),
        EXACT: np.asarray(least_squares(problem).theta),
    }


def expected_error(posterior: Posterior) -> np.ndarray:
    """Return the relative error of the mean that the posterior expects (root mean square), ``(...)``."""
    mean, std = np.asarray(posterior.mean), np.asarray(posterior.std)
    return np.linalg.norm(std, axis=-1) / np.sqrt(np.square(mean).sum(-1) + np.square(std).sum(-1))
