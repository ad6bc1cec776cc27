"""Tables 1 to 3 of the paper, with our numbers beside the published ones, and further tables."""

from __future__ import annotations

import numpy as np

from ... import metrics
from ..page import Table
from . import published
from .experiment import EXACT, EXTRAS, Results

LEVEL = 0.05
"""Level of significance, as in the paper."""


def tables(results: Results) -> list[Table]:
    """Return the paper's three tables, and a fourth that compares the samplers with the exact constrained optimum."""
    return [
        scores(results),
        p_values("Table 2: p-values of MSE (paired t-test)", results.mse, published.P_MSE),
        p_values("Table 3: p-values of sparsity (paired t-test)", results.sparsity, published.P_SPARSITY),
        against_exact(results),
    ]


def scores(results: Results) -> Table:
    """Return Table 1: mean and standard error of the MSE and of the sparsity."""
    rows = []
    for name in (*published.METHODS, *EXTRAS):
        ours = results.mse[name], results.sparsity[name]
        paper = published.MSE.get(name), published.SPARSITY.get(name)
        cells = (text for pair in zip(ours, paper, strict=True) for text in (_mean(pair[0]), _number(pair[1])))
        rows.append((name, *cells))
    truth = float(metrics.hoyer_sparsity(np.array(results.settings.theta)))
    rows.append(("true θ", "0", "", f"{truth:.4f}", f"{published.TRUE_SPARSITY:.4f}"))
    settings, doubtful = results.settings, sum(results.doubtful.values())
    fits = settings.datasets * len(published.SAMPLERS)
    doubts = "All fits have status OK" if not doubtful else f"{doubtful} of {fits} fits have a status other than OK"
    single = ", ".join(f"{name} {int((results.sparsity[name] > 0.9999).sum())}" for name in published.SAMPLERS)
    return Table(
        f"Table 1: {settings.datasets} data sets, mean ± standard error",
        ("", "MSE", "paper", "sparsity", "paper"),
        rows,
        f"Sampler settings, which the paper does not give: α = {settings.alpha:g}, rule “{settings.match}”, "
        f"R = {settings.rounds} rounds, L = {settings.num_draws:,} draws. {doubts}. "
        f"Estimates with a single term: {single}.",
    )


def p_values(title: str, values: dict[str, np.ndarray], paper: dict[str, tuple[float, ...]]) -> Table:
    """Return a table of p-values of paired t-tests of each sampler against each reference method."""
    rows = []
    for sampler in published.SAMPLERS:
        cells = []
        for name, theirs in zip(published.REFERENCES, paper[sampler], strict=True):
            cells += [f"{metrics.paired_t_test(values[sampler], values[name]):.1e}", f"{theirs:.1e}"]
        rows.append((sampler, *cells))
    columns = [text for name in published.REFERENCES for text in (name, "paper")]
    return Table(title, ("", *columns), rows)


def against_exact(results: Results) -> Table:
    """Return a table that compares the samplers with constrained least squares under the samplers' constraint."""
    rows = []
    for name in published.SAMPLERS:
        cells = []
        for values, words in ((results.mse, ("smaller", "larger")), (results.sparsity, ("lower", "higher"))):
            cells += _compare(values[name], values[EXACT], words)
        rows.append((name, *cells))
    verdicts = {
        "not clear": "as well, as far as these data sets can tell, as",
        "larger": "better than",
        "smaller": "worse than",
    }
    names = {word: ", ".join(row[0] for row in rows if row[3] == word) for word in verdicts}
    said = "; ".join(f"{phrase} {names[word]}" for word, phrase in verdicts.items() if names[word])
    return Table(
        f"Table 4 (not in the paper): the samplers beside {EXACT}",
        ("", "MSE − IP's", "p", "MSE is", "sparsity − IP's", "p", "sparsity is"),
        rows,
        f"{EXACT} is constrained least squares with the samplers' constraint, solved exactly. In MSE it does {said}. "
        f"“Not clear”: p ≥ {LEVEL:g}.",
    )


def truths(found: list[Results]) -> list[Table]:
    """Return a table of MSE and one of sparsity over true coefficients, for each concentration of the prior."""
    names = (*published.METHODS, EXACT)
    columns = ("true θ", *(name.replace("Bayesian ", "B.").replace(", sum = C", " (=)") for name in names))
    note = (
        f"claim: RSIRS has a smaller MSE than LASSO, IP (sum ≤ C) and Bayesian LASSO, with p < {LEVEL:g}. IP (=) has "
        "the constraint sum = C, as the samplers do."
    )
    shown = []
    for alpha in dict.fromkeys(results.settings.alpha for results in found):
        errors, sparsities = [], []
        for results in found:
            if results.settings.alpha == alpha:
                errors.append((results.settings.truth, *_means(results.mse, names, 1000, 1), _claim(results)))
                true = float(metrics.hoyer_sparsity(np.array(results.settings.theta)))
                sparsities.append((results.settings.truth, *_means(results.sparsity, names, 1, 2), f"{true:.2f}"))
        shown.append(Table(f"MSE × 1000 for other true θ, α = {alpha:g}", (*columns, "claim"), errors, note))
        shown.append(Table(f"Sparsity for other true θ, α = {alpha:g}", (*columns, "truth"), sparsities))
    return shown


def _means(values: dict[str, np.ndarray], names: tuple[str, ...], scale: float, digits: int) -> list[str]:
    return [f"{scale * values[name].mean():.{digits}f}" for name in names]


def _claim(results: Results) -> str:
    """Return "holds" if RSIRS has a significantly smaller MSE than every reference method, otherwise "fails"."""
    ours = results.mse["RSIRS"]
    others = [results.mse[name] for name in published.REFERENCES]
    holds = all(ours.mean() < other.mean() and metrics.paired_t_test(ours, other) < LEVEL for other in others)
    return "holds" if holds else "fails"


def _compare(ours: np.ndarray, exact: np.ndarray, words: tuple[str, str]) -> tuple[str, str, str]:
    difference, p_value = float((ours - exact).mean()), metrics.paired_t_test(ours, exact)
    word = "not clear" if p_value >= LEVEL else words[difference > 0]
    return f"{difference:+.4f}", f"{p_value:.1e}", word


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(values.size):.4f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
