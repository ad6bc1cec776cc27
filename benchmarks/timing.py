"""Timing: contenders take turns, so that system noise affects all alike, and the best time of each counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax


class Timing(NamedTuple):
    """Seconds of compilation, and of the best run after it."""

    compile: float
    run: float


def race(contenders: Mapping[str, tuple[Callable, ...]], seconds: float = 1.0) -> dict[str, Timing]:
    """Time contenders, each given as a function and its arguments.

    Jitted functions are compiled ahead of time. Other functions are called once first, and the excess of that call over
    the best turn counts as compilation. A contender takes turns until it has used its ``seconds``, and at least one.
    """
    ready, first = {}, {}
    for name, (function, *arguments) in contenders.items():
        start = time.perf_counter()
        if hasattr(function, "lower"):
            ready[name] = function.lower(*arguments).compile(), arguments
            first[name] = time.perf_counter() - start
        else:
            ready[name] = function, arguments
            jax.block_until_ready(function(*arguments))
            first[name] = None, time.perf_counter() - start
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    while any(sum(spent) < seconds for spent in turns.values()):
        for name, (function, arguments) in ready.items():
            if sum(turns[name]) < seconds:
                turns[name].append(_once(function, arguments))
    return {name: _timing(first[name], min(turns[name])) for name in contenders}


def _once(function: Callable, arguments: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def _timing(first: Any, best: float) -> Timing:
    if isinstance(first, tuple):
        return Timing(max(first[1] - best, 0.0), best)
    return Timing(first, best)
