"""Steps of tempered walkers: the next power, resampling, and the estimate of all ensembles (see ``tempering``)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...bisection import bisect

SHARE = 0.9
"""Share of walkers that are effective after a step. A larger share takes more steps, a smaller one loses more."""

SMALL = 1e-3
"""The search for a step begins at one across which log-weights differ by this many nats."""

HALVINGS = 20
"""The search halves the interval of the step's logarithm this many times."""


def effective_share(log_weights: jax.Array) -> jax.Array:
    """Return effective numbers of weighted draws ``(..., n)`` as a share of them, ``(...)``.

    >>> effective_share(jnp.log(jnp.array([1.0, 1.0, 0.0, 0.0])))
    Array(0.5, dtype=float32)
    """
    weights = jnp.exp(log_weights - log_weights.max(-1, keepdims=True))
    return jnp.square(weights.sum(-1)) / jnp.square(weights).sum(-1) / weights.shape[-1]


def correlation(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return correlations of values of walkers, ``(B, E, W)`` each, within ensembles, ``(B,)``; 0 if some are equal."""
    first, second = (values - values.mean(-1, keepdims=True) for values in (first, second))
    sizes = (jnp.sqrt(jnp.square(values).sum((1, 2))) for values in (first, second))
    size = jnp.prod(jnp.stack(list(sizes)), 0)
    return jnp.where(size > 0, (first * second).sum((1, 2)) / jnp.where(size > 0, size, 1), 0)


def next_power(power: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """Return the next powers, ``(B,)``: after the step the share ``SHARE`` of the walkers is effective, or more at 1.

    Args:
      power: the powers now, ``(B,)``.
      log_ratio: logarithms of the likelihoods of all walkers, ``(B, n)``.
    """
    away = log_ratio - log_ratio.max(-1, keepdims=True)
    left = jnp.maximum(1 - power, jnp.finfo(power.dtype).tiny)
    spread = -jnp.where(jnp.isfinite(away), away, 0).min(-1)
    low = jnp.minimum(jnp.log(SMALL) - jnp.log(jnp.maximum(spread, SMALL)), jnp.log(left))

    def is_enough(log_step):
        return effective_share(jnp.exp(log_step)[:, None] * away) > SHARE

    step = jnp.exp(bisect(is_enough, low, jnp.log(left), HALVINGS))
    ends = (power >= 1) | is_enough(jnp.log(left)) | ~jnp.isfinite(step)
    return jnp.where(ends, 1, jnp.minimum(power + step, 1))


def resampled(key: jax.Array, log_weights: jax.Array) -> jax.Array:
    """Return indices of draws taken by their weights, ``(B, E, W)``, by systematic resampling and in random order.

    Args:
      key: a PRNG key; problems share the random numbers, ensembles don't.
      log_weights: ``(B, E, W)``; NaN counts as no weight.
    """
    num_ensembles, count = log_weights.shape[1:]
    log_weights = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    weights = jnp.exp(log_weights - log_weights.max(-1, keepdims=True))
    below = jnp.cumsum(weights, -1)
    offset_key, order_key = jax.random.split(key)
    offsets = jax.random.uniform(offset_key, (num_ensembles, 1), below.dtype)
    places = (jnp.arange(count) + offsets) / count * below[..., -1:]
    chosen = jnp.minimum((below[..., None, :] <= places[..., None]).sum(-1), count - 1)
    # Copies must not lie side by side: one half of an ensemble takes its directions from the other.
    order = jax.random.uniform(order_key, (num_ensembles, count)).argsort(-1)
    return jnp.take_along_axis(chosen, jnp.broadcast_to(order, chosen.shape), -1)


def combined(log_means: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the logarithm of the mean of independent estimates, ``(B,)``, and its standard error.

    The mean of the estimates is unbiased; that of their logarithms is not. The error is the largest of three: that of
    the mean; that of the mean logarithm, which is less often small by chance if some estimates are far below the
    others; and the least that is possible with this number of walkers.

    Args:
      log_means: logarithms of the estimates, ``(B, E)``.
      variance: least variance of the result, ``(B,)``.
    """
    count = log_means.shape[-1]
    log_mean = jax.nn.logsumexp(log_means, -1) - jnp.log(count)
    relative = jnp.exp(log_means - log_mean[:, None])
    of_mean, of_logs = (jnp.var(values, -1, ddof=1) / count for values in (relative, log_means))
    return log_mean, jnp.sqrt(jnp.maximum(jnp.maximum(of_mean, of_logs), variance))
