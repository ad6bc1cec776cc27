"""Posteriors on disk: named arrays, and words about them, in one ``.npz`` file."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..mapped import release

WORDS = "words"

TOGETHER = 1 << 24
"""Number of bytes that are written at a time."""


def save(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], words: Mapping[str, Any]) -> None:
    """Write named arrays and JSON metadata (``words``) to one ``.npz`` file, some rows at a time."""
    with pathlib.Path(path).open("wb") as whole, zipfile.ZipFile(whole, "w") as archive:
        for name, array in {**arrays, WORDS: np.asarray(json.dumps(dict(words)))}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write(file, np.asarray(array, order="C"))


def _write(file: Any, array: np.ndarray) -> None:
    """Write an array as ``numpy.save`` does. Maps of files may be larger than memory."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    step = max(1, TOGETHER * len(array) // max(1, array.nbytes)) if array.ndim else 1
    for start in range(0, len(array) if array.ndim else 1, step):
        file.write((array[start : start + step] if array.ndim else array).tobytes())
        release(array)


def load(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the metadata that ``save`` wrote."""
    foreign = f"path={str(path)!r} is not a saved posterior; pass a file that Posterior.save wrote"
    try:
        file = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise ValueError(foreign) from None
    if not hasattr(file, "files") or WORDS not in file:
        raise ValueError(foreign)
    with file:
        words = json.loads(str(file[WORDS]))
        return {name: file[name] for name in file.files if name != WORDS}, words
