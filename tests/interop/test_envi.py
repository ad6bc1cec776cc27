"""ENVI images and spectral libraries, written here byte by byte."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from balson_jax.interop import InputError, Table, aligned, by_problem, good_rows, read, taken
from balson_jax.interop.byte_order import looks_swapped
from balson_jax.interop.envi import TYPES, Writer, read_header

LINES, SAMPLES, BANDS = 3, 4, 2
CUBE = np.arange(LINES * SAMPLES * BANDS).reshape(LINES, SAMPLES, BANDS) % 100
ORDER = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
HEADER = {
    "samples": SAMPLES,
    "lines": LINES,
    "bands": BANDS,
    "header offset": 0,
    "data type": 4,
    "interleave": "bsq",
    "byte order": 0,
}


def write(path, cube=CUBE, dtype="<f4", body=b"", **fields):
    """Write an image and its header; ``None`` leaves a field out."""
    fields = {**HEADER, **{name.replace("_", " "): value for name, value in fields.items()}}
    cube.transpose(ORDER.get(fields["interleave"], (2, 0, 1))).astype(dtype).tofile(path)
    path.write_bytes(b"x" * int(fields.get("header offset") or 0) + path.read_bytes() + body)
    lines = [f"{name} = {value}\n" for name, value in fields.items() if value is not None]
    path.with_suffix(".hdr").write_text("ENVI\n" + "".join(lines))
    return path


@pytest.mark.parametrize("interleave", ORDER)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", TYPES)
def test_all_types_orders_and_interleaves(tmp_path, interleave, order, code):
    own = {"interleave": interleave, "byte_order": int(order == ">"), "data_type": code, "header_offset": 7}
    path = write(tmp_path / "a.img", dtype=np.dtype(TYPES[code]).newbyteorder(order), **own)
    table = read(path)
    assert (table.shape, table.image_shape) == ((BANDS, LINES * SAMPLES), (LINES, SAMPLES))
    pixels = by_problem(table)
    np.testing.assert_array_equal(pixels[:], CUBE.reshape(-1, BANDS))
    assert pixels[:1].dtype.isnative
    for start, stop in itertools.combinations(range(0, LINES * SAMPLES + 1, 3), 2):
        np.testing.assert_array_equal(pixels[start:stop], CUBE.reshape(-1, BANDS)[start:stop])


def test_header_or_image_or_no_ending(tmp_path):
    write(tmp_path / "a.img")
    np.testing.assert_array_equal(read(tmp_path / "a.hdr").values[:], read(tmp_path / "a.img").values[:])
    write(tmp_path / "scene.x").rename(tmp_path / "scene")
    assert read(tmp_path / "scene").shape == (BANDS, LINES * SAMPLES)


def test_scale_ignored_value_and_wavelengths(tmp_path):
    cube = CUBE.copy()
    cube[1, 2] = -1
    own = {"data_ignore_value": -1, "reflectance_scale_factor": 100, "wavelength": "{\n 0.45,\n 0.55}"}
    table = read(write(tmp_path / "a.img", cube, "<i2", data_type=2, **own))
    assert table.row_names == ("0.45", "0.55")
    expected = np.where(cube == -1, np.nan, cube / 100).reshape(-1, BANDS)
    np.testing.assert_allclose(by_problem(table)[:], expected, rtol=1e-6)


def test_spectral_library(tmp_path):
    spectra = np.random.default_rng(0).normal(size=(3, 5, 1))  # spectra, bands
    own = {"lines": 3, "samples": 5, "bands": 1, "data_type": 5, "file_type": "ENVI Spectral Library"}
    names = {"spectra_names": "{soil, dry tree, water}", "wavelength": "{1, 2, 3, 4, 5}"}
    table = read(write(tmp_path / "a.sli", spectra, "<f8", **own, **names))
    np.testing.assert_array_equal(table.values, spectra[:, :, 0].T)
    assert (table.column_names, table.row_names) == (("soil", "dry tree", "water"), ("1", "2", "3", "4", "5"))
    assert table.image_shape is None


def test_a_library_is_scaled_as_an_image_is(tmp_path):
    """Otherwise shares would be off by the factor."""
    spectra = np.array([[[2000], [-1], [4000]], [[1000], [3000], [5000]]])
    own = {"lines": 2, "samples": 3, "bands": 1, "data_type": 2, "file_type": "ENVI Spectral Library"}
    factors = {"reflectance_scale_factor": 10000, "data_ignore_value": -1}
    table = read(write(tmp_path / "a.sli", spectra, "<i2", **own, **factors))
    np.testing.assert_allclose(table.values, [[0.2, 0.1], [np.nan, 0.3], [0.4, 0.5]], rtol=1e-6)


def test_bad_bands_are_told_and_left_out(tmp_path):
    cube = np.arange(24.0).reshape(2, 3, 4)
    own = {"lines": 2, "samples": 3, "bands": 4, "bbl": "{1, 0, 1, 1}", "wavelength": "{400, 500, 600, 700,}"}
    image = read(write(tmp_path / "a.img", cube, **own))
    np.testing.assert_array_equal(image.good, [True, False, True, True])
    assert image.row_names == ("400", "500", "600", "700")  # a comma after the last is allowed
    design = Table(tmp_path / "d", np.arange(8.0).reshape(4, 2), ("700", "600", "500", "400"))
    ours, theirs = aligned(design, image)
    np.testing.assert_array_equal(good_rows(ours, theirs), [True, True, False, True])
    kept = taken(theirs, np.flatnonzero(good_rows(ours, theirs)))
    assert kept.row_names == ("700", "600", "400")
    np.testing.assert_array_equal(by_problem(kept)[2:4], cube.reshape(6, 4)[2:4][:, [3, 2, 0]])


def test_endings_in_capitals_and_a_directory_of_the_same_name(tmp_path):
    write(tmp_path / "a.img").rename(tmp_path / "A.IMG")
    (tmp_path / "a.hdr").rename(tmp_path / "A.HDR")
    (tmp_path / "A").mkdir()
    for name in ("A.HDR", "A.IMG"):
        np.testing.assert_array_equal(by_problem(read(tmp_path / name))[:], CUBE.reshape(-1, BANDS))


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i2", "<u2"])
def test_right_byte_orders_raise_no_alarm(kind):
    """Of spectra, of white noise, of maps with many pixels without data, of constants, of few numbers."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 60)
    smooth = rng.dirichlet(np.ones(2), (20, 20)) @ np.stack([np.exp(-(((x - c) / 0.3) ** 2)) for c in (0.2, 0.8)])
    integer = np.dtype(kind).kind != "f"
    unit = 1e4 if integer else 1.0
    white = unit * np.abs(rng.normal(size=(20, 20, 60)))
    gaps = np.where(rng.random((20, 20, 1)) < 0.5, 0 if kind == "<u2" else -9999, unit * smooth)
    cubes = (
        unit * smooth,
        white,
        gaps,
        np.zeros((9, 9, 9)),
        np.full((9, 9, 9), 256),
        smooth[:1, :1] * unit,
        100 * smooth,
    )
    if not integer:
        assert not looks_swapped(np.full((9, 9, 9), -1.23e34, kind))  # no pixel has data
    for cube in cubes:
        own = cube.astype(kind)
        assert not looks_swapped(own)
        assert not looks_swapped(own.astype(own.dtype.newbyteorder()))
    for cube in (unit * smooth, gaps):
        own = cube.astype(kind)
        assert looks_swapped(own.view(own.dtype.newbyteorder()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"byte_order": 2}, "field 'byte order' is '2'; write 0"),
        ({"data_type": 6}, "field 'data type' is 6, which is complex or unknown"),
        ({"data_type": "float"}, "field 'data type' is 'float'; write a whole number"),
        ({"interleave": "bqs"}, "field 'interleave' is 'bqs'; write one of bsq, bil, bip"),
        ({"interleave": None}, "field 'interleave' is 'missing'"),
        ({"samples": None}, "field 'samples' is missing; add it"),
        ({"lines": 0}, "field 'lines' is '0'"),
        ({"lines": 30}, r"has 96 bytes, but a.hdr tells of 960 .*cut off"),
        ({"header_offset": -1}, "field 'header offset' is '-1'"),
        ({"wavelength": "{1, 2, 3}"}, "field 'wavelength' has 3 entries for 2 bands"),
        ({"reflectance_scale_factor": 0}, "field 'reflectance scale factor' is '0'"),
        ({"data_ignore_value": "none"}, "field 'data ignore value' is 'none'"),
        ({"description": "{open"}, "brace that is not closed"),
    ],
)
def test_bad_headers(tmp_path, fields, message):
    path = write(
        tmp_path / "a.img", **{**fields, **({"header_offset": 0} if fields.get("header_offset") == -1 else {})}
    )
    if fields.get("header_offset") == -1:
        header = path.with_suffix(".hdr")
        header.write_text(header.read_text().replace("header offset = 0", "header offset = -1"))
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert str(tmp_path / "a.") in str(error.value)


def test_missing_parts(tmp_path):
    path = write(tmp_path / "a.img")
    header = path.with_suffix(".hdr")
    text = header.read_text()
    header.write_text("no\n" + text)
    with pytest.raises(InputError, match="row 1 is not the word ENVI"):
        read(path)
    header.unlink()
    with pytest.raises(InputError, match=r"has no header; put a.hdr beside it"):
        read(path)
    path.unlink()
    header.write_text(text)
    with pytest.raises(InputError, match=r"has no image beside it"):
        read(header)


def test_what_is_written_is_read(tmp_path):
    values = np.random.default_rng(0).normal(size=(LINES * SAMPLES, 2)).astype(np.float32)
    where = {
        "map info": "{UTM, 1, 1, 500000, 4000000, 30, 30, 33, North, WGS-84}",
        "coordinate system string": "{X[1]}",
    }
    writer = Writer(tmp_path / "m.img", (LINES, SAMPLES), ["soil, dry", "tree"], metadata={**where, "bands": 9})
    for start in range(0, len(values), 5):
        writer.write(start, values[start : start + 5])
    writer.close()
    table = read(tmp_path / "m.img")
    np.testing.assert_array_equal(by_problem(table)[:], values)
    header = read_header(tmp_path / "m.hdr")
    assert {name: header[name] for name in where} == where
    assert header["bands"] == "2"
    assert header["band names"] == ["soil  dry", "tree"]
