"""Names in streams: those of a design, or of a problem, and those of targets that may not be read before their turn."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .. import tables
from ..labels import Labels, require_names
from ..problems.base import is_problem
from ..problems.uncertain_design import split


class Named(NamedTuple):
    """The arguments of a stream with arrays in place of tables, and their names."""

    design: Any
    targets: Any
    options: dict[str, Any]
    labels: Labels


def read(design: Any, targets: Any, options: dict[str, Any]) -> Named:
    """Return the arguments of ``fit_stream`` with arrays in place of tables; a labelled array is not read."""
    if not tables.is_labelled_array(targets):
        return _read(design, targets, options)
    found = _read(design, None, options)
    return found._replace(targets=targets, labels=tables.lazy_labels("targets", targets, found.labels))


def _read(design: Any, targets: Any, options: dict[str, Any]) -> Named:
    if is_problem(design):
        labels, problems = design.labels, None
        event = design.template.rows.event
        if len(event) == 1:
            targets, problems = tables.read_target("targets", targets, labels.rows, *event)
        return Named(design, targets, options, dataclasses.replace(labels, problems=problems))
    options = dict(options)
    names = options.pop("names", None)
    mean, uncertain = split(design)
    mean, targets, options, labels = tables.read(mean, targets, options, "targets")
    if names is not None:
        labels = dataclasses.replace(labels, components=require_names(names, np.shape(mean)[-1]))
    return Named(mean if uncertain is None else dataclasses.replace(uncertain, mean=mean), targets, options, labels)
