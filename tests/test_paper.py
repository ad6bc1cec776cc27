"""The paper's experiment: files, figures, determinism, and the claim."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

from balson_jax.paper import experiment, published, tables


@pytest.fixture(scope="module")
def results():
    return experiment.run(experiment.Settings(datasets=100, seed=12))


def test_the_papers_claim_holds_on_an_unseen_seed(results):
    """At least the paper's best figure in every cell, with one configuration for all four samplers."""
    for name in ("RS", "IS"):
        assert results.mse[name].mean() <= 0.0143
        assert results.sparsity[name].mean() >= 0.6785
    for name in ("RSIRS", "ISIRS"):
        assert results.mse[name].mean() <= 0.0116
        assert results.sparsity[name].mean() >= 0.8675
    (row,) = [row for row in tables.tables(results)[1].rows if row[0] == "RSIRS"]
    for name, p_value in zip(published.REFERENCES, row[1::2], strict=True):
        assert results.mse["RSIRS"].mean() < results.mse[name].mean()
        assert float(p_value) < 0.05


def test_the_command_writes_everything(tmp_path):
    command = [sys.executable, "-m", "balson_jax", "paper", "--datasets", "3", "--draws", "512", "--out", str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for word in ("Table 1", "Table 2", "Table 3", "0.0116", "Bayesian LASSO", "report.html"):
        assert word in printed
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 7
    assert {row["method"] for row in rows} == set(published.METHODS)
    assert all(np.isfinite(float(row["mse"])) and 0 <= float(row["sparsity"]) <= 1 for row in rows)
    assert json.loads((tmp_path / "settings.json").read_text())["settings"]["datasets"] == 3
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page.replace("<!doctype html>", "")
