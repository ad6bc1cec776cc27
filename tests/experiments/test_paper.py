"""The paper's experiment: the claim, the files, the pictures, determinism, sensitivity."""

from __future__ import annotations

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from cases import thinned
from typer.testing import CliRunner

import balson_jax as balson
from balson_jax import cli, metrics
from balson_jax.experiments.paper import data, experiment, figures, published, report, sensitivity, tables

SETTINGS = experiment.Settings(seed=12)
SMALL = dataclasses.replace(SETTINGS, datasets=20, rounds=2, num_draws=512)


@pytest.fixture(scope="module")
def results():
    """The experiment as the paper has it."""
    return experiment.run(SETTINGS)


@pytest.fixture(scope="module")
def small():
    """The experiment on few data sets, with few draws."""
    return experiment.run(SMALL)


def made_up(settings=SMALL, report=lambda name: None):
    """Return what the experiment would return, with random estimates: seven methods compile for a minute."""
    rng = np.random.default_rng(settings.seed)
    names = (*published.METHODS, *experiment.EXTRAS)
    theta = {name: rng.dirichlet(np.ones(5), settings.datasets) for name in names}
    scores = {name: experiment.score(value, settings.theta) for name, value in theta.items()}
    mse, sparsity = ({name: pair[part] for name, pair in scores.items()} for part in (0, 1))
    return experiment.Results(settings, theta, mse, sparsity, dict.fromkeys(published.SAMPLERS, 0))


def holds(results) -> bool:
    """Whether one configuration is at least the paper's best figure in every cell, and RSIRS below the references."""
    cells = [
        results.mse[name].mean() <= mse and results.sparsity[name].mean() >= sparsity
        for names, mse, sparsity in ((("RS", "IS"), 0.0143, 0.6785), (("RSIRS", "ISIRS"), 0.0116, 0.8675))
        for name in names
    ]
    ours = results.mse["RSIRS"]
    below = [
        ours.mean() < results.mse[name].mean() and metrics.paired_t_test(ours, results.mse[name]) < 0.05
        for name in published.REFERENCES
    ]
    return all(cells) and all(below)


@pytest.mark.slow
def test_the_papers_claim_holds_on_an_unseen_seed(results):
    assert holds(results)
    assert not any(results.doubtful.values())


@pytest.mark.slow
def test_the_papers_claim_holds_over_many_seeds():
    """The means over 1,000 data sets that no other test uses."""
    assert holds(experiment.run(experiment.Settings(datasets=1000, seed=34)))


def test_scores_are_errors_of_the_curve_and_sparsity():
    theta = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    mse, sparsity = experiment.score(theta, data.TRUE_THETA)
    curves = np.polynomial.polynomial.polyval(np.linspace(0, 1, data.NUM_TEST), (theta - data.TRUE_THETA).T)
    np.testing.assert_allclose(mse, np.square(curves).mean(-1), rtol=1e-3)
    ratio = np.abs(theta).sum(-1) / np.linalg.norm(theta, axis=-1)
    np.testing.assert_allclose(sparsity, (np.sqrt(5) - ratio) / (np.sqrt(5) - 1), rtol=1e-4)


@pytest.mark.slow
def test_every_constraint_is_kept_and_the_methods_differ(small):
    for name, theta in small.theta.items():
        assert theta.shape == (SMALL.datasets, 5)
        if name not in ("Bayesian LASSO", "OLS"):
            assert (np.abs(theta).sum(-1) <= 1 + 1e-5).all()
        if name in (*published.SAMPLERS, "IP, sum = C"):
            np.testing.assert_allclose(theta.sum(-1), 1, atol=1e-5)
    # Least squares fits the noise best and the curve worst; the truth is as sparse as the paper says.
    assert small.mse["OLS"].mean() > small.mse["LASSO"].mean() > small.mse["IP, sum = C"].mean()
    assert float(metrics.hoyer_sparsity(np.array(data.TRUE_THETA))) == pytest.approx(0.92, abs=5e-5)


@pytest.mark.slow
def test_another_seed_gives_other_numbers(small):
    other = experiment.run(dataclasses.replace(SMALL, seed=13))
    assert all((other.mse[name] != small.mse[name]).any() for name in published.METHODS)


@thinned("kind", ["made up"], ["run again"])
def test_the_command_prints_and_writes_everything(kind, tmp_path, monkeypatch, request):
    """Of another run with the same seed, which gives the same numbers."""
    if kind == "made up":
        monkeypatch.setattr(experiment, "run", made_up)
    small = made_up() if kind == "made up" else request.getfixturevalue("small")
    settings = ["--seed", "12", "--datasets", "20", "--rounds", "2", "--draws", "512"]
    outcome = CliRunner().invoke(cli.app, ["paper", *settings, "--out", str(tmp_path)], catch_exceptions=False)
    for word in ("Table 1", "Table 2", "Table 3", "Table 4", "0.0116", "Bayesian LASSO", "report.html"):
        assert word in outcome.output
    assert f"{small.mse['RSIRS'].mean():.4f} ±" in outcome.output
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == SMALL.datasets * 7
    for name in published.METHODS:
        chosen = [row for row in rows if row["method"] == name]
        assert [int(row["dataset"]) for row in chosen] == list(range(SMALL.datasets))
        np.testing.assert_allclose([float(row["mse"]) for row in chosen], small.mse[name], rtol=1e-6)
        np.testing.assert_allclose([float(row["sparsity"]) for row in chosen], small.sparsity[name], rtol=1e-6)
    with (tmp_path / "estimates.csv").open() as file:
        estimates = [row for row in csv.DictReader(file) if row["method"] == "IP, sum = C"]
    found = [[float(row[f"theta_{k}"]) for k in range(5)] for row in estimates]
    np.testing.assert_allclose(found, small.theta["IP, sum = C"], rtol=1e-6)
    recorded = json.loads((tmp_path / "settings.json").read_text())
    assert recorded["settings"]["seed"] == 12
    assert recorded["settings"]["theta"] == list(data.TRUE_THETA)
    assert recorded["versions"]["balson_jax"] == balson.__version__
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,', page)) == page.count("<img") == 2
    assert page.count("<table>") == 4
    assert not re.search(r'(src|href)="(?!data:)|url\(|@import|<script|<link', page)
    for name in ("boxplots.png", "curves.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "-1"], "between 1e-6 and 1e6"),
        (["--match", "best"], "none of ratio"),
        (["--datasets", "1"], "datasets"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments, message):
    outcome = CliRunner().invoke(cli.app, ["paper", *arguments])
    assert outcome.exit_code == 1
    assert message in outcome.output


def test_the_fourth_table_says_where_exact_least_squares_is_better():
    small = made_up()

    def table(mse):
        return tables.against_exact(dataclasses.replace(small, mse={**small.mse, experiment.EXACT: mse}))

    perfect, terrible = table(np.zeros(SMALL.datasets)), table(np.full(SMALL.datasets, 1.0))
    assert [row[3] for row in perfect.rows] == ["larger"] * 4
    assert [row[3] for row in terrible.rows] == ["smaller"] * 4
    assert "it does better than RS, IS, RSIRS, ISIRS." in perfect.note
    assert "it does worse than RS, IS, RSIRS, ISIRS." in terrible.note
    same = table(small.mse["RS"])
    assert same.rows[0][1:4] == ("+0.0000", "1.0e+00", "not clear")
    assert "as far as these data sets can tell, as RS" in same.note


@pytest.mark.slow
def test_rounds_of_importance_sampling_are_isirs(results):
    """The scan takes one round after the other; ISIRS takes all in one call. Ten rounds magnify rounding."""
    fit_key = SETTINGS.keys()[1]
    problem = balson.linear_problem(*experiment.observations(SETTINGS), noise=1.0, prior=SETTINGS.alpha)
    methods = experiment.samplers(SETTINGS)
    *_, before, last = sensitivity.successive(fit_key, problem, methods["IS"], SETTINGS.rounds)
    whole = balson.fit(fit_key, problem, methods["ISIRS"])
    np.testing.assert_array_equal(whole.theta, results.theta["ISIRS"])
    np.testing.assert_allclose(last.mean, whole.mean, atol=2e-3)
    np.testing.assert_allclose(last.alpha.sum(-1), whole.alpha.sum(-1), rtol=1e-2)
    assert (np.abs(before.alpha.sum(-1) / whole.alpha.sum(-1) - 1) > 1e-2).mean() > 0.9


@pytest.mark.slow
def test_sensitivity_is_scanned_drawn_and_judged(monkeypatch, tmp_path, results):
    for module in (sensitivity, figures):
        monkeypatch.setattr(module, "MAX_ROUNDS", 1)
        monkeypatch.setattr(module, "MATCH_RULES", ("ratio", "mean"))
        monkeypatch.setattr(module, "DRAWS", (256,))
    settings = experiment.Settings(datasets=20, seed=3, rounds=1, num_draws=256)
    results = dataclasses.replace(results, settings=settings)
    scores = sensitivity.scan(settings)
    assert len(scores) == 2 * 2 * len(sensitivity.ALPHAS)
    by = {(s.match, s.rounds, s.alpha): s for s in scores}
    assert by["ratio", 0, 0.1].sparsity > 0.99 > 0.4 > by["ratio", 0, 2.0].sparsity
    page = report.write_sensitivity(scores, [results], settings, tmp_path).read_text()
    assert page.count("<img") == 1
    assert "claim" in page
    assert (tmp_path / "sensitivity.png").exists()
    with (tmp_path / "sensitivity.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(scores)
    flat = dataclasses.replace(results, settings=dataclasses.replace(results.settings, alpha=1.0))
    worse = dataclasses.replace(flat, mse={**flat.mse, "RSIRS": flat.mse["IP"]})
    errors, sparsities, *others = tables.truths([results, worse])
    assert errors.rows[0][-1] == "holds"
    assert sparsities.rows[0][-1] == "0.92"
    assert len(others) == 2
    assert others[0].rows[0][-1] == "fails"


def test_which_settings_reproduce_the_claim():
    def scores(first, second):
        return [sensitivity.Score(1.0, "ratio", rounds, 8, *pair) for rounds, pair in enumerate((first, second))]

    good, dense, wrong = (0.01, 0.9), (0.01, 0.6), (0.02, 0.9)
    assert len(sensitivity.reproduces(scores(good, good))) == 1
    for pair in ((good, dense), (dense, good), (good, wrong), (wrong, good)):
        assert not sensitivity.reproduces(scores(*pair))


def test_other_truths_are_what_they_say():
    assert set(data.TRUTHS) >= {"paper", "dense", "one term", "two terms", "ten terms"}
    assert len(data.TRUTHS) >= 6
    for name, theta in data.TRUTHS.items():
        assert min(theta) >= 0
        assert sum(theta) == pytest.approx(0.6 if name == "sum 0.6" else 1.0, abs=1e-4)
    assert len(data.TRUTHS["ten terms"]) == 10
