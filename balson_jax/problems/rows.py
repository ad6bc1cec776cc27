"""Rows of data: which count, how much, and with what noise; read from what users pass, and checked."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .. import validation
from .noise import Correlated, InverseGamma, Noise

Missing = Literal["raise", "drop"]


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of one problem or a batch, as one axis of length N.

    Attributes:
      target: ``(..., N)``, zero where a row is dropped.
      scale: what residuals are multiplied by before they are squared, ``(..., N)``, zero for dropped rows; or ``None``.
      cholesky: lower factor of the covariance, ``(..., N, N)``, or ``None``.
      noise: what is left: the level of the (whitened) noise, or the prior of an unknown one; fields ``(...)``.
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
    """Return rows, ``(..., N)``, in units in which noise is independent and equal."""
    if scale is not None:
        rows = rows * scale
    if cholesky is None:
        return rows
    batch = np.broadcast_shapes(rows.shape[:-1], cholesky.shape[:-2])
    factor = jnp.broadcast_to(cholesky, (*batch, *cholesky.shape[-2:]))
    rows = jnp.broadcast_to(rows, (*batch, rows.shape[-1]))
    return solve_triangular(factor, rows[..., None], lower=True)[..., 0]


def read(
    target: jax.Array,
    event: tuple[int, ...],
    batch: tuple[int, ...],
    *,
    noise: Any,
    weights: Any,
    mask: Any,
    missing: Missing,
) -> Rows:
    """Return the rows, or raise ``ValueError`` naming what is wrong.

    Args:
      target: ``(..., *event)``.
      event: the shape of one problem's target.
      batch: the shape of the batch.
      noise: as for ``linear_problem``; so are the others.
      weights: nonnegative, or ``None``.
      mask: which rows count, or ``None``.
      missing: ``"drop"`` if NaN in the target is no error.
    """
    dtype, count = target.dtype, math.prod(event)

    def flat(array):
        return array.reshape(*array.shape[: array.ndim - len(event)], count)

    scale, log_volume = None, jnp.zeros((), dtype)
    kept = _kept(target, event, batch, mask, missing)
    if weights is not None:
        weights = _row_array("weights", validation.float_array("weights", weights, dtype), event, batch)
        validation.require_nonnegative("weights", weights)
        kept = weights > 0 if kept is None else kept & (weights > 0)
        _require_rows(kept, event, "weights", "all-zero weights leave no row")
        positive = jnp.where(kept, weights, 1)
        # Inside a trace a bad weight is not refused; it must not pass for a row that is left out.
        positive = jnp.where(weights >= 0, positive, jnp.nan)
        scale, log_volume = flat(jnp.sqrt(positive)), 0.5 * flat(jnp.log(positive)).sum(-1)
    noise, covariance, cholesky = _split(noise)
    level, per_row = _level(noise, event, batch, dtype)
    if per_row is not None:
        per_row = flat(per_row if kept is None else jnp.where(kept, per_row, 1))
        scale = 1 / per_row if scale is None else scale / per_row
        log_volume = log_volume - jnp.log(per_row).sum(-1)
    num_kept = jnp.asarray(count, dtype)
    if kept is not None:
        target = jnp.where(kept, target, 0)
        kept = flat(kept)
        num_kept = kept.sum(-1, dtype=dtype)
        scale = kept.astype(dtype) if scale is None else jnp.where(kept | jnp.isnan(scale), scale, 0)
    factor = _factor(covariance, cholesky, count, batch, kept, dtype)
    if factor is not None:
        log_volume = log_volume - jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
    if scale is not None:
        scale = _without_leading_ones(scale, 1)
    return Rows(flat(target), scale, factor, level, num_kept, log_volume)


def _without_leading_ones(array: jax.Array, event_ndim: int) -> jax.Array:
    """Return an array that all problems share without axes for a batch of ones."""
    own = array.shape[: array.ndim - event_ndim]
    return array.reshape(array.shape[len(own) :]) if all(size == 1 for size in own) else array


def _kept(
    target: jax.Array, event: tuple[int, ...], batch: tuple[int, ...], mask: Any, missing: Missing
) -> jax.Array | None:
    """Return which rows count as far as mask and missing values say, or ``None`` if all do."""
    validation.require_choice("missing", missing, ("raise", "drop"))
    kept = None
    if mask is not None:
        given = mask if isinstance(mask, jax.Array) else np.asarray(mask)
        if given.dtype != bool:
            raise ValueError(f"mask has dtype {given.dtype}; pass booleans, True for rows that count")
        kept = _row_array("mask", jnp.asarray(given), event, batch)
        _require_rows(kept, event, "mask", "the mask leaves no row")
    # Rows that the mask drops may hold anything.
    shown = target if kept is None else jnp.where(kept, target, 0)
    if missing == "raise":
        validation.require_finite(
            "target", shown, "remove or replace that row, or pass missing='drop' if NaN means missing"
        )
        return kept
    validation.require_finite("target", jnp.where(jnp.isnan(shown), 0, shown), "missing='drop' drops NaN only")
    present = ~jnp.isnan(target)
    kept = present if kept is None else kept & present
    if not batch or not validation.is_concrete(kept) or not kept.any():
        _require_rows(kept, event, "target", "missing values leave no row")
    return kept  # one target of a batch may have none: its status says so


def _row_array(name: str, value: jax.Array, event: tuple[int, ...], batch: tuple[int, ...]) -> jax.Array:
    try:
        np.broadcast_shapes(value.shape, batch + event)
        return jnp.broadcast_to(value, np.broadcast_shapes(value.shape, event))
    except ValueError:
        wanted = f"{event}, or {batch + event} with the batch's axes" if batch else f"{event}"
        raise ValueError(f"{name} has shape {value.shape}; pass an array of shape {wanted}") from None


def _require_rows(kept: jax.Array, event: tuple[int, ...], name: str, trouble: str) -> None:
    """Raise if a problem is known to have no row left."""
    known = validation.known(kept)
    if known is None or not known.size:
        return
    some = known.any(tuple(range(known.ndim - len(event), known.ndim)))
    if not some.all():
        where = f" of problem {np.argwhere(~some)[0].tolist()}" if some.ndim else ""
        raise ValueError(f"{name}: {trouble}{where}; keep at least one, or leave that problem out")


def _split(noise: Any) -> tuple[Any, Any, Any]:
    """Return the level of the noise, the covariance and its factor, where given."""
    if isinstance(noise, Correlated):
        if (noise.covariance is None) == (noise.cholesky is None):
            raise ValueError("noise=Correlated(...) takes a covariance or its Cholesky factor: pass one of the two")
        if noise.scale is None or isinstance(noise.scale, (str, Correlated)) or np.ndim(noise.scale):
            raise ValueError(f'scale={noise.scale!r} of Correlated: pass a number, "estimate" or an InverseGamma')
        return noise.scale, noise.covariance, noise.cholesky
    return noise, None, None


def _level(noise: Any, event: tuple[int, ...], batch: tuple[int, ...], dtype: Any) -> tuple[Noise, jax.Array | None]:
    """Return the level of noise, fields ``(...)``, and one per row, ``(..., *event)``, where that was given."""
    if isinstance(noise, str):
        if noise != "estimate":
            raise ValueError(f'noise={noise!r} is unknown; pass a positive number or array, or "estimate"')
        noise = InverseGamma()
    if isinstance(noise, InverseGamma):
        parts = []
        for name, value in (("noise.shape", noise.shape), ("noise.scale", noise.scale)):
            array = validation.float_array(name, value, dtype)
            validation.require_nonnegative(name, array)
            validation.require_broadcast(name, array.shape, batch)
            parts.append(array)
        return InverseGamma(*parts), None
    level = validation.float_array("noise", noise, dtype)
    validation.require_positive("noise", level)
    return _per_problem_or_row(level, batch, event)


def _per_problem_or_row(
    noise: jax.Array, batch: tuple[int, ...], event: tuple[int, ...]
) -> tuple[jax.Array, jax.Array | None]:
    """Tell one noise level per problem, returned first, from one per row, returned second."""
    if noise.ndim == 0:
        return noise, None
    axes = len(event)
    per_problem = noise.ndim <= len(batch) and _broadcasts(noise.shape, batch)
    per_output = axes > 1 and noise.shape == event[-1:]
    per_row = per_output or (axes > 0 and noise.shape[-axes:] == event and noise.ndim <= len(batch) + axes)
    if per_problem and per_row:
        raise ValueError(
            f"noise of shape {noise.shape} could be one per problem or one per row; "
            "pass noise[..., None] for problems or noise[..., None, :] for rows (with as many None as there are axes)"
        )
    if per_problem:
        return noise, None
    if axes and noise.ndim > len(batch) and noise.shape[-axes:] == (1,) * axes and math.prod(event) != 1:
        own = noise.shape[:-axes]
        if not batch and own == event:
            raise ValueError(f"noise has shape {noise.shape} and target no batch; pass noise[:, 0] for one per row")
        validation.require_broadcast("noise", own, batch)
        return noise.reshape(own), None
    if per_output:
        noise = jnp.broadcast_to(noise, event)
    if per_row:
        validation.require_broadcast("noise", noise.shape[:-axes], batch)
        return jnp.ones((), noise.dtype), noise
    rows = str(event[0]) if axes == 1 else "x".join(map(str, event))
    raise ValueError(f"noise has shape {noise.shape}; pass a number, the shape {batch} of the batch, or {rows} rows")


def _broadcasts(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, batch) == batch
    except ValueError:
        return False


def _factor(
    covariance: Any, cholesky: Any, count: int, batch: tuple[int, ...], kept: jax.Array | None, dtype: Any
) -> jax.Array | None:
    """Return the Cholesky factor of the covariance of the rows that count, those dropped being independent."""
    if covariance is None and cholesky is None:
        return None
    name = "covariance" if cholesky is None else "cholesky"
    matrix = validation.float_array(name, covariance if cholesky is None else cholesky, dtype)
    if matrix.ndim < 2 or matrix.shape[-2:] != (count, count):
        raise ValueError(f"{name} has shape {matrix.shape}; pass {(count, count)}, a row and a column per observation")
    validation.require_broadcast(name, matrix.shape[:-2], batch)
    validation.require_finite(name, matrix, "remove or replace that entry")
    known = validation.known(matrix)
    if cholesky is not None:
        if known is not None and not (np.diagonal(known, axis1=-2, axis2=-1) > 0).all():
            raise ValueError("cholesky has a diagonal entry that isn't positive; pass the lower factor of a covariance")
        if known is not None and np.triu(known, 1).any():
            raise ValueError("cholesky has numbers above its diagonal; pass the lower factor, numpy.linalg.cholesky's")
        matrix = jnp.tril(matrix)
        if kept is None:
            return _without_leading_ones(matrix, 2)
        matrix = jnp.matmul(matrix, jnp.swapaxes(matrix, -1, -2), precision=jax.lax.Precision.HIGHEST)
    elif known is not None:
        _require_definite(known)
    if kept is not None:
        together = kept[..., :, None] & kept[..., None, :]
        matrix = jnp.where(together, matrix, jnp.eye(count, dtype=dtype))
    return _without_leading_ones(jnp.linalg.cholesky(matrix), 2)


def _require_definite(covariance: np.ndarray) -> None:
    symmetric = np.allclose(
        covariance, np.swapaxes(covariance, -1, -2), rtol=1e-4, atol=1e-6 * np.abs(covariance).max()
    )
    if not symmetric:
        raise ValueError("covariance is not symmetric; pass covariance[i, j] = covariance[j, i]")
    smallest = float(np.linalg.eigvalsh(covariance.astype(np.float64)).min())
    if smallest <= 0:
        raise ValueError(
            f"covariance is not positive definite: its smallest eigenvalue is {smallest:.3g}; "
            "add a little to its diagonal, for instance the noise of single observations"
        )
