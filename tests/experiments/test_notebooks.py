"""The notebooks run from top to bottom, on small numbers."""

from __future__ import annotations

import pathlib
import re

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"

# Replaces the cell that is tagged "parameters".
SMALL = {
    "01_the_paper": "datasets = 10",
    "02_many_problems": "num_pixels = 200\nnum_draws = 4096",
    "03_beyond_polynomials": "num_draws = 4096\nnum_targets = 50",
    "04_unmixing": "side = 12",
    "05_sensing": "trials = 2\npoints = 2",
    "06_audio": "num_frames = 4",
}


def parameters(notebook):
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(SMALL)


# A kernel is a process, and its client closes its sockets late.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_notebook_runs(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    names = [line.split("=")[0].strip() for line in parameters(notebook).source.splitlines()]
    assert names == [line.split("=")[0].strip() for line in SMALL[name].splitlines()]
    parameters(notebook).source = SMALL[name]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": FOLDER}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2


@pytest.mark.parametrize("name", SMALL)
def test_stored_output_is_complete_and_names_no_machine(name):
    """What a reader sees without running anything."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert "Traceback" not in text
    assert not re.search(r"(?<![\w.])(/[\w.-]+)+\.py\b", text)  # an absolute path, as warnings and errors show
