"""Tables of the experiment, and what it found in two sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..page import Table
from .experiment import EXACT, LASSO, MEAN, MODE, NNLS, OURS, RECOVERED, SPARSE, Outcome, Results
from .theory import rows_needed

METHODS = (MEAN, SPARSE, MODE, EXACT, NNLS, LASSO)
BINS = 10


class Reliability(NamedTuple):
    """Probabilities of inclusion in bins: their mean, the share of components that are present, and their number."""

    claimed: np.ndarray
    held: np.ndarray
    number: np.ndarray


class Honesty(NamedTuple):
    """Numbers of problems by whether the posterior expects to have recovered theta, and by whether it has.

    The first word is what the posterior expects of its mean: an error of at most ``RECOVERED`` ("yes"), or more.
    """

    yes_recovered: int
    yes_missed: int
    no_recovered: int
    no_missed: int


def tables(results: Results) -> list[Table]:
    """Return all tables."""
    return [recovery(results), supports(results), honesty_table(results), reliability_table(results), needed(results)]


def recovery(results: Results) -> Table:
    """Return the shares of problems that the methods recover, and in how many cells the mean is at least as good."""
    rows = []
    for outcome in results.outcomes:
        shares = [_percent(outcome.recovered(name).mean()) if name in outcome.error else "" for name in METHODS]
        good = outcome.recovered(MEAN) >= outcome.best_other
        rows.append((outcome.case.name, *shares, f"{good.sum()} of {good.size}"))
    return Table(
        f"Problems recovered, to a relative error of {RECOVERED:g}",
        ("", *METHODS, "mean ≥ best other, cells"),
        rows,
        "The first three are of one posterior: its mean, few components that predict what the mean predicts "
        "(posterior.sparse), and the paper's sparse mode (posterior.theta). The others know that there are no signs "
        "(nonnegative LS), that the L1 norm is at most 1 (LASSO), or both, with a sum of exactly 1 (constrained LS). "
        f"Where theta has signs, constrained LS is LASSO. {doubts(results)}",
    )


def doubts(results: Results) -> str:
    """Return how many fits the library itself does not trust."""
    trusted = np.concatenate([outcome.trusted.ravel() for outcome in results.outcomes])
    if trusted.all():
        return "All fits have status OK."
    return (
        f"{(~trusted).sum():,} of {trusted.size:,} fits have a status other than OK: the chains are short, so "
        "that R-hat or effective draws are not what fit asks for by default. Means and standard deviations are "
        "used as they are."
    )


def supports(results: Results) -> Table:
    """Return the shares of problems whose support is found exactly."""
    rows = []
    for outcome in results.outcomes:
        found = [_percent(outcome.support[name].mean()) if name in outcome.support else "" for name in METHODS]
        rows.append((outcome.case.name, *found))
    return Table(
        "Problems whose support is found: components above a hundredth, all of them and no others",
        ("", *METHODS),
        rows,
        "Of the posterior mean: posterior.support(), the components that are more likely present than not.",
    )


def honesty(outcomes: Sequence[Outcome]) -> Honesty:
    """Return how often posteriors expect a small error of their mean, and how often it is small."""
    yes = np.concatenate([(outcome.expected <= RECOVERED).ravel() for outcome in outcomes])
    is_so = np.concatenate([(outcome.error[MEAN] <= RECOVERED).ravel() for outcome in outcomes])
    return Honesty(*(int((a & b).sum()) for a in (yes, ~yes) for b in (is_so, ~is_so)))


def honesty_table(results: Results) -> Table:
    """Return what posteriors say of their own success."""
    rows = []
    for outcome in results.outcomes:
        found = honesty([outcome])
        doubtful = int((~outcome.trusted).sum())
        rows.append((outcome.case.name, *(f"{count}" for count in found), f"{doubtful}"))
    return Table(
        "What the posterior says: does it expect to have recovered theta, and has it?",
        ("", "yes, and has", "yes, but has not", "no, but has", "no, and has not", "status not OK"),
        rows,
        f"It expects so if its own standard deviations add up to a relative error of at most {RECOVERED:g}. Least "
        "squares and LASSO return a point and say nothing.",
    )


def reliability(outcomes: Sequence[Outcome], bins: int = BINS) -> Reliability:
    """Return how often components are present, in bins of equal width of the probability that posteriors give them."""
    claimed = np.concatenate([outcome.inclusion.ravel() for outcome in outcomes])
    present = np.concatenate([outcome.present.ravel() for outcome in outcomes])
    place = np.clip((claimed * bins).astype(int), 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    sums = (np.bincount(place, values, bins) for values in (claimed, present.astype(float)))
    some = np.maximum(count, 1)
    means = [np.where(count > 0, own / some, np.nan) for own in sums]
    return Reliability(means[0], means[1], count)


def reliability_table(results: Results) -> Table:
    """Return the calibration of probabilities of inclusion over all cases."""
    found = reliability(results.outcomes)
    rows = [
        (f"{low / BINS:g} to {(low + 1) / BINS:g}", _fraction(claimed), _fraction(held), f"{count:,}")
        for low, (claimed, held, count) in enumerate(zip(*found, strict=True))
    ]
    return Table(
        "Probabilities of inclusion, and how often such components are present",
        ("probability", "mean", "present", "components"),
        rows,
        "The truth of these problems is not a draw from the prior: numbers of components present follow from the grid.",
    )


def needed(results: Results) -> Table:
    """Return the shares recovered of noiseless problems with enough rows, by the theory, and with fewer."""
    settings = results.settings
    rows = []
    for outcome in results.outcomes:
        if outcome.case.noise or outcome.case.design != "gaussian":
            continue
        name = LASSO if outcome.case.signed else EXACT
        above = [
            cell.num_rows >= rows_needed(settings.num_components, cell.num_present, outcome.case.signed)
            for cell in settings.cells
        ]
        own = [
            outcome.recovered(method)[np.asarray(above) == side] for side in (True, False) for method in (name, MEAN)
        ]
        rows.append((outcome.case.name, *(_percent(part.mean()) if part.size else "" for part in own)))
    return Table(
        "Noiseless problems recovered with enough rows for least squares, by the theory, and with fewer",
        ("", "enough: least squares", "posterior mean", "too few: least squares", "posterior mean"),
        rows,
        "Enough: at least the statistical dimension of the tangent cone (Donoho and Tanner's weak threshold).",
    )


def finding(results: Results) -> str:
    """Return what was found, in two sentences."""
    clean = [outcome for outcome in results.outcomes if not outcome.case.noise]
    noisy = [outcome for outcome in results.outcomes if outcome.case.noise]
    first = []
    for outcomes, words in ((clean, "without noise"), (noisy, "with noise")):
        if outcomes:
            ours, best = (
                float(np.mean([own.mean() for own in parts]))
                for parts in ([own.recovered(MEAN) for own in outcomes], [own.best_other for own in outcomes])
            )
            first.append(f"{_percent(ours)} of the problems {words} (the best other method {_percent(best)})")
    counts = honesty(results.outcomes)
    missed, told = counts.yes_missed + counts.no_missed, counts.no_missed
    yes = counts.yes_recovered + counts.yes_missed
    told = _percent(told / max(missed, 1))
    right = "it never expects success"
    if yes:
        right = f"where it expects success it is right in {_percent(counts.yes_recovered / yes)}"
    return (
        f"With fewer rows than components the posterior mean under a sparse prior recovers {' and '.join(first)}. "
        f"It also tells: of {missed:,} problems that it has not recovered it says so for {told}, "
        f"and {right}."
    )


def for_csv(results: Results) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and rows of a table with a row for each problem and method."""
    header = ("case", "rows", "present", "trial", "method", "error", "support", "expected", "trusted")
    rows = []
    for outcome in results.outcomes:
        for place, cell in enumerate(results.settings.cells):
            for trial in range(results.settings.trials):
                own = f"{outcome.expected[place, trial]:.6g}", str(bool(outcome.trusted[place, trial]))
                for name, error in outcome.error.items():
                    told = own if name in OURS else ("", "")
                    found = f"{error[place, trial]:.6g}", str(bool(outcome.support[name][place, trial]))
                    rows.append((outcome.case.name, *map(str, cell), str(trial), name, *found, *told))
    return header, rows


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _fraction(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"
