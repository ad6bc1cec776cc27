"""The scikit-learn regressor: scikit-learn's own checks, the posterior behind it, predictions against quadrature."""

import importlib
import pickle
import sys
import warnings

import jax
import numpy as np
import pytest
import quadrature
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_random_state, estimator_checks

import balson_jax as balson
from balson_jax.estimator import SimplexRegressor

METHOD = balson.IS(4096)
RNG = np.random.default_rng(3)
TRUTH = np.array([0.6, 0.3, 0.1])
X = RNG.normal(size=(40, 3))
Y = X @ TRUTH + 0.5 * RNG.normal(size=40)
MANY = np.stack([Y, X @ TRUTH[::-1] + 0.5 * RNG.normal(size=40)], -1)


def regressor(**options):
    return SimplexRegressor(**{"method": METHOD, "random_state": 0, **options})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"constraint": "signed_at_most"}, {"fit_intercept": True}], ids=str)
def test_all_checks_of_scikit_learn(options):
    estimator_checks.check_estimator(SimplexRegressor(method=METHOD, **options))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "check_dict_unchanged",
        "check_estimators_nan_inf",
        "check_fit2d_1feature",
        "check_fit2d_1sample",
        "check_n_features_in",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_supervised_y_2d",
    ],
)
def test_some_checks_of_scikit_learn(name):
    getattr(estimator_checks, name)("SimplexRegressor", SimplexRegressor(method=METHOD))


def test_it_is_a_fit_of_a_batch_of_targets():
    found = regressor(prior=0.5, total=1.2, random_state=7).fit(X, MANY)
    key = jax.random.key(int(check_random_state(7).randint(np.iinfo(np.int32).max)))
    direct = balson.fit(key, balson.linear_problem(X, MANY.T, prior=0.5, total=1.2), METHOD)
    np.testing.assert_array_equal(found.coef_, direct.mean)
    np.testing.assert_array_equal(found.coef_std_, direct.std)
    np.testing.assert_array_equal(found.posterior_.status, direct.status)
    assert found.coef_.shape == (2, 3)
    assert found.coef_.dtype == np.float64
    np.testing.assert_array_equal(found.intercept_, np.zeros(2))
    np.testing.assert_allclose(found.predict(X), X @ found.coef_.T, rtol=1e-12)
    # One target alone gives what it gives in a batch, but for its axis.
    alone = regressor(prior=0.5, total=1.2, random_state=7).fit(X, Y)
    np.testing.assert_allclose(alone.coef_, found.coef_[0], atol=1e-5)
    assert alone.intercept_ == 0
    assert alone.predict(X).shape == (40,)


def test_predictive_standard_deviations_against_quadrature():
    omega, weights = quadrature.simplex_rule(np.ones(3))
    weights = weights * np.exp(quadrature.log_likelihood(X, Y, omega, 1.0, 0.5))
    weights /= weights.sum()
    new = np.array([[3.0, 0.0, 0.0], [0.0, 4.0, -4.0], [1.0, 1.0, 1.0]])
    mean = weights @ (omega @ new.T)
    std = np.sqrt(weights @ np.square(omega @ new.T - mean) + 0.25)
    model = regressor(noise=0.5).fit(X, Y)
    found = model.predict(new, return_std=True)
    np.testing.assert_allclose(found[0], mean, atol=0.03)
    np.testing.assert_allclose(found[1], std, rtol=0.04)
    assert found[1][2] == pytest.approx(0.5, rel=1e-5)  # equal features: the constraint leaves the noise alone
    draws = model.sample_y(new, 20_000, random_state=1)
    assert draws.shape == (3, 20_000)
    np.testing.assert_allclose(draws.mean(1), found[0], atol=0.03)
    np.testing.assert_allclose(draws.std(1), found[1], rtol=0.03)
    np.testing.assert_array_equal(draws, model.sample_y(new, 20_000, random_state=1))


def test_estimated_noise_and_several_targets_in_predictions():
    model = regressor(random_state=np.random.RandomState(0)).fit(X, MANY)
    mean, std = model.predict(X[:5], return_std=True)
    assert mean.shape == std.shape == (5, 2)
    level = np.hypot(model.posterior_.noise.mean, model.posterior_.noise.std)
    assert (std > level).all()
    assert (std < 1.2 * level).all()
    draws = model.sample_y(X[:5], 4000)
    assert draws.shape == (5, 2, 4000)
    np.testing.assert_allclose(draws.std(-1), std, rtol=0.06)
    with pytest.raises(ValueError, match="tells no noise of new rows"):
        regressor(noise=np.full(40, 0.5)).fit(X, Y).predict(X, return_std=True)
    with pytest.raises(ValueError, match="needs kept draws"):
        regressor(method=balson.IS(4096, keep=0)).fit(X, Y).sample_y(X)


@pytest.mark.slow
def test_an_intercept_takes_up_a_shift():
    plain, moved = (regressor(fit_intercept=True).fit(X, Y + shift) for shift in (0.0, 5.0))
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-4)
    assert moved.intercept_ - plain.intercept_ == pytest.approx(5, abs=1e-3)
    np.testing.assert_allclose(moved.predict(X) - plain.predict(X), 5, atol=1e-3)
    np.testing.assert_allclose(moved.sample_y(X, 3) - plain.sample_y(X, 3), 5, atol=1e-2)


def test_one_feature_has_the_total_for_coefficient():
    model = regressor(total=2.0, fit_intercept=True, prior=[3.0]).fit(X[:, :1], 2 * X[:, 0] + 1 + 0.1 * X[:, 1])
    rest = 1 + 0.1 * X[:, 1]
    np.testing.assert_array_equal(model.coef_, [2.0])
    np.testing.assert_array_equal(model.coef_std_, [0.0])
    assert model.intercept_ == pytest.approx(rest.mean(), abs=1e-4)
    # The noise's variance is inverse gamma, of mean SS / (n - 3); the intercept adds s^2 / n to a prediction.
    variance = np.square(rest - rest.mean()).sum() / (len(rest) - 3) * (1 + 1 / len(rest))
    np.testing.assert_allclose(model.predict(X[:3, :1], return_std=True)[1], np.sqrt(variance), rtol=0.01)


@pytest.mark.filterwarnings("ignore:.*PRIOR_DOMINATES")  # of the prior that is to be found worse
def test_in_pipelines_searches_copies_and_pickles():
    few = np.array([1.0, 0.0, 0.0])
    target = X @ few + 0.5 * np.random.default_rng(0).normal(size=40)
    pipeline = make_pipeline(FunctionTransformer(), regressor())
    search = GridSearchCV(pipeline, {"simplexregressor__prior": [0.1, 100.0]}, cv=2).fit(X, target)
    assert search.best_params_ == {"simplexregressor__prior": 0.1}
    best = search.best_estimator_[-1]
    assert best.coef_[0] > 0.9
    assert clone(best).get_params() == best.get_params()
    again = pickle.loads(pickle.dumps(best))
    for own, other in zip(best.predict(X, return_std=True), again.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(own, other)
    assert isinstance(again.posterior_.mean, np.ndarray)


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["sand", "silt", "clay"])
    model = regressor().fit(frame, Y)
    assert list(model.feature_names_in_) == ["sand", "silt", "clay"]
    assert model.n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["clay", "silt", "sand"]])


def test_what_is_refused_and_warned_of():
    with pytest.raises(NotFittedError):
        regressor().predict(X)
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(X, np.full(40, np.nan))
    with pytest.raises(ValueError, match="prior"):
        regressor(prior=-1.0).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match=r"of 2 of 2 targets can't be trusted. .*LOW_ESS"):
        regressor(noise=1e-3).fit(X, MANY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor().fit(X, MANY)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "balson_jax.estimator")
    with pytest.raises(ImportError, match=r"pip install 'balson_jax\[sklearn\]'"):
        importlib.import_module("balson_jax.estimator")
