"""Truth by quadrature, in NumPy, from the data themselves: nothing here comes from the library.

Under a Dirichlet prior the first component is Beta and the next, relative to what is left, are Beta too and
independent of it. Gauss-Jacobi rules integrate smooth functions against Beta densities to machine precision, also
where the density is infinite at the ends.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import special

ORDERS = {2: 150, 3: 150, 4: 48, 5: 28}
"""Nodes per dimension, by the number of components."""


def _beta_rule(a: float, b: float, order: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = special.roots_jacobi(order, b - 1, a - 1)
    return (1 + nodes) / 2, weights / weights.sum()


def simplex_rule(alpha: np.ndarray, order: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes ``(n, K)`` and weights ``(n,)`` of a rule for expectations under Dir(alpha), K from 2 to 5."""
    alpha = np.asarray(alpha, float)
    order = order or ORDERS[len(alpha)]
    omega, weights, left = np.zeros((1, 0)), np.ones(1), np.ones(1)
    for k in range(len(alpha) - 1):
        shares, share_weights = _beta_rule(alpha[k], alpha[k + 1 :].sum(), order)
        taken = np.outer(left, shares).ravel()
        omega = np.concatenate([np.repeat(omega, order, axis=0), taken[:, None]], axis=1)
        weights = np.outer(weights, share_weights).ravel()
        left = np.outer(left, 1 - shares).ravel()
    return np.concatenate([omega, left[:, None]], axis=1), weights


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
    return integrate(log_likelihood(design, target, omega, total, noise), weights, omega)


def integrate(log_lik: np.ndarray, weights: np.ndarray, values: np.ndarray) -> Truth:
    """Integrate the posterior of ``values`` at the nodes of a rule, ``(n, F)``."""
    peak = log_lik.max()
    ratio = np.exp(log_lik - peak)
    mass = weights @ ratio
    p = weights * ratio / mass
    mean = p @ values
    centred = values - mean
    variance = p @ centred**2
    second = centred**2 - variance
    with np.errstate(divide="ignore", invalid="ignore"):
        log_values = np.log(values)
    importance = (ratio / mass)[:, None]
    return Truth(
        mean=mean,
        variance=variance,
        log_mean=p @ np.maximum(log_values, -1e300),
        log_evidence=peak + np.log(mass),
        rs_mean_error=np.sqrt(variance),
        rs_variance_error=np.sqrt(p @ second**2),
        is_mean_error=np.sqrt(p @ (importance * centred**2)),
        is_variance_error=np.sqrt(p @ (importance * second**2)),
        is_log_evidence_error=np.sqrt(max(p @ importance[:, 0] - 1, 0)),
    )


def unlift(constraint: str, omega: np.ndarray) -> np.ndarray:
    """Return theta / C of nodes ``(n, K)``: the parts of a signed parameter subtracted, a slack left out."""
    if constraint.endswith("at_most"):
        omega = omega[:, :-1]
    if not constraint.startswith("signed"):
        return omega
    half = omega.shape[1] // 2
    return omega[:, :half] - omega[:, half:]


def noise_log_likelihoods(half_square, num_rows: int, log_levels: np.ndarray, shape: float, scale: float) -> np.ndarray:
    """Return the log of likelihood x prior of the noise on a grid of ``ln s``, ``(n, levels)``, per ``d ln s``.

    The prior of ``s^2`` is inverse gamma, or ``1 / s^2`` if shape and scale are zero.
    """
    square = np.exp(2 * log_levels)
    log_lik = -half_square[:, None] / square - num_rows * (0.5 * np.log(2 * np.pi) + log_levels)
    constant = shape * np.log(scale) - special.gammaln(shape) if shape else 0.0
    log_prior = constant - (shape + 1) * 2 * log_levels - scale / square
    return log_lik + log_prior + np.log(2) + 2 * log_levels


def match_ratio(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the Dirichlet that matches the mean and the sum of variances."""
    return mean * ((mean * (1 - mean)).sum() / variance.sum() - 1)


def recursion(design, target, alpha, rounds: int, **options) -> tuple[Truth, np.ndarray]:
    """Run the paper's rounds with integrals instead of draws; return the last posterior and its Dirichlet."""
    truth = posterior(design, target, alpha, **options)
    for _ in range(rounds):
        truth = posterior(design, target, match_ratio(truth.mean, truth.variance), **options)
    return truth, match_ratio(truth.mean, truth.variance)
