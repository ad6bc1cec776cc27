"""The Dirichlet distribution: density, moments, sparse mode, and fits from moments.

Every function takes concentrations ``alpha`` of shape ``(..., K)``, with components on the last axis, and broadcasts
over the leading axes. Fitting solves the paper's moment equations (eq. 8),

    E[omega_k] = alpha_k / alpha_0,    Var[omega_k] = alpha_k (alpha_0 - alpha_k) / (alpha_0^2 (alpha_0 + 1)),

which are 2K equations for K unknowns. The mean fixes the direction of ``alpha``. The precision ``alpha_0`` needs a
*rule*, chosen by name with ``match``.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, digamma, gammainc, gammaincc, gammaln, ndtri, polygamma

from .bisection import bisect

MatchRule = Literal["ratio", "geometric", "mean", "kl"]
MATCH_RULES: tuple[MatchRule, ...] = get_args(MatchRule)

PRECISION_LIMITS = (1e-12, 1e12)
"""Fitted concentrations and precisions are clipped to this range: degenerate samples give a proper Dirichlet."""

NEWTON_STEPS = 40
BISECTION_STEPS = 60


def log_prob(alpha: jax.Array, omega: jax.Array | None = None, *, log_omega: jax.Array | None = None) -> jax.Array:
    """Return the log-density at ``omega``, or at ``exp(log_omega)``. Use the latter where omega may underflow.

    >>> round(float(log_prob(jnp.array([1.0, 1.0, 1.0]), jnp.array([0.2, 0.3, 0.5]))), 4)
    0.6931
    """
    alpha = jnp.asarray(alpha)
    if log_omega is None:
        log_omega = jnp.log(jnp.asarray(omega))
    exponent = alpha - 1
    # A component with alpha = 1 contributes zero, even at omega = 0, where 0 times -inf would be NaN.
    terms = jnp.where(exponent == 0, 0.0, exponent * jnp.where(exponent == 0, 0.0, log_omega))
    return terms.sum(-1) - log_normalizer(alpha)


def log_normalizer(alpha: jax.Array) -> jax.Array:
    """Return ``ln B(alpha)``, the log of the multivariate beta function."""
    return gammaln(alpha).sum(-1) - gammaln(alpha.sum(-1))


def mean(alpha: jax.Array) -> jax.Array:
    """Return ``E[omega]``, ``(..., K)``."""
    return alpha / alpha.sum(-1, keepdims=True)


def variance(alpha: jax.Array) -> jax.Array:
    """Return ``Var[omega]``, ``(..., K)``."""
    centre = mean(alpha)
    return centre * (1 - centre) / (alpha.sum(-1, keepdims=True) + 1)


def log_mean(alpha: jax.Array) -> jax.Array:
    """Return ``E[ln omega]``, ``(..., K)``."""
    return digamma(alpha) - digamma(alpha.sum(-1, keepdims=True))


def entropy(alpha: jax.Array) -> jax.Array:
    """Return the differential entropy, ``(...)``.

    >>> round(float(entropy(jnp.array([1.0, 2.0]))), 3)
    -0.193
    """
    return log_normalizer(alpha) - ((alpha - 1) * log_mean(alpha)).sum(-1)


def kl_divergence(alpha: jax.Array, beta: jax.Array) -> jax.Array:
    """Return ``KL(Dir(alpha) || Dir(beta))``, ``(...)``."""
    return log_normalizer(beta) - log_normalizer(alpha) + ((alpha - beta) * log_mean(alpha)).sum(-1)


def mode(alpha: jax.Array) -> jax.Array:
    """Return the sparse mode (the paper's eq. 9), ``(..., K)``.

    Components with ``alpha_k <= 1`` are exactly zero. The others are proportional to ``alpha_k - 1``. If no ``alpha_k``
    exceeds 1, the density is highest at a vertex, and all mass goes to the component with the largest ``alpha_k`` (the
    first one in a tie).

    >>> [round(v, 4) for v in mode(jnp.array([0.5, 2.0, 4.0])).tolist()]
    [0.0, 0.25, 0.75]
    """
    alpha = jnp.asarray(alpha)
    excess = jnp.maximum(alpha - 1, 0)
    mass = excess.sum(-1, keepdims=True)
    vertex = jax.nn.one_hot(jnp.argmax(alpha, -1), alpha.shape[-1], dtype=alpha.dtype)
    return jnp.where(mass > 0, excess / jnp.where(mass > 0, mass, 1), vertex)


def from_moments(
    mean: jax.Array,
    variance: jax.Array,
    match: MatchRule = "ratio",
    *,
    log_mean: jax.Array | None = None,
) -> jax.Array:
    """Return concentrations that match the given moments.

    Args:
      mean: ``E[omega]``, ``(..., K)``.
      variance: ``Var[omega]``, ``(..., K)``.
      match: rule for the precision ``alpha_0``. Each component alone gives an estimate
        ``mean (1 - mean) / variance - 1``. ``"ratio"`` sums the numerators and the denominators over the components
        before it divides. ``"geometric"`` takes the geometric mean of the K estimates (Minka 2000), ``"mean"`` their
        arithmetic mean. ``"kl"`` ignores the variances and returns the Dirichlet that minimises KL(p || Dir), which
        needs ``log_mean``.
      log_mean: ``E[ln omega]``, ``(..., K)``; used by ``"kl"`` only.

    Returns:
      ``alpha``, ``(..., K)``.

    >>> from_moments(jnp.array([0.25, 0.75]), jnp.array([0.0375, 0.0375])).round(4).tolist()
    [1.0, 3.0]
    """
    if match == "kl":
        if log_mean is None:
            raise ValueError('match="kl" needs log_mean, the expectation of ln omega; pass log_mean=E[ln omega]')
        return from_log_mean(log_mean)
    check_match(match)
    bound = mean * (1 - mean)
    if match == "ratio":
        estimate = _divide(bound.sum(-1), variance.sum(-1))
    else:
        usable = (bound > 0) & (variance > 0)
        each = jnp.where(usable, _divide(bound, variance), 2.0) - 1
        count = jnp.maximum(usable.sum(-1), 1)
        if match == "mean":
            estimate = 1 + jnp.where(usable, each, 0).sum(-1) / count
        else:
            logs = jnp.log(jnp.maximum(each, PRECISION_LIMITS[0]))
            estimate = 1 + jnp.exp(jnp.where(usable, logs, 0).sum(-1) / count)
        # If no component is usable, the sample is a single point: use the largest precision.
        estimate = jnp.where(usable.any(-1), estimate, PRECISION_LIMITS[1])
    alpha = mean * jnp.clip(estimate - 1, *PRECISION_LIMITS)[..., None]
    return jnp.maximum(alpha, PRECISION_LIMITS[0])


def from_log_mean(log_mean: jax.Array) -> jax.Array:
    """Return the ``alpha`` with ``E[ln omega] = log_mean``: the maximum-likelihood, or KL-closest, Dirichlet.

    The log-likelihood is concave in ``alpha``, and its Hessian is diagonal plus rank one, so a Newton step costs O(K)
    (Minka 2000). Derivatives with respect to ``log_mean`` are those of the exact solution.

    >>> alpha = jnp.array([0.5, 2.0, 4.0])
    >>> bool(jnp.allclose(from_log_mean(digamma(alpha) - digamma(alpha.sum())), alpha, rtol=1e-3))
    True
    """
    target = jnp.asarray(log_mean)

    def newton_step(alpha):
        precision = alpha.sum(-1, keepdims=True)
        gradient = target + digamma(precision) - digamma(alpha)
        curvature = 1 / polygamma(1, alpha)
        coupling = 1 / polygamma(1, precision) - curvature.sum(-1, keepdims=True)
        coupling = jnp.maximum(coupling, jnp.finfo(alpha.dtype).tiny)
        return curvature * (gradient + (curvature * gradient).sum(-1, keepdims=True) / coupling)

    def update(_, alpha):
        step = newton_step(alpha)
        new = jnp.where(jnp.isfinite(step), alpha + step, alpha)
        return jnp.clip(
            new, jnp.maximum(0.2 * alpha, PRECISION_LIMITS[0]), jnp.minimum(20 * alpha, PRECISION_LIMITS[1])
        )

    start = lax.stop_gradient(_start_from_log_mean(target))
    frozen_target = lax.stop_gradient(target)
    solution = lax.stop_gradient(lax.fori_loop(0, NEWTON_STEPS, update, start + 0 * frozen_target))
    return solution + _implicit(newton_step(solution))


def _implicit(step: jax.Array) -> jax.Array:
    """Return zero, with the derivatives of a Newton step at the solution (implicit function theorem)."""
    return step - lax.stop_gradient(step)


def _start_from_log_mean(log_mean: jax.Array) -> jax.Array:
    # For large alpha the softmax of E[ln omega] is close to the mean. To second order E[ln omega_k] is
    # ln m_k - (1 - m_k) / (2 alpha_0 m_k), so the deficit ln sum exp(E[ln omega]) is about -(K - 1) / (2 alpha_0).
    num_components = log_mean.shape[-1]
    deficit = jax.nn.logsumexp(log_mean, axis=-1, keepdims=True)
    precision = 0.5 * (num_components - 1) / jnp.maximum(-deficit, jnp.finfo(log_mean.dtype).eps)
    return jnp.clip(jax.nn.softmax(log_mean, axis=-1) * precision, 1e-3, PRECISION_LIMITS[1])


def marginal_interval(alpha: jax.Array, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
    """Return the ends of the central interval of each marginal ``Beta(alpha_k, alpha_0 - alpha_k)``."""
    rest = alpha.sum(-1, keepdims=True) - alpha
    return beta_interval(alpha, rest, level)


def beta_interval(a: jax.Array, b: jax.Array, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
    """Return the lower and upper ends of the central interval of Beta(a, b) with probability ``level``.

    The quantiles are found in log-odds, which are accurate at both ends of (0, 1). The upper end follows by symmetry:
    if x is Beta(a, b), then 1 - x is Beta(b, a).
    """
    tail = 0.5 * (1 - jnp.asarray(level, jnp.result_type(a)))
    return jax.nn.sigmoid(_beta_log_odds(tail, a, b)), jax.nn.sigmoid(-_beta_log_odds(tail, b, a))


def _beta_log_odds(probability: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the log-odds of quantiles of Beta(a, b), for probabilities up to one half."""
    probability, a, b = jnp.broadcast_arrays(probability, a, b)
    if a.dtype != jnp.float64:
        # For large a and b the normal approximation is accurate, and the incomplete beta function is very slow.
        near_normal = jnp.minimum(a, b) > 50
        exact = _bisect_log_odds(probability, jnp.where(near_normal, 1, a), jnp.where(near_normal, 1, b))
        return jnp.where(near_normal, _near_normal_log_odds(probability, a, b), exact)
    return _bisect_log_odds(probability, a, b)


def _bisect_log_odds(probability: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the log-odds at which the distribution function of Beta(a, b) equals ``probability``, by bisection."""
    reach = 0.98 * jnp.log(jnp.finfo(a.dtype).max)
    ends = jnp.full_like(a, -reach), jnp.full_like(a, reach)
    return bisect(lambda x: _beta_cdf(a, b, x) < probability, *ends, BISECTION_STEPS)


def _beta_cdf(a: jax.Array, b: jax.Array, log_odds: jax.Array) -> jax.Array:
    """Return the distribution function of Beta(a, b), the regularised incomplete beta function, at given log-odds."""
    if a.dtype == jnp.float64:
        return betainc(a, b, jax.nn.sigmoid(log_odds))
    # In float32 betainc loses digits if a parameter is large. The gamma limit (Wise 1950) does not: for large b,
    # -(b + (a - 1) / 2) ln(1 - x) is close to a Gamma(a) variate. Each function gets harmless arguments where its
    # value is not used, because one slow element would delay the whole array.
    large_b, large_a = b > 3000, (a > 3000) & (b <= 3000)
    plain = ~(large_a | large_b)
    exact = betainc(jnp.where(plain, a, 1), jnp.where(plain, b, 1), jax.nn.sigmoid(log_odds))
    lower = jnp.where(large_b, (b + 0.5 * (a - 1)) * jax.nn.softplus(log_odds), 1)
    upper = jnp.where(large_a, (a + 0.5 * (b - 1)) * jax.nn.softplus(-log_odds), 1)
    lower_limit = gammainc(jnp.where(large_b, a, 1), lower)
    upper_limit = gammaincc(jnp.where(large_a, b, 1), upper)
    return jnp.where(large_b, lower_limit, jnp.where(large_a, upper_limit, exact))


def _near_normal_log_odds(probability: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    # Abramowitz and Stegun 26.5.22. For a, b > 50 the error is below 3e-4 of the width of a 90 % interval.
    score = -ndtri(probability)
    inverse_a, inverse_b = 1 / jnp.maximum(2 * a - 1, 1), 1 / jnp.maximum(2 * b - 1, 1)
    harmonic, bend = 2 / (inverse_a + inverse_b), (score**2 - 3) / 6
    shift = (inverse_b - inverse_a) * (bend + 5 / 6 - 2 / (3 * harmonic))
    half_log_odds = score * jnp.sqrt(jnp.maximum(harmonic + bend, 0)) / harmonic - shift
    return jnp.log(a) - jnp.log(b) - 2 * half_log_odds


def check_match(match: str) -> None:
    """Raise ``ValueError`` unless ``match`` names a rule."""
    if match not in MATCH_RULES:
        raise ValueError(f"unknown match={match!r}; choose one of {', '.join(MATCH_RULES)}")


def _divide(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    positive = denominator > 0
    return jnp.where(positive, numerator / jnp.where(positive, denominator, 1), PRECISION_LIMITS[1])
