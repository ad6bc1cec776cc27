"""Frames of a mixing model, as users of MixSIAR and simmr have them: sources, discrimination, consumers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .panel import require_frame


class Sources(NamedTuple):
    """Means and standard deviations of tracers, ``(tracers, sources)``; numbers of samples, ``(sources,)``."""

    names: list[Any]
    tracers: list[str]
    mean: np.ndarray
    std: np.ndarray
    samples: np.ndarray


def read(pd: Any, frame: Any, name: str, consumers: Any) -> Sources:
    """Return what a frame says of the sources, or raise ``ValueError`` naming the argument and the place.

    Either one row per source, with ``Mean<tracer>`` and ``SD<tracer>`` and perhaps ``n``; or one row per sample, with
    those tracers that the consumers have. Source names are in the first column that holds no numbers, or in the index.
    """
    for label, own in (("consumers", consumers), (name, frame)):
        require_frame(pd, label, own)
    frame = _named(pd, frame)
    tracers = [column.removeprefix("Mean") for column in map(str, frame.columns) if column.startswith("Mean")]
    if not tracers:
        return _of_samples(frame, name, consumers)
    if frame.index.has_duplicates:
        twice = frame.index[frame.index.duplicated()][0]
        raise ValueError(f"{name} has two rows of {twice!r}; keep one row per source, such as those of one region")
    for tracer in tracers:
        if f"SD{tracer}" not in frame.columns:
            raise ValueError(f"{name} has a column Mean{tracer} and no SD{tracer}; add it, 0 if the mean is exact")
    mean, std = (_numbers(frame, [part + tracer for tracer in tracers], name) for part in ("Mean", "SD"))
    count = _numbers(frame, ["n"], name)[0] if "n" in frame.columns else np.full(len(frame), np.inf)
    found = Sources(list(frame.index), tracers, mean, std, count)
    for label, values, least in (("SD", std, 0), ("n", count, 1)):
        if (values < least).any():
            raise ValueError(f"{name} has a {label} of {values.min():g}; it must be at least {least}")
    return found


def discrimination_of(pd: Any, frame: Any, sources: Sources, consumers: Any) -> Sources:
    """Return discrimination factors in the order of the sources, or raise ``ValueError`` if some are missing."""
    found, name = read(pd, frame, "discrimination", consumers), "discrimination"
    for label, own, wanted in (("source", found.names, sources.names), ("tracer", found.tracers, sources.tracers)):
        missing = [item for item in wanted if item not in own]
        if missing:
            raise ValueError(f"{name} lacks the {label} {missing[0]!r}; it has {own}")
    rows = [found.tracers.index(tracer) for tracer in sources.tracers]
    columns = [found.names.index(source) for source in sources.names]
    place = np.ix_(rows, columns)
    return Sources(sources.names, sources.tracers, found.mean[place], found.std[place], found.samples[columns])


def _named(pd: Any, frame: Any) -> Any:
    """Return the frame with source names in its index."""
    words = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    return frame.set_index(words[0]) if words else frame


def _of_samples(frame: Any, name: str, consumers: Any) -> Sources:
    tracers = [column for column in frame.select_dtypes("number").columns if column in consumers.columns]
    if not tracers:
        raise ValueError(
            f"{name} has no tracers: neither Mean<tracer> and SD<tracer>, nor numbers in a column of the consumers; "
            f"it has {[*frame]}, and consumers {[*consumers]}"
        )
    _numbers(frame, tracers, name)
    groups = frame[tracers].groupby(level=0, sort=False)
    count = groups.size()
    if (count < 2).any():
        alone = count.index[count < 2][0]
        raise ValueError(
            f"{name} has one sample of {alone!r}, which tells no standard deviation; add samples, or pass "
            "Mean<tracer> and SD<tracer>"
        )
    mean, std = groups.mean().to_numpy(np.float64).T, groups.std(ddof=1).to_numpy(np.float64).T
    return Sources(list(count.index), [str(tracer) for tracer in tracers], mean, std, count.to_numpy(np.float64))


def _numbers(frame: Any, columns: list[Any], name: str) -> np.ndarray:
    """Return columns of a frame, ``(columns, rows)``, or raise ``ValueError`` where one holds no number."""
    try:
        values = frame[columns].to_numpy(np.float64).T
    except (TypeError, ValueError):
        raise ValueError(f"{name} has words in one of the columns {columns}; they must hold numbers") from None
    _require_numbers(values, columns, list(frame.index), name)
    return values


def _require_numbers(values: np.ndarray, columns: list[Any], rows: list[Any], name: str) -> None:
    """Raise ``ValueError`` for the first of values ``(columns, rows)`` that isn't finite."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        column, row = bad[0]
        raise ValueError(
            f"{name}: {columns[column]} of {rows[row]!r} is {values[column, row]}; fill it in, or leave out that row"
        )


def observations(consumers: Any, tracers: list[str]) -> tuple[np.ndarray, list[Any]]:
    """Return the tracers of the consumers, ``(consumers, tracers)``, and their labels."""
    for tracer in tracers:
        if tracer not in consumers.columns:
            raise ValueError(f"consumers has no column {tracer!r}, a tracer of the sources; it has {[*consumers]}")
    if not len(consumers):
        raise ValueError("consumers has no rows; pass at least one consumer")
    values, labels = consumers[tracers].to_numpy(np.float64), list(consumers.index)
    _require_numbers(values.T, tracers, labels, "consumers")
    return values, labels


def averages(consumers: Any, group: str | None) -> tuple[np.ndarray, list[Any]]:
    """Return weights that average the consumers of each group, ``(groups, consumers)``, and the groups' names."""
    if group is None:
        return np.zeros((0, len(consumers))), []
    if group not in consumers.columns:
        raise ValueError(f"group={group!r} is no column of consumers; it has {[*consumers]}")
    unknown = consumers[group].isna()
    if unknown.any():
        raise ValueError(f"consumers: {group} of {consumers.index[unknown][0]!r} is missing; fill it in")
    names = list(dict.fromkeys(consumers[group]))
    member = np.asarray([consumers[group] == name for name in names], np.float64)
    return member / member.sum(1, keepdims=True), names


def refuse_concentration(pd: Any, concentration: Any, known: Sources) -> None:
    """Raise ``ValueError`` unless concentrations are equal, and change nothing."""
    if concentration is None:
        return
    columns = [f"Conc{tracer}" for tracer in known.tracers]
    if hasattr(concentration, "columns") and set(columns) <= set(concentration.columns):
        values = concentration[columns].to_numpy(np.float64)
        if np.isfinite(values).all() and (values > 0).all() and np.allclose(values, values[:1]):
            return
        raise ValueError(
            "concentration differs between sources; tracers are then no linear function of the shares, which this "
            "model doesn't fit. Leave it out if concentrations are alike"
        )
    raise ValueError(f"concentration needs the columns {columns}; leave it out if concentrations are alike")
