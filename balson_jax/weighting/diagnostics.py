"""Diagnostics of a fit: the one list that estimates and posteriors share, and the verdict on it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from ..status import MAX_RHAT, MIN_ESS, Status
from .pareto import pareto_k_threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """How far to trust a fit; each has the problems' batch shape, ``(...)``.

    To add one: a field here with a default of ``None``, and its value where it is computed, such as
    ``weighting.estimate`` for weighted draws. Samplers that don't know a diagnostic leave it out.

    Attributes:
      log_evidence: log of the marginal likelihood, constants included; NaN for methods that don't estimate it. For
        RSIRS and ISIRS it is the last round's. With ``noise="estimate"`` it has an arbitrary constant, and compares
        only between fits with the same noise prior.
      log_evidence_stderr: its Monte Carlo standard error, plus the rounding of a large number.
      acceptance_rate: evidence over the likelihood's bound, which is the share of draws that rejection sampling
        accepts; NaN where no bound is known.
      ess: effective number of draws (of the worst round).
      pareto_k: shape of the weights' tail (of the worst round). ``-inf`` where all weights are equal, as for RS; NaN
        with ``diagnose_tail=False`` and for chains, which have no weights; set to at most 0 where the bound of
        the weights, or the largest weight seen, is so close to their mean that there is no tail.
      rhat: how well independent Markov chains agree, at best 1; 1 for methods without chains.
      status: ``Status`` as an integer; troubles of all rounds.
    """

    ess: jax.Array
    status: jax.Array
    log_evidence: jax.Array = None  # type: ignore[assignment]
    log_evidence_stderr: jax.Array = None  # type: ignore[assignment]
    acceptance_rate: jax.Array = None  # type: ignore[assignment]
    pareto_k: jax.Array = None  # type: ignore[assignment]
    rhat: jax.Array = None  # type: ignore[assignment]

    def diagnostics(self) -> dict[str, jax.Array]:
        """Return the diagnostics by name; those left out are NaN, and ``rhat`` is 1."""
        found = {}
        for field in dataclasses.fields(Diagnostics):
            value = getattr(self, field.name)
            unknown = 1.0 if field.name == "rhat" else jnp.nan
            found[field.name] = jnp.full_like(self.ess, unknown) if value is None else value
        return found


def verdict(ess: jax.Array, k: jax.Array | None = None, num_draws: jax.Array | int = 0) -> jax.Array:
    """Return the ``Status`` that effective sample size and, for weighted draws, Pareto k call for."""
    low = jnp.where(ess < MIN_ESS, Status.LOW_ESS, 0)
    # Draws of no weight say nothing about the tail: only the effective ones count.
    counted = jnp.clip(ess, MIN_ESS, jnp.maximum(num_draws, MIN_ESS))
    heavy = 0 if k is None else jnp.where(k > pareto_k_threshold(counted), Status.HIGH_PARETO_K, 0)
    return (low | heavy).astype(jnp.int32)


def high_rhat(rhat: jax.Array) -> jax.Array:
    """Return the ``Status`` that R-hat calls for."""
    return jnp.where(rhat <= MAX_RHAT, 0, Status.HIGH_RHAT).astype(jnp.int32)
