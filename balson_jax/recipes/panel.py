"""Panels of outcomes, read from pandas frames: times in rows, units in columns."""

from __future__ import annotations

from typing import Any

import numpy as np


def require_frame(pd: Any, name: str, frame: Any) -> None:
    """Raise ``ValueError`` unless this is a DataFrame."""
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{name} is a {type(frame).__name__}; pass a pandas DataFrame")


def wide(pd: Any, frame: Any, unit: str | None, time: str | None, outcome: str | None) -> Any:
    """Return a frame with sorted times in rows and units in columns."""
    require_frame(pd, "frame", frame)
    for name in (unit, time, outcome):
        if name is not None and name not in frame.columns:
            raise ValueError(f"frame has no column {name!r}; it has {list(frame.columns)}")
    if unit is not None and time is not None and outcome is not None:
        twice = frame.duplicated([unit, time])
        if twice.any():
            row = frame[twice].iloc[0]
            raise ValueError(f"frame has two rows of unit {row[unit]!r} at time {row[time]!r}; keep one")
        frame = frame.pivot(index=time, columns=unit, values=outcome)
    elif unit is not None or outcome is not None:
        raise ValueError("a long frame needs unit, time and outcome; pass the names of all three columns")
    elif time is not None:
        frame = frame.set_index(time)
    if frame.index.has_duplicates or frame.columns.has_duplicates:
        raise ValueError("frame has a time or a unit twice; keep one row per time and one column per unit")
    return frame.sort_index()


def require_panel(frame: Any, treated: Any, start: Any, least: int, least_before: int) -> np.ndarray:
    """Return which times lie before the start, or raise ``ValueError``.

    Args:
      frame: times in rows, units in columns.
      treated: one of the units.
      start: the first treated time.
      least: smallest number of donors.
      least_before: smallest number of times before the start.
    """
    if treated not in frame.columns:
        raise ValueError(f"treated={treated!r} is no unit of the frame; choose one of {list(frame.columns)}")
    donors = frame.shape[1] - 1
    if donors < least:
        hint = " (with placebos=False two suffice)" if least > 2 else ""
        raise ValueError(f"frame has {donors} donors; pass at least {least}{hint}")
    try:
        values = frame.to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"frame holds values that are no numbers ({error}); name its time column with time=") from None
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"unit {frame.columns[column]!r} is {values[row, column]} at time {frame.index[row]!r}; fill it in, or "
            "leave out that unit or time"
        )
    try:
        is_before = np.asarray(frame.index < start)
    except TypeError:
        raise ValueError(f"start={start!r} doesn't compare with times such as {frame.index[0]!r}") from None
    before, after = int(is_before.sum()), int((~is_before).sum())
    if before < least_before or not after:
        raise ValueError(
            f"start={start!r} leaves {before} times before it and {after} from then on; at least {least_before} and 1 "
            f"are needed, and times run from {frame.index[0]!r} to {frame.index[-1]!r}"
        )
    return is_before
