"""Arrays on disk that are written piece by piece, so that an interrupted run can resume.

A directory holds one ``.npy`` file per array, ``arguments.json`` with digests of the arguments that the results were
computed from, and ``finished.txt`` with one line per finished piece. A line is written after its piece is on disk, so
every piece listed in ``finished.txt`` is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..mapped import release

ARGUMENTS = "arguments.json"
FINISHED = "finished.txt"
DRAFT = ".draft"


def digest(*values: Any) -> str:
    """Return a short digest of values: of arrays by their contents, of anything else by its ``repr``."""
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            assert value.dtype != object, "its bytes are addresses"
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
        num_pieces: int,
    ) -> None:
        """Create a directory or open that of an earlier run. With ``None``, create arrays in memory.

        Args:
          directory: the directory of the arrays, or ``None``.
          arguments: digests of everything the results depend on, by name. They must equal those of the earlier run.
          layout: shape and dtype of each array.
          num_pieces: number of pieces.

        Raises:
          ValueError: if the directory holds other files or results for other arguments, or is damaged.
        """
        self._directory = None if directory is None else pathlib.Path(directory)
        self.finished: set[int] = set()
        if self._directory is None:
            self._arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in layout.items()}
            return
        is_new = not (self._directory / ARGUMENTS).exists()
        if is_new:
            _claim(self._directory, set(layout))
        else:
            _check_arguments(self._directory, arguments)
            self.finished = _read_finished(self._directory)
        mode = "w+" if is_new else "r" if len(self.finished) == num_pieces else "r+"
        self._arrays = {
            name: _open_array(self._directory / f"{name}.npy", mode, shape, dtype)
            for name, (shape, dtype) in layout.items()
        }
        if is_new:
            # Written last, so that a directory with this file has all its arrays.
            _write_whole(self._directory / ARGUMENTS, json.dumps(dict(arguments), indent=2) + "\n")

    def write(self, piece: int, rows: slice, values: Mapping[str, np.ndarray]) -> None:
        """Store one piece of every array, and record that it is finished."""
        for name, array in self._arrays.items():
            array[rows] = values[name][: rows.stop - rows.start]
            getattr(array, "flush", lambda: None)()  # that of a file has it
            release(array)
        self.finished.add(piece)
        if self._directory is not None:
            with (self._directory / FINISHED).open("a") as file:
                file.write(f"{piece}\n")
                file.flush()
                os.fsync(file.fileno())

    def results(self) -> dict[str, np.ndarray]:
        """Return the arrays. Those on disk are read-only."""
        for array in self._arrays.values():
            array.flags.writeable = self._directory is None
        return self._arrays


def _claim(directory: pathlib.Path, names: set[str]) -> None:
    """Claim a directory that is new, empty, or left over from a run that was interrupted while creating its arrays."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"out={str(directory)!r} is a file; pass a directory")
    directory.mkdir(parents=True, exist_ok=True)
    present = {path.name for path in directory.iterdir()}
    ours = {FINISHED, ARGUMENTS + DRAFT, *(f"{name}.npy" for name in names)} if FINISHED in present else set()
    if present - ours:
        raise ValueError(f"out={str(directory)!r} holds other files ({min(present - ours)}); pass an empty directory")
    (directory / FINISHED).write_text("")


def _check_arguments(directory: pathlib.Path, arguments: Mapping[str, str]) -> None:
    earlier = json.loads((directory / ARGUMENTS).read_text())
    changed = [name for name in {**earlier, **arguments} if earlier.get(name) != arguments.get(name)]
    if changed:
        raise ValueError(
            f"out={str(directory)!r} holds results for a different {', '.join(changed)}; "
            "pass the same arguments to resume, or another directory"
        )


def _read_finished(directory: pathlib.Path) -> set[int]:
    path = directory / FINISHED
    whole, _, cut_off = path.read_text().rpartition("\n")
    if cut_off:  # An interruption cut the last line off. Drop it, or the next line would be appended to it.
        _write_whole(path, whole + "\n" if whole else "")
    return {int(line) for line in whole.split()}


def _write_whole(path: pathlib.Path, text: str) -> None:
    """Write a file atomically: an interruption leaves either the old file or the new one."""
    draft = path.with_name(path.name + DRAFT)
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _open_array(path: pathlib.Path, mode: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if 0 in shape:  # an empty array can't be memory-mapped
        return np.empty(shape, dtype)
    if mode == "w+":
        return np.lib.format.open_memmap(path, mode, dtype, shape)
    try:
        array = np.lib.format.open_memmap(path, mode)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"out={str(path.parent)!r} is damaged ({path.name}: {error}); pass another directory"
        ) from None
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"out={str(path.parent)!r} is damaged ({path.name} is not {dtype}{shape}); pass another one")
    return array
