"""The target of problems whose model is a function."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems.batching import map_blocks
from ..problems.model import ModelProblem
from .base import Needs, Optimum, Quadratic, Target, Values, common_fields, find_optimum, target_of

PREDICTED_ELEMENTS = 1 << 20
"""Draws are evaluated together as long as a model's predictions for them hold no more numbers than this."""

SEARCH_STREAM = 0x626F756E
"""Folded into the key for the search, so that its random numbers are not the sampler's."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelTarget(Target):
    """Problems whose model is a function.

    Attributes:
      problem: the flattened batch.
      optimum: the likeliest point, as far as it is known, ``(B, K)``, or ``None``.
      peaks: where searches for it ended, ``(B, S, K)``, or ``None``.
    """

    problem: ModelProblem
    optimum: jax.Array | None
    peaks: jax.Array | None = None

    def evaluate(self, omega: jax.Array) -> Values:
        """Return relative log-likelihoods and half-squares of draws."""
        half_square = self._half_square(omega)
        # The base may be far away.
        log_ratio = self._noise_of_draws.far_log_ratio(self.num_rows[:, None], self.base[:, None], half_square)
        return Values(log_ratio, half_square)

    def _half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, ``(B, L)``."""
        num_problems = self.base.shape[0]
        at_a_time = max(1, PREDICTED_ELEMENTS // (num_problems * self.problem.target.shape[-1]))

        def one(problem, omega):
            draws = jnp.moveaxis(omega, -1, 0)
            return lax.map(problem.half_square, draws, batch_size=min(at_a_time, draws.shape[0]))

        # vmap computes the parts of a model that don't depend on the problem once.
        if omega.ndim == 2:
            half_square = self.problem.vmap(lambda problem: one(problem, omega))
            return jnp.broadcast_to(half_square, (num_problems, omega.shape[-1]))
        return self.problem.vmap(one, omega)

    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods of the models that are linear in omega and agree with these at the optima."""
        assert self.optimum is not None, "the model's optimum is needed"

        def one(problem, optimum):
            residual = problem.residual(optimum)
            jacobian = -jax.jacfwd(problem.residual)(optimum)
            return residual, jacobian - jacobian.mean(-1, keepdims=True)

        residual, root = self.problem.vmap(one, self.optimum)
        half_square = 0.5 * jnp.square(residual).sum(-1)
        scale = 1 / self.noise.likeliest_level(self.num_rows, half_square)
        root, residual = scale[:, None, None] * root, scale[:, None] * residual
        return Quadratic(root, self.optimum, -jnp.einsum("bnk,bn->bk", root, residual, precision=lax.Precision.HIGHEST))


@find_optimum.register
def _(problem: ModelProblem, key: jax.Array, needs: Needs) -> Optimum:
    bound = jnp.broadcast_to(problem.bound, problem.batch_shape)
    searches = problem.search and needs.bound
    if not searches and not needs.optimum:
        return Optimum(None, bound)
    smallest, omega, peaks = _search_optima(jax.random.fold_in(key, SEARCH_STREAM), problem)
    smallest = smallest if searches else bound
    return Optimum(omega, smallest, peaks) if needs.optimum else Optimum(None, smallest)


@jax.jit
def _search_optima(key: jax.Array, problem: ModelProblem) -> tuple[jax.Array, jax.Array, jax.Array]:
    return map_blocks(lambda flat: flat.vmap(functools.partial(search_optimum, key)), problem)


@target_of.register
def model_target(problem: ModelProblem, optimum: Optimum) -> ModelTarget:
    """Return the target of a flattened batch of models, relative to bounds of their half-squares."""

    def one(problem, bound):
        unbounded = problem.noise.is_unbounded(bound)
        # Where a perfect fit would be infinitely likely, the fit of the prior's mean is the reference; it is no bound.
        middle = lax.stop_gradient(problem.half_square(dirichlet.mean(problem.prior)))
        base = jnp.where(unbounded, jnp.where(middle > 0, middle, 1), bound)
        return common_fields(
            problem, base, improper=jnp.bool_(False), unbounded=unbounded, rounding=jnp.zeros_like(base)
        )

    assert optimum.bound is not None
    common = problem.vmap(one, lax.stop_gradient(optimum.bound))
    return ModelTarget(
        **common,
        prior=problem.prior,
        constraint=problem.constraint,
        problem=problem,
        optimum=optimum.omega,
        peaks=optimum.peaks,
    )


def search_optimum(
    key: jax.Array, problem: ModelProblem, num_starts: int = 8, num_steps: int = 60
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the smallest half-square that L-BFGS finds from several starts, its omega, and where all of them end.

    For one problem. It is a local optimum: there may be a smaller one.
    """
    import optax

    starts = jax.random.normal(key, (num_starts, problem.num_components), problem.dtype)

    def loss(logits):
        return problem.half_square(jax.nn.softmax(logits))

    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    def better(best, value, logits):
        return jax.tree.map(lambda new, old: jnp.where(value < best[0], new, old), (value, logits), best)

    def descend(logits):
        def step(_, carry):
            logits, state, best = carry
            value, grad = value_and_grad(logits, state=state)
            best = better(best, value, logits)
            updates, state = optimizer.update(grad, state, logits, value=value, grad=grad, value_fn=loss)
            return optax.apply_updates(logits, updates), state, best

        start = logits, optimizer.init(logits), (jnp.asarray(jnp.inf, logits.dtype), logits)
        logits, _, best = lax.fori_loop(0, num_steps, step, start)
        return better(best, loss(logits), logits)

    values, logits = jax.vmap(descend)(3 * starts)
    best = jnp.argmin(values)
    peaks = jax.nn.softmax(logits)
    return lax.stop_gradient((values[best], peaks[best], peaks))
