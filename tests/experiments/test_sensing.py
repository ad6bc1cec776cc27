"""Compressive sensing: the theory against simulation, the data, the scores, the command."""

from __future__ import annotations

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from cases import thinned
from scipy.optimize import nnls
from typer.testing import CliRunner

from balson_jax import cli
from balson_jax.experiments.sensing import data, experiment, figures, tables, theory

SIMPLEX, SIGNED = data.Case("gaussian", "equal", 0.0), data.Case("fourier", "signed", 0.05)
SMALL = dataclasses.replace(experiment.QUICK, trials=3)


def squared_distances(rng, num_components, num_present, signed, count):
    """Return squared distances of normal vectors from the polar of the tangent cone: minima over t, by bisection."""
    g = rng.normal(size=(count, num_components))
    inside, outside = g[:, :num_present], np.abs(g[:, num_present:]) if signed else g[:, num_present:]
    low, high = np.full(count, 0.0 if signed else -6.0), np.full(count, 8.0)
    for _ in range(50):
        t = 0.5 * (low + high)
        slope = (t[:, None] - inside).sum(1) - np.maximum(outside - t[:, None], 0).sum(1)
        low, high = np.where(slope > 0, low, t), np.where(slope > 0, t, high)
    rest = np.square(np.maximum(outside - low[:, None], 0)).sum(1)
    return np.square(inside - low[:, None]).sum(1) + rest


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("num_components", "num_present"), [(40, 4), (40, 16), (100, 10)])
def test_rows_needed_are_the_statistical_dimension(num_components, num_present, signed):
    """Mean squared distances, to 4 standard errors and the terms of order 1 / K that the formula leaves out."""
    distances = squared_distances(np.random.default_rng(0), num_components, num_present, signed, 4000)
    error = distances.std() / np.sqrt(len(distances))
    found = theory.rows_needed(num_components, num_present, signed)
    assert abs(found - distances.mean()) < 4 * error + 5 / num_components


@pytest.mark.parametrize("signed", [False, True])
def test_half_of_all_problems_are_determined_there(signed):
    """Simulated: with two rows less fewer than half are, with two more more than half. A false alarm: below 1e-4."""
    rng = np.random.default_rng(3)
    case = data.Case("gaussian", "signed" if signed else "equal", 0.0)
    needed = theory.rows_needed(40, 4, signed)
    shares = []
    for num_rows in (round(needed - 3), round(needed + 3)):
        problems = data.make(rng, case, data.Cell(num_rows, 4), 40, 100)
        found = []
        for design, target, theta in zip(*problems, strict=True):
            columns = np.hstack([design, -design]) if signed else design
            # A sum of exactly one: with noiseless rows the solution has no residual, whatever the weight of that row.
            columns = np.vstack([columns, np.ones(columns.shape[1])])
            solution = nnls(columns, np.append(target, 1.0), maxiter=2000)[0]
            solution = solution[:40] - solution[40:] if signed else solution
            found.append(np.abs(solution - theta).max() < 1e-6)
        shares.append(np.mean(found))
    assert shares[0] < 0.5 < shares[1]


def test_the_line_is_the_limit_of_many_components():
    for signed in (False, True):
        for present in (0.01, 0.1, 0.4):
            rows = theory.rows_needed(1_000_000, round(present * 1_000_000), signed) / 1_000_000
            assert theory.weak_threshold(rows, signed) == pytest.approx(present / rows, abs=1e-4)
    # Knowing the total, or that there are no signs, only helps.
    shares = np.linspace(0.05, 0.95, 19)
    positive, signed = theory.line(shares), theory.line(shares, signed=True)
    assert (np.diff(positive) > 0).all()
    assert (positive > signed).all()
    assert (positive > [theory.nonnegative_threshold(share) for share in shares]).all()
    with pytest.raises(ValueError, match=r"share_of_rows=1\.5"):
        theory.weak_threshold(1.5)
    with pytest.raises(ValueError, match="num_present=0"):
        theory.rows_needed(10, 0)


def test_problems_are_what_they_say():
    rng = np.random.default_rng(0)
    for case in (SIMPLEX, SIGNED):
        problems = data.make(rng, case, data.Cell(10, 3), 24, 200)
        assert ((problems.theta != 0).sum(-1) == 3).all()
        np.testing.assert_allclose(np.abs(problems.theta).sum(-1), 1)
        assert (problems.theta < 0).any() == case.signed
        clean = np.einsum("pnk,pk->pn", problems.design, problems.theta)
        np.testing.assert_allclose(np.square(clean).mean(-1), 1)
        # 2,000 normal numbers: their standard deviation is known to 1.6 %.
        assert (problems.target - clean).std() == pytest.approx(case.noise, rel=0.07)
        padded = problems.padded(16)
        assert padded.design.shape == (200, 16, 24)
        assert not padded.design[:, 10:].any()
        np.testing.assert_array_equal(padded.target[:, :10], problems.target)


@pytest.mark.parametrize("num_components", [24, 25])
def test_fourier_rows_are_orthogonal_and_have_no_mean(num_components):
    rows = data.fourier_rows(np.random.default_rng(0), num_components - 1, num_components)
    np.testing.assert_allclose(rows @ rows.T, num_components * np.eye(num_components - 1), atol=1e-9)
    np.testing.assert_allclose(rows.sum(1), 0, atol=1e-9)
    with pytest.raises(ValueError, match="must be less than"):
        data.fourier_rows(np.random.default_rng(0), num_components, num_components)


def made_up(settings=SMALL, report=lambda name: None):
    """Return what the experiment would return, with random estimates: chains compile for long."""
    rng = np.random.default_rng(settings.seed)
    shape = len(settings.cells), settings.trials
    outcomes = []
    for case in settings.cases:
        names = (*experiment.OURS, experiment.LASSO, *(() if case.signed else (experiment.NNLS, experiment.EXACT)))
        error = {name: rng.lognormal(-2.3, 1, shape) for name in names}
        support = {name: rng.random(shape) < 0.5 for name in names}
        inclusion = rng.random((*shape, settings.num_components))
        present = rng.random(inclusion.shape) < inclusion
        expected, trusted = rng.lognormal(-2.3, 1, shape), rng.random(shape) < 0.8
        outcomes.append(experiment.Outcome(case, error, support, expected, inclusion, present, trusted))
    return experiment.Results(settings, tuple(outcomes))


@thinned("kind", ["made up"], ["run"])
def test_the_command_prints_and_writes_everything(kind, tmp_path, monkeypatch):
    if kind == "made up":
        monkeypatch.setattr(experiment, "run", made_up)
    arguments = ["sensing", "--quick", "--trials", "3", "--out", str(tmp_path)]
    outcome = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    for word in ("Problems recovered", "posterior mean", "What the posterior says", "It also tells", "report.html"):
        assert word in outcome.output
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SMALL.cells) * 3 * (6 + 4)
    assert json.loads((tmp_path / "settings.json").read_text())["settings"]["trials"] == 3
    page = (tmp_path / "report.html").read_text()
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,', page)) == page.count("<img") == 3
    assert page.count("<table>") == 5
    assert not re.search(r'(src|href)="(?!data:)|url\(|@import|<script|<link', page)
    if kind == "run":
        errors = [float(row["error"]) for row in rows if row["method"] == experiment.MEAN]
        assert np.isfinite(errors).all()
        assert np.median(errors) < 0.3


def test_scores_count_what_they_say():
    results = made_up(dataclasses.replace(SMALL, trials=50))
    outcome = results.outcomes[0]
    error = outcome.error[experiment.MEAN]
    np.testing.assert_allclose(outcome.recovered(experiment.MEAN), (error <= experiment.RECOVERED).mean(1))
    found = tables.honesty([outcome])
    assert sum(found) == error.size
    assert found.yes_missed == ((outcome.expected <= 0.1) & (error > 0.1)).sum()
    bins = tables.reliability([outcome])
    assert bins.number.sum() == outcome.inclusion.size
    assert (np.abs(bins.claimed - np.arange(0.05, 1, 0.1)) < 0.02).all()
    error = np.sqrt(bins.claimed * (1 - bins.claimed) / bins.number)
    np.testing.assert_array_less(np.abs(bins.held - bins.claimed), 4 * error)
    perfect = dataclasses.replace(outcome, error={name: 0 * own for name, own in outcome.error.items()})
    row = tables.recovery(dataclasses.replace(results, outcomes=(perfect,))).rows[0]
    assert row[1:] == ("100 %",) * 6 + (f"{len(SMALL.cells)} of {len(SMALL.cells)}",)
    assert "100 % of the problems without noise" in tables.finding(dataclasses.replace(results, outcomes=(perfect,)))
    assert len(figures.overview(results).axes) == 3
    doubtful = sum(int((~own.trusted).sum()) for own in results.outcomes)
    assert f"{doubtful:,} of " in tables.recovery(results).note
    calm = dataclasses.replace(outcome, trusted=np.ones_like(outcome.trusted))
    assert "All fits have status OK" in tables.doubts(dataclasses.replace(results, outcomes=(calm,)))


@pytest.mark.slow
def test_the_posterior_finds_what_least_squares_finds_and_more():
    """Without noise, in cells where least squares always, sometimes and hardly ever finds it; on an unseen seed."""
    settings = experiment.Settings(
        num_components=24, shares_of_rows=(0.4, 0.7), shares_present=(0.2, 0.6), trials=8, seed=5, cases=(SIMPLEX,)
    )
    (outcome,) = experiment.run(settings).outcomes
    assert (outcome.recovered(experiment.MEAN) >= outcome.recovered(experiment.NNLS)).all()
    assert outcome.recovered(experiment.MEAN)[0] == outcome.recovered(experiment.MEAN)[2] == 1
    missed = outcome.error[experiment.MEAN] > experiment.RECOVERED
    assert (outcome.expected[missed] > 0.5 * experiment.RECOVERED).all()
