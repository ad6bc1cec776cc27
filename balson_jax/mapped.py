"""Arrays that are maps of files: reading or writing all of one needs the memory of a part at a time."""

from __future__ import annotations

import mmap
from typing import Any

SHARED = ("r", "r+", "w+")
"""Modes of maps whose pages are those of the file. Pages of a private copy (``"c"``) would be lost."""


def release(array: Any) -> None:
    """Give back the memory of a map's pages, which stay in its file; with another array do nothing.

    A process that has read a map once would otherwise seem to hold all of it.
    """
    behind, advice = array, getattr(mmap, "MADV_DONTNEED", None)
    while behind is not None and not hasattr(behind, "_mmap"):
        behind = getattr(behind, "base", None)
    if advice is not None and getattr(behind, "mode", None) in SHARED:
        behind._mmap.madvise(advice)  # type: ignore[union-attr]
