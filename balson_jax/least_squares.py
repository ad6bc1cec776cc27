"""Constrained least squares: ``min |y - A theta|^2 / 2`` over the simplex, batched, with a certified bound.

A primal-dual interior point (Mehrotra's predictor and corrector) in the reduced K x K problem, followed by Newton
steps on the components it found positive, which refine what the interior point cannot resolve in float32. The
best point seen is kept. For a residual ``r`` and ``gap = max_k x_k'r - r'X omega >= 0`` the optimum is at least
``max(0, |r|^2 - gap)^2 / (2 |r|^2)``, so the answer carries its own certificate.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve

from .problems import constraints
from .problems.batching import map_blocks
from .problems.linear import LinearProblem
from .problems.noise import InverseGamma
from .targets.linear import centred, gradient_at, rounding

ITERATIONS = {"float32": 14, "float64": 22}
POLISH_STEPS = 3
BLOCK_ELEMENTS = 1 << 20
"""Problems are solved together as long as their K x K matrices hold no more numbers than this."""

UNROLLED_COMPONENTS = 8
"""Up to this size linear systems are solved by unrolled code, which a batch vectorises; LAPACK takes them singly."""


class LeastSquares(NamedTuple):
    """The constrained optimum, with the problem's batch axes leading.

    Attributes:
      theta: the solution, ``(..., P)``, which keeps the problem's constraint.
      objective: half the sum of squared residuals at ``theta``, in units of the noise, where its level was given.
      bound: no feasible theta has a smaller objective, the rounding of the reduced data included.
      gap: ``objective - bound``, nonnegative.
    """

    theta: jax.Array
    objective: jax.Array
    bound: jax.Array
    gap: jax.Array


def least_squares(problem: LinearProblem) -> LeastSquares:
    """Return the constrained least-squares optimum of one problem or a batch, and how far off it can be.

    A constant to automatic differentiation.

    >>> import jax.numpy as jnp
    >>> from balson_jax import linear_problem
    >>> solution = least_squares(linear_problem(jnp.eye(3), jnp.array([0.9, 0.4, -1.0]), noise=1.0))
    >>> [round(value, 3) for value in solution.theta.tolist()]
    [0.75, 0.25, 0.0]
    """
    if not isinstance(problem, LinearProblem):
        raise ValueError(f"problem is a {type(problem).__name__}; least_squares needs one of linear_problem")
    return _certify(problem, simplex_optima(problem))


@jax.jit
def simplex_optima(problem: LinearProblem) -> jax.Array:
    """Return the constrained optima ``omega = theta / total`` of one problem or a batch, ``(..., K)``."""
    block = max(1, BLOCK_ELEMENTS // problem.num_components**2)
    return map_blocks(lambda flat: flat.vmap(simplex_optimum), problem, block)


@jax.jit
def _certify(problem: LinearProblem, omega: jax.Array) -> LeastSquares:
    return map_blocks(lambda flat, omega: flat.vmap(_certified, omega), problem, arrays=(omega,))


def _certified(problem: LinearProblem, omega: jax.Array) -> LeastSquares:
    half_square, gradient = gradient_at(problem, omega)
    square = 2 * jnp.maximum(half_square, 0)
    objective = 0.5 * square
    # What the rounding of the reduced data does to the gap, and to the square.
    column_size = jnp.sqrt(jnp.square(problem.factor).sum(0).max())
    error = rounding(problem) / problem.total
    gap = (gradient.max() - gradient) @ omega + 2 * column_size * error
    dual = jnp.square(jnp.maximum(square - gap, 0)) / jnp.where(square > 0, 2 * square, 1)
    bound = jnp.clip(dual - error * (jnp.sqrt(square) + error), 0, objective)
    level = 1.0 if isinstance(problem.noise, InverseGamma) else problem.noise
    scale = jnp.square(problem.total / level)
    theta = problem.total * constraints.unlift(problem.constraint, omega)
    solution = LeastSquares(theta, scale * objective, scale * bound, scale * (objective - bound))
    return lax.stop_gradient(solution)


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
    """Return the equality-constrained optimum over the components that seem to be positive."""
    scale = jnp.maximum(jnp.abs(hessian).max(), jnp.finfo(hessian.dtype).tiny)
    slack = (best.gradient.max() - best.gradient) / scale
    support = (best.omega > slack).astype(hessian.dtype)
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
