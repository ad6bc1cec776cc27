"""A scikit-learn regressor over ``linear_problem`` and ``fit``; this module needs scikit-learn (1.4 or newer).

``SimplexRegressor`` has scikit-learn's conventions: parameters in the constructor, results with a trailing underscore,
features in columns and targets in the columns of y. It works in pipelines, searches and ensembles.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import jax
import numpy as np

from .fit import fit
from .problems import constraints
from .problems.linear import linear_problem
from .status import Status

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError(
        "balson_jax.estimator needs scikit-learn; install it with: pip install 'balson_jax[sklearn]'"
    ) from error

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method

    def validate_data(estimator: Any, /, *args: Any, **options: Any) -> Any:
        """Check data as ``sklearn.utils.validation.validate_data`` does."""
        return estimator._validate_data(*args, **options)


class SimplexRegressor(RegressorMixin, BaseEstimator):
    """Bayesian least squares with coefficients on a simplex: ``coef >= 0`` and ``sum(coef) = total``.

    Predictions use the posterior mean of the coefficients. ``fit`` warns if the posterior's status is not ``OK``. A
    regressor of one feature, with ``constraint="equal"``, has nothing to estimate but noise and intercept: its
    coefficient is the total, with a standard deviation of zero. (``posterior_`` then splits the total over two copies
    of the feature.)

    Computations are in float32 unless JAX has float64 enabled; results are NumPy arrays of float64.

    Args:
      total: sum of the coefficients, or the bound on it, a number or one per target.
      constraint: ``"equal"``, ``"at_most"``, ``"signed"`` or ``"signed_at_most"``; see ``linear_problem``.
      prior: concentration of the Dirichlet prior, a number or one per feature. 1 is flat, less favours few features.
      noise: ``"estimate"``, an ``InverseGamma``, or the standard deviation, a number or one per target.
      method: of ``fit``; it must keep draws for ``predict(return_std=True)`` and ``sample_y``.
      fit_intercept: whether to add an intercept, which has no constraint.
      random_state: a number, a ``numpy.random.RandomState``, or ``None`` for other draws in each fit.

    Attributes:
      coef_: posterior mean of the coefficients, ``(features,)``, or ``(targets, features)`` if y has two axes.
      coef_std_: their posterior standard deviations.
      intercept_: posterior mean of the intercept, a float or ``(targets,)``; 0 without one.
      posterior_: the ``Posterior``, of a batch of targets if y has two axes; its fields are NumPy arrays.
      n_features_in_: number of features.
      feature_names_in_: their names, if X had names.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> model = SimplexRegressor(random_state=0).fit(X, X @ [0.7, 0.3, 0.0] + 0.1 * rng.normal(size=50))
    >>> model.coef_.round(1), round(model.score(X, X @ [0.7, 0.3, 0.0]), 2)
    (array([0.7, 0.3, 0. ]), 1.0)
    """

    def __init__(
        self,
        total: Any = 1.0,
        constraint: Any = "equal",
        prior: Any = 1.0,
        noise: Any = "estimate",
        method: Any = "auto",
        fit_intercept: bool = False,
        random_state: Any = None,
    ) -> None:
        self.total = total
        self.constraint = constraint
        self.prior = prior
        self.noise = noise
        self.method = method
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the posterior of the coefficients.

        Args:
          X: ``(rows, features)``.
          y: ``(rows,)``, or ``(rows, targets)`` for one posterior per target.
        """
        least = 2 if self.fit_intercept else 1
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=least)
        y, degenerate = np.asarray(y, np.float64), self._is_degenerate(X.shape[1])
        problem = linear_problem(
            self._design(X),
            y.T,
            total=self.total,
            constraint=self.constraint,
            prior=1.0 if degenerate else self.prior,
            noise=self.noise,
            intercept=bool(self.fit_intercept),
        )
        found = fit(_key(self.random_state), problem, self.method)
        self.posterior_ = jax.tree.map(np.asarray, found)
        mean, std = (np.asarray(part, np.float64) for part in (found.mean, found.std))
        if degenerate:
            std = np.zeros_like(std[..., :1])
            mean = std + np.asarray(self.total, np.float64)[..., None]
        self.coef_, self.coef_std_ = mean, std
        intercept = np.zeros(y.shape[1:])
        if found.nuisance is not None:
            intercept = np.asarray(found.nuisance.mean, np.float64)[..., 0]
        self.intercept_ = intercept if y.ndim > 1 else float(intercept)
        _warn(self.posterior_.status)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictions of rows, ``(rows,)`` or ``(rows, targets)``.

        With ``return_std`` also the standard deviations of new observations, in which noise is included.
        """
        X = self._checked(X)
        mean = X @ self.coef_.T + self.intercept_
        if not return_std:
            return mean
        values, level = self._curves(X), self._level()
        weights = np.asarray(self.posterior_.draw_weights, np.float64)[..., None]
        middle = (weights * values).sum(-2, keepdims=True)
        variance = (weights * np.square(values - middle)).sum(-2)
        return mean, np.sqrt(variance + np.square(level)[..., None]).T

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Return draws of new observations, ``(rows, n_samples)`` or ``(rows, targets, n_samples)``.

        A draw takes one of the kept draws of the coefficients for all rows. The noise is normal, of the level that
        ``predict`` uses.
        """
        X = self._checked(X)
        rng = check_random_state(random_state)
        values, level = self._curves(X), self._level()
        weights = np.asarray(self.posterior_.draw_weights, np.float64)
        batch, count = weights.shape[:-1], weights.shape[-1]
        chosen = np.empty((*batch, n_samples, X.shape[0]))
        for index in np.ndindex(*batch):
            share = weights[index] / weights[index].sum()
            chosen[index] = values[index][rng.choice(count, n_samples, p=share)]
        chosen += level[..., None, None] * rng.standard_normal(chosen.shape)
        return np.moveaxis(chosen, -1, 0)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: several targets; scores may be poor, as the coefficients are constrained."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True
        return tags

    def _more_tags(self) -> dict[str, bool]:
        """Return the same tags for scikit-learn before 1.6."""
        return {"multioutput": True, "poor_score": True}

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _is_degenerate(self, num_features: int) -> bool:
        return num_features < constraints.named(self.constraint).min_params

    def _design(self, X: np.ndarray) -> np.ndarray:
        """Return the columns of the problem: those of X, or two copies of a feature whose coefficient is the total."""
        return np.repeat(X, 2, axis=1) if self._is_degenerate(X.shape[1]) else X

    def _curves(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions of the kept draws, ``(..., draws, rows)``."""
        found = self.posterior_
        found.require_draws("return_std or sample_y")
        values = np.asarray(found.draws, np.float64) @ self._design(X).T
        if found.nuisance is not None:
            values += np.asarray(found.nuisance.draws, np.float64)[..., :1]
        return values

    def _level(self) -> np.ndarray:
        """Return the standard deviation of the noise of new observations, ``(...)``."""
        found = self.posterior_
        if found.noise is not None:
            return np.hypot(*(np.asarray(part, np.float64) for part in (found.noise.mean, found.noise.std)))
        try:
            return np.broadcast_to(np.asarray(self.noise, np.float64), found.batch_shape)
        except (TypeError, ValueError):
            raise ValueError(
                f"noise={self.noise!r} tells no noise of new rows; fit with a number, one per target, or "
                '"estimate" for return_std and sample_y'
            ) from None


def _key(random_state: Any) -> jax.Array:
    """Return a PRNG key from a number, a ``RandomState`` or ``None``."""
    return jax.random.key(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))


def _warn(status: np.ndarray) -> None:
    """Warn if the posterior of a target can't be trusted."""
    bad = int((status != 0).sum())
    if not bad:
        return
    where = f" of {bad} of {status.size} targets" if status.ndim else ""
    flags = Status(int(np.bitwise_or.reduce(status, axis=None)))
    warnings.warn(f"the posterior{where} can't be trusted. {flags.explain()}", ConvergenceWarning, stacklevel=3)
