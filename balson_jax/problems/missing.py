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
"""Whether a NaN in a target raises ``ValueError`` or drops its row. Inside a trace ``"raise"`` sets a status."""


def kept_rows(
    target: jax.Array, event: tuple[int, ...], counts: jax.Array | None, missing: Missing
) -> jax.Array | None:
    """Return which rows of targets ``(..., *event)`` count, or ``None`` if all do.

    ``counts`` marks the rows that mask and weights keep. With ``missing="drop"`` rows whose target is NaN are dropped
    too.
    """
    _require_finite(target, counts, missing)
    if missing == "raise":
        return counts
    present = ~jnp.isnan(target)
    kept = present if counts is None else counts & present
    is_batch = target.ndim > len(event)
    if not is_batch or not validation.is_concrete(kept) or not kept.any():
        require_rows(kept, event, "target", "missing values leave no row")
    return kept  # one target of a batch may have none: its status says so


def _require_finite(target: jax.Array, counts: jax.Array | None, missing: Missing) -> None:
    """Raise ``ValueError`` at a number of a known target that is not finite, in a row that counts."""
    shown = validation.known(target)
    rows = None if counts is None else validation.known(counts)
    if shown is None or (counts is not None and rows is None):
        return
    shown = shown if rows is None else np.where(rows, shown, 0)
    if missing == "raise":
        remedy = "remove or replace that row, or pass missing='drop' if NaN means missing"
        validation.require_finite("target", shown, remedy)
    else:
        validation.require_finite("target", np.where(np.isnan(shown), 0, shown), "missing='drop' drops NaN only")


def require_rows(kept: jax.Array, event: tuple[int, ...], name: str, trouble: str) -> None:
    """Raise ``ValueError`` if a problem is known to have no row left."""
    known = validation.known(kept)
    if known is None or not known.size:
        return
    some = known.any(tuple(range(known.ndim - len(event), known.ndim)))
    if not some.all():
        where = f" of problem {np.argwhere(~some)[0].tolist()}" if some.ndim else ""
        raise ValueError(f"{name}: {trouble}{where}; keep at least one, or leave that problem out")
