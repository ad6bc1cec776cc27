"""Names: read from users' tables, aligned, kept by fits, printed; and no part of any program."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from cases import DESIGN, FAST, TARGETS, num_programs

import balson_jax as balson
from balson_jax import labels

STATES = ("Utah", "Nevada", "New Mexico")
ROWS = tuple("abcdefghij")
PIXELS = tuple(f"pixel {i}" for i in range(len(TARGETS)))
FRAME = pd.DataFrame(DESIGN, columns=STATES, index=ROWS)
SERIES = pd.Series(TARGETS[0], index=ROWS, name="y")
MANY = pd.DataFrame(TARGETS.T, index=ROWS, columns=PIXELS)
SHUFFLED = list("jbidcgaefh")
KEY = jax.random.key(0)


def same(problem, expected):
    """Two problems have the same numbers."""
    for found, wanted in zip(jax.tree.leaves(problem), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(found, wanted)


def array_problem(target=TARGETS[0], **options):
    return balson.linear_problem(DESIGN, target, **options)


@pytest.fixture(scope="module")
def batch():
    return balson.fit(KEY, balson.linear_problem(FRAME, MANY, noise=0.5), FAST["is"])


@pytest.fixture(scope="module")
def single():
    return balson.fit(KEY, balson.linear_problem(FRAME, SERIES, noise=0.5), FAST["is"])


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [SERIES, SERIES[SHUFFLED], TARGETS[0], SERIES.reset_index(drop=True)])
def test_pandas_one_target(target):
    problem = balson.linear_problem(FRAME, target)
    same(problem, array_problem())
    assert problem.names == STATES
    assert problem.labels == labels.Labels(STATES, ROWS, None)


@pytest.mark.parametrize("target", [MANY, MANY.loc[SHUFFLED]])
def test_a_column_per_target_is_a_batch(target):
    problem = balson.linear_problem(FRAME, target)
    same(problem, array_problem(TARGETS))
    assert problem.labels.problems == PIXELS


def test_polars():
    design, target = pl.DataFrame(DESIGN, schema=STATES), pl.DataFrame(TARGETS.T, schema=PIXELS)
    problem = balson.linear_problem(design, target)
    same(problem, array_problem(TARGETS))
    assert problem.labels == labels.Labels(STATES, None, PIXELS)
    same(balson.linear_problem(design, pl.Series("y", TARGETS[0])), array_problem())


def test_xarray_rows_are_the_dimension_that_both_have():
    design = xr.DataArray(DESIGN, dims=("band", "material"), coords={"band": list(ROWS), "material": list(STATES)})
    cube = xr.DataArray(TARGETS.T, dims=("band", "pixel"), coords={"band": list(ROWS), "pixel": list(PIXELS)})
    problem = balson.linear_problem(design.transpose(), cube.sel(band=SHUFFLED))
    same(problem, array_problem(TARGETS))
    assert problem.labels == labels.Labels(STATES, ROWS, PIXELS)
    scene = xr.DataArray(TARGETS[:4].reshape(2, 2, 10), dims=("y", "x", "band"), coords={"band": list(ROWS)})
    problem = balson.linear_problem(design, scene.transpose("band", "y", "x"))
    same(problem, array_problem(TARGETS[:4].reshape(2, 2, 10)))
    assert problem.labels.problems is None
    with pytest.raises(ValueError, match=r"design has dimensions \('y', 'x', 'band'\); pass two"):
        balson.linear_problem(scene, scene)
    with pytest.raises(ValueError, match=r"dimensions \('band', 'material'\) and target \('wave',\); exactly one"):
        balson.linear_problem(design, xr.DataArray(TARGETS[0], dims="wave"))


def test_names_by_argument():
    assert array_problem(names=STATES).names == STATES
    assert balson.linear_problem(FRAME, SERIES, names=["a", "b", "c"]).names == ("a", "b", "c")
    problem = balson.model_problem(lambda theta, x: x @ theta, DESIGN, MANY, 3, noise=0.5, names=STATES)
    assert problem.names == STATES
    assert problem.labels.problems == PIXELS
    assert problem.batch_shape == (5,)
    two_outputs = pd.DataFrame(TARGETS[:2].T)
    model = balson.model_problem(lambda theta, x: (x @ theta)[:, None] * np.ones(2), DESIGN, two_outputs, 3)
    assert model.batch_shape == ()
    assert array_problem().names is None


def test_integer_rows_align_only_where_they_are_names():
    """A shuffled frame keeps its numbers as an index; numbers that just count are no names."""
    numbered = pd.DataFrame(DESIGN, columns=STATES)
    order = [3, 1, 0, 2, 9, 8, 7, 6, 5, 4]
    expected = balson.linear_problem(DESIGN[order], TARGETS[0][order])
    same(balson.linear_problem(numbered.iloc[order], pd.Series(TARGETS[0])), expected)
    problem = balson.linear_problem(numbered, pd.Series(TARGETS[0])[order])
    same(problem, array_problem())
    assert problem.labels.rows == tuple(range(10))
    years = pd.RangeIndex(1970, 1980)
    problem = balson.linear_problem(numbered.set_index(years), pd.Series(TARGETS[0], years)[::-1])
    same(problem, array_problem())
    assert problem.labels.rows == tuple(range(1970, 1980))
    same(balson.linear_problem(numbered.set_index(years), pd.Series(TARGETS[0])), array_problem())
    assert balson.linear_problem(pd.DataFrame(DESIGN), SERIES).names is None


def test_nullable_numbers_and_mixed_columns():
    mixed = pd.DataFrame({"a": pd.array([1, 2, 3, 4], "Int64"), "b": [True, False, True, True], "c": [0.5, 1, 2, 3]})
    target = pd.Series([0.1, None, 0.3, 0.2], dtype="Float64")
    problem = balson.linear_problem(mixed, target, missing="drop")
    same(problem, balson.linear_problem(mixed.to_numpy(float), np.array([0.1, np.nan, 0.3, 0.2]), missing="drop"))


def test_options_follow_the_rows():
    weights = pd.Series(np.arange(1.0, 11), index=ROWS)
    mask = pd.DataFrame(np.arange(50).reshape(10, 5) % 7 > 0, index=ROWS, columns=PIXELS)
    levels = pd.Series(np.linspace(1, 2, 10), index=ROWS)
    trend = pd.DataFrame({"trend": np.linspace(0, 1, 10)}, index=ROWS)
    prior = pd.Series([3.0, 1.0, 2.0], index=("New Mexico", "Utah", "Nevada"))
    problem = balson.linear_problem(
        FRAME,
        MANY,
        weights=weights[SHUFFLED],
        mask=mask.loc[SHUFFLED, list(PIXELS[::-1])],
        noise=levels[::-1],
        nuisance=trend.loc[SHUFFLED],
        prior=prior,
        total=pd.Series(np.arange(1.0, 6), index=PIXELS)[::-1],
    )
    expected = array_problem(
        TARGETS,
        weights=weights.to_numpy(),
        mask=mask.to_numpy().T,
        noise=levels.to_numpy(),
        nuisance=trend.to_numpy(),
        prior=[1.0, 2.0, 3.0],
        total=np.arange(1.0, 6),
    )
    same(problem, expected)


def test_an_uncertain_design_has_the_names_of_its_mean():
    problem = balson.linear_problem(balson.UncertainDesign(FRAME, std=0.1), SERIES[SHUFFLED], noise=0.5)
    assert problem.names == STATES
    same(problem, balson.linear_problem(balson.UncertainDesign(DESIGN, std=0.1), TARGETS[0], noise=0.5))


TEXT = FRAME.assign(Nevada="high")
OTHER_ROWS = pd.Series(np.ones(10), index=[*"abc", *"1234567"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"design": TEXT}, "column 'Nevada' of design holds 'high' .*convert that column, or drop it"),
        ({"design": pl.DataFrame({"a": [1.0, 2], "b": ["x", "y"]})}, "column 'b' of design holds 'x'"),
        ({"target": pd.Series(["x"] * 10, index=ROWS)}, "target holds 'x'"),
        (
            {"target": OTHER_ROWS},
            "rows of target and design have different names; only in design: 'd', 'e', 'f', 'g', 'h' ... and 2 more; "
            "only in target: '1', '2', '3', '4', '5' ... and 2 more",
        ),
        ({"target": SERIES[:4]}, "only in design: 'e', 'f', 'g', 'h', 'i' ... and 1 more$"),
        ({"design": FRAME.set_axis([*"aabcdefghi"])}, "design has the name of a row twice: 'a'"),
        ({"design": FRAME.set_axis(["a", "b", "a"], axis=1)}, "design has the name of a column twice: 'a'"),
        ({"target": MANY.set_axis([*"aabbc"], axis=1)}, "target has the name of a column twice: 'a', 'b'"),
        ({"target": MANY.reset_index(drop=True).T}, "target has 5 rows, and design 10; .* column for each.*target.T"),
        ({"weights": OTHER_ROWS}, "entries of weights and the problem have different names; only in the problem: 'd'"),
        ({"prior": pd.Series([1.0, 2, 3], ["Utah", "Nevada", "Texas"])}, "only in prior: 'Texas'"),
        ({"names": ("a", "b")}, "names has 2 entries, and the problem 3 parameters"),
        ({"names": ("a", "b", "b")}, "names has an entry twice: 'b'"),
        ({"names": ("a", "b", 3)}, "names holds 3, a int; pass text"),
        ({"names": "abc"}, "names='abc'; pass 3 texts"),
    ],
)
def test_bad_tables(arguments, message):
    with pytest.raises(ValueError, match=message):
        balson.linear_problem(**{"design": FRAME, "target": SERIES, **arguments})


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_fits_and_selections_keep_names(batch, single):
    assert batch.labels == labels.Labels(STATES, ROWS, PIXELS)
    assert single.labels == labels.Labels(STATES, ROWS, None)
    assert batch[3].labels == labels.Labels(STATES, ROWS, PIXELS[3:4])
    assert batch[1:3].labels.problems == PIXELS[1:3]
    assert batch[np.array([True, False, False, False, True])].labels.problems == (PIXELS[0], PIXELS[4])
    assert batch[np.array([[2, 1], [0, 4]])].labels == labels.Labels(STATES, ROWS, None)


def test_a_component_by_its_name(batch, single):
    found = single["Nevada"]
    assert found.name == "Nevada"
    for own, whole in ((found.mean, single.mean), (found.std, single.std), (found.draws, single.draws)):
        np.testing.assert_array_equal(own, whole[..., 1])
    np.testing.assert_allclose(found.hdi(0.8), [end[1] for end in single.hdi(0.8)])
    np.testing.assert_allclose(found.interval(0.8), [end[1] for end in single.interval(0.8)])
    assert batch["Utah"].mean.shape == (5,)
    np.testing.assert_allclose(batch["New Mexico"].hdi(), [end[:, 2] for end in batch.hdi()])
    with pytest.raises(ValueError, match="no component 'Nevade'; did you mean 'Nevada'"):
        single["Nevade"]
    with pytest.raises(ValueError, match="no component 'x'; the names are 'Utah', 'Nevada', 'New Mexico'"):
        single["x"]
    bare = dataclasses.replace(single, draws=single.draws[:0], draw_weights=single.draw_weights[:0])
    with pytest.raises(ValueError, match="the components have no names"):
        bare["Utah"]
    with pytest.raises(ValueError, match="hdi needs kept draws; none were kept"):
        bare.labelled(single.labels)["Utah"].hdi()


def test_other_targets_keep_the_names_of_components():
    problem = balson.linear_problem(FRAME, SERIES, noise=0.5)
    more = problem.with_targets(MANY.loc[SHUFFLED])
    assert more.labels == labels.Labels(STATES, ROWS, PIXELS)
    same(more, problem.with_targets(TARGETS))
    assert problem.with_targets(TARGETS).labels == labels.Labels(STATES, ROWS, None)
    with pytest.raises(ValueError, match="rows of target and design have different names"):
        problem.with_targets(OTHER_ROWS)


def test_files_keep_names(batch, tmp_path):
    batch.save(tmp_path / "posterior.npz")
    loaded = balson.Posterior.load(tmp_path / "posterior.npz")
    assert loaded.labels == labels.Labels(STATES, None, PIXELS)
    dates = dataclasses.replace(batch).labelled(labels.Labels(problems=tuple(pd.date_range("2020-01-01", periods=5))))
    dates.save(tmp_path / "dates.npz")
    assert balson.Posterior.load(tmp_path / "dates.npz").labels.problems[1] == "2020-01-02 00:00:00"


def test_predictions_take_columns_by_name(single):
    expected = single.predict(DESIGN)
    np.testing.assert_array_equal(single.predict(FRAME[list(STATES[::-1])]).mean, expected.mean)
    with pytest.raises(
        ValueError,
        match=r"columns of design and the posterior .*; only in the posterior: 'Utah'; only in design: 'Texas'",
    ):
        single.predict(FRAME.rename(columns={"Utah": "Texas"}))


def test_streams_keep_names(batch, tmp_path):
    def stream(design, targets, **options):
        options = {"chunk": 3, "progress": False, "check": False, "noise": 0.5, **options}
        return balson.fit_stream(KEY, design, targets, FAST["is"], **options)

    found = stream(FRAME, MANY.loc[SHUFFLED], out=tmp_path)
    assert found.labels == labels.Labels(STATES, ROWS, PIXELS)
    np.testing.assert_allclose(found.mean, batch.mean, rtol=1e-4)
    again = stream(DESIGN, TARGETS, out=tmp_path, names=["a", "b", "c"])  # nothing is computed again
    assert again.names == ("a", "b", "c")
    lazy = xr.DataArray(TARGETS, dims=("pixel", "band"), coords={"band": list(ROWS), "pixel": list(PIXELS)})
    assert stream(FRAME, lazy).labels == labels.Labels(STATES, ROWS, PIXELS)
    with pytest.raises(ValueError, match="targets has its rows in another order than design"):
        stream(FRAME, lazy.sel(band=SHUFFLED))
    problem = balson.linear_problem(FRAME, SERIES, noise=0.5)
    found = balson.fit_stream(KEY, problem, MANY, FAST["is"], chunk=3, progress=False, check=False)
    assert found.labels == labels.Labels(STATES, ROWS, PIXELS)


@pytest.mark.slow
def test_learning_keeps_names():
    rng = np.random.default_rng(0)
    targets = pd.DataFrame(DESIGN @ rng.dirichlet(np.ones(3), 8).T + 0.3 * rng.normal(size=(10, 8)), index=ROWS)
    options = {"noise": "rows", "rounds": 1, "method": FAST["is"], "progress": False}
    learned = balson.learn(KEY, FRAME, targets.loc[SHUFFLED], **options)
    assert learned.problem.labels == labels.Labels(STATES, ROWS, None)
    assert learned.problem_for(MANY).labels == labels.Labels(STATES, ROWS, PIXELS)
    same(learned.problem, balson.learn(KEY, DESIGN, targets.to_numpy().T, **options).problem)


def test_tuning_and_checking_keep_rows_in_order(batch):
    problem = balson.linear_problem(FRAME, MANY, noise=0.5)
    tuned = balson.tune(KEY, problem, total=[0.8, 1.0], method=FAST["is"])
    assert tuned.posterior.labels == tuned.problem.labels == batch.labels
    found = balson.check(FRAME, MANY.loc[SHUFFLED], batch, noise=0.5)
    np.testing.assert_allclose(found.residuals, balson.check(DESIGN, TARGETS, batch, noise=0.5).residuals)


# --- programs --------------------------------------------------------------------------------------------------------


def test_other_names_compile_nothing(batch):
    seconds, on = [], [True]

    def listen(event, duration, **_):
        if on[0] and event.endswith("backend_compile_duration"):
            seconds.append(duration)

    first = balson.linear_problem(FRAME, MANY, noise=0.5)
    known = num_programs()
    jax.monitoring.register_event_duration_secs_listener(listen)
    other = balson.linear_problem(FRAME.set_axis(["x", "y", "z"], axis=1), MANY.add_prefix("a "), noise=0.5)
    found = balson.fit(KEY, other, FAST["is"])
    plain = balson.fit(KEY, array_problem(TARGETS, noise=0.5), FAST["is"])
    on[0] = False
    assert not seconds
    assert num_programs() == known
    np.testing.assert_array_equal(found.mean, plain.mean)
    # One structure for all names, inside a user's jit too.
    total = jax.jit(lambda problem, posterior: problem.total.sum() + posterior.mean.sum())
    for pair in ((first, batch), (other, found), (array_problem(TARGETS, noise=0.5), plain)):
        total(*pair)
    assert total._cache_size() == 1


def test_transformations_drop_names_without_a_word(batch):
    assert jax.tree.map(lambda leaf: leaf, batch).names is None
    assert jax.jit(lambda posterior: posterior)(batch).names is None
    assert jax.jit(lambda posterior: posterior[0].mean)(batch).shape == (3,)


# --- printing --------------------------------------------------------------------------------------------------------


def test_the_table_prints_names(single):
    plain = jax.tree.map(lambda leaf: leaf, single)
    wide = dataclasses.replace(single).labelled(labels.Labels(("Utah", "N" * 30, "New Mexico")))
    for lines in (repr(single).splitlines(), repr(wide).splitlines()):
        assert [line.split()[-1] for line in lines[3:6]] == [line.split()[-1] for line in repr(plain).splitlines()[3:6]]
    assert repr(single).splitlines()[3].startswith("       Utah    ")
    assert repr(wide).splitlines()[4].startswith(" " + "N" * 23 + "…    ")
    assert len({len(line) for line in repr(wide).splitlines()[2:6]}) == 1
    assert repr(plain).splitlines()[3].startswith(" theta[0]    ")
    assert [len(line) for line in repr(plain).splitlines()[2:6]] == [66] * 4
