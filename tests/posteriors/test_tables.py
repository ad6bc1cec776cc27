"""Probabilities of inclusion, and posteriors as tables and files."""

from __future__ import annotations

import csv
import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from cases import DESIGN, FAST, TARGETS

import balson_jax as balson
from balson_jax.labels import Labels

NAMES = ("oak", "birch", "pine, old")
COLUMNS = ["component", "mean", "std", "hdi_low", "hdi_high", "inclusion", "sparse_mode", "status", "method", "ess"]


def fit(target=TARGETS, **options):
    return balson.fit(jax.random.key(0), balson.linear_problem(DESIGN, target, noise=0.5, **options), FAST["is"])


@pytest.fixture(scope="module")
def batch():
    return fit(names=NAMES)


@pytest.fixture(scope="module")
def signed():
    return fit(constraint="signed_at_most", total=2.0)


def without_draws(posterior):
    bare = dataclasses.replace(
        posterior, draws=posterior.draws[..., :0, :], draw_weights=posterior.draw_weights[..., :0]
    )
    return bare.labelled(posterior.labels)


def test_inclusion_is_the_weight_of_draws_above_a_share_of_the_total(batch, signed):
    for found, total in ((batch, 1.0), (signed, 2.0)):
        draws, weights = np.asarray(found.draws, np.float64), np.asarray(found.draw_weights, np.float64)
        expected = np.einsum("bd,bdp->bp", weights, np.abs(draws) > 0.1 * total)
        np.testing.assert_allclose(found.inclusion(0.1), expected, atol=1e-5)
        assert expected.min() < 0.9 < 0.99 < expected.max()
        np.testing.assert_array_equal(found.support(0.9, threshold=0.1), expected > 0.9)
    assert (signed.draws < -0.2).any()  # so that magnitudes matter


def test_inclusion_of_a_prior_is_that_of_a_beta():
    """Hardly any data: shares are Beta(1, 2) under the flat prior, above a tenth with probability 0.81."""
    vague = balson.linear_problem(DESIGN, TARGETS, noise=1e4)
    found = balson.fit(jax.random.key(0), vague, FAST["is"])
    np.testing.assert_allclose(found.inclusion(0.1), 0.81, atol=4 * np.sqrt(0.81 * 0.19 / 512))
    assert found.support(0.8, 0.1).shape == (5, 3)


def test_inclusion_inside_a_trace(batch):
    traced = jax.jit(lambda posterior, share: (posterior.inclusion(share), posterior.support(0.9, share)))(batch, 0.1)
    np.testing.assert_allclose(traced[0], batch.inclusion(0.1), rtol=1e-6)
    np.testing.assert_array_equal(traced[1], batch.support(0.9, 0.1))


def test_inclusion_knows_its_limits(batch):
    always = batch.inclusion(1e-6)
    assert float(always.max()) == 1.0
    unknown = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype.kind == "f" else leaf, batch)
    assert np.isnan(unknown.inclusion()).all()
    assert not unknown.support().any()
    with pytest.raises(ValueError, match=r"threshold=1\.5 must lie between 0 and 1"):
        batch.inclusion(1.5)
    with pytest.raises(ValueError, match=r"probability=50 must lie between 0 and 1; pass 0\.5 for 50 %"):
        batch.support(50)
    with pytest.raises(ValueError, match="inclusion needs kept draws; none were kept"):
        without_draws(batch).inclusion()


def test_a_frame_has_a_row_for_each_problem_and_component(batch):
    frame = batch.to_frame(level=0.8)
    assert list(frame.columns) == ["problem", *COLUMNS]
    assert len(frame) == 15
    row = frame[(frame["problem"] == 3) & (frame["component"] == "birch")].iloc[0]
    low, high = batch.hdi(0.8)
    expected = {
        "mean": batch.mean,
        "std": batch.std,
        "hdi_low": low,
        "hdi_high": high,
        "inclusion": batch.inclusion(),
        "sparse_mode": batch.theta,
    }
    for name, value in expected.items():
        assert row[name] == float(value[3, 1]), name
    assert row["ess"] == float(batch.ess[3])
    assert row["method"] == "is"
    assert list(frame["status"].unique()) == ["OK"]


def test_status_in_words(batch):
    bad = dataclasses.replace(batch, status=np.array([0, 5, 0, 5, 8], np.int32))
    assert list(bad.to_frame()["status"][::3]) == ["OK", "LOW_ESS|BUDGET", "OK", "LOW_ESS|BUDGET", "NONFINITE"]


def test_methods_of_a_ladder(batch):
    several = dataclasses.replace(batch, methods=("is", "tg"), choice=np.array([0, 1, 1, 0, 0], np.int32))
    assert list(several.to_frame()["method"][::3]) == ["is", "tg", "tg", "is", "is"]
    assert list(several.to_xarray()["method"].values) == ["is", "tg", "tg", "is", "is"]


def test_problems_have_labels_or_numbers(batch):
    labelled = dataclasses.replace(batch).labelled(Labels(problems=("v", "w", "x", "y", "z")))
    frame = labelled.to_frame()
    assert list(frame["problem"][::3]) == ["v", "w", "x", "y", "z"]
    assert list(frame["component"][:3]) == [0, 1, 2]
    assert list(labelled[2].to_frame()["problem"]) == ["x"] * 3
    assert list(batch[2].to_frame()["problem"]) == [0] * 3


def test_several_batch_axes(batch):
    square = batch[np.array([[0, 1], [2, 3]])]
    frame = square.to_frame()
    assert list(frame.columns) == ["problem_0", "problem_1", *COLUMNS]
    chosen = frame[(frame["problem_0"] == 1) & (frame["problem_1"] == 0)]
    np.testing.assert_array_equal(chosen["mean"], batch.mean[2])
    assert list(chosen["component"]) == list(NAMES)


@pytest.mark.parametrize("case", ["batch", "square", "one", "none"])
def test_a_file_holds_the_same_as_the_frame(case, batch, tmp_path):
    cases = {"batch": batch, "square": batch[np.array([[0, 1], [2, 3]])], "one": batch[1], "none": without_draws(batch)}
    found = cases[case]
    found.to_csv(tmp_path / "posterior.csv", level=0.5)
    read = pd.read_csv(tmp_path / "posterior.csv", dtype={"hdi_low": np.float32})
    frame = found.to_frame(level=0.5)
    pd.testing.assert_frame_equal(read, frame, check_dtype=False, rtol=1e-6)
    np.testing.assert_array_equal(read["mean"].to_numpy(np.float32), frame["mean"])  # all digits of float32


def test_a_file_needs_no_pandas(batch, tmp_path, monkeypatch):
    for package in ("pandas", "xarray"):
        monkeypatch.setitem(sys.modules, package, None)
    batch.to_csv(tmp_path / "posterior.csv")
    with (tmp_path / "posterior.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["problem", *COLUMNS]
    assert rows[3][1] == "pine, old"
    with pytest.raises(ImportError, match=r"to_frame needs pandas; .*pip install 'balson_jax\[frames\]'"):
        batch.to_frame()
    with pytest.raises(ImportError, match=r"to_xarray needs xarray; .*pip install 'balson_jax\[arviz\]'"):
        batch.to_xarray()


def test_without_kept_draws_some_columns_are_unknown(batch):
    frame = without_draws(batch).to_frame()
    assert frame[["hdi_low", "hdi_high", "inclusion"]].isna().all(axis=None)
    assert frame[["mean", "std", "sparse_mode", "ess"]].notna().all(axis=None)


def test_an_empty_batch(batch, tmp_path):
    empty = batch[:0]
    frame = empty.to_frame()
    assert list(frame.columns) == ["problem", *COLUMNS]
    assert len(frame) == 0
    empty.to_csv(tmp_path / "posterior.csv")
    assert (tmp_path / "posterior.csv").read_text() == ",".join(frame.columns) + "\n"
    assert empty.to_xarray().sizes["problem"] == 0


def test_signed_components(signed):
    frame = signed.to_frame()
    assert frame["hdi_low"].min() < 0
    assert ((frame["inclusion"] >= 0) & (frame["inclusion"] <= 1)).all()


@pytest.mark.usefixtures("x64")
def test_double_precision(batch, tmp_path):
    rng = np.random.default_rng(0)
    # With digits that float32 does not have.
    found = jax.tree.map(
        lambda leaf: jnp.asarray(leaf * rng.uniform(1, 1 + 1e-9), jnp.float64) if leaf.dtype.kind == "f" else leaf,
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if leaf.dtype.kind == "f" else np.asarray(leaf), batch),
    )
    frame = found.to_frame()
    assert (frame[["mean", "std", "hdi_low", "hdi_high", "inclusion", "ess"]].dtypes == np.float64).all()
    found.to_csv(tmp_path / "posterior.csv")
    read = pd.read_csv(tmp_path / "posterior.csv", float_precision="round_trip")
    np.testing.assert_array_equal(read["mean"], np.asarray(found.mean).ravel())


def test_a_wrong_level(batch, tmp_path):
    for call in (batch.to_frame, batch.to_xarray, lambda level: batch.to_csv(tmp_path / "posterior.csv", level)):
        with pytest.raises(ValueError, match=r"level=90 must lie between 0 and 1; pass 0\.9 for 90 %"):
            call(90)
