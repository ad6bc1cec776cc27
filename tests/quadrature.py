"""Truth by quadrature, in NumPy, from the data themselves: nothing here comes from the library.

Under a Dirichlet prior the first component is Beta and the second, relative to what is left, is Beta too and
independent of it. Gauss-Jacobi rules integrate smooth functions against Beta densities to machine precision, also
where the density is infinite at the ends.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import special

ORDER = 150


def _beta_rule(a: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = special.roots_jacobi(ORDER, b - 1, a - 1)
    return (1 + nodes) / 2, weights / weights.sum()


def simplex_rule(alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes ``(n, K)`` and weights ``(n,)`` of a rule for expectations under Dir(alpha), K = 2 or 3."""
    alpha = np.asarray(alpha, float)
    first, weights = _beta_rule(alpha[0], alpha[1:].sum())
    if len(alpha) == 2:
        return np.stack([first, 1 - first], -1), weights
    second, second_weights = _beta_rule(alpha[1], alpha[2])
    u, v = (grid.ravel() for grid in np.meshgrid(first, second, indexing="ij"))
    return np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], -1), np.outer(weights, second_weights).ravel()


def log_likelihood(design, target, omega, total, noise) -> np.ndarray:
    """Return the Gaussian log-likelihood of draws ``(n, K)``."""
    residual = np.asarray(target) - total * omega @ np.asarray(design).T
    return -0.5 * np.square(residual / noise).sum(-1) - len(target) * (0.5 * np.log(2 * np.pi) + np.log(noise))


@dataclasses.dataclass
class Truth:
    """Exact posterior quantities of omega, and the exact asymptotic errors of samplers with one draw."""

    mean: np.ndarray
    variance: np.ndarray
    log_mean: np.ndarray
    log_evidence: float
    rs_mean_error: np.ndarray
    rs_variance_error: np.ndarray
    is_mean_error: np.ndarray
    is_variance_error: np.ndarray
    is_log_evidence_error: float


def posterior(design, target, alpha, *, total=1.0, noise=1.0) -> Truth:
    """Integrate the posterior; errors are for draws from the prior and scale as ``1 / sqrt(draws)``."""
    omega, weights = simplex_rule(alpha)
    log_lik = log_likelihood(design, target, omega, total, noise)
    peak = log_lik.max()
    ratio = np.exp(log_lik - peak)
    mass = weights @ ratio
    p = weights * ratio / mass
    mean = p @ omega
    centred = omega - mean
    variance = p @ centred**2
    second = centred**2 - variance
    with np.errstate(divide="ignore"):
        log_omega = np.log(omega)
    importance = (ratio / mass)[:, None]
    return Truth(
        mean=mean,
        variance=variance,
        log_mean=p @ np.maximum(log_omega, -1e300),
        log_evidence=peak + np.log(mass),
        rs_mean_error=np.sqrt(variance),
        rs_variance_error=np.sqrt(p @ second**2),
        is_mean_error=np.sqrt(p @ (importance * centred**2)),
        is_variance_error=np.sqrt(p @ (importance * second**2)),
        is_log_evidence_error=np.sqrt(max(p @ importance[:, 0] - 1, 0)),
    )


def match_ratio(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the Dirichlet that matches the mean and the sum of variances."""
    return mean * ((mean * (1 - mean)).sum() / variance.sum() - 1)


def recursion(design, target, alpha, rounds: int, **options) -> tuple[Truth, np.ndarray]:
    """Run the paper's rounds with integrals instead of draws; return the last posterior and its Dirichlet."""
    truth = posterior(design, target, alpha, **options)
    for _ in range(rounds):
        truth = posterior(design, target, match_ratio(truth.mean, truth.variance), **options)
    return truth, match_ratio(truth.mean, truth.variance)
