"""Compile two programs at the same time: the one that is needed now, and the one that will be needed next.

A first fit waits for the compiler. Tracing holds Python's lock, but compiling does not, so the second program is
compiled by a thread while the first is traced, compiled and run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import jax

_begun: set[Any] = set()
"""Signatures of the programs that were compiled ahead once: JAX keeps them."""


def is_new(signature: Any) -> bool:
    """Return whether a signature, any hashable value, is passed for the first time."""
    if signature in _begun:
        return False
    _begun.add(signature)
    return True


def compile_ahead(program: Any, *args: Any) -> Callable[[], None]:
    """Begin to compile a jitted function for arguments; return a function that waits until this is done.

    Arguments may be ``jax.ShapeDtypeStruct``. A later call of the program finds it compiled. An error of the compiler
    is raised by that call.
    """
    lowered = program.trace(*args).lower()

    def compiled() -> None:
        with contextlib.suppress(Exception):
            lowered.compile()

    # No daemon: the interpreter must not end while the compiler works.
    thread = threading.Thread(target=compiled)
    thread.start()
    return thread.join


def shapes(traced: Any) -> Any:
    """Return the shapes and dtypes of the results of a traced program."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), traced.out_info)
