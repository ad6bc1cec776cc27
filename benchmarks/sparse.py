"""Few of many components: chains over sizes and priors; a dictionary of spectra beside constrained least squares."""

from __future__ import annotations

import time

import jax
import numpy as np

import balson_jax as balson
from balson_jax.experiments.scenes import smooth_spectra

from . import sparse_cells
from .report import Result, Table, Target

BANDS, PRESENT, DECIBELS = 156, 5, 30.0
PRIOR = 0.02
"""Concentrations: about as many of 240 components are expected as are present."""

METHOD = balson.HitAndRun(target_ess=100.0, max_moves=1 << 14, walkers=16, keep=256)
COLUMNS = ["", "reconstruction, dB", "worst problem, dB", "support found", "trusted", "s each"]


def dictionary_problems(rng: np.random.Generator, count: int, size: int) -> tuple[balson.LinearProblem, np.ndarray]:
    """Return mixtures of a few spectra of one dictionary, with white noise, and the shares behind them."""
    design = smooth_spectra(rng, BANDS, size)
    theta = np.zeros((count, size))
    for row in theta:
        row[rng.choice(size, PRESENT, replace=False)] = rng.dirichlet(np.ones(PRESENT))
    clean = theta @ design.T
    noise = float(np.sqrt(np.square(clean).mean()) * 10 ** (-DECIBELS / 20))
    targets = clean + noise * rng.normal(size=clean.shape)
    problem = balson.linear_problem(design.astype(np.float32), targets.astype(np.float32), noise=noise, prior=PRIOR)
    return problem, theta


def pooled_decibels(estimate: np.ndarray, theta: np.ndarray) -> float:
    """Return the signal-to-reconstruction ratio of theta over all problems, in decibels."""
    return float(10 * np.log10(np.square(theta).sum() / np.square(estimate - theta).sum()))


def worst_decibels(estimate: np.ndarray, theta: np.ndarray) -> float:
    """Return the smallest ratio of a problem."""
    ratios = np.square(theta).sum(-1) / np.square(estimate - theta).sum(-1)
    return float(10 * np.log10(ratios.min()))


def run(quick: bool) -> Result:
    count, size = (4, 60) if quick else (50, 240)
    problem, theta = dictionary_problems(np.random.default_rng(0), count, size)
    start = time.perf_counter()
    posterior = balson.fit(jax.random.key(0), problem, METHOD)
    seconds = (time.perf_counter() - start) / count
    present = theta > 0.01
    estimates = {
        "posterior mean": np.asarray(posterior.mean),
        "posterior.sparse": posterior.sparse(problem),
        "constrained least squares": np.asarray(balson.least_squares(problem).theta),
    }
    supports = {name: values > 0.01 for name, values in estimates.items()}
    supports["posterior mean"] = np.asarray(posterior.support())
    trusted = float((np.asarray(posterior.status) == 0).mean())
    rows = [
        [
            name,
            pooled_decibels(values, theta),
            worst_decibels(values, theta),
            float((supports[name] == present).all(-1).mean()),
            *((trusted, seconds) if name == "posterior mean" else (float("nan"),) * 2),
        ]
        for name, values in estimates.items()
    ]
    table = Table(
        f"{count} mixtures of {PRESENT} of {size} smooth spectra, {BANDS} bands, signal-to-noise {DECIBELS:g} dB",
        COLUMNS,
        rows,
        f"Concentrations of {PRIOR:g}, known noise. Support found: components above a hundredth, all and no others. "
        "Seconds include compilation.",
    )
    gain = rows[0][1] - rows[2][1]
    cells = sparse_cells.table(quick)
    goals = [
        Target("posterior mean less constrained least squares, dB", gain, 3.0),
        Target("share of fits that can be trusted, worst cell", min(cells.column("trusted")), 0.95),
        Target("comparisons beyond 4 standard errors, all cells", sum(cells.column("beyond")), 2, at_least=False),
    ]
    ratios = [row[-3] / row[-2] for row in cells.rows if row[0] == 40 and row[-2] == row[-2]]
    if ratios:
        goals.append(Target("K = 40: effective draws a second, chains / straight lines", min(ratios), 20))
    return Result([table, cells], goals)


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    axes.barh([row[0] for row in table.rows], table.column("reconstruction, dB"), color="0.6")
    axes.invert_yaxis()
    axes.set(xlabel="signal-to-reconstruction ratio of the shares, dB", title=table.title)
