"""ENVI images and spectral libraries: a text header beside a binary file. Read from the disk as they are sliced.

Bands that the header lists as bad (``bbl``) are left out by ``balson fit``.
"""

from __future__ import annotations

import math
import pathlib
import re
import sys
from typing import Any

import numpy as np

from ..mapped import release
from .arrays import pixels_of_lines
from .byte_order import looks_swapped
from .table import InputError, Rows, Table, require_unique

TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
"""NumPy's names of ENVI's data types; 6 and 9 are complex."""

INTERLEAVES = {"bsq": (1, 2, 0), "bil": (0, 2, 1), "bip": (0, 1, 2)}
"""How to transpose the axes of the file to lines, samples, bands."""

BINARY_ENDINGS = ("", ".img", ".dat", ".bsq", ".bil", ".bip", ".sli", ".raw")
PASSED_ON = (
    "map info",
    "coordinate system string",
    "projection info",
    "geo points",
    "rpc info",
    "pixel size",
    "x start",
    "y start",
)
"""Fields of the header that state where the pixels lie."""


UNSUPPORTED = ("file compression", "major frame offsets", "minor frame offsets")
"""Fields of the header which, unless 0, mean that the numbers are stored in a way that can't be read."""


def header_of(path: pathlib.Path) -> pathlib.Path | None:
    """Return the header that belongs to a binary file, or ``None``."""
    return _first_file(path.parent, [path.name + ".hdr", path.stem + ".hdr"])


def binary_of(header: pathlib.Path) -> pathlib.Path | None:
    """Return the binary file that belongs to a header, or ``None``."""
    return _first_file(header.parent, [header.stem + ending for ending in BINARY_ENDINGS])


def _first_file(directory: pathlib.Path, names: list[str]) -> pathlib.Path | None:
    """Return the first of some files that exists, whether or not its ending is in capitals."""
    places = (directory / name for name in names)
    found = (place for place in places for place in (place, place.with_suffix(place.suffix.upper())))
    return next((place for place in found if place.is_file()), None)


def read(path: pathlib.Path, **_: Any) -> Table:
    """Return an image, whose bands are rows and whose pixels are columns, or a spectral library.

    Numbers are divided by the header's reflectance scale factor; its data ignore value becomes NaN.

    Args:
      path: the header or the binary file.
    """
    header = path if path.suffix.lower() == ".hdr" else header_of(path)
    if header is None:
        raise InputError(path, f"has no header; put {path.stem}.hdr beside it")
    binary = binary_of(header) if path == header else path
    if binary is None:
        raise InputError(path, f"has no image beside it; put {header.stem}.img there")
    fields = read_header(header)
    cube = _mapped(binary, header, fields)
    is_library = "library" in str(fields.get("file type", "")).lower()
    convert, dtype = _conversion(header, fields, cube.dtype)
    if is_library:
        return _library(header, fields, convert(np.asarray(cube[:, :, 0])).astype(np.float64))
    lines, samples, bands = cube.shape

    def load(start: int, stop: int) -> np.ndarray:
        found = pixels_of_lines(lambda first, last: np.array(cube[first:last]), samples, start, stop)
        release(cube)
        return convert(found)

    pixels = Rows((lines * samples, bands), dtype, load)
    names, good = _wavelengths(header, fields, bands), _good_bands(header, fields, bands)
    return Table(binary, pixels.T, names, None, (lines, samples), fields, good)


def _mapped(binary: pathlib.Path, header: pathlib.Path, fields: dict[str, Any]) -> np.memmap:
    """Return the numbers of an image as a map ``(lines, samples, bands)``."""
    for name in UNSUPPORTED:
        if re.search(r"[1-9]", str(fields.get(name, "0"))):
            raise InputError(
                header, f"field {name!r} is {fields[name]}, which is not supported; write the image plainly"
            )
    lines, samples, bands = (_count(header, fields, name) for name in ("lines", "samples", "bands"))
    interleave, dtype = _interleave(header, fields), _dtype(header, fields)
    offset = _count(header, fields, "header offset", 0)
    wanted, there = offset + lines * samples * bands * dtype.itemsize, binary.stat().st_size
    told = (
        f"has {there:,} bytes, but {header.name} tells of {wanted:,} ({lines} lines, {samples} samples, {bands} bands, "
        f"data type {fields['data type']})"
    )
    if there < wanted:
        raise InputError(binary, f"{told}; the image is cut off, or the header belongs to another")
    if there - wanted >= samples * dtype.itemsize * min(lines, bands):  # a whole line or band: more than padding
        raise InputError(binary, f"{told}; correct lines, samples, bands, data type or header offset")
    axes = {"bsq": (bands, lines, samples), "bil": (lines, bands, samples), "bip": (lines, samples, bands)}
    cube = np.memmap(binary, dtype, "r", offset, axes[interleave]).transpose(INTERLEAVES[interleave])
    swapped = looks_swapped(cube)
    release(cube)
    if swapped:
        order = fields.get("byte order", "0")
        raise InputError(
            header,
            f"field 'byte order' is {order}, but the numbers of {binary.name} make sense only in the other order; "
            f"write {1 - int(order)}",
        )
    return cube


def _conversion(header: pathlib.Path, fields: dict[str, Any], dtype: np.dtype) -> tuple[Any, np.dtype]:
    """Return a function that scales numbers and puts NaN where there are none, and the dtype that it returns."""
    scale = _number(header, fields, "reflectance scale factor", 1.0)
    ignored = _number(header, fields, "data ignore value", math.nan)
    native = dtype.newbyteorder("=")
    if scale == 1 and math.isnan(ignored):
        return lambda values: values.astype(native), native
    own = np.result_type(native, np.float32)
    return lambda values: np.where(values == ignored, np.nan, values / scale).astype(own), own


def _library(header: pathlib.Path, fields: dict[str, Any], spectra: np.ndarray) -> Table:
    """Return a spectral library: one line per spectrum and one sample per band, so that spectra become columns."""
    names = _list(fields, "spectra names")
    if names is not None and len(names) != len(spectra):
        raise InputError(header, f"field 'spectra names' has {len(names)} names for {len(spectra)} spectra; correct it")
    if names is not None:
        require_unique(header, names, "column")
    bands = spectra.shape[1]
    rows, good = _wavelengths(header, fields, bands), _good_bands(header, fields, bands)
    return Table(header, spectra.T, rows, names, metadata=fields, good=good)


def _good_bands(header: pathlib.Path, fields: dict[str, Any], count: int) -> np.ndarray | None:
    """Return which bands the list of bad ones allows, or ``None`` without one."""
    found = _list(fields, "bbl")
    if found is None:
        return None
    try:
        flags = np.array(found, np.float64)
    except ValueError:
        flags = np.full(1, np.nan)
    if len(flags) != count or not np.isfinite(flags).all():
        raise InputError(header, f"field 'bbl' has not one number for each of {count} bands; correct or remove it")
    if not flags.any():
        raise InputError(header, "field 'bbl' lists all bands as bad; correct or remove it")
    return flags != 0


def _list(fields: dict[str, Any], name: str) -> tuple[str, ...] | None:
    """Return a field that has a list, or ``None``."""
    found = fields.get(name)
    if not isinstance(found, list):
        return None
    return tuple(found[:-1] if found and not found[-1] else found)  # a comma may follow the last


def _wavelengths(header: pathlib.Path, fields: dict[str, Any], count: int) -> tuple[str, ...] | None:
    """Return the names of the bands: wavelengths, or band names, or ``None``."""
    for name in ("wavelength", "band names"):
        found = _list(fields, name)
        if found is None:
            continue
        if len(found) != count:
            raise InputError(header, f"field {name!r} has {len(found)} entries for {count} bands; correct the header")
        if len(set(found)) == count:
            return found
    return None


def read_header(path: pathlib.Path) -> dict[str, Any]:
    """Return the fields of a header: text, or a list of texts for values in braces, except descriptions."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if not text.lstrip().startswith("ENVI"):
        raise InputError(path, "row 1 is not the word ENVI, so this is no ENVI header; check the file")
    if text.count("{") != text.count("}"):
        raise InputError(path, "has a brace that is not closed; correct the header")
    fields: dict[str, Any] = {}
    for match in re.finditer(r"^[ \t]*([^={}\n;][^={}\n]*?)[ \t]*=(?:\s*(\{[^{}]*\})|([^\n]*))", text, re.MULTILINE):
        name, value = " ".join(match[1].lower().split()), (match[2] or match[3] or "").strip()
        listed = value.startswith("{") and name not in ("description", *PASSED_ON)
        fields[name] = [part.strip() for part in value[1:-1].split(",")] if listed else value
    return fields


def _count(header: pathlib.Path, fields: dict[str, Any], name: str, default: int | None = None) -> int:
    """Return a whole number of the header."""
    value = fields.get(name, default)
    if value is None:
        raise InputError(header, f"field {name!r} is missing; add it, as '{name} = 100'")
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < (0 if default is not None else 1):
        raise InputError(header, f"field {name!r} is {value!r}; write a whole number")
    return number


def _number(header: pathlib.Path, fields: dict[str, Any], name: str, default: float) -> float:
    value = fields.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.inf
    if math.isinf(number) or (number == 0 and name == "reflectance scale factor"):
        raise InputError(header, f"field {name!r} is {value!r}; write a number, or remove the field")
    return number


def _interleave(header: pathlib.Path, fields: dict[str, Any]) -> str:
    value = str(fields.get("interleave", "missing")).lower()
    if value not in INTERLEAVES:
        raise InputError(header, f"field 'interleave' is {value!r}; write one of {', '.join(INTERLEAVES)}")
    return value


def _dtype(header: pathlib.Path, fields: dict[str, Any]) -> np.dtype:
    code = _count(header, fields, "data type")
    if code not in TYPES:
        known = ", ".join(map(str, TYPES))
        raise InputError(header, f"field 'data type' is {code}, which is complex or unknown; known are {known}")
    order = str(fields.get("byte order", "0"))
    if order not in ("0", "1"):
        raise InputError(header, f"field 'byte order' is {order!r}; write 0 (little-endian) or 1 (big-endian)")
    return np.dtype(TYPES[code]).newbyteorder("<" if order == "0" else ">")


class Writer:
    """An ENVI image, band after band, that is written some pixels at a time."""

    def __init__(
        self,
        path: pathlib.Path,
        image_shape: tuple[int, int],
        band_names: list[str],
        dtype: Any = np.float32,
        metadata: dict[str, Any] | None = None,
        description: str = "",
    ) -> None:
        """Create the image and its header.

        Args:
          path: of the image, with the ending ``.img``.
          image_shape: lines and samples.
          band_names: one per band.
          dtype: of the numbers.
          metadata: header of another image, from which the location of the pixels is copied.
          description: text for the header.
        """
        lines, samples = image_shape
        shape = len(band_names), lines * samples
        code = next(code for code, name in TYPES.items() if np.dtype(name) == np.dtype(dtype))
        self._values = np.memmap(path, dtype, "w+", shape=shape)
        fields = {
            "description": "{" + re.sub(r"[{}]", "", description) + "}",
            "samples": samples,
            "lines": lines,
            "bands": len(band_names),
            "header offset": 0,
            "file type": "ENVI Standard",
            "data type": code,
            "interleave": "bsq",
            "byte order": int(sys.byteorder == "big"),
            "band names": "{" + ", ".join(re.sub(r"[{},]", " ", name) for name in band_names) + "}",
            **({"data ignore value": "nan"} if np.dtype(dtype).kind == "f" else {}),
            **{name: (metadata or {})[name] for name in PASSED_ON if name in (metadata or {})},
        }
        text = "ENVI\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())
        path.with_suffix(".hdr").write_text(text, encoding="utf-8")

    def write(self, start: int, values: np.ndarray) -> None:
        """Write pixels ``(n, bands)`` from a number on."""
        self._values[:, start : start + len(values)] = values.T

    def close(self) -> None:
        """Write what is still in memory."""
        self._values.flush()
