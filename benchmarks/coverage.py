"""Do 90 % intervals hold 90 % of the truth where nature, not the model, made the data? Before and after ``learn``."""

from __future__ import annotations

import os
import time

import jax
import numpy as np

import balson_jax as balson
from balson_jax.experiments.scenes import TROUBLES, Scene, simulate

from . import scene
from .report import Result, Table, Target, tell

MATERIALS = (3, 5, 8)
COLUMNS = [
    "trouble",
    "K",
    "plain covers",
    "learned covers",
    "zeros",
    "others",
    "plain error",
    "learned / plain error",
    "trusted",
    "nats held out",
    "learning, s",
    "fit, s",
]
EXACT = 1e-6
METHOD = balson.TG(16_384)
"""Alone, without the chains of Auto: learned concentrations far below one would send a tenth of the pixels there."""


def measured(name: str, pixels: Scene, seed: int = 0) -> list:
    """Return a row of the table: one scene, fitted plainly and after learning."""
    plain = balson.fit(jax.random.key(seed), balson.linear_problem(pixels.design, pixels.targets), METHOD)
    start = time.perf_counter()
    learned = balson.learn(jax.random.key(seed + 1), pixels.design, pixels.targets, progress=False)
    middle = time.perf_counter()
    found = balson.fit(jax.random.key(seed + 2), learned.problem, METHOD)
    jax.block_until_ready(found.mean)
    end = time.perf_counter()
    before, after = (_inside(posterior, pixels.abundances) for posterior in (plain, found))
    errors = [_error(posterior, pixels.abundances) for posterior in (plain, found)]
    absent = pixels.abundances < EXACT
    return [
        name,
        pixels.design.shape[1],
        before.mean(),
        after.mean(),
        after[absent].mean() if absent.any() else float("nan"),
        after[~absent].mean(),
        errors[0],
        errors[1] / errors[0],
        float((np.asarray(found.status) == 0).mean()),
        learned.gain,
        middle - start,
        end - middle,
    ]


def _inside(posterior: balson.Posterior, truth: np.ndarray) -> np.ndarray:
    lower, upper = (np.asarray(end) for end in posterior.hdi(0.9))
    return (truth >= lower - EXACT) & (truth <= upper + EXACT)


def _error(posterior: balson.Posterior, truth: np.ndarray) -> float:
    return float(np.sqrt(np.square(np.asarray(posterior.mean) - truth).mean()))


def run(quick: bool) -> Result:
    cases = [(trouble, count) for trouble in TROUBLES for count in (MATERIALS[:1] if quick else MATERIALS)]
    num_pixels = 200 if quick else 2000
    rows = []
    for trouble, count in cases:
        rows.append(measured(trouble, simulate(count, trouble, num_pixels=num_pixels, num_materials=count)))
        tell(COLUMNS, rows[-1], len(rows), len(cases))
    tables = [
        Table(
            f"Simulated scenes of {num_pixels:,} pixels and 100 bands; 90 % shortest intervals, error of the mean",
            COLUMNS,
            rows,
            "Set BALSON_SCENE to an .npz file with endmembers, spectra and abundances to add a scene of your own.",
        )
    ]
    path = os.environ.get("BALSON_SCENE")
    if path:
        tables.append(Table("The scene in BALSON_SCENE", COLUMNS, [measured("own scene", scene.loaded(path))]))
    covered = tables[0].column("learned covers")
    return Result(
        tables,
        [
            Target("smallest coverage after learn", min(covered), 0.85),
            Target("largest coverage after learn", max(covered), 0.95, at_least=False),
            Target("largest error, learned / plain", max(tables[0].column("learned / plain error")), 1.03, False),
        ],
    )


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    labels = [f"{row[0]}, K = {row[1]}" for row in table.rows]
    places = np.arange(len(labels))
    axes.plot(table.column("plain covers"), places, "o", mfc="none", color="C1", label="plain fit")
    axes.plot(table.column("learned covers"), places, "s", color="C0", label="after learn")
    axes.axvline(0.9, color="0.5", lw=1)
    axes.set(xlabel="share of 90 % intervals that hold the truth", xlim=(0, 1), yticks=places, yticklabels=labels)
    axes.invert_yaxis()
    axes.legend()
