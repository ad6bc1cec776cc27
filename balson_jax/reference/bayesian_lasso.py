"""The Bayesian LASSO of Park and Casella (2008), by Gibbs sampling.

    y | theta, s^2        ~ N(A theta, s^2)
    theta_j | t_j^2, s^2  ~ N(0, s^2 t_j^2),    t_j^2 ~ Exp(l^2 / 2):    a Laplace prior of scale s / l
    s^2                   ~ 1 / s^2,            l^2 ~ Gamma(shape, rate)

All full conditionals are standard distributions: Gaussian for theta, inverse Gaussian for ``1 / t_j^2``, inverse gamma
for ``s^2`` and gamma for ``l^2``. The noise s and the penalty l are sampled unless they are given.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from .. import random, validation
from ..problems.batching import map_blocks
from ..problems.linear import LinearProblem, linear_problem

SHAPE = 1.0
"""Shape of the gamma prior on the squared penalty, as in Park and Casella (2008)."""

RATE = 1.78
"""Rate of the gamma prior on the squared penalty, as in Park and Casella (2008)."""

BLOCK_ELEMENTS = 1 << 23
"""Largest number of values in the draws of problems sampled together. All draws are kept, for the median."""

LARGEST_MEAN = 1e6
"""Cap on the mean of the inverse Gaussian, which is infinite for a coefficient of zero. Higher caps change little."""


class BayesianLasso(NamedTuple):
    """Posterior summaries from the Gibbs sampler, with the batch axes leading.

    Attributes:
      mean: posterior mean of theta, ``(..., K)``.
      median: posterior median of theta, ``(..., K)``: the point estimate of Park and Casella.
      std: posterior standard deviation of theta, ``(..., K)``.
      noise: posterior mean of the noise's standard deviation, ``(...)``.
      penalty: posterior mean of the penalty l, ``(...)``.
      r_hat: split R-hat of theta, ``(..., K)``. It is near 1 if the chains agree, and infinite if they do not move or
        are not finite, for example for a target of zeros. It does not detect rounding errors: in float32, noise below
        1e-6 of the target is lost.
      ess: effective number of draws of theta, ``(..., K)``.
    """

    mean: jax.Array
    median: jax.Array
    std: jax.Array
    noise: jax.Array
    penalty: jax.Array
    r_hat: jax.Array
    ess: jax.Array


def bayesian_lasso(
    key: jax.Array,
    design: Any,
    target: Any,
    *,
    noise: float | None = None,
    penalty: float | None = None,
    num_draws: int = 1000,
    warm_up: int = 250,
    num_chains: int = 4,
) -> BayesianLasso:
    """Sample the posterior of the Bayesian LASSO for one problem or a batch.

    The prior of theta is Laplace with scale ``noise / penalty``. Unless they are given, the noise variance has the
    prior density ``1 / variance`` and the squared penalty the prior Gamma(1, rate 1.78).

    Args:
      key: a PRNG key. All problems of a batch use the same random numbers, as if each were fitted with this key.
      design: ``(..., N, K)``.
      target: ``(..., N)``.
      noise: the noise's standard deviation, one number for all problems; ``None`` to sample it.
      penalty: one number for all problems, in units of the noise; ``None`` to sample it.
      num_draws: draws kept from each chain; even and at least 4.
      warm_up: draws discarded at the start of each chain.
      num_chains: number of independent chains, compared by R-hat.

    Returns:
      A ``BayesianLasso``: mean, median, standard deviation and convergence diagnostics.
    """
    key = validation.typed_key(key)
    validation.require_at_least("num_draws", num_draws, 4)
    validation.require_at_least("warm_up", warm_up, 0)
    validation.require_at_least("num_chains", num_chains, 1)
    if num_draws % 2:
        raise ValueError(f"num_draws={num_draws} must be even, because chains are split in halves")
    for name, value in (("noise", noise), ("penalty", penalty)):
        if value is not None:
            value = validation.float_array(name, value)
            if value.ndim:
                raise ValueError(f"{name} has shape {value.shape}; pass one number for all problems")
            validation.require_positive(name, value)
    problem = linear_problem(design, target, noise=1.0)
    return _sample(key, problem, noise, penalty, num_draws, warm_up, num_chains)


@functools.partial(jax.jit, static_argnames=("num_draws", "warm_up", "num_chains"))
def _sample(key, problem, noise, penalty, num_draws: int, warm_up: int, num_chains: int) -> BayesianLasso:
    keys = jax.random.split(key, num_chains)

    def one_problem(problem):
        chains = jax.vmap(lambda key: _chain(key, problem, noise, penalty, num_draws, warm_up))(keys)
        return _summary(*chains)

    block = max(1, BLOCK_ELEMENTS // (num_chains * num_draws * problem.num_components))
    return map_blocks(lambda flat: flat.vmap(one_problem), problem, block)


def _chain(key, problem: LinearProblem, noise, penalty, num_draws: int, warm_up: int):
    """Return draws of theta ``(num_draws, K)``, of the noise and of the penalty ``(num_draws,)``."""
    factor, dtype = problem.factor, problem.dtype
    num_components = factor.shape[-1]
    gram = factor.T @ factor
    pull = problem.projection @ factor

    def step(state, key):
        before, variance, inverse_spread, square_penalty = state
        theta_key, variance_key, spread_key, penalty_key = jax.random.split(key, 4)
        # In units of the prior's standard deviations the precision is the identity plus a scaled Gram matrix. The ridge
        # makes up for rounding, so that the Cholesky factor exists.
        spread = lax.rsqrt(inverse_spread)
        precision = jnp.eye(num_components, dtype=dtype) + spread[:, None] * gram * spread
        ridge = jnp.finfo(dtype).eps * jnp.trace(precision) * jnp.eye(num_components, dtype=dtype)
        root = jnp.linalg.cholesky(precision + ridge)
        whitened = solve_triangular(root, spread * pull, lower=True)
        normal = jax.random.normal(theta_key, (num_components,), dtype)
        theta = spread * solve_triangular(root.T, whitened + jnp.sqrt(variance) * normal, lower=False)
        theta = jnp.where(jnp.isfinite(theta).all(), theta, before)
        if noise is None:
            residual = jnp.square(problem.projection - factor @ theta).sum() + 2 * problem.rest
            rate = 0.5 * (residual + inverse_spread @ jnp.square(theta))
            shape = 0.5 * (problem.num_rows + num_components)
            variance = rate / random.gamma(variance_key, shape, dtype=dtype)
        # 1 / t_j^2 is inverse Gaussian with mean l s / |theta_j| and shape l^2, which is l^2 times one with mean
        # s / (l |theta_j|) and shape 1.
        tiny = jnp.finfo(dtype).tiny
        mean = jnp.sqrt(variance / jnp.maximum(square_penalty * jnp.square(theta), tiny))
        unit = _inverse_gaussian(spread_key, jnp.minimum(mean, LARGEST_MEAN))
        inverse_spread = square_penalty * jnp.maximum(unit, tiny)
        if penalty is None:
            rate = RATE + 0.5 * (1 / inverse_spread).sum()
            square_penalty = random.gamma(penalty_key, SHAPE + num_components, dtype=dtype) / rate
        state = theta, variance, inverse_spread, square_penalty
        return state, (theta, jnp.sqrt(variance), jnp.sqrt(square_penalty))

    total_square = jnp.square(problem.projection).sum() + 2 * problem.rest
    variance = total_square / problem.num_rows if noise is None else jnp.square(jnp.asarray(noise, dtype))
    square_penalty = jnp.ones((), dtype) if penalty is None else jnp.square(jnp.asarray(penalty, dtype))
    start = jnp.zeros(num_components, dtype), variance, jnp.ones(num_components, dtype), square_penalty
    keys = jax.random.split(key, warm_up + num_draws)
    state = lax.scan(lambda state, key: (step(state, key)[0], None), start, keys[:warm_up])[0]
    return lax.scan(step, state, keys[warm_up:])[1]


def _inverse_gaussian(key: jax.Array, mean: jax.Array) -> jax.Array:
    """Draw from inverse Gaussian distributions of shape 1 by the method of Michael, Schucany and Haas (1976).

    ``jax.random.wald`` subtracts large numbers; for a mean of 1e4 it has no correct digits left in float32. This
    function avoids the subtraction.
    """
    normal_key, uniform_key = jax.random.split(key)
    half = 0.5 * mean * jnp.square(jax.random.normal(normal_key, mean.shape, mean.dtype))
    ratio = 1 + half + jnp.sqrt(half * (half + 2))  # the two roots are mean / ratio and mean * ratio
    smaller = jax.random.uniform(uniform_key, mean.shape, mean.dtype) * (1 + 1 / ratio) < 1
    return jnp.where(smaller, mean / ratio, mean * ratio)


def _summary(theta: jax.Array, noise: jax.Array, penalty: jax.Array) -> BayesianLasso:
    """Summarise the draws of all chains, ``(chains, draws, K)`` and ``(chains, draws)``."""
    flat = theta.reshape(-1, theta.shape[-1])
    r_hat, ess = convergence(theta)
    return BayesianLasso(flat.mean(0), jnp.median(flat, axis=0), flat.std(0), noise.mean(), penalty.mean(), r_hat, ess)


def convergence(draws: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return split R-hat and the effective number of draws of chains ``(chains, draws, ...)``.

    As in Gelman et al., Bayesian Data Analysis. Autocorrelations of the split chains are summed in pairs of lags, up to
    the first pair whose sum is not positive (Geyer 1992). The effective number of S draws is at most ``S log10(S)``.
    """
    num_chains, num_draws = draws.shape[:2]
    half = num_draws // 2
    split = draws[:, : 2 * half].reshape(2 * num_chains, half, *draws.shape[2:])
    within = split.var(1, ddof=1).mean(0)
    between = half * split.mean(1).var(0, ddof=1)
    tiny = jnp.finfo(draws.dtype).tiny
    pooled = (half - 1) / half * within + between / half
    r_hat = jnp.sqrt(pooled / jnp.maximum(within, tiny))
    r_hat = jnp.where((within > 0) & jnp.isfinite(r_hat), r_hat, jnp.inf)
    centred = split - split.mean(1, keepdims=True)
    spectrum = jnp.fft.rfft(centred, n=2 * half, axis=1)
    products = jnp.fft.irfft(jnp.square(jnp.abs(spectrum)), n=2 * half, axis=1)[:, :half].mean(0) / half
    correlation = 1 - (within - products) / jnp.maximum(pooled, tiny)
    correlation = correlation.at[0].set(1.0)
    pairs = correlation[: 2 * (half // 2)].reshape(half // 2, 2, *draws.shape[2:]).sum(1)
    positive = jnp.cumprod(pairs > 0, axis=0)
    time = jnp.maximum(2 * (positive * pairs).sum(0) - 1, 1 / jnp.log10(2.0 * num_chains * half))
    return r_hat, 2 * num_chains * half / time
