"""Missing values: what becomes of a NaN in a target, and which rows count.

Inside a trace, where nothing can be raised, a NaN stays: ``Problem.is_valid`` sees it, and ``execution.assembly`` makes
it a status.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation

Missing = Literal["raise", "drop"]
"""Whether a NaN in a target raises ``ValueError`` or drops its row. Inside a trace the first ends in a status."""


def kept_rows(target: jax.Array, event: tuple[int, ...], mask: jax.Array | None, missing: Missing) -> jax.Array | None:
    """Return which rows of targets ``(..., *event)`` count, by mask and missing values; ``None`` if all do."""
    # Rows that the mask drops may hold anything.
    shown = target if mask is None else jnp.where(mask, target, 0)
    if missing == "raise":
        remedy = "remove or replace that row, or pass missing='drop' if NaN means missing"
        validation.require_finite("target", shown, remedy)
        return mask
    validation.require_finite("target", jnp.where(jnp.isnan(shown), 0, shown), "missing='drop' drops NaN only")
    present = ~jnp.isnan(target)
    kept = present if mask is None else mask & present
    is_batch = target.ndim > len(event)
    if not is_batch or not validation.is_concrete(kept) or not kept.any():
        require_rows(kept, event, "target", "missing values leave no row")
    return kept  # one target of a batch may have none: its status says so


def require_rows(kept: jax.Array, event: tuple[int, ...], name: str, trouble: str) -> None:
    """Raise ``ValueError`` if a problem is known to have no row left."""
    known = validation.known(kept)
    if known is None or not known.size:
        return
    some = known.any(tuple(range(known.ndim - len(event), known.ndim)))
    if not some.all():
        where = f" of problem {np.argwhere(~some)[0].tolist()}" if some.ndim else ""
        raise ValueError(f"{name}: {trouble}{where}; keep at least one, or leave that problem out")
