"""Readers of data files: what they return, what they leave unread, and how they refuse."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pytest
import scipy.io

from balson_jax.interop import InputError, Table, aligned, by_problem, read, text
from balson_jax.interop.table import Rows
from balson_jax.mapped import release

VALUES = np.random.default_rng(0).normal(size=(4, 3)).round(3)
ROWS, COLUMNS = ("400", "500.5", "600", "700"), ("soil", "tree", "water")


def as_text(delimiter=",", corner="band", end="\n"):
    lines = [delimiter.join([corner, *COLUMNS])]
    lines += [delimiter.join([name, *map(repr, row.tolist())]) for name, row in zip(ROWS, VALUES, strict=True)]
    return end.join(lines) + end


def check_table(table: Table, row_names=ROWS, column_names=COLUMNS):
    np.testing.assert_array_equal(table.values[:], VALUES)
    assert (table.row_names, table.column_names) == (row_names, column_names)
    assert table.shape == VALUES.shape
    # Problems are the columns, and some can be taken.
    np.testing.assert_array_equal(np.asarray(by_problem(table)[1:3]), VALUES.T[1:3])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", as_text()),
        ("a.tsv", as_text("\t")),
        ("semicolons.csv", as_text(";")),
        ("bom.csv", "\ufeff" + as_text()),
        ("windows.csv", as_text(end="\r\n")),
        ("blank_lines.csv", "\n" + as_text().replace("\n", "\n\n")),
        ("quoted.csv", as_text().replace("soil", '"soil"')),
        ("corner.csv", as_text(corner="")),
        ("units.csv", as_text(corner="wavelength (nm)")),
        ("spaces.csv", as_text(", ")),
        ("as_r_writes.csv", as_text().replace("band,", "", 1)),
    ],
)
def test_text(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    options = {"row_names": "yes"} if name == "as_r_writes.csv" else {}
    check_table(read(tmp_path / name, **options))


def test_text_with_gaps_and_without_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,\nNA,4\n")
    np.testing.assert_array_equal(read(path).values, [[1, np.nan], [np.nan, 4]])
    path.write_text("1,2\n3,4\n")
    table = read(path, header="no")
    assert (table.shape, table.row_names, table.column_names) == ((2, 2), None, None)
    table = read(path, header="yes", row_names="yes")
    assert (table.shape, table.row_names, table.column_names) == ((1, 1), ("3",), ("2",))


def test_large_text_lies_on_the_disk(tmp_path, monkeypatch):
    """With the same numbers and names, and with nothing left behind."""
    path = tmp_path / "a.csv"
    path.write_text(as_text())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(text, "IN_MEMORY", 0)
    table = read(path, scratch=scratch)
    check_table(table)
    assert isinstance(table.values, np.memmap)
    assert table.was_read
    assert not table.in_memory
    np.testing.assert_array_equal(by_problem(table.transposed())[1:3], VALUES[1:3])
    assert not list(scratch.iterdir())
    path.write_text(as_text().replace("\n600,", "\n600,x"))
    with pytest.raises(InputError, match=r"row 4, column 2 \(soil\) is 'x"):
        read(path, scratch=scratch)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("quoted.csv", '"dry, bare soil";"tree"\n1;2\n', ("dry, bare soil", "tree")),
        ("commas.tsv", "soil, dry, bare\ttree, a, b\n1\t2\n", ("soil, dry, bare", "tree, a, b")),
    ],
)
def test_delimiters_in_names(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    assert read(tmp_path / name).column_names == columns


def test_words_in_the_first_column_name_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,a,b\nBRCA1,1,2\nTP53,3,4\n")
    assert read(path).row_names == ("BRCA1", "TP53")
    path.write_text("x,a,b\n1,1,2\noops,3,4\n2,3,4\n")  # one word among numbers is a mistake
    with pytest.raises(InputError, match=r"row 3, column 1 \(x\) is 'oops'"):
        read(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, spectra=VALUES, row_names=ROWS, column_names=COLUMNS)
    table = read(path)
    check_table(table)
    assert isinstance(table.values, np.memmap) == (save is np.savez)
    save(path, a=VALUES, b=2 * VALUES.T)
    np.testing.assert_array_equal(read(f"{path}::b").values, 2 * VALUES.T)
    with pytest.raises(InputError, match=r"several arrays \('a', 'b'\); name one, as a.npz::a"):
        read(path)
    with pytest.raises(InputError, match="no array 'c'"):
        read(f"{path}::c")


def test_npz_in_fortran_order_is_mapped(tmp_path):
    np.savez(tmp_path / "a.npz", np.asfortranarray(VALUES))
    check_table(read(tmp_path / "a.npz"), None, None)


def test_npy(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, VALUES)
    table = read(path)
    check_table(table, None, None)
    assert isinstance(table.values, np.memmap)
    np.save(path, np.arange(24.0).reshape(2, 3, 4))
    table = read(path)
    assert (table.shape, table.image_shape) == ((4, 6), (2, 3))
    np.testing.assert_array_equal(by_problem(table)[5], [20, 21, 22, 23])  # the last pixel's bands
    np.save(path, np.arange(3.0))
    assert read(path).shape == (3, 1)


@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_have_the_machine_s_byte_order(tmp_path, order):
    values = VALUES.astype(f"{order}f4")
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", values)
    for name in ("a.npy", "a.npz"):
        rows = by_problem(read(tmp_path / name))
        assert rows.dtype.isnative
        assert rows[1:3].dtype.isnative
        np.testing.assert_array_equal(rows[1:3], VALUES.astype(np.float32).T[1:3])


def test_images_in_fortran_order_are_not_copied(tmp_path):
    cube = np.arange(24.0).reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", np.asfortranarray(cube))
    table = read(tmp_path / "a.npy")
    assert not table.in_memory
    assert (table.shape, table.image_shape) == ((4, 6), (2, 3))
    for start, stop in itertools.combinations(range(7), 2):
        np.testing.assert_array_equal(by_problem(table)[start:stop], cube.reshape(6, 4)[start:stop])


def test_texts_of_matlab_are_no_numbers(tmp_path):
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file["M"] = VALUES.T
        file["note"] = np.array([[104, 105, 33]], np.uint16)
        file["note"].attrs["MATLAB_class"] = np.bytes_("char")
    check_table(read(tmp_path / "a.mat"), None, None)


def test_mat(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"M": VALUES, "count": 3, "note": "text"})
    check_table(read(path), None, None)


def test_mat_of_version_7_3_is_read_as_it_is_sliced(tmp_path):
    path = tmp_path / "a.mat"
    cube = np.arange(24.0).reshape(2, 3, 4)  # lines, samples, bands
    with h5py.File(path, "w", userblock_size=512) as file:
        file["M"], file["cube"], file["n"] = VALUES.T, cube.transpose(2, 1, 0), 3.0
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + path.read_bytes()[512:])
    table = read(f"{path}::M")
    check_table(table, None, None)
    np.testing.assert_array_equal(np.asarray(table.transposed().values.T[1:3]), VALUES[1:3])
    image = read(f"{path}::cube")
    assert (image.shape, image.image_shape) == ((4, 6), (2, 3))
    for start, stop in itertools.combinations(range(7), 2):
        np.testing.assert_array_equal(by_problem(image)[start:stop], cube.reshape(6, 4)[start:stop])


def test_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame(VALUES, index=list(ROWS), columns=list(COLUMNS))
    frame.to_parquet(path, row_group_size=2)
    table = read(path)
    check_table(table)
    # Columns by name, and rows by their groups.
    for start, stop in itertools.combinations(range(5), 2):
        np.testing.assert_array_equal(by_problem(table.transposed())[start:stop], VALUES[start:stop])
    frame.reset_index(names="band").to_parquet(path)
    check_table(read(path))
    frame.iloc[1, 2] = np.nan
    frame.to_parquet(path)
    assert np.isnan(read(path).values[:][1, 2])
    frame.assign(word="x").to_parquet(path)
    with pytest.raises(InputError, match=r"column 'word' holds .*string, not numbers"):
        read(path)


@pytest.mark.parametrize("sparse", [False, True])
def test_anndata(tmp_path, sparse):
    anndata = pytest.importorskip("anndata")
    from scipy.sparse import csr_matrix

    values = VALUES.astype(np.float32)
    data = anndata.AnnData(csr_matrix(values.T) if sparse else values.T.copy())
    data.obs_names, data.var_names = list(COLUMNS), list(ROWS)
    data.write_h5ad(tmp_path / "a.h5ad")
    table = read(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(table.values[:], values)
    np.testing.assert_array_equal(by_problem(table)[1:2], values.T[1:2])
    assert (table.row_names, table.column_names) == (ROWS, COLUMNS)


def test_rows_load_only_what_is_sliced():
    asked = []

    def load(start, stop):
        asked.append((start, stop))
        return VALUES[start:stop]

    rows = Rows(VALUES.shape, VALUES.dtype, load)
    np.testing.assert_array_equal(rows[1:3], VALUES[1:3])
    np.testing.assert_array_equal(rows[::2], VALUES[::2])
    np.testing.assert_array_equal(rows[-1], VALUES[-1])
    np.testing.assert_array_equal(rows[[2, 0]], VALUES[[2, 0]])
    np.testing.assert_array_equal(rows[1:3, 1], VALUES[1:3, 1])
    np.testing.assert_array_equal(rows.T[1:, 1:3], VALUES.T[1:, 1:3])
    np.testing.assert_array_equal(np.asarray(rows.T), VALUES.T)
    assert asked == [(1, 3), (0, 4), (3, 4), (2, 3), (0, 1), (1, 3), (1, 3), (0, 4)]
    assert rows.T.T is rows
    with pytest.raises(IndexError):
        rows[9]


# --- rows that go together -------------------------------------------------------------------------------------------


def tables(tmp_path, ours, theirs):
    design = Table(tmp_path / "d", VALUES, ours)
    targets = Table(tmp_path / "t", 10 * VALUES[: len(theirs)] if theirs else 10 * VALUES, theirs)
    return design, targets


def test_rows_are_aligned_by_names(tmp_path):
    design, targets = tables(tmp_path, ("a", "b", "c", "d"), ("c", "a", "d", "b"))
    ours, theirs = aligned(design, targets)
    assert ours.row_names == theirs.row_names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(theirs.values, 10 * VALUES[[1, 3, 0, 2]])
    np.testing.assert_array_equal(aligned(design, targets, "order")[1].values, 10 * VALUES)


def test_lazy_rows_are_aligned_by_names(tmp_path):
    design, targets = tables(tmp_path, ("a", "b", "c", "d"), ("c", "a", "d", "b"))
    lazy = Rows((3, 4), float, lambda start, stop: 10 * VALUES.T[start:stop])
    found = aligned(design, Table(targets.path, lazy.T, targets.row_names))[1]
    np.testing.assert_array_equal(by_problem(found)[1:2], 10 * VALUES[[1, 3, 0, 2]].T[1:2])


def test_names_that_are_numbers_are_compared_as_numbers(tmp_path):
    design, targets = tables(tmp_path, ("400", "500", "600", "7e2"), ("700.0", "400.00", "500", "600"))
    np.testing.assert_array_equal(aligned(design, targets)[1].values, 10 * VALUES[[1, 2, 3, 0]])


def test_long_numbers_tell_rows_apart(tmp_path):
    """Six digits suffice for wavelengths, but not for dates and identifiers."""
    dates = ("20200101", "20200102", "20200103", "20200104")
    design, targets = tables(tmp_path, dates, dates[::-1])
    np.testing.assert_array_equal(aligned(design, targets)[1].values, 10 * VALUES[::-1])
    design, targets = tables(tmp_path, ("400.12345", "500", "600", "700"), ("700", "600", "500", "400.12344"))
    np.testing.assert_array_equal(aligned(design, targets)[1].values, 10 * VALUES[::-1])


def test_rows_in_common(tmp_path):
    design, targets = tables(tmp_path, ("a", "b", "c", "d"), ("d", "x", "b"))
    with pytest.raises(InputError, match=r"only the design has 'a', 'c'; only the targets have 'x'.*--rows common"):
        aligned(design, targets)
    ours, theirs = aligned(design, targets, "common")
    np.testing.assert_array_equal(ours.values, VALUES[[1, 3]])
    np.testing.assert_array_equal(theirs.values, 10 * VALUES[[2, 0]])
    with pytest.raises(InputError, match="no row in common"):
        aligned(design, tables(tmp_path, None, ("x", "y"))[1], "common")
    with pytest.raises(InputError, match="rows 1 and 2 of the numbers have the same name 'd'"):
        aligned(design, tables(tmp_path, None, ("d", "d"))[1], "common")


def test_counts_must_agree_without_names(tmp_path):
    design, targets = tables(tmp_path, None, ("a", "b", "c"))
    with pytest.raises(InputError, match=r"has 3 rows, but .* has 4; pass files with the same rows"):
        aligned(design, targets)
    with pytest.raises(InputError, match="pass --targets-in-rows"):
        aligned(design, Table(tmp_path / "t", VALUES.T))


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_pages_that_are_given_back_keep_their_numbers(tmp_path, mode):
    """Those of a file, also where they were changed; and those of a private copy, which no file has."""
    np.save(tmp_path / "a.npy", VALUES)
    array = np.load(tmp_path / "a.npy", mmap_mode=mode)
    expected = VALUES.copy()
    if mode != "r":
        array[1] = expected[1] = 7
    for part in (array, array[2:], np.asarray(array).T):
        release(part)
        np.testing.assert_array_equal(array, expected)
    release(VALUES)
