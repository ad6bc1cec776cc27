"""The command ``balson compare``: the library's ranking, in files and on a page."""

from __future__ import annotations

import csv
import re

import jax
import numpy as np
import pytest
from cases import DESIGN, TARGETS
from test_fit_command import NAMES, PROBLEMS, call, image, interrupted, table, text

import balson_jax as balson
from balson_jax.commands import running
from balson_jax.commands.candidates import Candidates
from balson_jax.commands.settings import Settings
from balson_jax.interop import by_problem, read

QUICK = ["--method", "is", "--draws", "4000", "--noise", "0.5", "--chunk", "2"]
POOR = DESIGN @ np.array([[1.0, 0, 0.5], [0, 0.2, 0.5], [0, 0.8, 0]])
DESIGNS = {"design.csv": DESIGN, "poor.csv": POOR}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, values in DESIGNS.items():
        (tmp_path / name).write_text(text(values, NAMES))
    (tmp_path / "targets.csv").write_text(text(TARGETS.T, PROBLEMS))
    return tmp_path


def expected(targets=TARGETS):
    problems = {name: balson.linear_problem(values, targets, noise=0.5) for name, values in DESIGNS.items()}
    return balson.compare(problems, key=jax.random.key(0), method=balson.IS(num_draws=4000))


def test_the_ranking_is_the_librarys(here):
    found = call("compare", "design.csv", "poor.csv", "targets.csv", "--out", "out", *QUICK)
    assert found.exit_code == 0, found.stderr
    wanted = expected()
    assert wanted.names == ("design.csv", "poor.csv")
    assert "5 problems; log-evidence is their sum" in found.stdout
    rows = table(here / "out" / "comparison.csv")
    assert [(row["problem"], row["candidate"]) for row in rows] == [
        (p, name) for p in PROBLEMS for name in wanted.names
    ]
    for column, values in (("log_evidence", wanted.log_evidence), ("weight", wanted.weights)):
        numbers = np.array([float(row[column]) for row in rows]).reshape(5, 2).T
        np.testing.assert_allclose(numbers, values, rtol=1e-4, atol=1e-5)
    assert max(float(row["difference"]) for row in rows) == 0
    assert {path.name for path in (here / "out").iterdir()} == {"comparison.csv", "report.html", "settings.json"}
    page = (here / "out" / "report.html").read_text()
    assert all(source.startswith("data:") for source in re.findall(r'(?:src|href)\s*=\s*"([^"]{0,30})', page))
    assert re.search(r"design.csv is ahead of poor.csv by \d", page)
    assert "balson compare design.csv poor.csv targets.csv --out out" in page
    assert '<img alt="Log-evidence of design.csv, poor.csv' in page


def test_images_get_a_map_of_the_best(here):
    image(here / "scene.img")
    found = call("compare", "design.csv", "poor.csv", "scene.img", "--out", "out", *QUICK)
    assert found.exit_code == 0, found.stderr
    best, weights = (by_problem(read(here / "out" / f"{name}.img")) for name in ("best", "weights"))
    wanted = expected()
    np.testing.assert_array_equal(best[:, 0], [*(1 + wanted.log_evidence.argmax(0)), 0])
    np.testing.assert_allclose(weights[:5], wanted.weights.T, atol=1e-4)
    assert np.isnan(weights[5]).all()
    rows = table(here / "out" / "comparison.csv")
    assert (rows[-1]["log_evidence"], rows[-1]["status"]) == ("", "NO_DATA")
    assert "Map of the best model of each pixel" in (here / "out" / "report.html").read_text()


def test_an_interrupted_comparison_resumes(here, monkeypatch):
    arguments = ["compare", "design.csv", "poor.csv", "targets.csv", *QUICK, "--out"]
    assert call(*arguments, "whole").exit_code == 0
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(running, "bar", interrupted(4, seen))
        found = call(*arguments, "cut")
    assert found.exit_code == 130
    assert seen == [2, 4, 5, 7]
    again = found.stderr.strip().splitlines()[-1].split()
    assert again[:5] == ["balson", "compare", "design.csv", "poor.csv", "targets.csv"]
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(running, "bar", interrupted(0, seen))
        assert call(*again[1:]).exit_code == 0
    assert seen == [9, 10]
    assert (here / "cut" / "comparison.csv").read_bytes() == (here / "whole" / "comparison.csv").read_bytes()


def test_models_are_named_by_what_differs():
    given = {"constraint": ("equal", "at_most"), "prior": ("1",), "total": (1.0, 2.0)}
    candidates = Candidates(Settings("a/d.csv", "t.csv", command="compare"), ("a/d.csv", "b/d.csv"), given)
    every = candidates.each()
    assert len(every) == 8
    assert every["b/d.csv, at_most, total 2.0"].total == 2.0
    words = candidates.words("--resume")
    assert words.startswith(
        "balson compare a/d.csv b/d.csv t.csv --out balson_fit --constraint equal --constraint at_most"
    )
    assert words.endswith("--prior 1 --total 1.0 --total 2.0 --resume")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["design.csv", "targets.csv"], "design.csv is the only model; pass several designs"),
        (["design.csv", "design.csv", "targets.csv"], "design.csv was given twice"),
        (["design.csv", "few.csv", "targets.csv", "--rows", "common"], "models compare only on the same rows"),
        (["design.csv", "poor.csv", "targets.csv", "--constraint", "none"], "--constraint none: choose one of"),
        (["design.csv", "poor.csv", "targets.csv", "--method", "hit_and_run"], "don't tell the evidence"),
        (["design.csv", "missing.csv", "targets.csv"], "missing.csv: there is no such file"),
    ],
)
def test_bad_input_is_refused(here, arguments, message):
    with (here / "design.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    (here / "few.csv").write_text("\n".join(",".join(line) for line in lines[:-1]) + "\n")
    found = call("compare", *arguments, "--out", "out", "--noise", "0.5")
    assert found.exit_code == 1
    errors = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, found.output
    assert message in errors[0]
