"""Tables 1 to 3 of the paper, ours beside the published."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import metrics
from . import published
from .experiment import EXACT, Results


class Table(NamedTuple):
    """Cells of text under column headings."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""


def tables(results: Results) -> list[Table]:
    """Return the three tables."""
    return [
        scores(results),
        p_values("Table 2: p-values of MSE, paired t-test", results.mse, published.P_MSE),
        p_values("Table 3: p-values of sparsity, paired t-test", results.sparsity, published.P_SPARSITY),
    ]


def scores(results: Results) -> Table:
    """Return Table 1: mean and standard error of error and sparsity."""
    rows = []
    for name in (*published.METHODS, EXACT):
        paper = (published.MSE.get(name), published.SPARSITY.get(name))
        cells = zip((results.mse[name], results.sparsity[name]), paper, strict=True)
        rows.append((name, *(text for ours, theirs in cells for text in (_mean(ours), _number(theirs)))))
    best = min(published.SAMPLERS, key=lambda name: results.mse[name].mean())
    exact, ours = results.mse[EXACT].mean(), results.mse[best].mean()
    verdict = "does as well or better than" if exact <= ours else "has a larger MSE than"
    return Table(
        f"Table 1: {results.settings.datasets} data sets, mean ± standard error",
        ("method", "MSE, ours", "MSE, paper", "sparsity, ours", "sparsity, paper"),
        rows,
        f"{EXACT}: not in the paper; constrained least squares with the samplers' own constraint. "
        f"It {verdict} the best sampler here ({best}).",
    )


def p_values(title: str, values: dict[str, np.ndarray], paper: dict[str, tuple[float, ...]]) -> Table:
    """Return a table of paired tests of each sampler against each reference method."""
    rows = []
    for sampler in published.SAMPLERS:
        cells = []
        for name, theirs in zip(published.REFERENCES, paper[sampler], strict=True):
            cells += [f"{metrics.paired_t_test(values[sampler], values[name]):.2e}", f"{theirs:.2e}"]
        rows.append((sampler, *cells))
    columns = [f"{name}, {whose}" for name in published.REFERENCES for whose in ("ours", "paper")]
    return Table(title, ("", *columns), rows)


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else float("nan")
    return f"{values.mean():.4f} ± {error:.4f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
