"""The rules of a ladder: which results serve, which need no better one. For arrays of NumPy and, in a trace, of JAX."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from ..posteriors.posterior import Posterior
from ..samplers import Rung
from ..status import ABOUT_THE_MODEL, Status
from ..targets import Needs

BEYOND_REMEDY = Status.IMPROPER | Status.ROUNDING
"""Troubles that no sampler cures."""

SPREAD_ERROR = 1.5
"""A problem goes on to the next rung if some standard deviation has a relative error above this number divided by the
root of ``target_ess``."""


class Verdict(NamedTuple):
    """What a result is worth, one flag per problem.

    Attributes:
      serves: it can be trusted and has enough effective draws.
      final: no other method need be tried, because the result serves and is safe, or because none would help.
    """

    serves: Any
    final: Any


def judge(part: Posterior, rung: Rung, target_ess: float) -> Verdict:
    """Return what the results of a rung are worth."""
    serves = ((part.status & ~int(ABOUT_THE_MODEL)) == 0) & (part.ess >= target_ess)
    beyond = (part.status & int(BEYOND_REMEDY)) > 0
    safe = rung.safe(part.ess, part.pareto_k) & _knows_spread(part, target_ess)  # type: ignore[arg-type]
    return Verdict(serves, (serves & safe) | beyond)


def _knows_spread(part: Posterior, target_ess: float) -> Any:
    """Return which problems' standard deviations are about as precise as ``target_ess`` independent draws make them.

    If weights are correlated with squared deviations, the spread is less certain than the number of effective draws
    says. No method knows a spread better than to the last digit of the mean.
    """
    last_digit = float(np.finfo(part.mean.dtype).eps) * abs(part.mean)
    relative = SPREAD_ERROR / math.sqrt(target_ess) * part.std
    return ~((part.std_stderr > relative) & (part.std_stderr > last_digit)).any(-1)


def flagged(found: Posterior, valid: Any, target_ess: float) -> Posterior:
    """Return the posterior with ``BUDGET`` where there are fewer effective draws than asked for."""
    short = (found.ess < target_ess) & valid & ((found.status & int(BEYOND_REMEDY)) == 0)
    return dataclasses.replace(found, status=found.status | short.astype(np.int32) * int(Status.BUDGET))


def method_names(rungs: list[Rung]) -> tuple[str, ...]:
    """Return the names of the methods of a ladder."""
    return tuple(dict.fromkeys(rung.method.name for rung in rungs))


def needs_of(rungs: list[Rung]) -> Needs:
    """Return all that the methods of a ladder need to know."""
    return Needs(*(any(wanted) for wanted in zip(*(rung.method.needs for rung in rungs), strict=True)))


def renamed(part: Posterior, names: tuple[str, ...]) -> Posterior:
    """Return a posterior by one method as one by a ladder of methods."""
    choice = np.full(np.shape(part.choice), names.index(part.methods[0]), np.int32)
    return dataclasses.replace(part, choice=choice, methods=names)
