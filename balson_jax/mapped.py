"""Arrays that are maps of files: reading or writing all of one needs the memory of a part at a time."""

from __future__ import annotations

import mmap
from typing import Any


def release(array: Any) -> None:
    """Give back the memory of a map's pages, which stay in its file; with another array do nothing.

    A process that has read a map once would otherwise seem to hold all of it.
    """
    behind, advice = array, getattr(mmap, "MADV_DONTNEED", None)
    while behind is not None and not hasattr(behind, "madvise"):
        behind = getattr(behind, "base", None)
    if behind is not None and advice is not None:
        behind.madvise(advice)
