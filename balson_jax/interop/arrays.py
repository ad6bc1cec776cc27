"""Arrays in NPY, NPZ and MAT files. Three axes are an image: lines, samples, bands."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..mapped import release
from .table import InputError, Rows, Table, require_unique, shortened


def read_npy(path: pathlib.Path, **_: Any) -> Table:
    """Return the array of an NPY file, memory-mapped."""
    if _start(path).startswith(b"PK"):
        raise InputError(path, "is an NPZ archive; give it the ending .npz")
    try:
        with np.errstate(over="ignore"):
            values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # many kinds, as of struct or tokenize
        why = brief(error)
        raise InputError(path, f"is no array of numbers, or is cut off ({why}); write it with numpy.save") from None
    return from_array(path, values)


def read_npz(path: pathlib.Path, *, name: str | None = None, **_: Any) -> Table:
    """Return an array of an NPZ file, memory-mapped if it isn't compressed.

    The arrays ``row_names`` and ``column_names``, if there are such, have the names.
    """
    if _start(path).startswith(b"\x93NUMPY"):
        raise InputError(path, "is no NPZ archive but a single array; give it the ending .npy")
    try:
        with path.open("rb") as whole, np.load(whole, allow_pickle=False) as file:
            words = {key: file[key] for key in ("row_names", "column_names") if key in file.files}
            chosen = _choose(path, {key: None for key in file.files if key not in words}, name)
            values = _mapped(path, chosen)
            values = file[chosen] if values is None else values
    except InputError:
        raise
    except Exception as error:  # many kinds, as of zipfile or zlib
        raise InputError(path, f"has no arrays of numbers, or is damaged ({brief(error)}); use numpy.savez") from None
    names = {key: tuple(str(word) for word in np.ravel(value)) for key, value in words.items()}
    return from_array(path, values, **names)


def read_mat(path: pathlib.Path, *, name: str | None = None, **_: Any) -> Table:
    """Return an array of a MAT file. Files of version 7.3 are HDF5, and are read when they are sliced."""
    start = _start(path)
    if b"MATLAB 7.3" in start or start[:8] == b"\x89HDF\r\n\x1a\n":
        return _read_hdf5(path, name)
    try:
        from scipy.io import loadmat
    except ImportError:
        raise ImportError("MAT files need scipy; install it with: pip install 'balson_jax[files]'") from None
    try:
        found = loadmat(path)
    except Exception as error:  # SciPy's own, struct's, zlib's: many kinds for a damaged file
        raise InputError(path, f"is no MAT file, or is damaged ({brief(error)}); save it again") from None
    numeric = {
        key: value
        for key, value in found.items()
        if not key.startswith("__") and isinstance(value, np.ndarray) and value.dtype.kind in "iufb" and value.size > 1
    }
    return from_array(path, np.asarray(numeric[_choose(path, numeric, name)]))


def _read_hdf5(path: pathlib.Path, name: str | None) -> Table:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            "MAT files of version 7.3 need h5py; install it with: pip install 'balson_jax[files]'"
        ) from None
    try:
        file = h5py.File(path, "r")
        numeric: dict[str, Any] = {key: value for key, value in file.items() if _is_numeric(value)}
    except Exception as error:  # many kinds, as of zlib, struct or tokenize
        raise InputError(path, f"is damaged ({brief(error)}); save it again") from None
    data = numeric[_choose(path, numeric, name)]

    def part(*index: slice) -> np.ndarray:
        try:
            return data[index]
        except Exception as error:  # many kinds, as of zlib, struct or tokenize
            raise InputError(path, f"is damaged ({brief(error)}); save it again") from None

    # MATLAB stores the first axis last.
    if data.ndim == 3:
        bands, samples, lines = data.shape

        def load(first: int, last: int) -> np.ndarray:
            return np.moveaxis(part(slice(None), slice(None), slice(first, last)), (0, 1, 2), (2, 1, 0))

        image = Rows(
            (lines * samples, bands),
            data.dtype,
            lambda start, stop: pixels_of_lines(load, samples, start, stop),
        )
        return Table(path, image.T, image_shape=(lines, samples))
    columns = Rows(
        data.shape,
        data.dtype,
        lambda start, stop: part(slice(start, stop)),
        lambda start, stop: part(slice(None), slice(start, stop)),
    )
    return Table(path, columns.T)


def _is_numeric(value: Any) -> bool:
    """Return whether an entry of an HDF5 file is a matrix or an image; groups have no dtype, and texts are marked."""
    if not hasattr(value, "dtype") or value.attrs.get("MATLAB_class") == b"char":
        return False
    return value.dtype.kind in "iufb" and value.ndim in (2, 3) and (value.size or 0) > 1


def _start(path: pathlib.Path) -> bytes:
    with path.open("rb") as file:
        return file.read(128)


def brief(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind."""
    lines = str(error).splitlines()
    return lines[0][:120] if lines else type(error).__name__


def pixels_of_lines(load: Any, samples: int, start: int, stop: int) -> np.ndarray:
    """Return pixels ``(stop - start, bands)`` of an image, from the lines ``load(first, last)`` that they are in."""
    first, last = start // samples, -(-stop // samples)
    lines = load(first, last)
    flat = lines.reshape(-1, lines.shape[-1])
    return flat[start - first * samples : stop - first * samples]


def from_array(
    path: pathlib.Path,
    values: np.ndarray,
    row_names: tuple[str, ...] | None = None,
    column_names: tuple[str, ...] | None = None,
) -> Table:
    """Return the table of an array with one to three axes."""
    if values.dtype.kind not in "iufb":
        raise InputError(path, f"holds {values.dtype}, not real numbers; convert it to float32")
    if values.ndim not in (1, 2, 3) or 0 in values.shape:
        raise InputError(path, f"has shape {values.shape}; pass (rows, columns), or an image (lines, samples, bands)")
    image_shape, columns = None, values[:, None] if values.ndim == 1 else values
    if values.ndim == 3:
        image_shape, columns = (values.shape[0], values.shape[1]), _pixels(values)
    for kind, names, count in (("row", row_names, columns.shape[0]), ("column", column_names, columns.shape[1])):
        if names is not None and len(names) != count:
            raise InputError(path, f"has {count} {kind}s and {len(names)} {kind}_names; give each {kind} one name")
    if column_names is not None:
        require_unique(path, column_names, "column")
    return Table(path, columns, row_names, column_names, image_shape)


def _pixels(values: np.ndarray) -> Any:
    """Return an image ``(lines, samples, bands)`` as columns ``(bands, pixels)``, without a copy of all of it."""
    lines, samples, bands = values.shape
    if values.flags.c_contiguous:
        return values.reshape(lines * samples, bands).T

    def load(start: int, stop: int) -> np.ndarray:
        found = pixels_of_lines(lambda first, last: np.array(values[first:last], order="C"), samples, start, stop)
        release(values)
        return found

    return Rows((lines * samples, bands), values.dtype, load).T


def _choose(path: pathlib.Path, arrays: Mapping[str, Any], name: str | None) -> str:
    """Return the name of the array that is meant."""
    if name is not None:
        if name not in arrays:
            raise InputError(path, f"has no array {name!r}; it has {shortened(arrays) or 'no arrays of numbers'}")
        return name
    if not arrays:
        raise InputError(path, "has no array of numbers; save one")
    if len(arrays) > 1:
        first = min(arrays)
        raise InputError(path, f"has several arrays ({shortened(arrays)}); name one, as {path.name}::{first}")
    return next(iter(arrays))


def _mapped(path: pathlib.Path, name: str) -> np.ndarray | None:
    """Return an array of an archive as a memory map, or ``None`` if it is compressed."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return None
        file.seek(member.header_offset + 26)
        lengths = np.frombuffer(file.read(4), "<u2")  # of the name and of the extra field, which follow
        file.seek(member.header_offset + 30 + int(lengths.sum()))
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject or 0 in shape:
            return None
        order = "F" if fortran else "C"
        return np.memmap(path, dtype, "r", file.tell(), shape, order)
