"""CausalPy's example of a synthetic control, on the data it ships: with our regressor, and with its own NUTS.

CausalPy brings PyMC, which the other tests don't need; where it is missing the test is skipped. To run it, in a clone:

    python -m venv other && other/bin/pip install . causalpy pytest pytest-timeout scikit-learn
    other/bin/python -m pytest tests/test_causalpy.py -s
"""

from __future__ import annotations

import importlib.util
import time
import warnings

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("causalpy") is None, reason="needs CausalPy"),
]

UNITS = list("abcdefg")
START = 70


@pytest.fixture(scope="module")
def causalpy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import matplotlib as mpl

        mpl.use("Agg")
        import causalpy

        return causalpy


def experiment(causalpy, model):
    """Return CausalPy's experiment, and the CPU time it took, compilation included."""
    began = time.process_time()
    data = causalpy.load_data("sc")
    found = causalpy.SyntheticControl(data, START, control_units=UNITS, treated_units=["actual"], model=model)
    return found, time.process_time() - began


def test_the_same_weights_as_its_own_nuts(causalpy):
    """Posterior means agree within a fifth of a posterior standard deviation, and the standard deviations to a fifth.

    Errors of the means by Monte Carlo are 0.05 standard deviations for 400 effective draws, of either side: 0.2 is
    three of the two together. The weights have the same, flat prior; the priors of the noise differ, and 70 rows
    outweigh them.
    """
    from balson_jax.estimator import SimplexRegressor

    own = {"chains": 2, "cores": 1, "draws": 500, "tune": 500, "progressbar": False, "random_seed": 42}
    theirs, nuts = experiment(causalpy, causalpy.pymc_models.WeightedSumFitter(sample_kwargs=own))
    ours, seconds = experiment(causalpy, SimplexRegressor(random_state=0))
    again = experiment(causalpy, SimplexRegressor(random_state=1))[1]
    draws = theirs.model.idata.posterior["beta"].stack(sample=("chain", "draw")).squeeze()
    draws = draws.transpose("coeffs", "sample").sel(coeffs=UNITS).values
    mean, std = draws.mean(1), draws.std(1)
    print("\nunit  NUTS             SimplexRegressor")
    for row in zip(UNITS, mean, std, ours.model.coef_, ours.model.coef_std_, strict=True):
        print("{:4}  {:.4f} ± {:.4f}  {:.4f} ± {:.4f}".format(*row))
    print(f"CPU seconds, compilation included: NUTS {nuts:.1f}, ours {seconds:.1f}, ours again {again:.2f}")
    np.testing.assert_array_less(np.abs(ours.model.coef_ - mean), 0.2 * std)
    np.testing.assert_allclose(ours.model.coef_std_, std, rtol=0.2)
    # What CausalPy makes of it: the effect at each time, by the mean of the posterior.
    expected = theirs.post_impact.mean(("chain", "draw")).squeeze().values
    effect = np.asarray(ours.post_impact).squeeze()
    spread = theirs.post_impact.std(("chain", "draw")).squeeze().values
    np.testing.assert_array_less(np.abs(effect - expected), 0.2 * spread + 1e-6)
    assert abs(ours.score - float(np.ravel(theirs.score.iloc[0])[0])) < 0.1
    figure, _ = ours.plot()
    assert figure.axes
