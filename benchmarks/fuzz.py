"""Is a fit with status OK as exact as it says? Thousands of random small problems against a truth in float64.

Each problem is fitted by the default method in float32. Mean, standard deviation and evidence of those with status OK
must lie within six of their own standard errors of the truth (see ``truth``).
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time

import jax
import numpy as np

import balson_jax as balson

from . import strong_truth
from . import truth as exact
from .fuzz_problems import CONSTRAINTS, KINDS, SIZES, Batch, batch
from .report import Result, Table, Target

BEYOND = 6.0
"""Number of standard errors that no trusted fit may be off."""

KNOWN = 1 / 3
"""A truth counts if its error is at most this share of the fit's standard error."""

ROUNDED = 4 * float(np.finfo(np.float32).eps)
"""Allowance for float32, relative to the number itself: two roundings of a draw of omega, and of the result."""

CHUNK = 12_288
"""Draws of a replicate of importance sampling; each noise level of a proposal has the same share of them."""

STEADY, LEAST_SHARE = 0.6, 0.005
"""A truth by draws counts if no replicate has a share of effective draws below these: of the median, and at all."""

QUANTITIES = ("mean", "std", "log_evidence")
COLUMNS = ["constraint", "noise", "K", "problems", "trusted", "truth", "z mean", "z std", "z evidence", "beyond"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One fit with status OK against its truth.

    Attributes:
      z: largest difference of each quantity, in combined standard errors; NaN where there is no truth or no estimate.
      known: whether the truth is exact enough for all that was estimated.
      text: the problem and the numbers.
    """

    z: dict[str, float]
    known: bool
    text: str

    @property
    def is_beyond(self) -> bool:
        """Whether a quantity is off by more than it may."""
        return any(value > BEYOND for value in self.z.values())


def compared(problems: Batch, seed: int = 0, budget: int = 1 << 20) -> tuple[np.ndarray, list[Comparison]]:
    """Return the statuses of a batch, and the comparisons of fits with status OK.

    Args:
      problems: the batch.
      seed: of the fit.
      budget: largest number of draws of a truth by importance sampling.
    """
    found = balson.fit(jax.random.key(seed), problems.problem())
    status = np.asarray(found.status)
    return status, [compare(problems, found, index, budget) for index in np.flatnonzero(status == 0)]


def compare(problems: Batch, found: balson.Posterior, index: int, budget: int) -> Comparison:
    """Return the comparison of one fit with its truth."""
    fit = {name: np.atleast_1d(np.asarray(getattr(found, name)[index], float)) for name in QUANTITIES}
    own = {name: np.atleast_1d(np.asarray(getattr(found, f"{name}_stderr")[index], float)) for name in QUANTITIES}
    wanted = {
        name: KNOWN * own[name] + ROUNDED * np.abs(fit[name]) for name in QUANTITIES if np.isfinite(fit[name]).all()
    }
    truth = true_posterior(problems, index, wanted, budget)
    z, known = {}, truth is not None
    for name in wanted:
        z[name] = float("nan")
        if truth is None:
            continue
        value, error = (np.atleast_1d(getattr(truth, field)) for field in (name, f"{name}_error"))
        if (error > wanted[name]).any():
            known = False
            continue
        away = np.maximum(np.abs(fit[name] - value) - ROUNDED * np.abs(fit[name]), 0)
        z[name] = float((away / np.hypot(own[name], error)).max())
    said = ", ".join(f"{name} {value:.2f}" for name, value in z.items())
    text = f"{problems.described(index)}; {found.method[index]}, ess {float(found.ess[index]):.0f}; z of {said}"
    return Comparison(z, known, text + ("" if truth is None else f"; truth by {truth.method}"))


def true_posterior(problems: Batch, index: int, wanted: dict[str, np.ndarray], budget: int) -> exact.Truth | None:
    """Return the truth of a problem, as exact as wanted if that is possible; ``None`` if there is none."""
    columns, maps = problems.lifted(index)
    alpha, rows = problems.prior[index].astype(float), np.isfinite(problems.target[index])
    level = None if problems.level is None else float(problems.level[index])
    noise = {"shape": float(problems.shape[index]), "scale": float(problems.scale[index])}
    likelihood = exact.Likelihood(columns[rows], problems.target[index, rows].astype(float), level, **noise)
    rng = np.random.default_rng([index, *map(ord, problems.constraint)])
    log_likelihood = likelihood(exact.prior_draws(rng, alpha, 4096))
    weights = np.exp(log_likelihood - log_likelihood.max())
    share = weights.mean() ** 2 / np.square(weights).mean()
    if share > 0.2:
        truth = exact.product_rule(likelihood, alpha, maps)
        if suffices(truth, wanted):
            return truth
    if len(alpha) <= 3:
        return exact.quadrature(likelihood, alpha, maps)
    if share > 0.02:
        drawn = by_draws(Prior(likelihood, alpha), maps @ (alpha / alpha.sum()), maps, rng, wanted, budget)
        if drawn is not None and (share > 0.2 or suffices(drawn, wanted)):
            return drawn
    if alpha.min() < strong_truth.LEAST_CONCENTRATION:
        return None
    return by_draws(strong_truth.Strong(likelihood, alpha), maps @ likelihood.optimum(), maps, rng, wanted, budget)


@dataclasses.dataclass(frozen=True)
class Prior:
    """Importance sampling from the prior."""

    likelihood: exact.Likelihood
    alpha: np.ndarray
    name = "draws of the prior"

    def weighted(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return draws and their log-weights."""
        omega = exact.prior_draws(rng, self.alpha, count)
        return omega, self.likelihood(omega)


def by_draws(proposal, pivot, maps, rng, wanted, budget: int) -> exact.Truth | None:
    """Return the truth from weighted draws, or ``None`` if the replicates have very different effective numbers.

    That is how large weights show that are too rare for a replicate to have its share of them.
    """
    sums, shares, truth = exact.Sums(pivot), [], None
    while sums.count < budget and not (truth is not None and suffices(truth, wanted)):
        for _ in range(16):
            omega, log_weights = proposal.weighted(rng, CHUNK)
            weights = np.exp(log_weights - log_weights.max())
            shares.append(weights.sum() ** 2 / np.square(weights).sum() / CHUNK)
            sums.add(log_weights, omega @ maps.T)
        if not min(shares) > max(STEADY * np.median(shares), LEAST_SHARE):
            return None
        truth = sums.truth(proposal.name)
    return truth


def suffices(truth: exact.Truth, wanted: dict[str, np.ndarray]) -> bool:
    """Return whether the errors of a truth are as small as wanted."""
    return all((np.asarray(getattr(truth, f"{name}_error")) <= bound).all() for name, bound in wanted.items())


def run(quick: bool) -> Result:
    count, batches = (32, 1) if quick else (180, 1)
    sizes = (2,) if quick else SIZES
    rows, offenders = [], []
    for size, constraint, kind in itertools.product(sizes, CONSTRAINTS, KINDS):
        start = time.perf_counter()
        row, beyond = stratum(size, constraint, kind, count, batches)
        rows.append(row)
        offenders += beyond
        said = ", ".join(f"{name} {value}" for name, value in zip(COLUMNS, row, strict=True))
        print(f"{said}; {time.perf_counter() - start:.0f} s", *beyond, sep="\n  ", file=sys.stderr, flush=True)
    table = Table(
        "Random problems by the default method in float32 against a truth in float64",
        COLUMNS,
        rows,
        "trusted: share with status OK. truth: share of these whose truth is known to a third of the standard error. "
        "z: largest difference in standard errors. beyond: number of problems with a difference above 6.",
    )
    known = sum(row[3] * row[4] * row[5] for row in rows)
    listed = Table("Beyond 6 standard errors", ["problem"], [[text] for text in offenders])
    return Result(
        [table, listed] if offenders else [table],
        [
            Target("problems beyond 6 standard errors", len(offenders), 0, at_least=False),
            Target("problems compared", known, 100 if quick else 5000),
        ],
    )


def stratum(size: int, constraint: str, kind: str, count: int, batches: int, first: int = 0) -> tuple[list, list[str]]:
    """Return a row of the table, and the texts of the problems that are beyond."""
    trusted, comparisons = 0, []
    for number in range(first, first + batches):
        _, found = compared(batch(size, constraint, kind, number, count), seed=number)
        trusted += len(found)
        comparisons += found
    largest = [max([c.z.get(name, np.nan) for c in comparisons], key=_or_zero, default=np.nan) for name in QUANTITIES]
    known = sum(comparison.known for comparison in comparisons)
    beyond = [comparison.text for comparison in comparisons if comparison.is_beyond]
    shares = trusted / (count * batches), known / max(trusted, 1)
    return [constraint, kind, size, count * batches, *shares, *largest, len(beyond)], beyond


def _or_zero(value: float) -> float:
    return 0.0 if np.isnan(value) else value


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    for name, marker in (("z mean", "o"), ("z std", "s"), ("z evidence", "^")):
        axes.plot(table.column(name), marker, mfc="none", label=name[2:])
    axes.axhline(BEYOND, color="0.5", lw=1)
    axes.set(xlabel="stratum", ylabel="largest difference, standard errors")
    axes.legend()
