"""The one door to data files: ``read`` recognises the format by the file's name."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

from . import arrays, envi, parquet, single_cell, text
from .table import InputError, Table

FORMATS: dict[str, Callable[..., Table]] = {
    ".csv": text.read,
    ".tsv": text.read,
    ".txt": text.read,
    ".parquet": parquet.read,
    ".npy": arrays.read_npy,
    ".npz": arrays.read_npz,
    ".mat": arrays.read_mat,
    ".hdr": envi.read,
    ".img": envi.read,
    ".bsq": envi.read,
    ".bil": envi.read,
    ".bip": envi.read,
    ".sli": envi.read,
    ".dat": envi.read,
    ".h5ad": single_cell.read,
}
"""Readers by the end of the file's name."""

SEPARATOR = "::"
"""``file.npz::name`` names one of several arrays."""


def read(path: str | os.PathLike, **options: Any) -> Table:
    """Return what a data file holds.

    Files that may be larger than memory (NPY, uncompressed NPZ, MAT of version 7.3, ENVI, Parquet, AnnData) are read
    when their values are sliced. Text is read once, and the numbers of large text are kept on the disk.

    Args:
      path: the file. Of a file with several arrays ``"file.mat::name"`` is one of them.
      **options: ``header`` and ``row_names`` of text files and ``row_names`` of Parquet: ``"auto"`` (the default),
        ``"yes"`` or ``"no"``; ``scratch``, a directory for the numbers of large text. Other formats ignore them.

    Raises:
      InputError: naming the file, the place and the remedy.
    """
    whole, _, name = os.fspath(path).partition(SEPARATOR)
    where = pathlib.Path(whole)
    ending = where.suffix.lower()
    if not where.exists():
        raise InputError(where, "there is no such file; check the path")
    if where.is_dir():
        raise InputError(where, "is a directory; pass a file in it")
    if not where.stat().st_size:
        raise InputError(where, "is empty; was it written completely?")
    reader = FORMATS.get(ending)
    if reader is None and envi.header_of(where) is not None:
        reader = envi.read  # ENVI images often have no ending
    if reader is None:
        raise InputError(where, f"can't tell the format by the ending {ending!r}; known are {', '.join(FORMATS)}")
    if name and reader not in (arrays.read_npz, arrays.read_mat):
        raise InputError(where, f"holds one table; leave {SEPARATOR}{name} out")
    try:
        return reader(where, **({"name": name} if name else {}), **options)
    except OSError as error:
        raise InputError(where, f"can't be read: {error.strerror or error}; check permissions and disk") from None
