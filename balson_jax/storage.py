"""Arrays on disk that are filled piece by piece, and survive an interruption.

A directory holds one ``.npy`` file per array, ``arguments.json`` with a digest of what the results were computed
from, and ``finished.txt`` with one line per finished piece. A line is written after its piece is on disk, so whatever
``finished.txt`` names is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

ARGUMENTS = "arguments.json"
FINISHED = "finished.txt"


def digest(*values: Any) -> str:
    """Return a short digest of arrays and of anything else by its representation."""
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            state.update(f"{value.dtype}{value.shape}".encode())
            state.update(np.ascontiguousarray(value).tobytes())
        else:
            state.update(repr(value).encode())
    return state.hexdigest()[:16]


class ArrayStore:
    """Named arrays, in memory or in a directory, with a record of which pieces are finished."""

    def __init__(
        self,
        directory: str | os.PathLike | None,
        arguments: Mapping[str, str],
        layout: Mapping[str, tuple[tuple[int, ...], np.dtype]],
    ) -> None:
        """Open a directory, new or of an interrupted run; or, with ``None``, make arrays in memory.

        Args:
          directory: where the arrays are.
          arguments: what the results depend on, by name; compared with those of an earlier run.
          layout: shape and dtype of each array.

        Raises:
          ValueError: if the directory belongs to something else.
        """
        self._directory = None if directory is None else pathlib.Path(directory)
        self.finished: set[int] = set()
        if self._directory is None:
            self.arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in layout.items()}
            return
        if (self._directory / ARGUMENTS).exists():
            self._check_arguments(arguments)
            self.finished = self._read_finished()
            mode = "r+"
        else:
            self._claim(arguments)
            mode = "w+"
        self.arrays = {
            name: _open_array(self._directory / f"{name}.npy", mode, shape, dtype)
            for name, (shape, dtype) in layout.items()
        }
        if mode == "w+":
            # Last: a directory with this file has all its arrays.
            (self._directory / ARGUMENTS).write_text(json.dumps(dict(arguments), indent=2) + "\n")

    def write(self, piece: int, rows: slice, values: Mapping[str, np.ndarray]) -> None:
        """Store one piece of every array, and note that it is finished."""
        for name, array in self.arrays.items():
            array[rows] = values[name][: rows.stop - rows.start]
            if isinstance(array, np.memmap):
                array.flush()
        self.finished.add(piece)
        if self._directory is not None:
            with (self._directory / FINISHED).open("a") as file:
                file.write(f"{piece}\n")
                file.flush()
                os.fsync(file.fileno())

    def _claim(self, arguments: Mapping[str, str]) -> None:
        assert self._directory is not None
        if self._directory.exists() and not self._directory.is_dir():
            raise ValueError(f"out={str(self._directory)!r} is a file; pass a directory")
        self._directory.mkdir(parents=True, exist_ok=True)
        known = {ARGUMENTS, FINISHED}
        foreign = [path.name for path in self._directory.iterdir() if path.suffix != ".npy" and path.name not in known]
        if foreign:
            raise ValueError(f"out={str(self._directory)!r} holds other files ({foreign[0]}); pass an empty directory")
        (self._directory / FINISHED).write_text("")

    def _check_arguments(self, arguments: Mapping[str, str]) -> None:
        assert self._directory is not None
        earlier = json.loads((self._directory / ARGUMENTS).read_text())
        changed = [name for name in {**earlier, **arguments} if earlier.get(name) != arguments.get(name)]
        if changed:
            raise ValueError(
                f"out={str(self._directory)!r} holds results for a different {', '.join(changed)}; "
                "pass the same arguments to resume, or another directory"
            )

    def _read_finished(self) -> set[int]:
        assert self._directory is not None
        path = self._directory / FINISHED
        whole, _, cut_off = path.read_text().rpartition("\n")
        if cut_off:  # by an interruption: the next line must not be appended to it
            path.write_text(whole + "\n" if whole else "")
        return {int(line) for line in whole.split()}


def _open_array(path: pathlib.Path, mode: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if 0 in shape:  # nothing to map
        return np.empty(shape, dtype)
    return np.lib.format.open_memmap(path, mode, dtype, shape)
