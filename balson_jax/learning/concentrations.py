"""Concentrations of a Dirichlet prior, estimated from the posteriors of a batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import dirichlet

CONCENTRATIONS = 0.02, 1e3
"""Limits of learned concentrations."""

_from_log_mean = jax.jit(dirichlet.from_log_mean)


def log_mean(alpha: np.ndarray) -> np.ndarray:
    """Return the mean of ``ln omega`` over Dirichlet posteriors ``(B, K)``, ``(K,)``."""
    from scipy import special  # slow to import

    # On the host: the number of problems that count differs from round to round.
    return (special.digamma(alpha) - special.digamma(alpha.sum(-1, keepdims=True))).mean(0)


def own(alpha: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the likeliest concentrations, one for each component, given Dirichlet posteriors ``(B, K)``."""
    likeliest = _from_log_mean(jnp.asarray(log_mean(alpha), dtype))
    return np.clip(np.asarray(likeliest, np.float64), *CONCENTRATIONS)


def equal(logs: np.ndarray, has_slack: bool) -> np.ndarray:
    """Return the likeliest concentrations, ``(K,)``, that are equal, except that of a slack, the last component.

    Args:
      logs: means of ``ln omega``, ``(K,)``.
      has_slack: whether there is a slack.
    """
    from scipy import optimize, special  # slow to import

    group = np.zeros(len(logs), int)
    group[-1] = int(has_slack)
    counts, sums = np.bincount(group), np.bincount(group, logs)

    def loss(log_alpha):
        alpha = np.exp(log_alpha)
        total = counts @ alpha
        value = counts @ special.gammaln(alpha) - special.gammaln(total) - sums @ alpha
        return value, alpha * (counts * (special.digamma(alpha) - special.digamma(total)) - sums)

    limits = [tuple(np.log(CONCENTRATIONS))] * len(counts)
    found = optimize.minimize(loss, np.zeros(len(counts)), jac=True, bounds=limits)
    return np.exp(found.x)[group]
