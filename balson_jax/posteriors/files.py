"""Posteriors on disk: named arrays, and words about them, in one ``.npz`` file."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

WORDS = "words"


def save(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], words: Mapping[str, Any]) -> None:
    """Write named arrays and JSON metadata (``words``) to one ``.npz`` file."""
    with pathlib.Path(path).open("wb") as file:
        # No allow_pickle: NumPy 1.26 would store it as an array.
        np.savez(file, **arrays, **{WORDS: np.asarray(json.dumps(dict(words)))})


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
