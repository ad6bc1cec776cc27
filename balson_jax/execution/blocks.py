"""Fits of a problem, or of a batch of them, by one method."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from .. import dirichlet
from ..least_squares import simplex_optima
from ..posteriors.posterior import Posterior, Slack
from ..problems import constraints, noise
from ..problems.batching import map_blocks
from ..problems.linear import LinearProblem, Problem
from ..problems.model import ModelProblem, search_optimum
from ..problems.noise import InverseGamma, NoisePosterior
from ..samplers import RS, RSIRS, Method
from ..status import Status
from ..targets.functions import Density
from ..targets.linear import modelled, pivot_at
from ..weighting.estimate import Estimate
from .placement import Placement, placement_of

BLOCK_ELEMENTS = 1 << 20
"""Problems are computed together as long as their chunks of draws hold no more numbers than this."""


def fit_by(key: jax.Array, problem: Problem, method: Method) -> Posterior:
    """Return the posterior of one problem or of a batch by one method, on the devices where the problem lies."""
    placement = placement_of(problem)
    if placement is None:
        # A call of its own, so that what it compiles to serves all methods.
        return fit_from(key, problem, reference_of(key, problem, method), method)
    return _fit_placed(key, placement.place(problem), method, placement)


@functools.partial(jax.jit, static_argnames="placement")
def _fit_placed(key: jax.Array, problem: Problem, method: Method, placement: Placement) -> Posterior:
    """Fit each device's problems there, without the others; devices that hold copies divide the draws."""

    def fit_own(key, problem, method):
        return fit_from(key, problem, reference_of(key, problem, method), method, placement.copies)

    return jax.shard_map(
        fit_own,
        mesh=placement.mesh,
        in_specs=(PartitionSpec(), placement.specs(problem), PartitionSpec()),
        out_specs=PartitionSpec(*placement.batch),
        check_vma=False,
    )(key, problem, method)


def reference_of(key: jax.Array, problem: Problem, method: Method) -> tuple[jax.Array, ...]:
    """Return what likelihoods will be relative to.

    Constrained optima, ``(..., K)``, of linear problems; bounds of models, ``(...)``, and where a method needs them
    their optima.
    """
    if isinstance(problem, LinearProblem):
        return (simplex_optima(problem),)
    assert isinstance(problem, ModelProblem)
    bound = jnp.broadcast_to(problem.bound, problem.batch_shape)
    searches = problem.search and isinstance(method, (RS, RSIRS))
    if not searches and not method.needs_optimum:
        return (bound,)
    smallest, optimum = _search_optima(jax.random.fold_in(key, 0x626F756E), problem)
    return (smallest,) if searches else (bound, optimum)


@jax.jit
def _search_optima(key: jax.Array, problem: ModelProblem) -> tuple[jax.Array, jax.Array]:
    return map_blocks(lambda flat: flat.vmap(functools.partial(search_optimum, key)), problem)


@functools.partial(jax.jit, static_argnames="axes")
def fit_from(
    key: jax.Array, problem: Problem, reference: tuple[jax.Array, ...], method: Method, axes: tuple[str, ...] = ()
) -> Posterior:
    """Return the posterior, given what likelihoods are relative to (see ``reference_of``)."""
    shares_draws = problem.prior.ndim == 1 and bool(problem.batch_shape)
    block = max(1, BLOCK_ELEMENTS // method.elements(problem.num_components, shares_draws))
    return map_blocks(
        lambda flat, *reference: _fit_block(key, flat, reference, method, axes), problem, block, reference
    )


def _fit_block(
    key: jax.Array, problem: Problem, reference: tuple[jax.Array, ...], method: Method, axes: tuple[str, ...]
) -> Posterior:
    if isinstance(problem, LinearProblem):
        density = pivot_at(problem, *reference)
    else:
        assert isinstance(problem, ModelProblem)
        density = modelled(problem, *reference)
    found, alpha = method.run(key, density, axes)
    valid = density.valid & method.is_valid()
    rounding = jnp.finfo(found.ess.dtype).eps * jnp.abs(found.log_evidence)
    finite = (jnp.isfinite(found.mean) & jnp.isfinite(found.variance)).all(-1) & jnp.isfinite(alpha).all(-1)
    finite = finite & jnp.isfinite(density.log_peak)
    total = jnp.broadcast_to(problem.total, found.ess.shape)
    constraint, num_components, num_params = problem.constraint, problem.num_components, problem.num_params
    # Features of the draws are omega and, after it, theta / C where that is something else.
    first = num_components if constraints.is_signed(constraint) else 0
    chosen = slice(first, first + num_params)

    def trusted(value):
        return jnp.where(valid.reshape(-1, *(1,) * (value.ndim - 1)), value, jnp.nan)

    def scaled(value):
        return trusted(total.reshape(-1, *(1,) * (value.ndim - 1)) * value)

    status = found.status | jnp.where(finite, 0, Status.NONFINITE) | jnp.where(density.improper, Status.IMPROPER, 0)
    status = status | jnp.where(density.rounded, Status.ROUNDING, 0)
    std = jnp.sqrt(found.variance)
    slack = None
    if constraints.has_slack(constraint):
        slack = Slack(scaled(found.mean[:, num_components - 1]), scaled(std[:, num_components - 1]))
    return Posterior(
        alpha=trusted(alpha),
        theta=scaled(constraints.unlift(constraint, dirichlet.mode(alpha))),
        mean=scaled(found.mean[:, chosen]),
        std=scaled(std[:, chosen]),
        mean_stderr=scaled(found.mean_stderr[:, chosen]),
        log_evidence=trusted(found.log_evidence),
        log_evidence_stderr=trusted(found.log_evidence_stderr + rounding),
        acceptance_rate=trusted(jnp.where(density.unbounded, jnp.nan, found.acceptance_rate)),
        ess=trusted(found.ess),
        pareto_k=trusted(found.pareto_k),
        rhat=trusted(found.rhat),
        dirichlet_misfit=trusted(_misfit(alpha, found.variance[:, :num_components])),
        status=jnp.where(valid, status, Status.NONFINITE),
        total=total,
        num_rows=jnp.broadcast_to(problem.num_rows, total.shape),
        draws=scaled(jnp.swapaxes(found.draws[:, chosen, : _kept(method, found)], -1, -2)),
        draw_weights=trusted(found.draw_weights[:, : _kept(method, found)]),
        slack=slack,
        noise=_noise(density, found, trusted),
        choice=jnp.zeros(total.shape, jnp.int32),
        methods=(method.name,),
        constraint=constraint,
        certified=not (isinstance(problem, ModelProblem) and problem.search),
        sharpened=method.is_sharpened,
    )


def _misfit(alpha: jax.Array, variance: jax.Array) -> jax.Array:
    """Return the largest factor between the variances of omega and those of ``Dir(alpha)``, ``(B,)``."""
    tiny = jnp.finfo(variance.dtype).tiny
    ratio = jnp.log(jnp.maximum(dirichlet.variance(alpha), tiny)) - jnp.log(jnp.maximum(variance, tiny))
    return jnp.exp(jnp.abs(ratio).max(-1))


def _kept(method: Method, found: Estimate) -> int:
    """Return how many draws the posterior keeps; those that only the noise needed are not among them."""
    return found.draws.shape[-1] if method.keep else 0


def _noise(density: Density, found: Estimate, trusted: Callable[[jax.Array], jax.Array]) -> NoisePosterior | None:
    """Return the posterior of the noise's level, if it is to be estimated."""
    if not isinstance(density.noise, InverseGamma):
        return None
    draws, weights = found.draws[:, : density.shape[1]], found.draw_weights
    half_square = density.half_square(draws)
    # Without a draw, as when rejection sampling accepts none, the best fit is all that is known.
    empty = weights.sum(-1, keepdims=True) <= 0
    half_square = jnp.where(empty, density.base[:, None], half_square)
    weights = jnp.where(empty, 1 / weights.shape[-1], weights)
    level = noise.posterior(density.noise, density.num_rows, half_square, weights)
    return dataclasses.replace(level, shape=trusted(level.shape), scales=trusted(level.scales))
