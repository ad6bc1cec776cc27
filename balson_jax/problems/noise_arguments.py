"""The argument ``noise`` of problems, read and checked: numbers, arrays, names, noise models, covariances."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from .noise import NAMED, Correlated, Known, Noise, named


def split(noise: Any) -> tuple[Any, Any, Any]:
    """Return the level of the noise, the covariance and its factor, where given."""
    if not isinstance(noise, Correlated):
        return noise, None, None
    if (noise.covariance is None) == (noise.cholesky is None):
        raise ValueError("noise=Correlated(...) takes a covariance or its Cholesky factor: pass one of the two")
    if noise.scale is None or isinstance(noise.scale, (str, Correlated)) or np.ndim(noise.scale):
        raise ValueError(f'scale={noise.scale!r} of Correlated: pass a number, "estimate" or an InverseGamma')
    return noise.scale, noise.covariance, noise.cholesky


def level_of(noise: Any, event: tuple[int, ...], batch: tuple[int, ...], dtype: Any) -> tuple[Noise, jax.Array | None]:
    """Return the noise model, fields ``(...)``, and levels per row, ``(..., *event)``, where these were given."""
    noise = named(noise)
    if isinstance(noise, str):
        known = ", ".join(f'"{name}"' for name in NAMED)
        raise ValueError(f"noise={noise!r} is unknown; pass a positive number or array, or {known}")
    if isinstance(noise, Noise):
        return noise.checked(batch, dtype), None
    level = validation.float_array("noise", noise, dtype)
    validation.require_positive("noise", level)
    per_problem, per_row = _per_problem_or_row(level, batch, event)
    return Known(per_problem), per_row


def _per_problem_or_row(
    noise: jax.Array, batch: tuple[int, ...], event: tuple[int, ...]
) -> tuple[jax.Array, jax.Array | None]:
    """Return noise levels per problem, and those per row; ``None`` for the latter if ``noise`` is per problem."""
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


def matrices(
    covariance: Any, cholesky: Any, count: int, batch: tuple[int, ...], dtype: Any
) -> tuple[jax.Array | None, jax.Array | None]:
    """Return the covariance, or the Cholesky factor, as an array ``(..., N, N)``, whichever was given."""
    if covariance is None and cholesky is None:
        return None, None
    name = "covariance" if cholesky is None else "cholesky"
    matrix = validation.float_array(name, covariance if cholesky is None else cholesky, dtype)
    if matrix.ndim < 2 or matrix.shape[-2:] != (count, count):
        raise ValueError(f"{name} has shape {matrix.shape}; pass {(count, count)}, a row and a column per observation")
    validation.require_broadcast(name, matrix.shape[:-2], batch)
    validation.require_finite(name, matrix, "remove or replace that entry")
    known = validation.known(matrix)
    if cholesky is None:
        if known is not None:
            _require_definite(known)
        return matrix, None
    if known is not None and not (np.diagonal(known, axis1=-2, axis2=-1) > 0).all():
        raise ValueError("cholesky has a diagonal entry that isn't positive; pass the lower factor of a covariance")
    if known is not None and np.triu(known, 1).any():
        raise ValueError("cholesky has numbers above its diagonal; pass the lower factor, numpy.linalg.cholesky's")
    return None, jnp.tril(matrix)


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
