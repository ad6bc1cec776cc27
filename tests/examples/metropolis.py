"""An independence Metropolis chain, written outside the package: proposals come from the prior."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import balson_jax as balson
from balson_jax.weighting.convergence import from_chains

CHAINS = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Metropolis(balson.Sampler):
    """Accept a draw of the prior with probability ``min(1, likelihood / likelihood of the last)``."""

    num_steps: int = dataclasses.field(default=2048, metadata={"static": True})
    keep: int = dataclasses.field(default=512, metadata={"static": True})

    name = "metropolis"
    is_chain = True
    has_evidence = False
    has_derivatives = False

    def run(self, key, target, axes=()):
        alpha = target.full_prior

        def step(state, key):
            omega, log_ratio = state
            # All problems of a batch use the same random numbers.
            draws = jax.vmap(lambda own: balson.random.dirichlet(key, own, (CHAINS,)))(alpha)
            proposed = jnp.swapaxes(draws, 1, 2)
            values = target.log_ratio(proposed)
            uniform = jax.random.uniform(jax.random.fold_in(key, 1), (CHAINS,), values.dtype)
            accepted = jnp.log(uniform) < values - log_ratio
            omega = jnp.where(accepted[:, None], proposed, omega)
            return (omega, jnp.where(accepted, values, log_ratio)), omega

        start = jnp.repeat(balson.dirichlet.mean(alpha)[..., None], CHAINS, -1)
        keys = jax.random.split(key, self.num_steps)
        draws = jax.lax.scan(step, (start, target.log_ratio(start)), keys)[1]
        return from_chains(key, target, jnp.moveaxis(draws[self.num_steps // 4 :], 0, -1), self.keep)
