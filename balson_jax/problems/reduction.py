"""The reduction of N rows to K: a thin QR factorisation of the design, made once.

With ``A = Q R``, ``q = Q'y`` and the part ``rho = y - Q q`` of the target that no ``theta`` reaches,

    |y - A theta|^2 = |q - R theta|^2 - 2 theta'(A'rho) + |rho|^2 + 2 q'(Q'rho).

``A'rho`` and ``Q'rho`` are zero but for rounding, which they correct: in float32 the rounding of a strong signal can
exceed the noise. They also carry derivatives: with ``Q`` held constant the right side has the same first derivatives in
``A`` and ``y`` as the left for designs of any rank, where a derivative through the factorisation would divide by zero.
(Second derivatives in ``A`` are not right.)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import validation
from . import rows
from .batching import Batched, map_blocks
from .nuisance import without_span

REDUCED_ELEMENTS = 1 << 22
"""Problems whose rows differ are reduced together as long as their designs hold no more numbers than this."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Raw(Batched):
    """Data before reduction: design, target, the whitening of rows, and nuisance columns."""

    design: jax.Array
    target: jax.Array
    scale: jax.Array | None
    cholesky: jax.Array | None
    nuisance: jax.Array | None

    def event_ndims(self) -> list[int]:
        ndims = {"design": 2, "target": 1, "scale": 1, "cholesky": 2, "nuisance": 2}
        return [ndim for name, ndim in ndims.items() if getattr(self, name) is not None]

    def whitened(self) -> tuple[jax.Array, ...]:
        """Return design and target; without nuisance columns, if there are any, whose coefficients follow."""
        design, target, nuisance = self._together() if self.design.ndim == 2 else self._apart()
        return (design, target) if nuisance is None else without_span(nuisance, design, target)

    def _together(self) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Whiten all by one call: two LAPACK calls that run at the same time may wait for each other for ever."""
        count, num_rows = self.design.shape[-1], self.design.shape[0]
        columns = self.design.T if self.nuisance is None else jnp.concatenate([self.design.T, self.nuisance.T])
        targets = self.target.reshape(-1, num_rows)
        whole = rows.whiten(jnp.concatenate([columns, targets]), self.scale, self.cholesky)
        target = whole[len(columns) :].reshape(self.target.shape)
        nuisance = None if self.nuisance is None else whole[count : len(columns)].T
        return whole[:count].T, target, nuisance

    def _apart(self) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        nuisance = None if self.nuisance is None else self._columns(self.nuisance)
        return self._columns(self.design), rows.whiten(self.target, self.scale, self.cholesky), nuisance

    def _columns(self, matrix: jax.Array) -> jax.Array:
        columns = rows.whiten(jnp.moveaxis(matrix, -1, 0), self.scale, self.cholesky)
        return jnp.moveaxis(columns, 0, -1)

    def reduced(self, basis: jax.Array | None = None) -> tuple[jax.Array, ...]:
        design, target, *coefficients = self.whitened()
        return (*_factorize(design, target, basis), *coefficients)


def reduce(
    design: jax.Array,
    target: jax.Array,
    scale: jax.Array | None,
    cholesky: jax.Array | None,
    basis: jax.Array | None = None,
    nuisance: jax.Array | None = None,
) -> tuple[jax.Array, ...]:
    """Return factor, projection, cross and rest of the rows in whitened units.

    With nuisance columns, of the rows without their part in the columns' span, followed by what
    ``nuisance.without_span`` returns about the coefficients.

    Args:
      design: ``(..., N, P)``.
      target: ``(..., N)``.
      scale: factors of the rows, ``(..., N)``, or ``None``.
      cholesky: of the rows' covariance, ``(..., N, N)``, or ``None``.
      basis: ``Q`` of the whitened design, where known.
      nuisance: nuisance columns, ``(..., N, q)``, or ``None``.
    """
    arrays = design, target, scale, basis
    if (
        cholesky is None
        and nuisance is None
        and shares_whitening(design, scale, None)
        and all(map(validation.is_on_cpu, arrays))
    ):
        # A few products with a small matrix: NumPy has nothing to compile for another number of targets.
        own = [None if array is None else np.asarray(array) for array in arrays]
        with np.errstate(all="ignore"):
            return jax.device_put(_reduced_on_host(*own))
    return _reduce(_Raw(design, target, scale, cholesky, nuisance), basis)


def _reduced_on_host(design: Any, target: Any, scale: Any, basis: Any) -> tuple[Any, ...]:
    """Return factor, projection, cross and rest by NumPy, in float64, for blocks of targets.

    The rest of the target is what the rounded projection leaves, so ``cross`` and ``rest`` correct its rounding.
    """
    dtype = target.dtype
    whitened = design.astype(np.float64) if scale is None else design * scale[..., None].astype(np.float64)
    basis = np.linalg.qr(whitened)[0] if basis is None else basis.astype(np.float64)
    transposed = basis.swapaxes(-1, -2)
    if basis.ndim > 2:
        parts = [_projected(whitened, basis, transposed, target, scale)]
    else:
        rows = target.reshape(-1, target.shape[-1])
        size = max(1, REDUCED_ELEMENTS // max(rows.shape[-1], 1))
        starts = range(0, max(len(rows), 1), size)
        parts = [_projected(whitened, basis, transposed, rows[i : i + size], scale) for i in starts]
    projection, cross, rest = (np.concatenate(part) for part in zip(*parts, strict=True))
    batch = np.broadcast_shapes(target.shape[:-1], design.shape[:-2])
    projection, cross = (part.reshape(*batch, part.shape[-1]) for part in (projection, cross))
    return np.matmul(transposed, whitened).astype(dtype), projection, cross, rest.reshape(batch)


def _projected(design: Any, basis: Any, transposed: Any, target: Any, scale: Any) -> tuple[Any, Any, Any]:
    dtype = target.dtype
    target = target.astype(np.float64) if scale is None else target * scale.astype(np.float64)
    projection = _times(target, basis).astype(dtype)
    outside = target - _times(projection.astype(np.float64), transposed)
    rest = 0.5 * np.square(outside).sum(-1) + (projection * _times(outside, basis)).sum(-1)
    return projection, _times(outside, design).astype(dtype), rest.astype(dtype)


@jax.jit
def _reduce(raw: _Raw, basis: jax.Array | None) -> tuple[jax.Array, ...]:
    if shares_whitening(raw.design, raw.scale, raw.cholesky, raw.nuisance):
        return raw.reduced(basis)
    block = max(1, REDUCED_ELEMENTS // math.prod(raw.design.shape[-2:]))
    return map_blocks(lambda flat: flat.vmap(lambda one: one.reduced()), raw, block)


def shares_whitening(
    design: jax.Array, scale: jax.Array | None, cholesky: jax.Array | None, nuisance: jax.Array | None = None
) -> bool:
    """Return whether whitening and nuisance columns have no batch axes that the design lacks."""
    parts = (scale, 1), (cholesky, 2), (nuisance, 2)
    own = [array.shape[: array.ndim - ndim] for array, ndim in parts if array is not None]
    return np.broadcast_shapes(design.shape[:-2], *own) == design.shape[:-2]


@jax.jit
def whitened_basis(
    design: jax.Array, scale: jax.Array | None, cholesky: jax.Array | None, nuisance: jax.Array | None = None
) -> jax.Array:
    """Return ``Q`` of the whitened design, ``(..., N, M)``; of its part outside the span of nuisance columns."""
    return _basis(_Raw(design, design[..., 0], scale, cholesky, nuisance).whitened()[0])


def _basis(design: jax.Array) -> jax.Array:
    return lax.stop_gradient(jnp.linalg.qr(lax.stop_gradient(design))[0])


def _factorize(design: jax.Array, target: jax.Array, basis: jax.Array | None = None) -> tuple[jax.Array, ...]:
    exact = lax.Precision.HIGHEST
    basis = _basis(design) if basis is None else basis
    factor = jnp.einsum("...nm,...nk->...mk", basis, design, precision=exact)
    projection = jnp.einsum("...nm,...n->...m", basis, target, precision=exact)
    outside = target - jnp.einsum("...nm,...m->...n", basis, projection, precision=exact)
    # Sum the common column separately to avoid cancellation.
    column = design.mean(-1)
    cross = jnp.einsum("...nk,...n->...k", design - column[..., None], outside, precision=exact)
    cross = cross + jnp.einsum("...n,...n->...", column, outside, precision=exact)[..., None]
    leak = jnp.einsum("...nm,...n->...m", basis, outside, precision=exact)
    return factor, projection, cross, 0.5 * jnp.square(outside).sum(-1) + (projection * leak).sum(-1)


def _times(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the products of vectors ``(..., n)`` with a matrix ``(..., n, m)``, ``(..., m)``."""
    if matrix.ndim == 2:
        return np.matmul(vectors, matrix)
    return np.matmul(vectors[..., None, :], matrix)[..., 0, :]
