"""The constrained least-squares optimum on the simplex, batched.

A primal-dual interior point (Mehrotra's predictor and corrector, 1992) in the reduced K x K problem, followed by Newton
steps on the components it found positive, which refine the digits that the interior point cannot resolve in float32.
The best point seen is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve

from ..problems.batching import map_blocks
from ..problems.linear import LinearProblem
from .residuals import centred, gradient_at

ITERATIONS = {"float32": 14, "float64": 22}
POLISH_STEPS = 3
BLOCK_ELEMENTS = 1 << 20
"""Problems are solved together as long as their K x K matrices hold no more numbers than this."""

UNROLLED_COMPONENTS = 8
"""Up to this size linear systems are solved by unrolled code, which a batch vectorises; LAPACK takes them singly."""


@jax.jit
def simplex_optima(problem: LinearProblem) -> jax.Array:
    """Return the constrained optima ``omega = theta / total`` of one problem or a batch, ``(..., K)``."""
    block = max(1, BLOCK_ELEMENTS // problem.num_components**2)
    return map_blocks(lambda flat: flat.vmap(simplex_optimum), problem, block)


def simplex_optimum(problem: LinearProblem) -> jax.Array:
    """Return the constrained optimum ``omega = theta / total`` of one problem, ``(K,)``."""
    problem = lax.stop_gradient(problem)
    factor = centred(problem.factor)[0]
    hessian = jnp.matmul(factor.T, factor, precision=lax.Precision.HIGHEST)
    best = _interior_point(problem, hessian)

    def polish(_, best):
        return _better(problem, best, _newton_on_support(problem, hessian, best))

    return lax.fori_loop(0, POLISH_STEPS, polish, best).omega


class _Candidate(NamedTuple):
    """A point of the simplex, the gradient of the fit there, and its duality gap."""

    omega: jax.Array
    gradient: jax.Array
    gap: jax.Array


def _candidate(problem: LinearProblem, omega: jax.Array) -> _Candidate:
    omega = jnp.maximum(omega, 0)
    omega = omega / omega.sum()
    gradient = gradient_at(problem, omega)[1]
    return _Candidate(omega, gradient, (gradient.max() - gradient) @ omega)


def _better(problem: LinearProblem, best: _Candidate, omega: jax.Array) -> _Candidate:
    new = _candidate(problem, omega)
    # False where the new gap is NaN: a failed factorisation never replaces a good point.
    return jax.tree.map(lambda a, b: jnp.where(new.gap < best.gap, a, b), new, best)


def _interior_point(problem: LinearProblem, hessian: jax.Array) -> _Candidate:
    num_components = hessian.shape[-1]
    uniform = jnp.full(num_components, 1 / num_components, hessian.dtype)
    best = _candidate(problem, uniform)
    scale = jnp.maximum(jnp.abs(hessian).max(), jnp.abs(best.gradient - best.gradient.mean()).max())
    scale = jnp.where(scale > 0, scale, 1)
    scaled = hessian / scale
    ridge = jnp.finfo(hessian.dtype).eps * jnp.eye(num_components, dtype=hessian.dtype)

    def iterate(_, state):
        omega, dual, level, best = state
        gradient = gradient_at(problem, omega)[1] / scale
        stationarity = level - gradient - dual
        infeasibility = omega.sum() - 1
        factor = _cholesky(scaled + jnp.diag(dual / omega) + ridge)
        along_ones = _solve_factored(factor, jnp.ones_like(omega))

        def direction(complementarity):
            free = _solve_factored(factor, -stationarity - dual + complementarity / omega)
            d_level = (free.sum() + infeasibility) / along_ones.sum()
            d_omega = free - d_level * along_ones
            return d_omega, (complementarity - dual * d_omega) / omega - dual, d_level

        d_omega, d_dual, _ = direction(jnp.zeros_like(omega))
        step_omega, step_dual = _step_length(omega, d_omega), _step_length(dual, d_dual)
        product = omega @ dual / num_components
        predicted = (omega + step_omega * d_omega) @ (dual + step_dual * d_dual) / num_components
        centring = jnp.power(jnp.clip(predicted / product, 0, 1), 3) * product
        d_omega, d_dual, d_level = direction(centring - d_omega * d_dual)
        step = 0.99 * jnp.minimum(_step_length(omega, d_omega), _step_length(dual, d_dual))
        moved = omega + step * d_omega, dual + step * d_dual, level + step * d_level
        healthy = jnp.isfinite(d_omega).all() & jnp.isfinite(d_dual).all()
        tiny = jnp.finfo(omega.dtype).tiny
        omega = jnp.where(healthy, jnp.maximum(moved[0], tiny), omega)
        dual = jnp.where(healthy, jnp.maximum(moved[1], tiny), dual)
        return omega, dual, jnp.where(healthy, moved[2], level), _better(problem, best, omega)

    gradient = best.gradient / scale
    level = gradient.max() + 1
    return lax.fori_loop(0, ITERATIONS[hessian.dtype.name], iterate, (uniform, level - gradient, level, best))[3]


def _step_length(value: jax.Array, change: jax.Array) -> jax.Array:
    """Return the longest step up to 1 that keeps ``value + step * change`` nonnegative."""
    falling = change < 0
    return jnp.minimum(1.0, jnp.where(falling, -value / jnp.where(falling, change, -1), jnp.inf).min())


def _newton_on_support(problem: LinearProblem, hessian: jax.Array, best: _Candidate) -> jax.Array:
    """Return the equality-constrained optimum over the components that seem to be positive.

    At the optimum either a component or its KKT multiplier is zero: the smaller of the two is taken to be zero.
    """
    scale = jnp.maximum(jnp.abs(hessian).max(), jnp.finfo(hessian.dtype).tiny)
    multipliers = (best.gradient.max() - best.gradient) / scale
    support = (best.omega > multipliers).astype(hessian.dtype)
    masked = hessian / scale * support[:, None] * support[None, :]
    ridge = jnp.where(support > 0, 4 * jnp.finfo(hessian.dtype).eps, 1.0)
    factor = _cholesky(masked + jnp.diag(ridge))
    free = _solve_factored(factor, support * (best.gradient - best.gradient.max()) / scale)
    along_ones = _solve_factored(factor, support)
    kept = support * best.omega
    level = (free.sum() + kept.sum() - 1) / along_ones.sum()
    return kept + support * (free - level * along_ones)


def _cholesky(matrix: jax.Array) -> jax.Array:
    """Factorise a positive definite matrix for ``_solve_factored``: the factor, or for a small matrix its inverse."""
    size = matrix.shape[-1]
    if size > UNROLLED_COMPONENTS:
        return jnp.linalg.cholesky(matrix)
    # Gaussian elimination of [matrix, identity], each row divided by the root of its pivot.
    remaining = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)
    rows = []
    for j in range(size):
        scale = lax.rsqrt(remaining[j, j])
        row = scale * remaining[j]
        remaining = remaining - (scale * remaining[:, j])[:, None] * row
        rows.append(row[size:])
    return jnp.stack(rows)


def _solve_factored(factor: jax.Array, right: jax.Array) -> jax.Array:
    """Solve a linear system whose matrix ``_cholesky`` factorised."""
    if factor.shape[-1] > UNROLLED_COMPONENTS:
        return cho_solve((factor, True), right)
    exact = lax.Precision.HIGHEST
    return jnp.matmul(jnp.matmul(factor, right, precision=exact), factor, precision=exact)
