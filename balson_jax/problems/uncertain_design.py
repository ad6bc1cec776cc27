"""Designs whose columns have errors, as users describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UncertainDesign:
    """A design whose columns have errors. Pass it to ``linear_problem`` in place of an array.

    The errors of different columns are independent, and each target has errors of its own: it was made by columns that
    were drawn anew. Errors of several kinds add up.

    With ``noise="estimate"`` the scale-invariant prior is that of a row's total variance: the noise's, plus what errors
    of the design add at equal shares. On the noise's variance alone this prior would give no proper posterior, because
    that variance may be zero.

    Attributes:
      mean: the design, ``(..., N, P)``.
      std: standard deviation of each entry, independent of the others; broadcasts to the design's shape.
      scale: standard deviation of a factor of each whole column, such as 0.1 for a brightness known to 10 %; ``(P,)``.
      factors: directions in which columns vary, ``(..., F, N, P)``: column k of each is a standard deviation of column
        k of the design.

    >>> sources = UncertainDesign(np.array([[10.0, 2.0, 5.0], [1.0, 8.0, 6.0]]), std=0.5)  # two tracers, three sources
    >>> from balson_jax import fit, linear_problem
    >>> found = fit(jax.random.key(0), linear_problem(sources, np.array([6.0, 4.5]), noise=0.2))
    >>> found.status
    Array(0, dtype=int32)
    """

    mean: Any
    std: Any = None
    scale: Any = None
    factors: Any = None

    @staticmethod
    def from_replicates(replicates: Sequence[Any], *, rows: bool = False) -> UncertainDesign:
        """Return the design that follows from repeated measurements of each column.

        Args:
          replicates: for each column an array ``(R_k, N)`` of at least two measurements of it, such as a bundle of
            spectra of one material. A target's own columns are taken to vary as these do.
          rows: whether entries vary independently of each other, with the standard deviations of the replicates. If
            not, columns vary in the directions in which replicates do.
        """
        arrays = [np.asarray(validation.float_array(f"replicates[{k}]", own)) for k, own in enumerate(replicates)]
        for k, own in enumerate(arrays):
            if own.ndim != 2 or len(own) < 2:
                raise ValueError(
                    f"replicates[{k}] has shape {own.shape}; pass (R, N) with at least two measurements of that "
                    "column, or state how well it is known with UncertainDesign(mean, std=...)"
                )
            if own.shape[1] != arrays[0].shape[1]:
                raise ValueError(
                    f"replicates[{k}] has {own.shape[1]} rows, and replicates[0] {arrays[0].shape[1]}; "
                    "measure all columns at the same rows"
                )
        mean = np.stack([own.mean(0) for own in arrays], -1)
        # The mean of R replicates is itself off by 1 / R of their variance.
        away = [np.sqrt((1 + 1 / len(own)) / (len(own) - 1)) * (own - own.mean(0)) for own in arrays]
        if rows:
            return UncertainDesign(mean, std=np.stack([np.sqrt(np.square(own).sum(0)) for own in away], -1))
        most = max(map(len, away))
        padded = [np.pad(own, [(0, most - len(own)), (0, 0)]) for own in away]
        return UncertainDesign(mean, factors=np.stack(padded, -1))

    def errors(
        self, mean: jax.Array, event: tuple[int, ...], batch: tuple[int, ...]
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """Return standard deviations of entries, ``(..., N, P)``, and directions, ``(..., N, P, F)``; or raise.

        Args:
          mean: the design as an array, rows flattened, ``(..., N, P)``.
          event: the shape of one problem's target.
          batch: the shape of the batch.
        """
        shape, dtype = mean.shape, mean.dtype
        own = (*event, shape[-1])
        std, directions = None, []
        if self.std is not None:
            std = validation.float_array("std", self.std, dtype)
            validation.require_nonnegative("std", std)
            std = _broadcast("std", std, (*shape[:-2], *own)).reshape(shape)
        if self.scale is not None:
            scale = validation.float_array("scale", self.scale, dtype)
            validation.require_nonnegative("scale", scale)
            scale = _broadcast("scale", scale, (*shape[:-2], shape[-1]))
            directions.append((mean * scale[..., None, :])[..., None])
        if self.factors is not None:
            factors = validation.float_array("factors", self.factors, dtype)
            validation.require_finite("factors", factors, "remove or replace that entry")
            if factors.ndim < 1 + len(own) or factors.shape[-len(own) :] != own:
                wanted = ", ".join(map(str, own))
                raise ValueError(f"factors has shape {factors.shape}; pass (F, {wanted}): each has the design's shape")
            lead = factors.shape[: -len(own)]
            validation.require_broadcast("factors", lead[:-1], batch)
            directions.append(jnp.moveaxis(factors.reshape(*lead, *shape[-2:]), -3, -1))
        if not directions:
            return std, None
        lead = np.broadcast_shapes(*(part.shape[:-3] for part in directions))
        return std, jnp.concatenate([jnp.broadcast_to(part, (*lead, *part.shape[-3:])) for part in directions], -1)


def _broadcast(name: str, value: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    try:
        return jnp.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {value.shape}; pass one that broadcasts to {shape}") from None


def split(design: Any) -> tuple[Any, UncertainDesign | None]:
    """Return the mean of a design, and the design itself if it is uncertain."""
    return (design.mean, design) if isinstance(design, UncertainDesign) else (design, None)
