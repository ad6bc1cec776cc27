"""Nuisance columns: coefficients without a constraint, such as an offset or a trend, integrated out exactly.

With columns Z, coefficients b under a flat prior, and ``y = A theta + Z b + noise``, let ``Z = Q T`` be a QR
factorisation in whitened units. The likelihood integrated over the q coefficients is

    (2 pi s^2)^(-(N - q)/2) |T|^-1 exp(-|(1 - Q Q')(y - A theta)|^2 / (2 s^2)):

that of a problem with q rows less, whose design and target lack their part in the span of Z. Given theta, b is normal
with mean ``T^-1 Q'(y - A theta)`` and covariance ``s^2 (T'T)^-1``.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

from .. import validation

EXACT = lax.Precision.HIGHEST
COLLINEAR = 1e-6
"""Singular values below this share of the largest count as zero."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Coefficients:
    """The coefficients of nuisance columns given theta: normal with a mean linear in theta.

    Attributes:
      offset: their mean at ``theta = 0``, ``(..., q)``.
      slope: their decrease with theta, lifted to omega's components, ``(..., q, K)``.
      root: their covariance is ``s^2 root root'``, ``(..., q, q)``.
      intercept: whether the first belongs to a column of ones.
    """

    offset: jax.Array
    slope: jax.Array
    root: jax.Array
    intercept: bool = dataclasses.field(metadata={"static": True})

    event_ndims = (1, 2, 2)

    def mean_given(self, omega: jax.Array) -> jax.Array:
        """Return means given draws of omega, ``(K, L)`` or ``(B, K, L)``, for B problems, ``(B, q, L)``."""
        return self.offset[:, :, None] - jnp.matmul(self.slope, omega, precision=EXACT)

    def moments_of(self, mean: jax.Array, precision: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and variance of the conditional means if ``omega ~ Dir(precision * mean)``, ``(B, q)``."""
        fitted = jnp.einsum("bqk,bk->bq", self.slope, mean, precision=EXACT)
        square = jnp.einsum("bqk,bk->bq", jnp.square(self.slope), mean, precision=EXACT)
        return self.offset - fitted, jnp.maximum(square - jnp.square(fitted), 0) / (precision + 1)


def without_span(nuisance: jax.Array, design: jax.Array, target: jax.Array) -> tuple[jax.Array, ...]:
    """Return design and target without their part in the span of Z; then offset, slope, root and ``ln |T|``.

    Args:
      nuisance: Z, ``(..., N, q)``; all in whitened units.
      design: ``(..., N, P)``.
      target: ``(..., N)``.
    """
    span, triangle = jnp.linalg.qr(nuisance)
    fitted = jnp.einsum("...nq,...n->...q", span, target, precision=EXACT)
    columns = jnp.einsum("...nq,...np->...qp", span, design, precision=EXACT)
    rest = target - jnp.einsum("...nq,...q->...n", span, fitted, precision=EXACT)
    wide = design - jnp.einsum("...nq,...qp->...np", span, columns, precision=EXACT)
    # Once more, for what rounding left of a large baseline.
    again = jnp.einsum("...nq,...n->...q", span, rest, precision=EXACT)
    rest = rest - jnp.einsum("...nq,...q->...n", span, again, precision=EXACT)
    more = jnp.einsum("...nq,...np->...qp", span, wide, precision=EXACT)
    wide = wide - jnp.einsum("...nq,...qp->...np", span, more, precision=EXACT)
    identity = jnp.broadcast_to(jnp.eye(triangle.shape[-1], dtype=triangle.dtype), triangle.shape)
    root = solve_triangular(triangle, identity)
    offset = jnp.einsum("...qr,...r->...q", root, fitted + again, precision=EXACT)
    slope = jnp.einsum("...qr,...rp->...qp", root, columns + more, precision=EXACT)
    size = jnp.log(jnp.abs(jnp.diagonal(triangle, axis1=-2, axis2=-1))).sum(-1)
    return wide, rest, offset, slope, root, size


def read(
    nuisance: Any, intercept: Any, design: jax.Array, event: tuple[int, ...], batch: tuple[int, ...]
) -> jax.Array | None:
    """Return the nuisance columns, ``(..., N, q)``, or ``None``; or raise ``ValueError`` if they are of no use.

    Args:
      nuisance: ``(..., *event, q)``, or ``None``.
      intercept: whether to put a column of ones in front.
      design: ``(..., N, K)``, rows flattened, lifted to the components of omega.
      event: the shape of one problem's target.
      batch: the shape of the batch.
    """
    validation.require_flag("intercept", intercept)
    count, parts = math.prod(event), []
    if intercept:
        parts.append(jnp.ones((count, 1), design.dtype))
    if nuisance is not None:
        columns = validation.float_array("nuisance", nuisance, design.dtype)
        if columns.ndim < 1 + len(event) or columns.shape[-1 - len(event) : -1] != event:
            rows = "x".join(map(str, event))
            raise ValueError(f"nuisance has shape {columns.shape}; pass (..., {rows}, q), with the design's rows")
        validation.require_finite("nuisance", columns, "remove or replace that entry")
        own = columns.shape[: -1 - len(event)]
        validation.require_broadcast("nuisance", own, batch)
        parts.append(columns.reshape(*own, count, columns.shape[-1]))
    if not parts:
        return None
    shape = np.broadcast_shapes(*(part.shape[:-2] for part in parts))
    columns = jnp.concatenate([jnp.broadcast_to(part, (*shape, *part.shape[-2:])) for part in parts], -1)
    number = columns.shape[-1]
    if number >= count:
        raise ValueError(f"nuisance has {number} columns and the design {count} rows; leave more rows than columns")
    _require_useful(validation.known(columns), validation.known(design))
    return columns


def _require_useful(nuisance: np.ndarray | None, design: np.ndarray | None) -> None:
    """Raise if nuisance columns are collinear; warn if their span holds differences of the design's columns."""
    if nuisance is None or not nuisance.size:
        return
    columns = _scaled(nuisance)
    rank = np.linalg.matrix_rank(columns, tol=COLLINEAR)
    if (rank < nuisance.shape[-1]).any():
        raise ValueError(
            f"nuisance has {nuisance.shape[-1]} columns (an intercept is one), of which {int(rank.min())} are "
            "independent; remove those that others make up"
        )
    if design is None or design.ndim > 2 or nuisance.ndim > 2:
        return
    differences = design[:, 1:] - design[:, :1]
    # A column that equals another is no concern here.
    differences = _scaled(differences[:, np.abs(differences).max(0) > COLLINEAR * np.abs(design).max()])
    if not differences.size:
        return
    alone = np.linalg.matrix_rank(differences, tol=COLLINEAR)
    lost = int(alone + rank - np.linalg.matrix_rank(np.hstack([columns, differences]), tol=COLLINEAR))
    if lost:
        warnings.warn(
            f"nuisance: {lost} of the {int(alone)} directions in which the design tells theta lie in the span of the "
            "nuisance columns; there the data can't determine theta, and the posterior is the prior",
            stacklevel=4,
        )


def _scaled(columns: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(columns.astype(np.float64), axis=-2, keepdims=True)
    return columns / np.where(size > 0, size, 1)
