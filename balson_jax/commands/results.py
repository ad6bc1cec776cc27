"""The files that ``balson fit`` writes, some problems at a time: a table, the posterior, and rasters of an image."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..interop.envi import Writer
from ..mapped import release
from ..posteriors.posterior import Posterior
from ..status import Status
from .inputs import Inputs
from .settings import Settings

COLUMNS = ("problem", "component", "mean", "std", "hdi_low", "hdi_high", "inclusion", "status")
TOGETHER = 1 << 22
"""Number of kept values that are read together, at most."""

NO_DATA = "NO_DATA"

RASTERS = ("mean", "sd", "status", "best", "weights")
"""Names of the rasters that ``balson fit`` and ``balson compare`` write of images."""


class Counts(NamedTuple):
    """How many problems have which status.

    Attributes:
      words: numbers of problems by status in words, the most frequent first.
      codes: the status by its words.
      untrusted: how many problems can't be trusted; pixels without data don't count.
    """

    words: dict[str, int]
    codes: dict[str, int]
    untrusted: int


class Block(NamedTuple):
    """The table's rows for n problems, from number ``start`` on; arrays are ``(n, rows)`` with rows as in ``names``."""

    start: int
    names: list[str]
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    inclusion: np.ndarray
    status: list[str]
    posterior: Posterior
    empty: np.ndarray


def blocks(posterior: Posterior, inputs: Inputs, settings: Settings) -> Iterator[Block]:
    """Yield the problems in order, some at a time."""
    kept = max(64, posterior.draws.shape[-2]) * posterior.num_params
    step = max(1, min(4096, TOGETHER // kept))
    for start in range(0, inputs.count, step):
        yield block(posterior, inputs, settings, start, min(start + step, inputs.count))


def block(posterior: Posterior, inputs: Inputs, settings: Settings, start: int, stop: int) -> Block:
    """Return the table's rows for the problems from ``start`` to ``stop``."""
    some = jax.tree.map(lambda leaf: np.array(leaf[start:stop]), posterior)
    jax.tree.map(release, posterior)
    empty: Any = np.zeros(stop - start, bool)
    if inputs.table.image_shape is not None:
        empty = np.isnan(np.asarray(inputs.targets[start:stop], np.float64)).all(axis=1)
    shortest = bool(some.draws.shape[-2])
    low, high = some.hdi(settings.level) if shortest else some.interval(settings.level)
    rows: list[tuple[np.ndarray, ...]] = [
        (np.asarray(some.mean), np.asarray(some.std), np.asarray(low), np.asarray(high))
    ]
    names = list(inputs.names)
    for name, own in _others(some, settings.level):
        names.append(name)
        rows.append(tuple(np.asarray(part)[:, None] for part in own))
    mean, std, low, high = (np.concatenate(parts, 1) for parts in zip(*rows, strict=True))
    for part in (mean, std, low, high):
        part[empty] = np.nan
    included = np.full_like(mean, np.nan)
    included[:, : some.num_params] = _inclusion(some, settings.least)
    included[empty] = np.nan
    words = [NO_DATA if none else Status(int(code)).words() for none, code in zip(empty, some.status, strict=True)]
    return Block(start, names, mean, std, low, high, included, words, some, empty)


def _others(some: Posterior, level: float) -> Iterator[tuple[str, tuple[Any, Any, Any, Any]]]:
    """Yield mean, standard deviation and interval of the slack, the nuisance coefficients and the noise."""
    nothing = np.full(len(some.mean), np.nan)
    if some.slack is not None:
        known = some.draws.shape[-2] and some.slack.draws is not None
        low, high = some.slack_hdi(level) if known else (nothing, nothing)
        yield "(slack)", (some.slack.mean, some.slack.std, low, high)
    if some.nuisance is not None:
        for place, name in enumerate(some.nuisance.names):
            own = some.nuisance.mean[:, place], some.nuisance.std[:, place]
            yield f"({name})", (*own, nothing, nothing)
    if some.noise is not None:
        low, high = some.noise.interval(level)
        yield "(noise)", (some.noise.mean, some.noise.std, low, high)


def _inclusion(some: Posterior, least: float) -> np.ndarray:
    """Return the probability that a component's size exceeds the threshold, from kept draws; NaN if there are none."""
    draws, weights = np.asarray(some.draws), np.asarray(some.draw_weights)
    if not draws.shape[-2]:
        return np.full_like(some.mean, np.nan)
    above = np.einsum("bd,bdk->bk", weights, np.abs(draws) > least) / weights.sum(-1, keepdims=True)
    return np.where(np.isfinite(np.asarray(some.mean)), above, np.nan)


def write(posterior: Posterior, inputs: Inputs, settings: Settings) -> Counts:
    """Write ``posterior.csv``, ``posterior.npz``, and of an image the rasters; return the counts of statuses."""
    out = settings.out
    tally: dict[str, int] = {}
    codes: dict[str, int] = {}
    rasters = _rasters(inputs, settings)
    draft = out / "posterior.csv.draft"
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for own in blocks(posterior, inputs, settings):
            if settings.csv:
                writer.writerows(_lines(own, inputs))
            for word, code in zip(own.status, own.posterior.status, strict=True):
                tally[word] = tally.get(word, 0) + 1
                codes[word] = int(code)
            _write_rasters(rasters, own, len(inputs.names))
    draft.replace(out / "posterior.csv") if settings.csv else draft.unlink()
    for raster in rasters.values():
        raster.close()
    posterior.save(out / "posterior.npz")
    words = dict(sorted(tally.items(), key=lambda item: -item[1]))
    return Counts(words, codes, sum(count for word, count in words.items() if word not in ("OK", NO_DATA)))


def _lines(own: Block, inputs: Inputs) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the table; missing numbers are left empty."""
    problems = inputs.problem_names(own.start, own.start + len(own.status))
    columns = [part.tolist() for part in (own.mean, own.std, own.low, own.high, own.inclusion)]
    for place, (problem, status) in enumerate(zip(problems, own.status, strict=True)):
        for k, name in enumerate(own.names):
            yield (problem, name, *(_number(part[place][k]) for part in columns), status)


def _number(value: float) -> str:
    return "" if value != value else f"{value:.6g}"


def _rasters(inputs: Inputs, settings: Settings) -> dict[str, Writer]:
    """Return rasters of means, standard deviations and statuses, if the targets are an image."""
    shape = inputs.table.image_shape
    if shape is None:
        return {}
    names, header = list(inputs.names), inputs.table.metadata
    flags = ", ".join(f"{flag.value} {flag.name}" for flag in Status)
    about = {
        "mean": "posterior means",
        "sd": "posterior standard deviations",
        "status": f"status, a sum of flags: 0 OK, {flags}; -1 no data",
    }
    return {
        name: Writer(
            settings.out / f"{name}.img",
            shape,
            ["status"] if name == "status" else [f"{component} {name}" for component in names],
            np.int32 if name == "status" else np.float32,
            header,
            text,
        )
        for name, text in about.items()
    }


def _write_rasters(rasters: dict[str, Writer], own: Block, num_params: int) -> None:
    if rasters:
        rasters["mean"].write(own.start, own.mean[:, :num_params])
        rasters["sd"].write(own.start, own.std[:, :num_params])
        rasters["status"].write(own.start, np.where(own.empty, -1, own.posterior.status)[:, None])


def files_of(out: pathlib.Path) -> list[pathlib.Path]:
    """Return the files in a directory that the commands write, except the fields of an unfinished run."""
    rasters = [f"{name}.{ending}" for name in RASTERS for ending in ("img", "hdr")]
    names = ["posterior.csv", "comparison.csv", "report.html", "posterior.npz", "settings.json", "learned.npz"]
    names += [f"{name}.draft" for name in names[:3]] + ["learned.draft.npz"]
    return [out / name for name in (*names, *rasters) if (out / name).exists()]
