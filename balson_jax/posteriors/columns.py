"""A posterior as a tidy table, with one row per problem and component: for pandas, and as a file."""

from __future__ import annotations

import csv
import os
import pathlib
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..status import Status

if TYPE_CHECKING:
    from .posterior import Posterior


def columns(posterior: Posterior, level: float) -> dict[str, np.ndarray]:
    """Return the columns of the table by name, all of the same length.

    Without kept draws ``hdi_low`` and ``hdi_high`` are NaN; so is ``inclusion``, unless it was computed
    from all draws.
    """
    batch, num_params = posterior.batch_shape, posterior.num_params
    shape = (*batch, num_params)

    def flat(value: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(value), shape).reshape(-1)

    found = {name: flat(value[..., None]) for name, value in problem_columns(posterior).items()}
    names = np.arange(num_params) if posterior.names is None else np.asarray(posterior.names, object)
    low, high, inclusion = drawn(posterior, level)
    return {
        **found,
        "component": flat(names),
        "mean": flat(posterior.mean),
        "std": flat(posterior.std),
        "hdi_low": flat(low),
        "hdi_high": flat(high),
        "inclusion": flat(inclusion),
        "sparse_mode": flat(posterior.theta),
        "status": flat(status_words(posterior.status)[..., None]),
        "method": flat(np.asarray(posterior.method, object)[..., None]),
        "ess": flat(np.asarray(posterior.ess)[..., None]),
    }


def problem_columns(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return, for each axis of the batch, its labels or numbers as an array of the batch's shape.

    One axis is ``problem``, several are ``problem_0``, ``problem_1`` and so on. One problem has the number 0.
    """
    batch, labels = posterior.batch_shape, posterior.labels.problems
    if len(batch) > 1:
        return {f"problem_{axis}": numbers for axis, numbers in enumerate(np.indices(batch))}
    numbers = np.arange(int(np.prod(batch)))
    if labels is None:
        return {"problem": numbers.reshape(batch)}
    named = np.empty(len(labels), object)
    named[:] = labels
    return {"problem": named.reshape(batch)}


def drawn(posterior: Posterior, level: float) -> tuple[Any, Any, Any]:
    """Return both ends of the shortest intervals, and the probabilities of inclusion; NaN where they are not known."""
    unknown = np.full(posterior.mean.shape, np.nan, posterior.mean.dtype)
    low, high = posterior.hdi(level) if posterior.draws.shape[-2] else (unknown, unknown)
    return low, high, posterior.inclusion() if posterior.knows_inclusion else unknown


def status_words(status: jax.Array) -> np.ndarray:
    """Return statuses in words, an array of text of the same shape."""
    codes, index = np.unique(np.asarray(status), return_inverse=True)
    words = np.asarray([Status(int(code)).words() for code in codes], object)
    return words[index.reshape(-1)].reshape(np.shape(status))


def to_frame(posterior: Posterior, level: float) -> Any:
    """Return the table as a pandas ``DataFrame``."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_frame needs pandas; install it with: pip install 'balson_jax[frames]'") from None
    return pandas.DataFrame(columns(posterior, level))


def to_csv(posterior: Posterior, path: str | os.PathLike, level: float) -> None:
    """Write the table to a file of comma-separated values, with a line of names; NaN is an empty field."""
    found = columns(posterior, level)
    with pathlib.Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found)
        writer.writerows(zip(*(_texts(column) for column in found.values()), strict=True))


def _texts(column: np.ndarray) -> np.ndarray:
    """Return a column as text: numbers with the fewest digits that distinguish them from neighbouring ones."""
    if column.dtype.kind == "f":
        return np.where(np.isnan(column), "", column.astype(str))
    return column
