"""A hundred malformed files, and options that can't be: each ends with a message, exit code 1, and no traceback."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from balson_jax.cli import app


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


GOOD_DESIGN = "name,a,b\nr0,1,2\nr1,2,3\nr2,3,5\n"
GOOD_TARGETS = "name,p,q\nr0,1,2\nr1,2,3\nr2,3,4\n"
NPY = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }".ljust(127) + b"\n"
HDR = "ENVI\nsamples = 2\nlines = 1\nbands = 3\ndata type = 4\ninterleave = bsq\nbyte order = 0\n"
BAD = {
    # name of the bad file: (its content, other arguments, what the message tells)
    "design.csv missing": (None, [], "no such file"),
    "design.csv empty": ("", [], "is empty"),
    "design.csv blank": ("\n\n", [], "only blank lines"),
    "design.csv header only": ("name,a,b\n", [], "no rows of numbers"),
    "design.csv one column": ("a\n1\n2\n3\n", [], "1 component"),
    "design.csv names only": ("name\nr0\nr1\nr2\n", [], "row 2, column 1 (name) is 'r0'"),
    "design.csv spaces": ("name a b\nr0 1 2\nr1 2 3\n", [], "row 1 ('name a b') has no commas"),
    "design.csv pipes": ("name|a|b\nr0|1|2\n", [], "row 1 ('name|a|b') has no commas"),
    "design.csv short row": ("name,a,b\nr0,1,2\nr1,2\nr2,3,5\n", [], "row 3 has 2 columns, but the rows above have 3"),
    "design.csv long row": ("name,a,b\nr0,1,2\nr1,2,3\nr2,3,5,8\n", [], "row 4 has 4 columns"),
    "design.csv long header": ("name,a,b,c,d\nr0,1,2\n", [], "row 2 has 3 columns, but the header has 5"),
    "design.csv text": ("name,a,b\nr0,1,2\nr1,two,3\nr2,3,5\n", [], "row 3, column 2 (a) is 'two'"),
    "design.csv units": ("name,a,b\nr0,1,2\nr1,2,3%\nr2,3,5\n", [], "row 3, column 3 (b) is '3%'"),
    "design.csv decimal comma": ("name;a;b\nr0;1;2\nr1;2;3,5\n", [], "row 3, column 3 (b) is '3,5'; write decimals"),
    "design.csv infinite": ("name,a,b\nr0,1,2\nr1,inf,3\nr2,3,5\n", [], "row 3, column 2 (a) is infinite"),
    "design.csv gap": ("name,a,b\nr0,1,2\nr1,,3\nr2,3,5\n", [], "row 2 of the numbers (r1), column 1 (a) is nan"),
    "design.csv nan": ("name,a,b\nr0,1,2\nr1,2,3\nr2,3,NaN\n", [], "row 3 of the numbers (r2), column 2 (b) is nan"),
    "design.csv no header": ("1,2\n2,3\n3,5\n", [], "row 1 has numbers only"),
    "design.csv same names": ("name,a,a\nr0,1,2\nr1,2,3\nr2,3,5\n", [], "columns 1 and 2 have the same name 'a'"),
    "design.csv no name": ("name,a,\nr0,1,2\nr1,2,3\nr2,3,5\n", [], "column 2 of the numbers has no name"),
    "design.csv same rows": (
        "name,a,b\nr0,1,2\nr0,2,3\nr2,3,5\n",
        [],
        "rows 1 and 2 of the numbers have the same name",
    ),
    "design.csv open quote": ('name,a,b\nr0,1,2\nr1,"2,3\nr2,3,5\n', [], "check the quotes"),
    "design.csv utf-16": (GOOD_DESIGN.encode("utf-16"), [], "is UTF-16 text"),
    "design.csv latin-1": ("name,ä,b\nr0,1,2\n".encode("latin-1"), [], "row 1: byte 0xe4 is not UTF-8"),
    "design.csv latin-1 later": (b"name,a,b\n" + b"r0,1,2\n" * 2000 + b"r\xe4,1,2\n", [], "row 2002: byte 0xe4"),
    "design.csv zero bytes": (b"a\0b,c\n1,2\n", [], "zero byte"),
    "design.csv spreadsheet": (b"PK\x03\x04abc", [], "spreadsheet"),
    "design.xlsx ending": (b"PK\x03\x04abc", [], "can't tell the format by the ending '.xlsx'"),
    "design.npy truncated": (NPY + b"\0" * 40, [], "is cut off"),
    "design.npy words": (b"hello", [], "is no array of numbers"),
    "design.npz words": (b"hello", [], "is damaged"),
    "design.mat words": (b"hello" * 40, [], "is no MAT file"),
    "design.parquet words": (b"hello", [], "is no Parquet file"),
    "design.h5ad words": (b"hello", [], "is no AnnData file"),
    "design.img lonely": (b"\0" * 24, [], "has no header"),
    "targets.csv other rows": ("name,p\nr0,1\nr1,2\nx,3\n", [], "only the design has 'r2'; only the targets have 'x'"),
    "targets.csv more rows": ("name,p\nr0,1\nr1,2\nr2,3\nr3,4\n", [], "only the targets have 'r3'"),
    "targets.csv no names": ("p,q\n1,2\n2,3\n", [], "has 2 rows, but design.csv has 3"),
    "targets.csv in rows": ("p,q,r\n1,2,3\n2,3,4\n", [], "pass --targets-in-rows"),
    "targets.csv text": ("name,p,q\nr0,1,2\nr1,2,x\nr2,3,4\n", [], "row 3, column 3 (q) is 'x'"),
    "targets.csv gap": ("name,p,q\nr0,1,2\nr1,2,\nr2,3,4\n", [], "--missing drop"),
    "targets.img truncated": (b"\0" * 20, [], "has 20 bytes, but targets.hdr tells of 24"),
    "noise.csv two columns": (
        "name,s,t\nr0,1,2\nr1,2,3\nr2,3,5\n",
        ["--noise", "noise.csv"],
        "has 2 columns; noise levels",
    ),
    "weights.csv rows": ("name,w\nr0,1\nr1,2\n", ["--weights", "weights.csv"], "only the design has 'r2'"),
}

BAND = "row,a,b\n"
TEXTS = {
    # the design's content, and what the message tells
    "spaces in a line": ("a b\n1 2\n", "row 1 ('a b') has no commas"),
    "comma and semicolon": ("name;a;b\nr0;1,5;2\n", "row 2, column 2 (a) is '1,5'; write decimals with a point"),
    "thousands": ('name,a,b\nr0,"1,000",2\nr1,1,3\n', "row 2, column 2 (a) is '1,000'"),
    "underscore": ("name,a,b\nr0,1_000,2\nr1,1,3\n", "row 2, column 2 (a) is '1_000'"),
    "hexadecimal": ("name,a,b\nr0,0x10,2\nr1,1,3\n", "row 2, column 2 (a) is '0x10'"),
    "date in numbers": ("name,a,b\nr0,2024-01-02,2\nr1,1,3\n", "row 2, column 2 (a) is '2024-01-02'"),
    "spreadsheet error": ("name,a,b\nr0,#DIV/0!,2\nr1,1,3\n", "row 2, column 2 (a) is '#DIV/0!'"),
    "zero byte later": ("name,a,b\nr0,1,2\nr1,1\0,3\n", "row 3, column 2 (a) is '1\\x00'"),
    "minus infinity": ("name,a,b\nr0,-Infinity,2\n", "row 2, column 2 (a) is infinite"),
    "too large a number": ("name,a,b\nr0,1e999,2\nr1,1,3\n", "row 2, column 2 (a) is infinite"),
    "delimiter at the end": ("a,b\n1,2,\n3,4,\n", "row 2 has 3 columns, but the header has 2"),
    "comment first": ("# my data\nname,a,b\nr0,1,2\n", "row 1 ('# my data') has no commas"),
    "title first": ("My data,\nname,a,b\nr0,1,2\n", "row 1: column 2 of the numbers has no name"),
    "units in row 2": ("name,a,b\n,nm,%\nr0,1,2\nr1,2,3\n", "row 2, column 2 (a) is 'nm'"),
    "two tables": ("name,a,b\nr0,1,2\nr1,2,3\n\nname,c\nr0,1\n", "row 5 has 2 columns"),
    "footer": ("name,a,b\nr0,1,2\nr1,2,3\nmean of all\n", "row 4 has 1 columns"),
    "cut in a line": ("name,a,b\nr0,1,2\nr1,2", "row 3 has 2 columns"),
    "cut in a quote": ('name,a,b\nr0,1,2\n"r1,2,3\nr2,4,5\n', "check the quotes"),
    "text after a quote": ('name,a,b\nr0,"1"x,2\n', "check the quotes"),
    "same names after spaces": ("name,a, a\nr0,1,2\nr1,2,3\n", "columns 1 and 2 have the same name 'a'"),
    "no first name": ("name,,b\nr0,1,2\nr1,2,3\n", "column 1 of the numbers has no name"),
    "bom and no header": ("\ufeff1,2\n2,3\n", "row 1 has numbers only"),
    "bom of utf-16": (BAND.encode("utf-16-be"), "row 1"),
    "bom of utf-16, big": (b"\xfe\xff" + BAND.encode("utf-16-be"), "is UTF-16 text"),
    "gzip": (b"\x1f\x8b\x08\x00abc", "compressed file"),
    "old spreadsheet": (b"\xd0\xcf\x11\xe0abc", "spreadsheet"),
    "json": ('{"a": [1, 2], "b": [3, 4]}', "has a header but no rows of numbers"),
    "html": ("<html><body>not found</body></html>\n", "row 1"),
    "picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "row 1: byte 0x89 is not UTF-8"),
    "only delimiters": (",,,\n,,,\n", "row 1"),
    "headers only, many": ("a,b,c\nd,e,f\n", "row 2, column 2 (b) is 'e'"),
    "gap at the end": ("name,a,b\nr0,1,2\nr1,2,\nr2,3,4\n", "row 2 of the numbers (r1), column 2 (b) is nan"),
    "NA as R writes it": ('"","a","b"\n"r0",1,NA\n"r1",2,3\n"r2",2,3\n', "row 1 of the numbers (r0), column 2 (b)"),
}


def npy(array, **_):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(compressed=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def header(**fields):
    """Return the header of an NPY file whose 24 bytes follow."""
    known = {"descr": "<f8", "fortran_order": False, "shape": (3, 1), **fields}
    text = (repr(known) + "\n").encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 24


def changed(data, place, value):
    return data[:place] + value + data[place + len(value) :]


def member(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "hello")
    return file.getvalue()


VALUES = np.arange(6.0).reshape(3, 2)
BIG = npz(True, x=np.random.default_rng(0).normal(size=(300, 20)))
BINARIES = {
    # the name of the file, its content, and what the message tells
    "cut.npy": (npy(VALUES)[:-8], "cut off"),
    "header.npy": (npy(VALUES)[:40], "cut off"),
    "version.npy": (changed(npy(VALUES), 6, b"\x09"), "no array of numbers"),
    "archive.npy": (npz(x=VALUES), "is an NPZ archive"),
    "objects.npy": (b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "no array"),
    "words.npy": (npy(np.array([["a", "b"]])), "not real numbers"),
    "complex.npy": (npy(VALUES + 1j), "holds complex128, not real numbers"),
    "dates.npy": (npy(np.array([["2020-01-01", "2020-01-02"]], "M8[D]")), "not real numbers"),
    "record.npy": (npy(np.zeros(3, [("a", "f4"), ("b", "f4")])), "not real numbers"),
    "empty_axis.npy": (npy(np.zeros((0, 3))), "has shape (0, 3)"),
    "scalar.npy": (npy(np.float64(1)), "has shape ()"),
    "four_axes.npy": (npy(np.zeros((2, 2, 2, 2))), "has shape (2, 2, 2, 2)"),
    "cube.npy": (npy(np.zeros((2, 2, 3))), "is an image; the design needs"),
    "one_column.npy": (npy(np.arange(3.0)), "has 1 component"),
    "nan.npy": (npy(np.where(VALUES == 3, np.nan, VALUES)), "row 2 of the numbers, column 2 is nan"),
    "infinite.npy": (npy(np.where(VALUES == 4, np.inf, VALUES)), "row 3 of the numbers, column 1 is inf"),
    "negative_shape.npy": (header(shape=(-3, 1)), "no array of numbers"),
    "huge_shape.npy": (header(shape=(1 << 40, 1 << 40)), "no array of numbers"),
    "odd_descr.npy": (header(descr="<q99"), "no array of numbers"),
    "open_header.npy": (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8' ".ljust(90), "no array of numbers"),
    "array.npz": (npy(VALUES), "is no NPZ archive but a single array"),
    "cut.npz": (npz(x=VALUES)[:-30], "is damaged"),
    "flipped.npz": (changed(BIG, len(BIG) // 2, b"\xff\0\xff\0\xff\0\xff\0"), "is damaged"),
    "other.npz": (member("readme.txt"), "is damaged"),
    "none.npz": (npz(row_names=np.array(["a", "b"])), "has no array of numbers"),
    "several.npz": (npz(x=VALUES, y=VALUES), "has several arrays ('x', 'y'); name one"),
    "few_names.npz": (npz(x=VALUES, row_names=np.array(["a", "b"])), "has 3 rows and 2 row_names"),
    "same_names.npz": (npz(x=VALUES, column_names=np.array(["a", "a"])), "columns 1 and 2 have the same name 'a'"),
    "objects.npz": (member("x.npy"), "is damaged"),
    "cut.mat": (b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"\x0e\0\0\0\xff\0\0\0", "is no MAT file"),
    "hdf5.mat": (b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n\0", "is damaged"),
    "cut.parquet": (b"PAR1" + b"\0" * 30, "is no Parquet file"),
    "footer.parquet": (b"PAR1" + b"\0" * 30 + struct.pack("<I", 1 << 20) + b"PAR1", "is no Parquet file"),
    "hdf5.h5ad": (b"\x89HDF\r\n\x1a\n" + b"\0" * 80, "is no AnnData file"),
    "nothing.dat": (b"", "is empty"),
    "lonely.hdr": (b"ENVI\nsamples = 2\n", "has no image beside it"),
    "esri.hdr": (b"NROWS 3\nNCOLS 4\n", "has no image beside it"),
    "picture.png": (b"\x89PNG", "can't tell the format by the ending '.png'"),
    "archive.zip": (b"PK\x03\x04", "can't tell the format by the ending '.zip'"),
    "no_ending": (b"1,2", "can't tell the format by the ending ''"),
}

SMOOTH = 0.2 + 0.1 * np.sin(np.arange(4 * 4 * 30) / 40).reshape(4, 4, 30)
IMAGE = {"samples": 4, "lines": 4, "bands": 30, "data type": 4, "interleave": "bip", "byte order": 0}
IMAGES = {
    # fields of the header, the bytes, and what the message tells
    "wrong endianness": ({"byte order": 1}, SMOOTH.astype("<f4"), "field 'byte order' is 1, but the numbers"),
    "wrong endianness, big": ({}, SMOOTH.astype(">f4"), "field 'byte order' is 0, but the numbers"),
    "wrong endianness, double": ({"data type": 5}, SMOOTH.astype(">f8"), "field 'byte order' is 0"),
    "wrong endianness, integers": ({"data type": 2}, (1e4 * SMOOTH).astype(">i2"), "field 'byte order' is 0"),
    "wrong endianness, unsigned": ({"data type": 12}, (1e4 * SMOOTH).astype(">u2"), "field 'byte order' is 0"),
    "cut off": ({}, SMOOTH.astype("<f4")[:-1], "has 1,440 bytes, but t.hdr tells of 1,920"),
    "of half the type": ({"data type": 2}, SMOOTH.astype("<f4"), "has 1,920 bytes, but t.hdr tells of 960"),
    "of more bands": ({"bands": 31}, SMOOTH.astype("<f4"), "cut off, or the header belongs to another"),
    "of fewer lines": ({"lines": 3}, SMOOTH.astype("<f4"), "correct lines, samples, bands, data type"),
    "compressed": ({"file compression": 1}, SMOOTH.astype("<f4"), "field 'file compression' is 1"),
    "with frame offsets": ({"major frame offsets": "{0, 12}"}, SMOOTH.astype("<f4"), "field 'major frame offsets'"),
    "complex": ({"data type": 6}, SMOOTH.astype("<f4"), "field 'data type' is 6"),
    "words for numbers": ({"samples": "four"}, SMOOTH.astype("<f4"), "field 'samples' is 'four'"),
    "negative": ({"bands": -30}, SMOOTH.astype("<f4"), "field 'bands' is '-30'"),
    "odd interleave": ({"interleave": "tiles"}, SMOOTH.astype("<f4"), "field 'interleave' is 'tiles'"),
    "open brace": ({"wavelength": "{1, 2"}, SMOOTH.astype("<f4"), "brace that is not closed"),
    "few bad bands": ({"bbl": "{1, 0}"}, SMOOTH.astype("<f4"), "field 'bbl' has not one number for each of 30 bands"),
    "words of bad bands": ({"bbl": "{bad}"}, SMOOTH.astype("<f4"), "field 'bbl' has not one number"),
    "all bands bad": ({"bbl": f"{{{', '.join('0' * 30)}}}"}, SMOOTH.astype("<f4"), "lists all bands as bad"),
    "few wavelengths": ({"wavelength": "{1, 2, 3}"}, SMOOTH.astype("<f4"), "has 3 entries for 30 bands"),
}


def prepare(directory):
    (directory / "design.csv").write_text(GOOD_DESIGN)
    (directory / "targets.csv").write_text(GOOD_TARGETS)


def refused(directory, bad, message, *arguments):
    """Call the command, and require one line of error that names the file and the place, and nothing else."""
    found = call("fit", *arguments, "--out", "out")
    assert found.exit_code == 1, found.output
    errors = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, found.output
    assert bad in errors[0]
    assert message in errors[0]
    assert "Traceback" not in found.output
    assert not (directory / "out" / "posterior.csv").exists()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused(here, case):
    content, options, message = BAD[case]
    bad = case.split()[0]
    (here / "targets.hdr").write_text(HDR)
    (here / bad).unlink(missing_ok=True)
    if content is not None:
        (here / bad).write_bytes(content if isinstance(content, bytes) else content.encode())
    design = bad if bad.startswith("design") else "design.csv"
    targets = bad if bad.startswith("targets") else "targets.csv"
    refused(here, bad, message, design, targets, *options)


@pytest.mark.parametrize("case", TEXTS)
def test_bad_texts_are_refused(here, case):
    content, message = TEXTS[case]
    (here / "design.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(here, "design.csv", message, "design.csv", "targets.csv")


@pytest.mark.parametrize("name", BINARIES)
def test_bad_binaries_are_refused(here, name):
    content, message = BINARIES[name]
    (here / name).write_bytes(content)
    refused(here, name, message, name, "targets.csv")


@pytest.mark.parametrize("case", IMAGES)
def test_bad_images_are_refused(here, case):
    fields, values, message = IMAGES[case]
    values.tofile(here / "t.img")
    lines = [f"{name} = {value}\n" for name, value in {**IMAGE, **fields}.items()]
    (here / "t.hdr").write_text("ENVI\n" + "".join(lines))
    refused(here, "t.", message, "design.csv", "t.img")


def test_there_are_a_hundred():
    assert len(BAD) + len(TEXTS) + len(BINARIES) + len(IMAGES) >= 100


def test_damage_that_shows_when_numbers_are_read_names_the_file(here):
    """An HDF5 file whose compressed numbers are spoiled opens, and fails when it is sliced."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(here / "spoiled.mat", "w", userblock_size=512) as file:
        file.create_dataset("M", data=np.random.default_rng(0).normal(size=(2, 3)), compression="gzip")
        place = file["M"].id.get_chunk_info(0).byte_offset
    data = (here / "spoiled.mat").read_bytes()
    (here / "spoiled.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + changed(data, place, b"\0" * 8)[512:])
    refused(here, "spoiled.mat", "is damaged", "spoiled.mat", "targets.csv", "--rows", "order")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--noise", "loud"], "--noise loud: pass estimate, a positive number, or a file"),
        (["--noise", "-1"], "--noise -1: must be positive"),
        (["--prior", "a,b"], "--prior a,b: pass a positive number"),
        (["--prior", "1,2,3"], "prior"),
        (["--prior", "0"], "prior"),
        (["--total", "-2"], "--total -2: must be positive"),
        (["--constraint", "none"], "--constraint none: choose one of equal, at_most"),
        (["--method", "magic"], "unknown method='magic'; choose one of auto"),
        (["--level", "90"], "pass 0.9 for 90 %"),
        (["--chunk", "0"], "chunk=0"),
        (["--keep", "100"], "keep=100 must be 0 or a power of two"),
        (["--draws", "10"], "auto has no number of draws"),
        (["--rows", "any"], "--rows any: choose one of match, common, order"),
        (["--threshold", "-1"], "--threshold -1.0: must not be negative"),
        (["--resume", "--overwrite"], "pass one of them"),
        (["--learn", "--intercept"], "--intercept doesn't go with --learn"),
        (["--learn", "--noise", "1"], "--noise 1 doesn't go with --learn"),
        (["--out", "design.csv/x"], "--out design.csv/x: can't create the directory"),
    ],
)
def test_bad_options_are_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "design.csv").write_text(GOOD_DESIGN)
    (tmp_path / "targets.csv").write_text(GOOD_TARGETS)
    found = call("fit", "design.csv", "targets.csv", *options)
    assert found.exit_code == 1
    assert "Traceback" not in found.output
    assert any(line.startswith("error: ") and message in line for line in found.stderr.splitlines()), found.stderr


def test_a_column_that_both_files_begin_with_is_not_a_component(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "design.csv").write_text("x,a,b\n1,1,2\n2,2,3\n3,3,5\n")
    (tmp_path / "targets.csv").write_text("x,p\n1,1\n2,2\n3,3\n")
    found = call("fit", "design.csv", "targets.csv")
    assert found.exit_code == 1
    assert "column 1 (x) is the first of targets.csv, too" in found.stderr


@pytest.mark.parametrize(
    "arguments",
    [["fit"], ["fit", "design.csv"], ["fit", "design.csv", "targets.csv", "--magic"], ["magic"], ["--magic"]]
    + [["fit", "design.csv", "targets.csv", *extra] for extra in (["--total", "x"], ["--seed", "-1"], ["extra"])]
    + [["compare", "design.csv"], ["paper", "--match", "none"]],
    ids=" ".join,
)
def test_usage_errors_exit_with_1(here, arguments):
    """Code 2 says that fits can't be trusted."""
    found = call(*arguments)
    assert found.exit_code == 1
    assert "Traceback" not in found.output
    assert found.stderr
