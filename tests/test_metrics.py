"""Metrics: known values and edges."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from balson_jax import metrics
from balson_jax.experiments.paper import data


def test_hoyer_sparsity():
    assert float(metrics.hoyer_sparsity(jnp.array(data.TRUE_THETA))) == pytest.approx(0.9200, abs=5e-5)
    rows = jnp.array([[0.0, 0.0, 3.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1e-30, 0.0, 0.0], [-2.0, 0.0, 2.0]])
    expected = [1.0, 0.0, 1.0, 1.0, (np.sqrt(3) - np.sqrt(2)) / (np.sqrt(3) - 1)]
    np.testing.assert_allclose(metrics.hoyer_sparsity(rows), expected, atol=1e-6)
    assert metrics.hoyer_sparsity(jnp.array([[0.0], [2.0]])).tolist() == [1.0, 1.0]
    assert jnp.isnan(metrics.hoyer_sparsity(jnp.array([[jnp.nan, 1.0], [jnp.inf, 1.0]]))).all()
    assert jnp.isnan(metrics.hoyer_sparsity(jnp.array([jnp.nan])))


def test_error_and_coverage():
    assert metrics.mean_squared_error([[1.0, 2.0], [0.0, 0.0]], [1.0, 0.0]).tolist() == [2.0, 0.5]
    assert float(metrics.coverage([0.0, 0.0, 0.5], [1.0, 0.1, 0.5], [0.5, 0.5, 0.5])) == pytest.approx(2 / 3)


def test_paired_t_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=30), rng.normal(0.3, 1, 30)
    assert metrics.paired_t_test(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert metrics.paired_t_test(first, first) == 1.0
    assert metrics.paired_t_test([1.0, 2.0], [0.0, 1.0]) == 0.0
    with pytest.raises(ValueError, match="at least 2 pairs"):
        metrics.paired_t_test([1.0], [2.0])
    with pytest.raises(ValueError, match="equal length"):
        metrics.paired_t_test([1.0, 2.0], [2.0])
    with pytest.raises(ValueError, match="finite"):
        metrics.paired_t_test([1.0, np.nan], [2.0, 1.0])
