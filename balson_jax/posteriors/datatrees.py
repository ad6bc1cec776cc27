"""A posterior as an ``xarray.DataTree``, whose groups are those of ArviZ's schema, and one of our own.

ArviZ knows draws of equal weight. Kept draws have weights, so draws are taken from them by systematic resampling: of n
draws a kept one with weight w gives n w, rounded up or down. ``balson`` has the kept draws with their weights.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .. import tables, validation
from ..version import __version__
from . import datasets
from .likelihood import Likelihood

if TYPE_CHECKING:
    from .posterior import Posterior

NOTE = (
    "draws of equal weight, resampled from weighted ones, so that some repeat: effective sample sizes computed from "
    "them are not those of the fit, which the group balson has"
)


@dataclasses.dataclass(frozen=True)
class Data:
    """What was fitted, as far as it was given.

    Attributes:
      design: ``(N, P)``, or ``None``.
      targets: ``(..., N)``, or ``None``.
      likelihood: of rows given theta, if it is known.
      rows: names of the rows, or ``None``.
    """

    design: np.ndarray | None
    targets: np.ndarray | None
    likelihood: Likelihood | None
    rows: tuple[Any, ...] | None

    @staticmethod
    def read(posterior: Posterior, design: Any, targets: Any, noise: Any) -> Data:
        """Return the data that were fitted, or raise ``ValueError`` if they can't be."""
        given = design
        design, targets, options, labels = tables.read(design, targets, {"noise": noise}, "targets")
        design = tables.columns_in_order("design", given, posterior.names) if tables.is_frame(given) else design
        rows = posterior.labels.rows if labels.rows is None else labels.rows
        wide, data = _numbers("design", design), _numbers("targets", targets)
        if wide is not None and (wide.ndim != 2 or wide.shape[1] != posterior.num_params):
            raise ValueError(f"design has shape {wide.shape}; pass the (N, {posterior.num_params}) that was fitted")
        if data is not None and data.shape[:-1] != posterior.batch_shape:
            raise ValueError(f"targets has shape {data.shape}, and posterior a batch of shape {posterior.batch_shape}")
        if wide is None or data is None:
            if noise is not None:
                raise ValueError("noise goes with design and targets; pass these too")
            return Data(wide, data, None, rows)
        if data.shape[-1] != len(wide):
            raise ValueError(f"targets has shape {data.shape}; its last axis must have the design's {len(wide)} rows")
        return Data(wide, data, Likelihood.read(posterior, wide, data, options["noise"]), rows)

    def row_coordinate(self) -> np.ndarray:
        """Return the names of the rows, or their numbers."""
        known = [] if self.targets is None else [self.targets.shape[-1]]
        known += [] if self.design is None else [len(self.design)]
        count = known[0] if known else 0
        named = self.rows is not None and len(self.rows) == count
        return datasets.coordinate(self.rows) if named else np.arange(count)  # type: ignore[arg-type]


def _numbers(name: str, value: Any) -> np.ndarray | None:
    """Return an argument as numbers with all their digits, or raise ``ValueError`` if it holds something else."""
    if value is None:
        return None
    validation.float_array(name, value)
    return np.asarray(value, np.float64)


def to_datatree(posterior: Posterior, num_draws: int, key: jax.Array, data: Data, level: float) -> Any:
    """Return the tree."""
    xarray = datasets.xarray_for("to_datatree")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    index = systematic(np.asarray(posterior.draw_weights, np.float64), num_draws, rng)
    coordinates = {**datasets.coordinates(posterior), "chain": [0], "draw": np.arange(num_draws)}
    coordinates["row"] = data.row_coordinate()
    tree = {}
    for name, arrays in _groups(posterior, index, data, rng).items():
        used = {dim for dims, _ in arrays.values() for dim in dims}
        own = {dim: value for dim, value in coordinates.items() if dim in used or np.ndim(value) == 0}
        attrs = _attributes(NOTE if name in ("posterior", "log_likelihood") else None)
        tree[name] = xarray.Dataset(arrays, own, attrs)
    tree["balson"] = _balson(posterior, level)
    root = xarray.DataTree.from_dict(tree)
    root.attrs = _attributes(NOTE)
    return root


def systematic(weights: np.ndarray, num_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return numbers of draws, ``(..., n)``, taken by weights ``(..., D)`` with one random number each, shuffled.

    Neighbours would otherwise be copies of each other, which looks like a chain that hardly moves.
    """
    batch, size = weights.shape[:-1], weights.shape[-1]
    flat = weights.reshape(-1, size)
    flat = np.where(np.isfinite(flat).all(-1, keepdims=True), flat, 1.0)  # there is nothing to choose from
    ends = np.cumsum(flat, -1)
    points = (np.arange(num_draws) + rng.random((len(flat), 1))) / num_draws * ends[:, -1:]
    index = np.empty(points.shape, int)
    for i, (end, point) in enumerate(zip(ends, points, strict=True)):
        index[i] = np.searchsorted(end, point, side="right")
    last = np.asarray(size - 1 - np.argmax(flat[:, ::-1] > 0, -1), int)[:, None]  # rounding must not pass the end
    return rng.permuted(np.minimum(index, last), axis=-1).reshape(*batch, num_draws)


def _groups(posterior: Posterior, index: np.ndarray, data: Data, rng: np.random.Generator) -> dict[str, dict[str, Any]]:
    """Return the variables of ArviZ's groups: for each its dimensions, and its array."""
    problem = datasets.problem_dims(posterior)
    sampled = ("chain", "draw", *problem)

    def chain(kept: Any) -> np.ndarray:
        """Return the resampled of kept draws ``(..., D, *rest)`` as ``(1, n, ..., *rest)``."""
        kept = np.asarray(kept)
        own = index.reshape(*index.shape, *(1,) * (kept.ndim - index.ndim))
        return np.moveaxis(np.take_along_axis(kept, own, len(problem)), len(problem), 0)[None]

    theta = chain(posterior.draws)
    found: dict[str, dict[str, Any]] = {"posterior": {"theta": ((*sampled, "component"), theta)}}
    if posterior.slack is not None and posterior.slack.draws is not None:
        found["posterior"]["slack"] = sampled, chain(posterior.slack.draws)
    if posterior.nuisance is not None:
        found["posterior"]["nuisance_coefficient"] = (*sampled, "nuisance"), chain(posterior.nuisance.draws)
    found["sample_stats"] = {"kept_draw": (sampled, np.moveaxis(index, -1, 0)[None])}
    if data.likelihood is not None:
        level, values = data.likelihood.of_draws(theta[0].astype(np.float64), rng)
        if posterior.noise is not None:
            found["posterior"]["noise"] = sampled, level[None].astype(theta.dtype)
        found["log_likelihood"] = {"target": ((*sampled, "row"), values[None].astype(theta.dtype))}
    if data.targets is not None:
        found["observed_data"] = {"target": ((*problem, "row"), data.targets)}
    found["constant_data"] = {"total": (problem, np.asarray(posterior.total))}
    if data.design is not None:
        found["constant_data"]["design"] = ("row", "component"), data.design
    return found


def _balson(posterior: Posterior, level: float) -> Any:
    """Return estimates from all draws, diagnostics, and the kept draws with their weights."""
    problem = datasets.problem_dims(posterior)
    dataset = datasets.to_xarray(posterior, level)
    dataset["weights"] = (*problem, "kept_draw"), np.asarray(posterior.draw_weights)
    dataset["kept_theta"] = (*problem, "kept_draw", "component"), np.asarray(posterior.draws)
    dataset.attrs |= _attributes(None)
    return dataset


def _attributes(note: str | None) -> dict[str, str]:
    known = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(),
        "creation_library": "balson_jax",
        "creation_library_version": __version__,
        "inference_library": "balson_jax",
        "inference_library_version": __version__,
    }
    return known if note is None else {**known, "sampling": note}
