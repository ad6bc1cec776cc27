"""The methods of ``fit``: the paper's four, three for strong data, and ``Auto``, which chooses.

Most have a file of their own here. ``RSIRS`` and ``ISIRS`` share ``rounds``, and ``HitAndRun`` is in ``chains``. To add
one: a file here with a subclass of ``Sampler``, one line in ``METHODS``, a row in the contract test.
"""

from __future__ import annotations

from typing import Any

from .. import validation
from ..problems.base import Problem
from .auto import Auto, Rung
from .base import Sampler
from .chains.hit_and_run import HitAndRun
from .gaussian import TG
from .importance import IS
from .rejection import RS
from .rounds import ISIRS, RSIRS, Rounds
from .variational import Variational

METHODS: dict[str, type[Sampler]] = {
    method.name: method for method in (Auto, RS, IS, RSIRS, ISIRS, TG, HitAndRun, Variational)
}
"""The methods that users may pass by name."""


def named(name: str, **options: Any) -> Sampler:
    """Return the method of a name, or of a class's name, with its defaults but for some options."""
    spellings = {cls.__name__.lower(): cls for cls in METHODS.values()} | METHODS
    if name.lower() not in spellings:
        validation.require_choice("method", name, tuple(METHODS))
    return spellings[name.lower()](**options)


def chosen(method: Any, **options: Any) -> Sampler:
    """Return the method that a name or an object stands for, or raise ``ValueError``.

    Options are for a method given by its name.
    """
    if isinstance(method, str):
        method = named(method, **options)
    if not isinstance(method, Sampler):
        classes = ", ".join(cls.__name__ for cls in METHODS.values())
        known = f"{', '.join(METHODS)}, or an instance of {classes}"
        shown = f"the class {method.__name__}" if isinstance(method, type) else repr(method)
        raise ValueError(f"method is {shown}; pass one of {known}, as IS()")
    return method


def resolve(method: Any, problem: Problem, **options: Any) -> Sampler:
    """Return the method that a name or an object stands for, suited to the problem, or raise ``ValueError``.

    Where the concentration of the prior is unknown, the problems of its grid prepare the method.
    """
    found = chosen(method, **options)
    return found if problem.hyperprior is not None else found.prepare(problem)


__all__ = [
    "IS",
    "ISIRS",
    "METHODS",
    "RS",
    "RSIRS",
    "TG",
    "Auto",
    "HitAndRun",
    "Rounds",
    "Rung",
    "Sampler",
    "Variational",
    "chosen",
    "named",
    "resolve",
]
