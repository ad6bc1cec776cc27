"""Convergence of Markov chains, judged from the moments of batches of their draws.

Each chain, or ensemble of chains, is cut into consecutive batches of equal size. Three numbers follow:

- The standard error of a mean, from the variance between means of batches (batch means; Flegal and Jones 2010).
- The effective number of draws: the variance over the squared standard error.
- R-hat, which compares halves of chains: ``sqrt(1 + between / within)``, where ``between`` is the variance of the means
  of halves and ``within`` that of the draws (nested R-hat; Margossian et al. 2024).

Chains can differ in spread while their means agree, so R-hat is also taken of squares, much as the folded R-hat of
Vehtari et al. (2021) is taken of ``|x - median|``: of ``(x - mean)^2 / variance``, whose mean is one and whose variance
``within`` is taken as known.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..targets import Target
from . import moments as running
from .diagnostics import high_rhat, verdict
from .estimate import Estimate, Moment

BATCHES = 8
"""Number of batches of a chain. The standard error follows from their means."""

NOISE_DRAWS = 64
"""Draws kept for the shape of the noise posterior, which barely depends on theta. Its moments come from all draws."""

SQUARES_VARIANCE = 4.0
"""Variance of ``(x - mean)^2 / variance``: 2 for a normal distribution, 8 for an exponential one; this is between."""


class Convergence(NamedTuple):
    """Verdict on the chains of B problems.

    Attributes:
      ess: effective number of draws of the least precisely estimated component of omega or theta, ``(B,)``.
      rhat: largest split R-hat of these and their squares, ``(B,)``.
      mean_stderr: Monte Carlo standard errors of the means of all quantities, ``(B, n)`` by name.
      variance_stderr: those of the variances.
    """

    ess: jax.Array
    rhat: jax.Array
    mean_stderr: dict[str, jax.Array]
    variance_stderr: dict[str, jax.Array]

    def moment(self, name: str, mean: jax.Array, variance: jax.Array) -> Moment:
        """Return the moment of a quantity with its errors."""
        return Moment(mean, variance, self.mean_stderr[name][None], self.variance_stderr[name][None])


def judge(parts: running.Moments, num_chains: int) -> Convergence:
    """Return the verdict on chains from the moments of their batches.

    Args:
      parts: moments of equally many draws each, stacked along a leading axis of ``num_chains * batches``, all batches
        of the first chain first; the number of batches of a chain is even.
      num_chains: number of independent chains or ensembles.
    """
    whole = running.combine(parts)
    errors = {name: squared_error(means, num_chains) for name, means in parts.mean.items()}
    squares = {name: _squares(name, parts, whole) for name in parts.mean}
    judged = [name for name in ("omega", "theta") if name in parts.mean]
    ess = [_effective(whole.variance(name), errors[name], whole.mass[:, None]).min(-1) for name in judged]
    rhat = [split_rhat(parts.mean[name], squares[name], whole.variance(name), num_chains).max(-1) for name in judged]
    return Convergence(
        ess=functools.reduce(jnp.minimum, ess),
        rhat=functools.reduce(jnp.maximum, rhat),
        mean_stderr={name: jnp.sqrt(error) for name, error in errors.items()},
        variance_stderr={name: _scaled_error(own, whole.variance(name), num_chains) for name, own in squares.items()},
    )


def _effective(variance: jax.Array, error_square: jax.Array, count: jax.Array) -> jax.Array:
    """Return effective numbers of draws, at most the number of draws, ``(B, n)``."""
    still = variance <= 0
    smallest = jnp.maximum(error_square, variance / count)
    return jnp.where(still, count, variance / jnp.where(still, 1, smallest))


def _squares(name: str, parts: running.Moments, whole: running.Moments) -> jax.Array:
    """Return mean squared deviations of batches from the mean of all, ``(batches, B, n)``."""
    return parts.spread[name] / parts.mass[..., None] + jnp.square(parts.mean[name] - whole.mean[name])


def _scaled_error(squares: jax.Array, variance: jax.Array, num_chains: int) -> jax.Array:
    """Return the standard error of a variance; squares of squares of small numbers would underflow."""
    scale = jnp.where(variance > 0, variance, 1)
    return scale * jnp.sqrt(squared_error(squares / scale, num_chains))


def squared_error(means: jax.Array, num_chains: int) -> jax.Array:
    """Return squared standard errors of means of chains, ``(B, n)``, from means of batches, ``(batches, B, n)``.

    The largest of those from batches, and from unions of them up to whole chains: short batches miss slow changes, and
    long ones are few.
    """
    count = means.shape[0]
    batches = count // num_chains
    sizes = [1 << power for power in range(batches.bit_length()) if batches % (1 << power) == 0]
    groups = [count // size for size in sizes if count // size > 1]
    return functools.reduce(jnp.maximum, [_error_square(means, number) for number in groups])


def split_rhat(means: jax.Array, squares: jax.Array, variance: jax.Array, num_chains: int) -> jax.Array:
    """Return R-hat of halves of chains, for quantities and for their squares, whichever is larger, ``(B, n)``.

    Args:
      means: means of batches, ``(batches, B, n)``.
      squares: mean squared deviations of batches from the mean of all, ``(batches, B, n)``.
      variance: variance of all draws, ``(B, n)``; R-hat is 1 where it is zero.
      num_chains: number of chains.
    """
    still = variance <= 0
    scale = jnp.where(still, 1, variance)
    halves = _halves(means, num_chains)
    between = jnp.var(halves, 0, ddof=1)
    within = jnp.where(still, 1, variance - jnp.minimum(jnp.var(halves, 0), 0.99 * variance))
    # Relative squares: their own squares would underflow.
    unequal = jnp.var(_halves(squares / scale, num_chains), 0, ddof=1) / SQUARES_VARIANCE
    return jnp.where(still, 1, jnp.sqrt(1 + jnp.maximum(between / within, unequal)))


def _halves(batches: jax.Array, num_chains: int) -> jax.Array:
    """Return the means of batches over halves of chains, ``(2 num_chains, B, n)``."""
    halves = 2 * num_chains
    return batches.reshape(halves, batches.shape[0] // halves, *batches.shape[1:]).mean(1)


def _error_square(means: jax.Array, groups: int) -> jax.Array:
    """Return the squared standard error of the mean of batches, ``(B, n)``, from the variance between groups."""
    grouped = means.reshape(groups, means.shape[0] // groups, *means.shape[1:]).mean(1)
    return jnp.var(grouped, 0, ddof=1) / groups


def from_chains(key: jax.Array, target: Target, omega: jax.Array, keep: int = 512) -> Estimate:
    """Return the estimate from Markov chains: moments, effective draws, R-hat, kept draws, and the verdict.

    Args:
      key: a PRNG key, to choose the draws that are kept.
      target: the B problems.
      omega: draws of C independent chains of equal length T, without their warm-up, ``(B, K, C, T)``.
      keep: how many draws to keep, at most ``C T``.
    """
    num_problems, num_components, num_chains, length = omega.shape
    size = length // BATCHES
    if not size:
        raise ValueError(f"omega has chains of length {length}; from_chains needs at least {BATCHES} draws of each")
    # The posterior of the noise level needs some draws, too.
    keep = max(keep, NOISE_DRAWS if target.noise.estimates_level else 1)
    # Batches first, those of a chain together: (C BATCHES, B, K, size).
    batches = omega[..., : size * BATCHES].reshape(num_problems, num_components, num_chains * BATCHES, size)
    none, tiny = running.Sizes(0, 0), jnp.finfo(omega.dtype).tiny

    def moments_of(draws):
        log_weights = jnp.zeros((num_problems, size), draws.dtype)
        quantities = target.quantities(draws, target.half_square(draws), jnp.log(jnp.maximum(draws, tiny)))
        return running.summarise(log_weights, quantities, jnp.asarray(size), None, none)

    parts = lax.map(moments_of, jnp.moveaxis(batches, 2, 0))
    whole, verdicts = running.combine(parts), judge(parts, num_chains)
    flat = omega.reshape(num_problems, num_components, num_chains * length)
    chosen = jax.random.choice(key, flat.shape[-1], (keep,), replace=keep > flat.shape[-1])
    status = verdict(verdicts.ess) | high_rhat(verdicts.rhat)
    return Estimate(
        moments={name: verdicts.moment(name, mean, whole.variance(name)) for name, mean in whole.mean.items()},
        ess=verdicts.ess,
        rhat=verdicts.rhat,
        status=status,
        draws=flat[..., chosen],
        draw_weights=jnp.full((num_problems, len(chosen)), 1 / len(chosen), omega.dtype),
    )
