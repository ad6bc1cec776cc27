"""The commands ``balson fit`` and ``balson check``: what they write, how they resume, and how they refuse."""

from __future__ import annotations

import contextlib
import csv
import re
import shutil

import jax
import numpy as np
import pytest
from cases import DESIGN, TARGETS
from typer.testing import CliRunner

import balson_jax as balson
from balson_jax.cli import app
from balson_jax.commands import page, running
from balson_jax.commands.inputs import load
from balson_jax.commands.settings import Settings
from balson_jax.interop import by_problem, read

NAMES = ["soil <dry>", "tree", "water"]
ROWS = [f"r{i}" for i in range(10)]
PROBLEMS = [f"p{i}" for i in range(5)]
QUICK = ["--method", "is", "--draws", "4000", "--noise", "0.5", "--chunk", "2"]


def text(values, columns, rows=ROWS):
    lines = [",".join(["name", *columns])]
    lines += [",".join([name, *map(repr, row.tolist())]) for name, row in zip(rows, np.asarray(values), strict=True)]
    return "\n".join(lines) + "\n"


def prepare(directory):
    """Write a design and five targets."""
    (directory / "design.csv").write_text(text(DESIGN, NAMES))
    (directory / "targets.csv").write_text(text(TARGETS.T, PROBLEMS))
    return directory


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return prepare(tmp_path)


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(page, "_pictures", lambda run: [])


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fit(*arguments, quick=QUICK):
    found = call("fit", *arguments, *quick)
    assert found.exit_code == 0, found.stderr
    return found


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of one run, whose results tests only read."""
    directory = prepare(tmp_path_factory.mktemp("whole"))
    with contextlib.chdir(directory):
        fit("design.csv", "targets.csv", "--out", "out", "--threshold", "0.3", "--level", "0.8")
    return directory / "out"


@pytest.fixture(scope="module")
def posterior():
    problem = balson.linear_problem(DESIGN, TARGETS, noise=0.5)
    return balson.fit(jax.random.key(0), problem, balson.IS(num_draws=4000))


def test_the_table_tells_what_the_library_finds(whole, posterior):
    rows = table(whole / "posterior.csv")
    assert [row["problem"] for row in rows] == [name for name in PROBLEMS for _ in range(3)]
    assert [row["component"] for row in rows] == NAMES * 5
    assert {row["status"] for row in rows} == {"OK"}
    low, high = posterior.hdi(0.8)
    above = (np.asarray(posterior.draw_weights)[..., None] * (np.asarray(posterior.draws) > 0.3)).sum(1)
    expected = {"mean": posterior.mean, "std": posterior.std, "hdi_low": low, "hdi_high": high, "inclusion": above}
    for name, values in expected.items():
        found = np.array([float(row[name]) for row in rows]).reshape(5, 3)
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5, err_msg=name)
    loaded = balson.Posterior.load(whole / "posterior.npz")
    np.testing.assert_allclose(loaded.mean, posterior.mean, rtol=1e-4, atol=1e-6)
    written = {path.name for path in whole.iterdir()}
    assert written == {"posterior.csv", "posterior.npz", "report.html", "settings.json"}


def test_the_report_needs_nothing_else(whole):
    text = (whole / "report.html").read_text()
    sources = re.findall(r'(?:src|href)\s*=\s*"([^"]{0,30})', text)
    assert len(sources) == 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"url\(|@import|<script|<link", text)
    assert len(re.findall(r'<img alt="[^"]{20,}"', text)) == 5
    assert "<dry>" not in text
    assert "soil &lt;dry&gt;" in text
    assert '<meta name="viewport"' in text
    assert "No problem found." in text
    repeat = "balson fit design.csv targets.csv --out out --noise 0.5 --method is --draws 4000 --threshold 0.3"
    assert f"{repeat} --level 0.8 --chunk 2" in text
    assert f"&quot;balson_jax&quot;: &quot;{balson.__version__}&quot;" in text


def test_rows_in_any_order_and_targets_in_rows_are_the_same_input(here):
    mixed = np.random.default_rng(0).permutation(10)
    (here / "mixed.csv").write_text(text(TARGETS.T[mixed], PROBLEMS, [ROWS[i] for i in mixed]))
    (here / "wide.csv").write_text(text(TARGETS, ROWS, PROBLEMS))
    np.savez(here / "mapped.npz", x=TARGETS.T[mixed], row_names=[ROWS[i] for i in mixed], column_names=PROBLEMS)
    for settings in (
        Settings("design.csv", "targets.csv"),
        Settings("design.csv", "mixed.csv"),
        Settings("design.csv", "wide.csv", targets_in_rows=True),
        Settings("design.csv", "mapped.npz"),
    ):
        inputs = load(settings)
        np.testing.assert_array_equal(inputs.design, DESIGN)
        np.testing.assert_array_equal(np.asarray(inputs.targets[1:4]), TARGETS[1:4])
        assert inputs.problem_names(1, 3) == ["p1", "p2"]
        assert inputs.names == tuple(NAMES)


def test_options_become_arguments(here):
    (here / "noise.csv").write_text(text(np.arange(1.0, 11)[::-1, None], ["sd"], ROWS[::-1]))
    own = {"noise": "noise.csv", "weights": here / "noise.csv", "prior": "1,0.5,2", "total": 3.0, "intercept": True}
    options = load(Settings("design.csv", "targets.csv", **own)).options
    np.testing.assert_array_equal(options["noise"], np.arange(1.0, 11))
    np.testing.assert_array_equal(options["weights"], np.arange(1.0, 11))
    np.testing.assert_array_equal(options["prior"], [1, 0.5, 2])
    assert (options["total"], options["intercept"], options["missing"]) == (3.0, True, "raise")


def test_many_problems_keep_fewer_draws():
    settings = Settings("d", "t")
    assert [settings.sampler(count, 5).keep for count in (1000, 10**5, 2 * 10**5, 10**7)] == [512, 512, 256, 64]
    assert Settings("d", "t", keep=512).sampler(10**7, 5).keep == 512


def interrupted(after, seen):
    """Return a progress bar that is interrupted after so many reports."""

    @contextlib.contextmanager
    def bar():
        told = {"done": 0, "total": 0}

        def report(done, total):
            told.update(done=done, total=total)
            seen.append(done)
            if len(seen) == after:
                raise KeyboardInterrupt

        yield report, told

    return bar


def test_an_interrupted_run_resumes(here, whole, monkeypatch, no_pictures):
    arguments = ["fit", "design.csv", "targets.csv", "--out", "cut", "--threshold", "0.3", "--level", "0.8", *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(running, "bar", interrupted(1, []))
        found = call(*arguments)
    assert found.exit_code == 130
    assert "2 problems are stored" in found.stderr
    again = found.stderr.strip().splitlines()[-1]
    assert again.startswith("balson fit design.csv targets.csv --out cut")
    assert again.endswith("--resume")
    # Neither a forgotten flag nor other arguments touch what is there.
    found = call(*arguments)
    assert found.exit_code == 1
    assert "holds an interrupted run; pass --resume" in found.stderr
    found = call(*arguments, "--resume", "--seed", "1")
    assert found.exit_code == 1
    assert "a different key" in found.stderr
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(running, "bar", interrupted(0, seen))
        assert call(*again.split()[1:]).exit_code == 0
    assert seen == [4, 5]  # the first chunk was not computed again
    assert (here / "cut" / "posterior.csv").read_bytes() == (whole / "posterior.csv").read_bytes()
    assert not (here / "cut" / "fields").exists()


def test_finished_runs_are_replaced_only_if_asked(here, whole):
    shutil.copytree(whole, here / "out")
    (here / "out" / "mine.txt").write_text("keep")
    before = (here / "out" / "posterior.csv").read_bytes()
    found = call("fit", "design.csv", "targets.csv", "--out", "out", *QUICK)
    assert found.exit_code == 1
    assert "holds an earlier run; pass --overwrite" in found.stderr
    found = call("fit", "design.csv", "targets.csv", "--out", "out", *QUICK, "--resume")
    assert found.exit_code == 0
    assert "is finished" in found.stdout
    assert (here / "out" / "posterior.csv").read_bytes() == before
    assert running.claim(here / "out", resume=False, overwrite=True)
    assert [path.name for path in (here / "out").iterdir()] == ["mine.txt"]


def image(path):
    """Write an image of 2 x 3 pixels whose last has no data."""
    cube = np.concatenate([TARGETS, np.full((1, 10), -9999.0)]).astype("<f4")
    cube.tofile(path)
    fields = "samples = 3\nlines = 2\nbands = 10\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
    where = "map info = {UTM, 1, 1, 5, 4, 30, 30, 33, North, WGS-84}\n"
    path.with_suffix(".hdr").write_text(f"ENVI\n{fields}data ignore value = -9999\n{where}")


def test_images_become_rasters(here, posterior):
    image(here / "scene.img")
    found = fit("design.csv", "scene.img", "--out", "out", "--strict")
    assert "OK: 5, NO_DATA: 1" in found.stdout
    mean, sd, status = (read(here / "out" / f"{name}.img") for name in ("mean", "sd", "status"))
    assert mean.image_shape == (2, 3)
    assert mean.metadata["map info"] == "{UTM, 1, 1, 5, 4, 30, 30, 33, North, WGS-84}"
    assert mean.metadata["band names"] == ["soil <dry> mean", "tree mean", "water mean"]
    np.testing.assert_allclose(by_problem(mean)[:5], posterior.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(by_problem(sd)[:5], posterior.std, rtol=1e-3, atol=1e-6)
    assert np.isnan(by_problem(mean)[5]).all()
    np.testing.assert_array_equal(by_problem(status)[:, 0], [0, 0, 0, 0, 0, -1])
    rows = table(here / "out" / "posterior.csv")
    assert [row["problem"] for row in rows[::3]] == ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"]
    assert rows[-1]["mean"] == ""
    text = (here / "out" / "report.html").read_text()
    assert "Maps of mean and standard deviation of soil &lt;dry&gt;, tree, water" in text
    assert "NO_DATA: no band of the pixel has a number" in text


@pytest.mark.slow
def test_check_tells_of_correlated_residuals(here, no_pictures):
    rng = np.random.default_rng(1)
    errors = np.cumsum(rng.normal(size=(60, 10)), axis=1)
    (here / "walks.csv").write_text(text((DESIGN @ [0.2, 0.7, 0.1] + errors).T, [f"p{i}" for i in range(60)]))
    options = ["--method", "is", "--draws", "4000", "--noise", "0.5", "--out", "out", "--strict"]
    found = call("check", "design.csv", "walks.csv", *options)
    assert found.exit_code == 2
    assert "too narrow by a factor of" in found.stdout
    page = (here / "out" / "report.html").read_text()
    assert "too narrow by a factor of" in page
    assert "OVERCONFIDENT: residuals go together between rows" in page
    assert "fits can’t be trusted as they are" in page


@pytest.mark.slow
def test_slack_intercept_and_unknown_noise_have_rows(here):
    options = ["--constraint", "at_most", "--intercept", "--method", "is", "--draws", "4000", "--total", "2"]
    fit("design.csv", "targets.csv", "--out", "out", quick=options)
    rows = table(here / "out" / "posterior.csv")
    assert [row["component"] for row in rows[:6]] == [*NAMES, "(slack)", "(intercept)", "(noise)"]
    shares = sum(float(row["mean"]) for row in rows[:4])
    assert shares == pytest.approx(2, abs=1e-3)
    assert rows[5]["inclusion"] == ""
    assert float(rows[5]["hdi_low"]) < float(rows[5]["mean"]) < float(rows[5]["hdi_high"])


@pytest.mark.slow
def test_gaps_are_dropped_if_asked(here, posterior):
    lines = (here / "targets.csv").read_text().splitlines()
    lines[3] = ",".join([lines[3].split(",")[0], "", *lines[3].split(",")[2:]])
    (here / "gap.csv").write_text("\n".join(lines) + "\n")
    fit("design.csv", "gap.csv", "--out", "b", "--missing", "drop")
    means = np.array([float(row["mean"]) for row in table(here / "b" / "posterior.csv")]).reshape(5, 3)
    expected = balson.fit(
        jax.random.key(0),
        balson.linear_problem(np.delete(DESIGN, 2, 0), np.delete(TARGETS[0], 2), noise=0.5),
        balson.IS(num_draws=4000),
    )
    np.testing.assert_allclose(means[0], expected.mean, atol=6 * float(expected.mean_stderr.max()))
    np.testing.assert_allclose(means[1:], posterior.mean[1:], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_learned_noise_is_used_and_kept(here, monkeypatch):
    rng = np.random.default_rng(1)
    errors = 0.5 * np.cumsum(rng.normal(size=(60, 10)), axis=1)
    targets = rng.dirichlet(np.ones(3), 60) @ DESIGN.T + errors
    (here / "walks.csv").write_text(text(targets.T, [f"p{i}" for i in range(60)]))
    arguments = ["fit", "design.csv", "walks.csv", "--learn", "--method", "is", "--chunk", "20", "--out"]
    found = call(*arguments, "whole")
    assert found.exit_code == 0, found.stderr
    assert "Learned from a batch of 60 problems" in found.stdout
    with monkeypatch.context() as patch:
        patch.setattr(running, "bar", interrupted(1, []))
        assert call(*arguments, "cut").exit_code == 130
        patch.setattr(running, "learn", None)  # what was learned is read from its file
        patch.setattr(running, "bar", interrupted(0, []))
        assert call(*arguments, "cut", "--resume").exit_code == 0
    assert (here / "cut" / "posterior.csv").read_bytes() == (here / "whole" / "posterior.csv").read_bytes()
    learned = balson.learn(jax.random.key(0), DESIGN, targets, progress=False)
    truth = balson.fit(jax.random.key(0), learned.problem, balson.IS())
    means = np.array([float(row["mean"]) for row in table(here / "cut" / "posterior.csv")])
    np.testing.assert_allclose(means.reshape(60, -1)[:, :3], truth.mean, rtol=0.01, atol=1e-3)
