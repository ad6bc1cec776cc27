"""Streams: equal to a fit of the whole, resumable after a kill, and never mixed with results of other arguments."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from cases import DESIGN, FAST, TOGETHER
from examples.ordered import Ordered

import balson_jax as balson
from balson_jax.execution.storage import ARGUMENTS, DRAFT, FINISHED
from balson_jax.execution.stream_check import narrow_factor
from balson_jax.experiments.scenes import simulate
from balson_jax.problems import reduction

KEY = jax.random.key(0)
# Two chunks and a part of one, of the size that other tests use.
NUM_TARGETS, NUM_ROWS, NUM_COMPONENTS = 2 * TOGETHER + 3, *DESIGN.shape
_RNG = np.random.default_rng(1)
TARGETS = (DESIGN @ [0.2, 0.7, 0.1] + 0.5 * _RNG.normal(size=(NUM_TARGETS, NUM_ROWS))).astype(np.float32)
METHOD = FAST["is"]
FIELDS = ("mean", "std", "alpha", "theta", "log_evidence", "ess", "status")


class Scaled(Ordered):
    """A constraint with a number of its own."""

    def __init__(self, scale):
        self.scale = scale

    def matrix(self, size, dtype):
        return self.scale * super().matrix(size, dtype)


def stream(targets=TARGETS, method=METHOD, *, chunk=TOGETHER, progress=False, **options):
    return balson.fit_stream(KEY, DESIGN, targets, method, chunk=chunk, progress=progress, noise=1.0, **options)


def assert_same(found, expected, rtol=0.0):
    for field in FIELDS:
        # A mode near zero is a difference of larger numbers.
        atol = 1e-6 if rtol and field == "theta" else 0
        np.testing.assert_allclose(getattr(found, field), getattr(expected, field), rtol, atol, err_msg=field)


@pytest.fixture(scope="module")
def whole():
    return balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=1.0), METHOD)


@pytest.mark.parametrize("chunk", [TOGETHER, 100])
def test_a_stream_is_a_fit_of_the_whole(whole, chunk):
    seen = []
    found = stream(chunk=chunk, progress=lambda done, total: seen.append((done, total)))
    assert_same(found, whole, rtol=1e-5)
    assert seen == ([(5, 13), (10, 13), (13, 13)] if chunk == TOGETHER else [(13, 13)])
    assert found.interval(0.9)[0].shape == (NUM_TARGETS, NUM_COMPONENTS)
    assert "13 problems" in found.summary()


def test_targets_may_be_a_memory_map_with_more_axes_and_any_dtype(tmp_path, whole):
    cube = np.lib.format.open_memmap(tmp_path / "cube.npy", "w+", np.float64, (5, 2, NUM_ROWS))
    cube[:] = TARGETS[:10].reshape(5, 2, NUM_ROWS)
    found = stream(np.load(tmp_path / "cube.npy", mmap_mode="r"), chunk=2)
    assert found.mean.shape == (5, 2, NUM_COMPONENTS)
    np.testing.assert_allclose(found.mean.reshape(10, NUM_COMPONENTS), whole.mean[:10], rtol=1e-5)


class Lazy:
    """No more than a data set of HDF5 or Zarr has: a shape, a dtype, and slices that are read when asked for."""

    def __init__(self, array):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        assert rows.stop - rows.start <= TOGETHER
        return self._array[rows]


def test_targets_are_read_in_slices_no_larger_than_a_chunk(whole):
    assert_same(stream(Lazy(TARGETS)), whole, rtol=1e-5)


def test_a_killed_stream_resumes(tmp_path):
    out = tmp_path / "out"
    script = (
        "import os, signal, test_stream as t\n"
        "def kill(done, total):\n"
        "    if done == 10: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"t.stream(out={str(out)!r}, progress=kill)\n"
    )
    here = pathlib.Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    killed = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False
    )
    assert killed.returncode == -9, killed.stderr
    assert (out / FINISHED).read_text() == "0\n1\n"
    with (out / FINISHED).open("a") as file:
        file.write("2")  # a line that was cut off: chunk 2 is not finished

    seen = []
    resumed = stream(out=out, progress=lambda done, total: seen.append(done))
    assert seen == [13]
    assert_same(resumed, stream())
    assert isinstance(resumed.mean, np.memmap)
    np.testing.assert_array_equal(np.load(out / "mean.npy"), resumed.mean)

    again = stream(out=out, progress=lambda done, total: pytest.fail("nothing is left to do"))
    assert_same(again, resumed)


def test_changed_arguments_are_refused(tmp_path):
    stream(out=tmp_path / "out")
    arguments = {"out": tmp_path / "out", "chunk": TOGETHER, "progress": False, "noise": 1.0}
    changes = {
        "key": lambda: balson.fit_stream(jax.random.key(1), DESIGN, TARGETS, METHOD, **arguments),
        "design": lambda: balson.fit_stream(KEY, 2 * DESIGN, TARGETS, METHOD, **arguments),
        "targets": lambda: balson.fit_stream(KEY, DESIGN, TARGETS + 1, METHOD, **arguments),
        "method": lambda: balson.fit_stream(KEY, DESIGN, TARGETS, balson.IS(num_draws=1024), **arguments),
        "chunk": lambda: stream(out=tmp_path / "out", chunk=4),
        "noise": lambda: balson.fit_stream(KEY, DESIGN, TARGETS, METHOD, **{**arguments, "noise": 2.0}),
        "prior": lambda: stream(out=tmp_path / "out", prior=2.0),
    }
    for name, call in changes.items():
        with pytest.raises(ValueError, match=f"holds results for a different {name};"):
            call()


def test_bad_targets_become_a_status_and_do_not_stop_the_rest(whole):
    targets = TARGETS.copy()
    targets[4, 7] = np.nan
    found = stream(targets)
    assert (found.status != 0).tolist() == [i == 4 for i in range(NUM_TARGETS)]
    good = np.arange(NUM_TARGETS) != 4
    np.testing.assert_allclose(found.mean[good], whole.mean[good], rtol=1e-5)


@pytest.mark.slow
def test_options_may_differ_between_targets():
    """Totals, priors, weights and noise of their own, in chunks that do not divide the targets."""
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 1.5, TARGETS.shape)
    options = {
        "total": rng.uniform(0.8, 1.2, NUM_TARGETS),
        "prior": rng.uniform(0.8, 1.5, (NUM_TARGETS, NUM_COMPONENTS)),
        "weights": weights * (weights > 0.6),
        "noise": rng.uniform(0.8, 1.2, NUM_TARGETS),
    }
    whole = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, **options), METHOD)
    found = balson.fit_stream(KEY, DESIGN, TARGETS, METHOD, chunk=TOGETHER, progress=False, **options)
    assert_same(found, whole, rtol=2e-4)
    with pytest.raises(ValueError, match=r"of total don.t broadcast"):
        stream(total=np.ones(7))


@pytest.mark.slow
def test_a_problem_of_any_kind_is_streamed(whole):
    """A linear problem made with one target, and a model."""
    one = balson.linear_problem(DESIGN, TARGETS[0], noise=1.0)
    found = balson.fit_stream(KEY, one, TARGETS, METHOD, chunk=TOGETHER, progress=False)
    assert_same(found, whole, rtol=1e-5)

    def predict(theta, design):
        return design @ theta

    model = balson.model_problem(predict, DESIGN.astype(np.float32), TARGETS[0], NUM_COMPONENTS, noise=1.0)
    found = balson.fit_stream(KEY, model, TARGETS, METHOD, chunk=TOGETHER, progress=False)
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="prior is an option of a problem that exists already"):
        balson.fit_stream(KEY, one, TARGETS, METHOD, chunk=TOGETHER, prior=2.0)
    with pytest.raises(ValueError, match="has passed through a JAX transformation"):
        balson.fit_stream(KEY, jax.device_put(one), TARGETS, METHOD, chunk=TOGETHER)


def test_options_along_any_axis_of_the_targets():
    """Options of the second axis are not taken for those of the first."""
    targets = TARGETS[:10].reshape(5, 2, -1)
    options = {"total": np.array([0.8, 1.2]), "noise": np.linspace(0.5, 1.5, 5)[:, None]}
    whole = balson.fit(KEY, balson.linear_problem(DESIGN, targets, **options), METHOD)
    found = balson.fit_stream(KEY, DESIGN, targets, METHOD, chunk=2, progress=False, **options)
    assert_same(found, whole, rtol=2e-4)
    problem = balson.linear_problem(DESIGN, TARGETS[:4], noise=np.arange(1.0, 5.0))
    with pytest.raises(ValueError, match=r"the problem's options are for a batch of shape \(4,\)"):
        balson.fit_stream(KEY, problem, TARGETS, METHOD, chunk=4)


def test_the_design_is_factorised_once(monkeypatch):
    calls = []
    factorise = reduction.whitened_basis
    monkeypatch.setattr(reduction, "whitened_basis", lambda *arrays: calls.append(1) or factorise(*arrays))
    stream()
    assert len(calls) == 1


def test_the_directory_is_ours_alone(tmp_path):
    np.save(tmp_path / "mean.npy", np.arange(5))
    with pytest.raises(ValueError, match=r"holds other files \(mean.npy\)"):
        stream(out=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "mean.npy"), np.arange(5))


def test_a_directory_that_was_just_being_created_is_ours(tmp_path):
    for name in (FINISHED, "mean.npy", ARGUMENTS + DRAFT):
        (tmp_path / name).write_text("")
    assert stream(out=tmp_path).status.shape == (NUM_TARGETS,)


@pytest.mark.parametrize(
    ("name", "first", "other"),
    [
        ("prior", balson.CommonConcentration(0.5, 2.0, 2), balson.CommonConcentration(0.5, 1.0, 2)),
        ("constraint", Scaled(1.0), Scaled(0.5)),
    ],
)
def test_options_may_be_objects(tmp_path, name, first, other):
    """Other values of theirs are other arguments."""
    found = stream(out=tmp_path / "out", **{name: first})
    assert (found.status == 0).all()
    assert_same(stream(out=tmp_path / "out", **{name: first}), found)
    with pytest.raises(ValueError, match=f"holds results for a different {name};"):
        stream(out=tmp_path / "out", **{name: other})


def test_defaults_may_be_spelled_out_and_results_are_read_only(tmp_path):
    found = stream(out=tmp_path / "out", weights=None, prior=1.0)
    again = stream(out=tmp_path / "out")
    assert_same(again, found)
    with pytest.raises(ValueError, match="read-only"):
        again.mean[0] = 0


def test_a_damaged_directory_is_refused(tmp_path):
    stream(out=tmp_path / "out")
    (tmp_path / "out" / "ess.npy").unlink()
    with pytest.raises(ValueError, match=r"is damaged \(ess.npy"):
        stream(out=tmp_path / "out")
    np.save(tmp_path / "out" / "ess.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"is damaged \(ess.npy is not float32\(13,\)\)"):
        stream(out=tmp_path / "out")


def test_no_targets(tmp_path):
    assert stream(TARGETS[:0], out=tmp_path / "out").mean.shape == (0, NUM_COMPONENTS)


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="chunk=0"):
        stream(chunk=0)
    with pytest.raises(ValueError, match="targets is a list; pass something with a shape"):
        stream([[1.0]])
    with pytest.raises(ValueError, match=r"targets has shape \(13, 9\)"):
        stream(TARGETS[:, 1:])
    with pytest.raises(ValueError, match=r"design has shape \(2, 10, 3\)"):
        balson.fit_stream(KEY, np.stack([DESIGN] * 2), TARGETS, chunk=3)
    with pytest.raises(ValueError, match="noise"):
        balson.fit_stream(KEY, DESIGN, TARGETS, chunk=3, noise=-1.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; pass a directory"):
        stream(out=tmp_path / "file")
    with pytest.raises(ValueError, match=r"holds other files \(file\)"):
        stream(out=tmp_path)


BANDS = 40


def judged(targets, design, *, chunk=100, progress=False, **options):
    return balson.fit_stream(KEY, design, targets, METHOD, chunk=chunk, progress=progress, **options)


@pytest.fixture(scope="module")
def scene():
    return simulate(4, "variable", num_pixels=150, num_bands=BANDS, num_materials=3)


def test_error_bars_that_are_too_narrow_are_told(scene, tmp_path):
    """Whatever the chunk, and after an interruption; all but the status is as without the check."""
    flag = int(balson.Status.OVERCONFIDENT)
    found = judged(scene.targets, scene.design)
    assert (found.status & flag == flag).all()
    off = judged(scene.targets, scene.design, check=False)
    assert not (off.status & flag).any()
    np.testing.assert_array_equal(found.status & ~flag, off.status)
    for name, array in off.arrays().items():
        if name != "status":
            np.testing.assert_array_equal(found.arrays()[name], array, err_msg=name)
    np.testing.assert_array_equal(judged(scene.targets, scene.design, chunk=40).status, found.status)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(scene.targets, scene.design, out=tmp_path / "out", progress=stop)
    np.testing.assert_array_equal(judged(scene.targets, scene.design, out=tmp_path / "out").status, found.status)
    with pytest.raises(ValueError, match="different check;"):
        judged(scene.targets, scene.design, out=tmp_path / "out", check=False)
    cube = judged(scene.targets.reshape(50, 3, BANDS), scene.design, chunk=50)
    assert (cube.status & flag == flag).all()


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({}, 1.0),
        ({"noise": 0.02}, 1.0),
        ({"noise": 0.007}, 0.02 / 0.007),
        ({"intercept": True}, 1.0),
        ({"mask": np.arange(BANDS) % 5 > 0}, 1.0),
    ],
)
def test_data_that_the_model_made(scene, options, factor):
    """Error bars are right, or too narrow by as much as the level that was stated is too small."""
    rng = np.random.default_rng(3)
    white = (scene.abundances @ scene.design.T + 0.02 * rng.normal(size=scene.targets.shape)).astype(np.float32)
    problem = balson.linear_problem(scene.design, white, **options)
    white[7, 3] = np.nan
    # 150 problems: the factor was between 0.98 and 1.2 in simulated batches.
    assert narrow_factor(problem.template, white) == pytest.approx(factor, rel=0.2)


def test_what_was_learned_is_not_flagged(scene):
    """The covariance of the errors themselves, known up to a factor, leaves white rows."""
    plain = scene.abundances.astype(float) @ scene.design.T.astype(float)
    errors = scene.targets - plain
    noise = balson.Correlated(errors.T @ errors / len(errors) + 1e-6 * np.eye(BANDS), scale="estimate")
    problem = balson.linear_problem(scene.design, scene.targets, noise=noise)
    assert narrow_factor(problem.template, scene.targets) < 1.3


@pytest.mark.slow
def test_a_stream_with_what_was_learned(scene):
    learned = balson.learn(KEY, scene.design, scene.targets, rounds=2, progress=False)
    found = judged(scene.targets, learned.problem_for(scene.targets[:1]))
    assert not (found.status & int(balson.Status.OVERCONFIDENT)).any()


def test_what_is_not_judged(scene):
    """Weights that differ between targets, more rows than a covariance is fitted to, rows that fit perfectly."""
    weights = np.random.default_rng(0).uniform(0.5, 1, scene.targets.shape)
    problem = balson.linear_problem(scene.design, scene.targets, weights=weights)
    assert np.isnan(narrow_factor(problem.template, scene.targets))
    long = np.random.default_rng(0).random((1001, 3))
    assert np.isnan(narrow_factor(balson.linear_problem(long, long[:, 0]).template, long.T))
    perfect = (scene.abundances @ scene.design.T).astype(np.float32)
    assert np.isnan(narrow_factor(balson.linear_problem(scene.design, perfect).template, perfect))


def test_progress_is_shown(capsys):
    stream(progress=True)
    assert "13/13" in capsys.readouterr().err


def test_progress_is_shown_without_rich(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream(progress=True)
    assert "fitted 13 of 13 targets" in capsys.readouterr().err
