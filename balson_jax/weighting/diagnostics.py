"""Diagnostics of a fit: the one list that estimates and posteriors share, and the verdict on it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from ..status import MIN_ESS, Status
from .pareto import pareto_k_threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """How far to trust a fit; each has the problems' batch shape, ``(...)``.

    To add one: a field here, and its value where a sampler's result is computed (``weighting.estimate``).

    Attributes:
      log_evidence: log of the marginal likelihood, constants included; NaN for methods that don't estimate it. For
        RSIRS and ISIRS it is the last round's. With ``noise="estimate"`` it has an arbitrary constant, and compares
        only with others of the kind.
      log_evidence_stderr: its Monte Carlo standard error, plus the rounding of a large number.
      acceptance_rate: evidence over the likelihood's bound, which is the share of draws that rejection sampling
        accepts; NaN where no bound is known.
      ess: effective number of draws (of the worst round).
      pareto_k: shape of the weights' tail (of the worst round). ``-inf`` where all weights are equal, as for RS; NaN
        with ``diagnose_tail=False`` and for chains, which have no weights; at most 0 where the weights' bound is so
        close to their mean that there is no tail.
      rhat: how well independent Markov chains agree, at best 1; 1 for methods without chains.
      status: ``Status`` as an integer; troubles of all rounds.
    """

    log_evidence: jax.Array
    log_evidence_stderr: jax.Array
    acceptance_rate: jax.Array
    ess: jax.Array
    pareto_k: jax.Array
    rhat: jax.Array
    status: jax.Array

    def diagnostics(self) -> dict[str, jax.Array]:
        """Return the diagnostics by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Diagnostics)}


def verdict(ess: jax.Array, k: jax.Array, num_draws: int) -> jax.Array:
    """Return the ``Status`` that effective sample size and Pareto k alone call for."""
    low = jnp.where(ess < MIN_ESS, Status.LOW_ESS, 0)
    heavy = jnp.where(k > pareto_k_threshold(num_draws), Status.HIGH_PARETO_K, 0)
    return (low | heavy).astype(jnp.int32)
