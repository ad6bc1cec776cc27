"""Rows of data: which count, how much, and with what noise; read from the arguments of users, and checked."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .. import validation
from . import missing as missing_rows
from . import noise_arguments
from .batching import Batched
from .missing import Missing
from .noise import Noise


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one problem or a batch, as one axis of length N.

    Attributes:
      target: ``(..., N)``, zero where a row is dropped.
      scale: factors of the residuals, ``(..., N)``, zero for dropped rows; or ``None``.
      cholesky: lower factor of the covariance, ``(..., N, N)``, or ``None``.
      noise: the model of the whitened noise; fields ``(...)``.
      count: how many rows count, ``(...)``, in the floating dtype.
      log_volume: log-determinant of the whitening, ``(...)``.
    """

    target: jax.Array
    scale: jax.Array | None
    cholesky: jax.Array | None
    noise: Noise
    count: jax.Array
    log_volume: jax.Array


def whiten(rows: jax.Array, scale: jax.Array | None, cholesky: jax.Array | None) -> jax.Array:
    """Return rows, ``(..., N)``, in units in which the noise is independent and of equal level."""
    if scale is not None:
        rows = rows * scale
    if cholesky is None:
        return rows
    if cholesky.ndim == 2:  # one matrix for all: no copy of it for each
        flat = rows.reshape(-1, rows.shape[-1])
        return solve_triangular(cholesky, flat.T, lower=True).T.reshape(rows.shape)
    batch = np.broadcast_shapes(rows.shape[:-1], cholesky.shape[:-2])
    factor = jnp.broadcast_to(cholesky, (*batch, *cholesky.shape[-2:]))
    rows = jnp.broadcast_to(rows, (*batch, rows.shape[-1]))
    return solve_triangular(factor, rows[..., None], lower=True)[..., 0]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowRules(Batched):
    """Which rows count, how much, and with what noise: all about rows but the targets. Made by ``read``.

    Attributes:
      noise: the model of the whitened noise; fields ``(...)``.
      weights: nonnegative, ``(..., *event)``, or ``None``.
      mask: True for rows that count, ``(..., *event)``, or ``None``.
      levels: standard deviations of rows, ``(..., *event)``, or ``None``.
      covariance: of the rows, ``(..., N, N)``, or ``None``.
      cholesky: its lower factor, ``(..., N, N)``, where that was given instead, or ``None``.
      event: the shape of one problem's target; N is its product.
      missing: ``"drop"`` if a NaN of the target drops its row.
    """

    noise: Noise
    weights: jax.Array | None
    mask: jax.Array | None
    levels: jax.Array | None
    covariance: jax.Array | None
    cholesky: jax.Array | None
    event: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    missing: Missing = dataclasses.field(metadata={"static": True})

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        per_row = [len(self.event) for array in (self.weights, self.mask, self.levels) if array is not None]
        per_pair = [2 for array in (self.covariance, self.cholesky) if array is not None]
        return [*(0 for _ in jax.tree.leaves(self.noise)), *per_row, *per_pair]

    def factorised(self) -> RowRules:
        """Return the rules with the covariance factorised, if it doesn't depend on the targets."""
        if self.covariance is None or self.missing == "drop" or self.mask is not None or self.weights is not None:
            return self
        return dataclasses.replace(self, covariance=None, cholesky=jnp.linalg.cholesky(self.covariance))

    def of(self, target: jax.Array) -> Rows:
        """Return the rows of targets ``(..., *event)``, or raise ``ValueError`` at a number that is not finite."""
        dtype, count = target.dtype, math.prod(self.event)

        def flat(array):
            return array.reshape(*array.shape[: array.ndim - len(self.event)], count)

        kept = missing_rows.kept_rows(target, self.event, _counting(self.mask, self.weights), self.missing)
        scale, log_volume = None, jnp.zeros((), dtype)
        if self.weights is not None:
            positive = self.weights if kept is None else jnp.where(kept, self.weights, 1)
            # Inside a trace a bad weight is not refused; it must not pass for a row that is left out.
            positive = jnp.where(self.weights >= 0, positive, jnp.nan)
            scale, log_volume = flat(jnp.sqrt(positive)), 0.5 * flat(jnp.log(positive)).sum(-1)
        if self.levels is not None:
            levels = flat(self.levels if kept is None else jnp.where(kept, self.levels, 1))
            scale = 1 / levels if scale is None else scale / levels
            log_volume = log_volume - jnp.log(levels).sum(-1)
        num_kept = jnp.asarray(count, dtype)
        if kept is not None:
            target = jnp.where(kept, target, 0)
            kept = flat(kept)
            num_kept = kept.sum(-1, dtype=dtype)
            scale = kept.astype(dtype) if scale is None else jnp.where(kept | jnp.isnan(scale), scale, 0)
        factor = self._factor(kept, dtype)
        if factor is not None:
            log_volume = log_volume - jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
        if scale is not None:
            scale = _without_leading_ones(scale, 1)
        return Rows(flat(target), scale, factor, self.noise, num_kept, log_volume)

    def _factor(self, kept: jax.Array | None, dtype: Any) -> jax.Array | None:
        """Return the Cholesky factor of the covariance of the rows that count, those dropped being independent."""
        if self.cholesky is not None and kept is None:
            return _without_leading_ones(self.cholesky, 2)
        matrix = self.covariance
        if self.cholesky is not None:
            transposed = jnp.swapaxes(self.cholesky, -1, -2)
            matrix = jnp.matmul(self.cholesky, transposed, precision=jax.lax.Precision.HIGHEST)
        if matrix is None:
            return None
        if kept is not None:
            together = kept[..., :, None] & kept[..., None, :]
            matrix = jnp.where(together, matrix, jnp.eye(matrix.shape[-1], dtype=dtype))
        return _without_leading_ones(jnp.linalg.cholesky(matrix), 2)


def read(
    event: tuple[int, ...],
    batch: tuple[int, ...],
    dtype: Any,
    *,
    noise: Any,
    weights: Any,
    mask: Any,
    missing: Missing,
) -> RowRules:
    """Return the rules of rows, or raise ``ValueError`` naming the argument that is wrong.

    Args:
      event: the shape of one problem's target.
      batch: the shape of the batch.
      dtype: of the target.
      noise: as for ``linear_problem``; so are the others.
      weights: nonnegative, or ``None``.
      mask: which rows count, or ``None``.
      missing: ``"drop"`` if NaN in the target is no error.
    """
    validation.require_choice("missing", missing, ("raise", "drop"))
    if mask is not None:
        given = validation.any_array(mask)
        if given.dtype != bool:
            raise ValueError(f"mask has dtype {given.dtype}; pass booleans, True for rows that count")
        mask = _row_array("mask", jnp.asarray(given), event, batch)
        missing_rows.require_rows(mask, event, "mask", "the mask leaves no row")
    if weights is not None:
        weights = _row_array("weights", validation.float_array("weights", weights, dtype), event, batch)
        validation.require_nonnegative("weights", weights)
        missing_rows.require_rows(_counting(mask, weights), event, "weights", "all-zero weights leave no row")
    noise, covariance, cholesky = noise_arguments.split(noise)
    level, per_row = noise_arguments.level_of(noise, event, batch, dtype)
    covariance, cholesky = noise_arguments.matrices(covariance, cholesky, math.prod(event), batch, dtype)
    return RowRules(level, weights, mask, per_row, covariance, cholesky, event, missing)


def _without_leading_ones(array: jax.Array, event_ndim: int) -> jax.Array:
    """Return an array that all problems share without axes for a batch of ones."""
    own = array.shape[: array.ndim - event_ndim]
    return array.reshape(array.shape[len(own) :]) if all(size == 1 for size in own) else array


def _counting(mask: jax.Array | None, weights: jax.Array | None) -> Any:
    """Return which rows a mask and weights leave; ``None`` if there is neither."""
    if weights is None:
        return mask
    return weights > 0 if mask is None else mask & (weights > 0)


def _row_array(name: str, value: jax.Array, event: tuple[int, ...], batch: tuple[int, ...]) -> jax.Array:
    try:
        np.broadcast_shapes(value.shape, batch + event)
        return jnp.broadcast_to(value, np.broadcast_shapes(value.shape, event))
    except ValueError:
        wanted = f"{event}, or {batch + event} with the batch's axes" if batch else f"{event}"
        raise ValueError(f"{name} has shape {value.shape}; pass an array of shape {wanted}") from None
