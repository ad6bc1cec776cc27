"""The methods that the paper compares with, plus ordinary least squares. Leading axes are batches of problems."""

from .bayesian_lasso import BayesianLasso, bayesian_lasso
from .interior_point import interior_point
from .lasso import Lasso, cross_validated_penalty, lasso, lasso_within
from .ordinary import ordinary

__all__ = [
    "BayesianLasso",
    "Lasso",
    "bayesian_lasso",
    "cross_validated_penalty",
    "interior_point",
    "lasso",
    "lasso_within",
    "ordinary",
]
