"""Pictures: what they show is what the posterior holds, and they can be read in grey."""

from __future__ import annotations

import dataclasses

import jax
import matplotlib
import matplotlib.figure
import matplotlib.pyplot
import numpy as np
import pytest
from cases import DESIGN, FAST, TARGETS

import balson_jax as balson
from balson_jax import plot
from balson_jax.plot import canvas

matplotlib.use("Agg")
NAMES = ["soil", "tree", "water"]


@pytest.fixture(scope="module")
def batch():
    problem = balson.linear_problem(DESIGN, TARGETS, noise=0.5)
    found = balson.fit(jax.random.key(0), problem, FAST["is"])
    return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module")
def one(batch):
    return batch[0]


@pytest.fixture
def figure():
    return matplotlib.figure.Figure(layout="constrained")


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def points(ax, label=None):
    """Return the points of lines that have only markers."""
    return [np.stack(line.get_data()) for line in ax.lines if line.get_linestyle() == "None" and len(line.get_xdata())]


def test_forest_shows_means_intervals_and_modes(one):
    ax = plot.forest(one, level=0.8, names=NAMES)
    mean, mode = points(ax)
    np.testing.assert_allclose(mean, [one.mean, [0, 1, 2]])
    np.testing.assert_allclose(mode[0], one.theta)
    segments = np.array(ax.collections[0].get_segments())
    np.testing.assert_allclose(segments[:, :, 0].T, one.hdi(0.8), rtol=1e-6)
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES
    assert ax.get_ylim() == (2.5, -0.5)  # the first component is on top


def test_forest_of_several_problems_uses_different_markers(batch):
    ax = plot.forest(batch)
    lines = [line for line in ax.lines if len(line.get_xdata()) == 3]
    assert len({line.get_marker() for line in lines}) == 5
    np.testing.assert_allclose([line.get_xdata() for line in lines], batch.mean)
    np.testing.assert_allclose(points(plot.forest(batch, problem=3))[0][0], batch.mean[3])
    many = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), batch)
    with pytest.raises(ValueError, match=r"batch of shape \(10,\); pass forest\(..., problem=0\)"):
        plot.forest(many)


def test_forest_without_draws_takes_central_intervals(one):
    bare = dataclasses.replace(one, draws=one.draws[:0], draw_weights=one.draw_weights[:0])
    ax = plot.forest(bare)
    np.testing.assert_allclose(np.array(ax.collections[0].get_segments())[:, :, 0].T, bare.interval(0.9), rtol=1e-5)
    assert "90 % interval" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_names_come_from_the_argument_the_posterior_or_numbers(one):
    assert canvas.labels(one, None) == ["theta[0]", "theta[1]", "theta[2]"]
    assert canvas.labels(one, NAMES) == NAMES
    with pytest.raises(ValueError, match="names has 2 entries; pass one for each of the 3 components"):
        plot.forest(one, names=NAMES[:2])


def test_ternary_puts_pure_shares_in_the_corners(one, batch):
    pure = dataclasses.replace(batch[:3], mean=np.eye(3))
    ax = plot.ternary(pure, names=NAMES)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), [[0, 0], [1, 0], [0.5, 0.75**0.5]], atol=1e-12)
    ax = plot.ternary(one)
    assert len(ax.collections[0].get_offsets()) == 512
    x, y = points(ax)[0]
    np.testing.assert_allclose(y, one.mean[2] * 0.75**0.5, rtol=1e-6)
    np.testing.assert_allclose(x, one.mean[1] + 0.5 * one.mean[2], rtol=1e-6)
    four = dataclasses.replace(one, mean=np.full(4, 0.25))
    with pytest.raises(ValueError, match="ternary needs three nonnegative shares; this posterior has 4"):
        plot.ternary(four)


def test_maps_show_lines_and_samples(batch, figure):
    status = np.array([0, 1, 3, 0], np.int32)
    four = dataclasses.replace(batch[:4], status=status)
    axes = plot.maps(four, (2, 2), names=NAMES, figure=figure)
    assert axes.shape == (4, 2)
    for k in range(3):
        np.testing.assert_allclose(axes[k, 0].images[0].get_array(), four.mean[:, k].reshape(2, 2))
        np.testing.assert_allclose(axes[k, 1].images[0].get_array(), four.std[:, k].reshape(2, 2))
        assert axes[k, 0].get_title() == f"{NAMES[k]}: mean"
    np.testing.assert_array_equal(axes[3, 0].images[0].get_array(), [[0, 1], [2, 0]])
    figure.draw_without_rendering()
    words = [text.get_text() for text in figure.axes[-1].get_yticklabels()]
    assert words == ["OK", "LOW_ESS", "LOW_ESS\nHIGH_PARETO_K"]
    assert plot.maps(four, (2, 2), most=1).shape == (2, 2)
    with pytest.raises(ValueError, match=r"maps needs a batch \(H, W\); this one has shape \(4,\)"):
        plot.maps(four)
    with pytest.raises(ValueError, match="has not as many pixels"):
        plot.maps(four, (2, 3))


def test_maps_of_large_images_are_thinned_and_gaps_are_empty(batch, figure):
    index = np.zeros(1500 * 2, int)
    large = jax.tree.map(lambda leaf: leaf[index], batch)
    large = dataclasses.replace(large, mean=np.where(np.arange(3000)[:, None] < 2, np.nan, large.mean))
    shown = plot.maps(large, (1500, 2), figure=figure)[0, 0].images[0].get_array()
    assert shown.shape == (500, 1)
    assert np.isnan(np.ma.filled(shown, np.nan)[0, 0])


def test_predictive_bands_hold_the_curve(one):
    x = np.linspace(900, 400, 10)  # in falling order
    ax = plot.predictive(one, DESIGN, TARGETS[0], x, noise=0.5)
    mean = next(line for line in ax.lines if line.get_label() == "posterior mean")
    np.testing.assert_allclose(mean.get_xdata(), x[::-1])
    np.testing.assert_allclose(mean.get_ydata(), (DESIGN @ one.mean)[::-1], rtol=1e-5)
    data = next(line for line in ax.lines if line.get_label() == "data")
    np.testing.assert_allclose(data.get_data(), [x, TARGETS[0]])
    around, curves = (band.get_paths()[0].get_extents() for band in ax.collections)
    assert around.y0 < curves.y0 < curves.y1 < around.y1
    with pytest.raises(ValueError, match=r"target has shape \(5, 10\)"):
        plot.predictive(one, DESIGN, TARGETS)


def test_predictive_takes_one_problem_of_a_batch(batch):
    ax = plot.predictive(batch, DESIGN, TARGETS, problem=2, noise=0.5)
    data = next(line for line in ax.lines if line.get_label() == "data")
    np.testing.assert_allclose(data.get_ydata(), TARGETS[2])
    with pytest.raises(ValueError, match=r"pass predictive\(..., problem=0\)"):
        plot.predictive(batch, DESIGN, TARGETS)


def test_residuals(one, batch, figure):
    by_row, normal = plot.residuals(one, DESIGN, TARGETS[0], figure=figure)
    left = TARGETS[0] - DESIGN @ one.mean
    drawn = next(line for line in by_row.lines if len(line.get_xdata()) == 10)
    np.testing.assert_allclose(drawn.get_ydata(), left, rtol=1e-5)
    quantiles = points(normal)[0]
    np.testing.assert_allclose(quantiles[1][[0, -1]], np.quantile(left / np.sqrt((left**2).mean()), [0.05, 0.95]))
    assert quantiles[0][0] == pytest.approx(-1.645, abs=1e-3)
    by_row, _ = plot.residuals(batch, DESIGN, TARGETS)
    median = next(line for line in by_row.lines if line.get_label() == "median")
    np.testing.assert_allclose(median.get_ydata(), np.median(TARGETS - batch.mean @ DESIGN.T, 0), rtol=1e-4)
    with pytest.raises(ValueError, match=r"pass \(5, 10\)"):
        plot.residuals(batch, DESIGN, TARGETS[0])


def test_pairs(one, figure):
    axes = plot.pairs(one, names=NAMES, figure=figure)
    assert axes.shape == (3, 3)
    np.testing.assert_allclose(axes[2, 0].collections[0].get_offsets(), one.draws[:, [0, 2]])
    assert [ax.get_xlabel() for ax in axes[-1]] == NAMES
    assert plot.pairs(one, most=2).shape == (2, 2)
    with pytest.raises(ValueError, match="pairs needs kept draws"):
        plot.pairs(dataclasses.replace(one, draws=one.draws[:0]))


def test_ladder_counts_methods(batch, one, figure):
    mixed = dataclasses.replace(batch, methods=("is", "tg"), choice=np.array([0, 1, 1, 0, 1]))
    counts, draws = plot.ladder(mixed, figure=figure)
    assert [bar.get_width() for bar in counts.patches] == [2, 3]
    assert [label.get_text() for label in counts.get_yticklabels()] == ["is", "tg"]
    lines = [line for line in draws.lines if line.get_label() in ("is", "tg")]
    assert len({line.get_marker() for line in lines}) == 2
    np.testing.assert_allclose(np.sort(lines[1].get_ydata()), np.sort(batch.ess[[1, 2, 4]]), rtol=1e-6)
    with pytest.raises(ValueError, match="ladder shows a batch"):
        plot.ladder(one)


def test_a_missing_matplotlib_is_named():
    with pytest.raises(ImportError, match=r"balson_jax.plot needs matplotlib; .*balson_jax\[cli\]"):
        canvas.need("matplotlib.no_such_part")
