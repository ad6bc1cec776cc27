"""Posteriors as data sets of xarray, and as trees that ArviZ opens."""

from __future__ import annotations

import dataclasses
import sys
import warnings

import jax
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from cases import DESIGN, FAST, TARGETS
from scipy import stats

import balson_jax as balson
from balson_jax.posteriors.datatrees import systematic

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz as az

mpl.use("Agg")

NAMES = ("oak", "birch", "pine")
ROWS = tuple("abcdefghij")
SITES = tuple(f"site {i}" for i in range(5))
FRAME = pd.DataFrame(DESIGN, columns=NAMES, index=ROWS)
MANY = pd.DataFrame(TARGETS.T, index=ROWS, columns=SITES)
DATA = {"design": FRAME, "targets": MANY}


def fit(target=MANY, design=FRAME, **options):
    return balson.fit(jax.random.key(0), balson.linear_problem(design, target, **options), FAST["is"])


@pytest.fixture(scope="module")
def known():
    return fit(noise=0.5)


@pytest.fixture(scope="module")
def estimated():
    return fit()


def opened(tree):
    return az.InferenceData.from_datatree(tree)


# --- data sets -------------------------------------------------------------------------------------------------------


def test_dimensions_and_coordinates(known, estimated):
    found = known.to_xarray(level=0.8)
    assert found["mean"].dims == ("problem", "component")
    assert float(found["mean"].sel(problem="site 2", component="pine")) == float(known.mean[2, 2])
    np.testing.assert_array_equal(found["hdi_high"], known.hdi(0.8)[1])
    np.testing.assert_array_equal(found["sparse_mode"], known.theta)
    np.testing.assert_array_equal(found["log_evidence"], known.log_evidence)
    assert found.attrs["constraint"] == "equal"
    assert "noise_mean" not in found
    np.testing.assert_allclose(estimated.to_xarray()["noise_mean"], estimated.noise.mean)


def test_status_explains_itself(known):
    bad = dataclasses.replace(known, status=np.array([0, 5, 0, 0, 8], np.int32))
    status = bad.to_xarray()["status"]
    masks, meanings = status.attrs["flag_masks"], status.attrs["flag_meanings"].split()
    words = [name for mask, name in zip(masks, meanings, strict=True) if int(status[1]) & mask]
    assert words == ["LOW_ESS", "BUDGET"]


@pytest.mark.slow
def test_other_shapes(known):
    square = known[np.array([[0, 1], [2, 3]])].to_xarray()
    assert square["mean"].dims == ("problem_0", "problem_1", "component")
    one = known[3].to_xarray()
    assert one["mean"].dims == ("component",)
    assert str(one["problem"].values) == "site 3"
    assert jax.tree.map(lambda leaf: leaf, known).to_xarray()["component"].values.tolist() == [0, 1, 2]
    dated = fit(MANY.set_axis(pd.date_range("2020-01-01", periods=5), axis=1), noise=0.5).to_xarray()
    assert float(dated["ess"].sel(problem="2020-01-02")) == float(known.ess[1])


@pytest.mark.slow
def test_slack():
    slack = fit(noise=0.5, constraint="at_most")
    np.testing.assert_array_equal(slack.to_xarray()["slack_mean"], slack.slack.mean)
    tree = slack.to_datatree(200)
    whole = tree["posterior"]["theta"].sum("component") + tree["posterior"]["slack"]
    np.testing.assert_allclose(whole, 1, rtol=1e-5)


@pytest.mark.slow
def test_nuisance_coefficients():
    shifted = fit(noise=0.5, intercept=True)
    found = shifted.to_xarray()["nuisance_mean"].sel(nuisance="intercept")
    np.testing.assert_array_equal(found, shifted.nuisance.mean[:, 0])
    tree = shifted.to_datatree(200, **DATA)
    drawn, index = tree["posterior"]["nuisance_coefficient"], tree["sample_stats"]["kept_draw"]
    assert drawn.dims == ("chain", "draw", "problem", "nuisance")
    np.testing.assert_array_equal(drawn[0, :, 3], shifted.nuisance.draws[3][index.values[0, :, 3]])
    assert "log_likelihood" not in tree.children
    with pytest.raises(ValueError, match="passed for log_likelihood, but the problem had nuisance columns; leave"):
        shifted.to_datatree(**DATA, noise=0.5)


# --- trees -----------------------------------------------------------------------------------------------------------


def test_systematic_resampling_takes_each_draw_as_often_as_its_weight_says():
    rng = np.random.default_rng(0)
    weights = np.concatenate([rng.dirichlet(np.full(40, 0.2), (2, 3)), np.zeros((2, 3, 2))], -1)
    index = systematic(weights, 1000, rng)
    assert index.shape == (2, 3, 1000)
    counts = np.stack([np.bincount(own, minlength=42) for own in index.reshape(6, -1)])
    assert (np.abs(counts - 1000 * weights.reshape(6, -1)) < 1 + 1e-9).all()
    assert (np.diff(index[0, 0]) < 0).any()  # shuffled
    assert systematic(np.full((1, 4), np.nan), 8, rng).max() == 3


def test_draws_and_weights_tell_the_posterior(known):
    tree = known.to_datatree(4000)
    theta = tree["posterior"]["theta"]
    assert theta.dims == ("chain", "draw", "problem", "component")
    assert theta.shape == (1, 4000, 5, 3)
    own = tree["balson"]
    weighted = (own["weights"] * own["kept_theta"]).sum("kept_draw")
    # Systematic resampling is off by at most one of n copies of each draw: far less than chance would.
    spread = np.asarray(known.draws).std(-2)
    np.testing.assert_array_less(np.abs(theta.mean(("chain", "draw")) - weighted), 0.02 * spread)
    # Kept draws are 512 of all.
    error = known.std * np.sqrt(np.square(np.asarray(known.draw_weights)).sum(-1))[:, None]
    np.testing.assert_array_less(np.abs(weighted - known.mean), 4 * np.asarray(error))
    np.testing.assert_array_equal(own["ess"], known.ess)
    index = tree["sample_stats"]["kept_draw"].values[0, :, 2]
    np.testing.assert_array_equal(known.draws[2][index], theta.values[0, :, 2])


def test_the_key_decides(known):
    first, again = (known.to_datatree(100)["posterior"]["theta"].values for _ in range(2))
    other = known.to_datatree(100, key=jax.random.key(5))["posterior"]["theta"].values
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_arviz_opens_it(known):
    data = opened(known.to_datatree(400, **DATA, noise=0.5))
    assert {"posterior", "sample_stats", "log_likelihood", "observed_data", "constant_data", "balson"} <= set(data)
    table = az.summary(data, kind="stats")
    assert table.index[0] == "theta[site 0, oak]"
    np.testing.assert_allclose(table["mean"].to_numpy().reshape(5, 3), known.mean, atol=0.03)
    axes = az.plot_forest(data)
    assert len(axes[0].get_yticklabels()) == 15
    mpl.pyplot.close("all")
    assert data.posterior.attrs["inference_library"] == "balson_jax"
    assert "resampled" in data.posterior.attrs["sampling"]
    assert pd.Timestamp(data.posterior.attrs["created_at"]).year >= 2024
    np.testing.assert_array_equal(data.observed_data["target"].sel(problem="site 1"), TARGETS[1])
    np.testing.assert_array_equal(data.constant_data["design"].sel(row="c", component="oak"), DESIGN[2, 0])


def test_the_log_likelihood_of_known_noise(known):
    levels = np.linspace(0.3, 0.7, 10)
    rows = fit(noise=levels)
    for found, noise in ((known, 0.5), (rows, pd.Series(levels, ROWS)[::-1])):
        tree = found.to_datatree(50, **DATA, noise=noise)
        theta = tree["posterior"]["theta"].values[0].astype(np.float64)
        scale = 0.5 if np.ndim(noise) == 0 else levels
        expected = stats.norm(theta @ DESIGN.T, scale).logpdf(TARGETS)
        np.testing.assert_allclose(tree["log_likelihood"]["target"].values[0], expected, rtol=1e-4, atol=1e-4)
        assert "noise" not in tree["posterior"]
    assert "log_likelihood" not in known.to_datatree(50, **DATA).children  # the level was given, and not again


def test_the_log_likelihood_of_an_estimated_noise(estimated):
    """Levels are drawn with theta, and have the moments of the posterior of the noise."""
    tree = estimated.to_datatree(4000, **DATA)
    level = tree["posterior"]["noise"]
    error = np.asarray(estimated.noise.std) * np.sqrt(1 / 4000 + np.square(np.asarray(estimated.draw_weights)).sum(-1))
    np.testing.assert_array_less(np.abs(level.mean(("chain", "draw")) - estimated.noise.mean), 4 * error)
    np.testing.assert_allclose(level.std(("chain", "draw")), estimated.noise.std, rtol=0.15)
    theta, own = tree["posterior"]["theta"].values[0].astype(np.float64), level.values[0, ..., None]
    expected = stats.norm(theta @ DESIGN.T, own).logpdf(TARGETS)
    np.testing.assert_allclose(tree["log_likelihood"]["target"].values[0], expected, rtol=1e-3, atol=1e-3)


def test_comparison_by_left_out_rows(estimated):
    """A design without the material that makes up most of the target predicts rows worse."""
    poor = fit(design=FRAME.assign(birch=FRAME["oak"] + 0.1))
    trees = {
        "good": estimated.to_datatree(500, **DATA),
        "poor": poor.to_datatree(500, design=FRAME.assign(birch=FRAME["oak"] + 0.1), targets=MANY),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten rows leave weights with heavy tails
        table = az.compare({name: opened(tree) for name, tree in trees.items()})
    assert table.index[0] == "good"
    assert table.loc["poor", "elpd_diff"] > 3 * table.loc["poor", "dse"]


def test_rows_that_were_not_fitted_have_no_likelihood(known, estimated):
    weighted = fit(weights=np.linspace(0.2, 3, 10))
    assert "log_likelihood" not in weighted.to_datatree(50, **DATA).children
    prior = fit(noise=balson.InverseGamma(5.0, 10.0))
    assert "log_likelihood" not in prior.to_datatree(50, **DATA).children
    assert "log_likelihood" in prior.to_datatree(50, **DATA, noise=balson.InverseGamma(5.0, 10.0)).children
    with pytest.raises(ValueError, match="level of the noise is not that of the fit"):
        prior.to_datatree(50, **DATA, noise=balson.InverseGamma(5.0, 1.0))
    with pytest.raises(ValueError, match="residuals are not those of the fit"):
        known.to_datatree(50, design=FRAME, targets=MANY + 1, noise=0.5)
    with pytest.raises(ValueError, match="the fit counted other rows"):
        known.to_datatree(50, design=FRAME, targets=MANY.where(MANY.max() > MANY), noise=0.5)
    with pytest.raises(ValueError, match="rows of correlated noise are not independent"):
        known.to_datatree(50, **DATA, noise=balson.Correlated(np.eye(10)))
    with pytest.raises(ValueError, match="this fit estimated the noise"):
        estimated.to_datatree(50, **DATA, noise=0.5)
    with pytest.raises(ValueError, match="this fit was given the noise"):
        known.to_datatree(50, **DATA, noise="estimate")


@pytest.mark.slow
def test_gaps_have_no_likelihood():
    gappy = MANY.mask(MANY.max() == MANY)
    tree = fit(gappy, missing="drop").to_datatree(50, design=FRAME, targets=gappy)
    values = tree["log_likelihood"]["target"].values[0]
    np.testing.assert_array_equal(np.isnan(values), np.broadcast_to(gappy.isna().to_numpy().T, values.shape))


def test_tables_in_another_order(known):
    """Rows and columns are told by their names, whatever their order."""
    turned = FRAME.loc[list(ROWS[::-1]), list(NAMES[::-1])]
    first = known.to_datatree(30, **DATA, noise=0.5)
    other = known.to_datatree(30, design=turned, targets=MANY, noise=0.5)
    assert other["constant_data"]["row"].values.tolist() == list(ROWS[::-1])
    for group, name in (("constant_data", "design"), ("observed_data", "target"), ("log_likelihood", "target")):
        np.testing.assert_allclose(other[group][name].sel(row=list(ROWS)), first[group][name], rtol=1e-6)


def test_one_problem_and_several_axes(known):
    one = known[1].to_datatree(60, design=FRAME, targets=MANY["site 1"], noise=0.5)
    assert one["posterior"]["theta"].shape == (1, 60, 3)
    assert one["log_likelihood"]["target"].dims == ("chain", "draw", "row")
    assert len(az.summary(opened(one), kind="stats")) == 3
    square = known[np.array([[0, 1], [2, 3]])].to_datatree(60, design=DESIGN, targets=TARGETS[:4].reshape(2, 2, 10))
    assert square["posterior"]["theta"].dims == ("chain", "draw", "problem_0", "problem_1", "component")
    assert known[:0].to_datatree(60)["posterior"]["theta"].shape == (1, 60, 0, 3)


def test_a_file_of_the_tree(estimated, tmp_path):
    tree = estimated.to_datatree(50, **DATA)
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = az.from_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    np.testing.assert_array_equal(data.posterior["theta"], tree["posterior"]["theta"])
    np.testing.assert_array_equal(data.balson["status"], estimated.status)


def test_bad_arguments(known, monkeypatch):
    bare = dataclasses.replace(known, draws=known.draws[:, :0], draw_weights=known.draw_weights[:, :0])
    with pytest.raises(ValueError, match="to_datatree needs kept draws; none were kept"):
        bare.to_datatree()
    assert np.isnan(bare.to_xarray()["hdi_low"]).all()
    with pytest.raises(ValueError, match="num_draws=0 must be at least 1"):
        known.to_datatree(0)
    with pytest.raises(ValueError, match=r"design has shape \(10, 2\); pass the \(N, 3\)"):
        known.to_datatree(design=DESIGN[:, :2])
    with pytest.raises(ValueError, match=r"targets has shape \(2, 10\), and posterior a batch of shape \(5,\)"):
        known.to_datatree(targets=TARGETS[:2])
    with pytest.raises(ValueError, match="noise goes with design and targets"):
        known.to_datatree(noise=0.5)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"to_datatree needs xarray; .*'balson_jax\[arviz\]'"):
        known.to_datatree()
