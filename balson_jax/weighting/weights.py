"""The weight of a draw: likelihood times prior over proposal. The one place that forms weights of importance samplers.

Rejection sampling takes them from here too. ``chains.tempering`` forms incremental weights of its own.
"""

from __future__ import annotations

import jax

from ..proposals.dirichlet import log_dirichlet_density
from ..targets import Target, Values


def log_weights(
    target: Target, values: Values, log_omega: jax.Array, log_proposal: jax.Array | None = None
) -> jax.Array:
    """Return the log-weights of draws for B problems, relative to the likelihood's peak, ``(B, L)``.

    Args:
      target: the problems.
      values: of the target at the draws.
      log_omega: logarithms of the draws, ``(K, L)`` or ``(B, K, L)``.
      log_proposal: log-density of the proposal at the draws, ``(B, L)`` or ``(L,)``. ``None`` if the draws come from
        the prior of this round: prior and proposal then cancel.
    """
    if log_proposal is None:
        return values.log_ratio
    return values.log_ratio + log_dirichlet_density(target.prior, log_omega) - log_proposal
