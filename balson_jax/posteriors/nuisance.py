"""The posterior of nuisance coefficients, and predictions that include them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NuisancePosterior:
    """The posterior of the coefficients of nuisance columns, the intercept first.

    Attributes:
      mean: ``(..., q)``, from all weighted draws.
      std: ``(..., q)``; infinite if the noise is unknown and too few rows are left to estimate it.
      draws: one for each kept draw of theta, with the same weights, ``(..., D, q)``.
      intercept: whether the first is an intercept.
    """

    mean: jax.Array
    std: jax.Array
    draws: jax.Array
    intercept: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def names(self) -> list[str]:
        """What the table calls the coefficients."""
        first = ["intercept"] if self.intercept else []
        return first + [f"nuis.[{i}]" for i in range(self.mean.shape[-1] - len(first))]

    def columns(self, nuisance: Any, num_rows: int, dtype: Any) -> jax.Array:
        """Return the nuisance columns of new rows, ``(..., n, q)``, or raise ``ValueError`` if some are lacking."""
        ones = jnp.ones((num_rows, int(self.intercept)), dtype)
        wanted = self.mean.shape[-1] - ones.shape[-1]
        given = jnp.zeros((num_rows, 0), dtype) if nuisance is None else nuisance
        given = validation.float_array("nuisance", given, dtype)
        if given.ndim < 2 or given.shape[-2:] != (num_rows, wanted):
            raise ValueError(
                f"nuisance has shape {None if nuisance is None else given.shape}; pass the ({num_rows}, {wanted}) "
                "nuisance columns of the rows to predict (an intercept is added by itself)"
            )
        return jnp.concatenate([jnp.broadcast_to(ones, (*given.shape[:-1], ones.shape[-1])), given], -1)


def joined(design: jax.Array, columns: jax.Array) -> jax.Array:
    """Return a design with further columns, both of which may have batch axes."""
    batch = np.broadcast_shapes(design.shape[:-2], columns.shape[:-2])
    return jnp.concatenate([jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (design, columns)], -1)
