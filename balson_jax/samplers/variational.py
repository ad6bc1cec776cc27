"""Variational inference: the Dirichlet that is closest to the posterior, corrected by importance weights.

The closest in ``KL(Dir(a) | posterior)`` maximises a lower bound of the log-evidence,

    E[ln likelihood] - KL(Dir(a) | Dir(prior)),

which a linear problem has in closed form: the mean of a quadratic needs only the Dirichlet's mean and covariance. If
the noise is unknown, its level is integrated out at the mean square, which is a lower bound again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..proposals import DirichletProposal, DividedProposal
from ..random import points as unit_cube
from ..random.simplex import log_dirichlet
from ..targets import Target
from ..weighting.estimate import Estimate
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, Sampler, num_kept
from .gaussian import plan_of
from .importance import importance

SMALLEST = -12.0
NEWTON_STEPS = 40
LAST_STEP = 0.01
STOCHASTIC_DRAWS = 64


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Variational(Sampler):
    """The Dirichlet closest to the posterior, in ``KL(Dir(alpha) | posterior)``, corrected by importance sampling.

    ``alpha`` and ``theta`` are the closest Dirichlet's. ``mean``, ``std``, ``log_evidence`` and draws are of the
    posterior, from weighted draws of that Dirichlet, one in eight from the prior; ``pareto_k`` and ``ess`` show how
    good the approximation is. Where components are strongly correlated no Dirichlet is close, and ``status`` says so.

    Of a model that is not linear ``alpha`` has no derivatives (they are zero); ``mean`` has.

    Attributes:
      num_draws: draws per problem, at least 2; rounded up to a power of two, at least 64.
      steps: of the optimiser, for models that are not linear, whose bound is estimated by draws.
      points: ``"sobol"`` or ``"pseudo"``, as for ``IS``.
      chunk: draws computed at a time; bounds the memory.
      diagnose_tail: whether Pareto k is computed.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    steps: int = dataclasses.field(default=300, metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    name = "variational"

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return max(min(self.chunk, self.num_draws) * num_components, num_components**2)

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates and the closest ``alpha`` of B problems; devices along the axes divide the draws."""
        search_key, final_key = jax.random.split(key)
        alpha = closest(target) if target.is_linear else _closest_by_draws(search_key, target, self.steps)
        proposal = DirichletProposal(lax.stop_gradient(alpha))
        found = importance(
            final_key,
            target,
            DividedProposal(proposal, lax.stop_gradient(target.full_prior)),
            plan_of(self, num_kept(self.keep, target)),
            corrects=True,
            logs=False,
            axes=axes,
        )
        return dataclasses.replace(found, alpha=alpha)


def _log_range(dtype) -> tuple[float, float]:
    """Return the range of the logarithms of concentrations; above it rounding spoils the bound."""
    return SMALLEST, -0.6 * math.log(jnp.finfo(dtype).eps)


def bound(target: Target, log_alpha: jax.Array) -> jax.Array:
    """Return the lower bound of ``ln(evidence / peak)`` that ``Dir(exp(log_alpha))`` gives, ``(B,)``."""
    alpha = jnp.exp(log_alpha)
    return target.expected_log_ratio(alpha) - dirichlet.kl_divergence(alpha, target.prior)


def closest(target: Target) -> jax.Array:
    """Return the concentrations ``(B, K)`` that maximise the bound, by Newton's method in their logarithms.

    The last step uses the slope alone: values of the bound are rounded, and locate its maximum to half the digits only.
    It carries the derivatives, which are exact to first order.
    """
    fixed = lax.stop_gradient(target)

    def update(_, log_alpha):
        step = _newton_step(lambda x: bound(fixed, x), log_alpha)
        sizes = jnp.asarray([0.0, 0.03, 0.1, 0.3, 1.0], log_alpha.dtype)
        tried = jnp.clip(log_alpha + sizes[:, None, None] * jnp.clip(step, -3, 3), *_log_range(log_alpha.dtype))
        values = lax.map(lambda x: bound(fixed, x), tried)
        best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values), axis=0)
        return jnp.take_along_axis(tried, best[None, :, None], axis=0)[0]

    log_alpha = lax.fori_loop(0, NEWTON_STEPS, update, _start(fixed))
    curvature = _curvature(lambda x: bound(fixed, x), log_alpha)
    slope = jax.grad(lambda x: bound(target, x).sum())(log_alpha)
    step = _solve(curvature, slope)
    # An unfinished search, or one at the end of its range, may take a wrong last step: keep only its derivatives.
    small = jnp.abs(step).max(-1, keepdims=True) < LAST_STEP
    return jnp.exp(log_alpha + step - lax.stop_gradient(jnp.where(small, 0, step)))


def _curvature(function: Callable[[jax.Array], jax.Array], log_alpha: jax.Array) -> jax.Array:
    """Return the Hessians of a function of rows that doesn't mix them, ``(B, K, K)``."""
    gradient = jax.grad(lambda x: function(x).sum())
    directions = jnp.eye(log_alpha.shape[-1], dtype=log_alpha.dtype)

    def column(direction):
        return jax.jvp(gradient, (log_alpha,), (jnp.broadcast_to(direction, log_alpha.shape),))[1]

    return jnp.moveaxis(lax.map(column, directions), 0, 1)


def _newton_step(function: Callable[[jax.Array], jax.Array], log_alpha: jax.Array) -> jax.Array:
    return _solve(_curvature(function, log_alpha), jax.grad(lambda x: function(x).sum())(log_alpha))


def _solve(curvature: jax.Array, slope: jax.Array) -> jax.Array:
    """Return the step uphill whose length is the slope over the size of the curvature, in each principal direction."""
    values, vectors = jnp.linalg.eigh(lax.stop_gradient(curvature))
    sizes = jnp.abs(values)
    sizes = jnp.maximum(sizes, 1e-6 * sizes.max(-1, keepdims=True) + 1e-12)
    exact = lax.Precision.HIGHEST
    across = jnp.einsum("bji,bj->bi", vectors, slope, precision=exact) / sizes
    return jnp.einsum("bij,bj->bi", vectors, across, precision=exact)


def _start(target: Target) -> jax.Array:
    """Return logarithms of concentrations about the constrained optimum, of the best of some precisions."""
    prior = target.full_prior
    mean = 0.95 * target.quadratic().optimum + 0.05 * dirichlet.mean(prior)
    precisions = jnp.exp(jnp.linspace(0.0, _log_range(prior.dtype)[1], 17, dtype=prior.dtype))
    tried = jnp.log(prior + precisions[:, None, None] * mean)
    values = lax.map(lambda x: bound(target, x), tried)
    best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values), axis=0)
    return jnp.take_along_axis(tried, best[None, :, None], axis=0)[0]


def _closest_by_draws(key: jax.Array, target: Target, steps: int) -> jax.Array:
    """Return the concentrations ``(B, K)`` that maximise the bound, by stochastic gradients of reparametrised draws."""
    import optax

    target = lax.stop_gradient(target)
    prior = target.full_prior
    schedule = optax.cosine_decay_schedule(0.1, steps, 0.02)
    optimizer = optax.adam(schedule)

    def loss(log_alpha, key):
        alpha = jnp.exp(log_alpha)
        generate = unit_cube.GENERATORS["sobol"]
        points = unit_cube.coordinates(generate, key, STOCHASTIC_DRAWS, start=0, dtype=prior.dtype)
        likelihood = target.log_ratio(jnp.exp(log_dirichlet(points, alpha))).mean(-1)
        gain = likelihood - dirichlet.kl_divergence(alpha, prior)
        return -jnp.where(jnp.isfinite(gain), gain, 0).sum()

    def step(index, carry):
        log_alpha, state = carry
        gradient = jax.grad(loss)(log_alpha, jax.random.fold_in(key, index))
        # Adam scales each component's gradients by themselves, so problems don't affect each other.
        updates, state = optimizer.update(jnp.nan_to_num(gradient), state)
        return jnp.clip(log_alpha + jnp.asarray(updates), *_log_range(log_alpha.dtype)), state

    log_alpha = jnp.log(prior)
    return jnp.exp(lax.fori_loop(0, steps, step, (log_alpha, optimizer.init(log_alpha)))[0])
