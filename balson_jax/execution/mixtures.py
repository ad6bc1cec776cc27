"""Fits whose prior has an unknown concentration: one fit for each value of a grid, mixed by their evidence.

With weights ``w_g``, proportional to evidence times prior share, means and variances of the mixture are

    mean = sum_g w_g mean_g,    variance = sum_g w_g (variance_g + (mean_g - mean)^2).

The Monte Carlo error ``d_g`` of a log-evidence moves a weight by ``w_g d_g``, so a mean has the squared error
``sum_g w_g^2 error_g^2 + sum_g (w_g d_g)^2 (mean_g - mean)^2``. Its second part limits the effective draws.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..posteriors.concentration import ConcentrationPosterior
from ..posteriors.nuisance import NuisancePosterior
from ..posteriors.posterior import Posterior, Slack
from ..problems.base import Problem
from ..samplers import Sampler
from ..status import ABOUT_THE_MODEL
from ..weighting.diagnostics import verdict
from .grids import fit_grid
from .ladder import fit_problem

MATTERS = 0.01
"""A value of the grid matters if its weight exceeds this."""

ERRORS = 3.0
"""Before that comparison the log-evidence of a value is raised by this many of its standard errors."""

LARGEST_ERROR = 10.0
"""Larger or unknown errors of a log-evidence count as this."""

STREAM = 0x6D697865
"""Folded into the key for the choice of kept draws, so that its random numbers are not the samplers'."""


def fit_any(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior of one problem or a batch, also where the concentration of its prior is unknown."""
    if problem.hyperprior is None:
        return fit_problem(key, problem, method)
    method = method.with_evidence()
    if not method.has_evidence or method.is_sharpened:
        raise ValueError(
            f'prior="estimate" weighs concentrations by their evidence, which {method.name!r} doesn\'t estimate; pass '
            'method="auto"'
        )
    found = fit_grid(key, on_grid(problem), method)
    plain = dataclasses.replace(problem, hyperprior=None)  # type: ignore[call-arg]
    values, shares = problem.hyperprior.values(), problem.hyperprior.shares()
    values, shares = jnp.asarray(values, problem.dtype), jnp.asarray(shares, problem.dtype)
    return _mixed(jax.random.fold_in(key, STREAM), plain, found, values, shares, method.match)


def on_grid(problem: Problem) -> Problem:
    """Return the problem with one more axis in front of the batch's, along which its concentration varies."""
    assert problem.hyperprior is not None
    values = jnp.asarray(problem.hyperprior.values(), problem.dtype)
    num_params = problem.num_params
    values = values.reshape(-1, *(1,) * len(problem.batch_shape), 1)
    concentrations = jnp.broadcast_to(values, (*values.shape[:-1], num_params))
    prior = problem.constraint.lift_prior(concentrations, problem.prior[..., -1], num_params)
    return dataclasses.replace(problem, prior=prior, hyperprior=None)  # type: ignore[call-arg]


@functools.partial(jax.jit, static_argnames="rule")
def _mixed(
    key: jax.Array, problem: Problem, found: Posterior, values: jax.Array, shares: jax.Array, rule: dirichlet.MatchRule
) -> Posterior:
    """Return the mixture of posteriors along the first axis of a batch."""
    batch = found.batch_shape[1:]
    by_value = shares.reshape(-1, *(1,) * len(batch))
    logs = jnp.where(jnp.isnan(found.log_evidence), -jnp.inf, found.log_evidence) + jnp.log(by_value)
    total = jax.nn.logsumexp(logs, 0)
    known = jnp.isfinite(total)
    weights = jnp.where(known, jnp.exp(logs - jnp.where(known, total, 0)), 1 / len(shares))
    errors = jnp.clip(jnp.nan_to_num(found.log_evidence_stderr, nan=LARGEST_ERROR), 0, LARGEST_ERROR)
    # Values count, too, that would matter if their evidence were as large as its error allows.
    matters = (logs + ERRORS * errors > total + math.log(MATTERS)) | jnp.isnan(found.log_evidence)
    mixing = _Mixing(weights, errors)
    mean, std = mixing.moments(found.mean, found.std)
    mean_stderr, std_stderr, limit = mixing.stderrs(found, mean, std)
    ess = jnp.minimum(1 / jnp.square((weights / jnp.sqrt(jnp.maximum(found.ess, 1))).sum(0)), limit)
    alpha = mixing.alpha(found.alpha, rule)
    residual = jnp.sqrt(2 * jnp.maximum(problem.half_squares(dirichlet.mean(alpha)), 0) / problem.num_rows)
    mode = dirichlet.mode(alpha)
    pick = _chooser(key, weights[..., None] * found.draw_weights)
    first = jax.tree.map(lambda leaf: leaf[0], found)
    return dataclasses.replace(
        first,
        **mixing.diagnostics(found, matters),
        **mixing.present(found),
        status=mixing.status(found, matters) | verdict(ess),
        ess=ess,
        log_evidence=jnp.where(known, total, jnp.nan),
        acceptance_rate=(by_value * found.acceptance_rate).sum(0),
        alpha=alpha,
        theta=jnp.where(jnp.isfinite(mean), problem.total[..., None] * problem.constraint.unlift(mode), mean),
        mean=mean,
        std=std,
        mean_stderr=mean_stderr,
        std_stderr=std_stderr,
        residual=jnp.broadcast_to(residual, batch),
        draws=pick(found.draws),
        draw_weights=jnp.full_like(first.draw_weights, 1 / max(first.draw_weights.shape[-1], 1)),
        slack=mixing.slack(found, pick),
        noise=None if found.noise is None else found.noise.mixed(weights),
        nuisance=mixing.nuisance(found, pick),
        choice=jnp.take_along_axis(found.choice, weights.argmax(0)[None], 0)[0],
        concentration=ConcentrationPosterior(
            values=jnp.broadcast_to(values, (*batch, len(values))),
            weights=jnp.moveaxis(jnp.where(known, weights, jnp.nan), 0, -1),
            log_evidence=jnp.moveaxis(found.log_evidence, 0, -1),
            log_evidence_stderr=jnp.moveaxis(found.log_evidence_stderr, 0, -1),
            status=jnp.moveaxis(found.status, 0, -1),
        ),
    )


class _Mixing(NamedTuple):
    """Weights of the parts of a mixture, and errors of their logarithms, ``(G, ...)``.

    Parts share their random numbers, so that errors of their moments and evidences go together: they are added as they
    are, not as squares. What such errors of the evidences have in common does not move the weights, so that the effect
    of these is at most that of independent errors.
    """

    weights: jax.Array
    errors: jax.Array

    def mean(self, values: jax.Array) -> jax.Array:
        """Return means of values ``(G, ..., n)``; a part of no weight may have any value, even NaN."""
        weights = self.weights[..., None]
        return jnp.where(weights > 0, weights * values, 0).sum(0)

    def squares(self, errors: jax.Array) -> jax.Array:
        """Return sums of squares of errors ``(G, ..., n)`` times weights; those of a part of no weight don't count."""
        weights = self.weights[..., None]
        return jnp.where(weights > 0, jnp.square(weights * errors), 0).sum(0)

    def moments(self, means: jax.Array, stds: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and standard deviation of the mixture."""
        mean = self.mean(means)
        return mean, jnp.sqrt(self.mean(jnp.square(stds) + jnp.square(means - mean)))

    def stderrs(self, found: Posterior, mean: jax.Array, std: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return errors of means and standard deviations, and the effective draws that errors of weights allow."""
        of_draws = jnp.square(self.mean(found.mean_stderr))
        of_weights = self.squares(self.errors[..., None] * (found.mean - mean))
        variances = jnp.square(found.std) + jnp.square(found.mean - mean)
        of_variance = jnp.square(self.mean(2 * found.std * found.std_stderr))
        of_variance = of_variance + self.squares(self.errors[..., None] * (variances - jnp.square(std)))
        some = std > 0
        std_stderr = jnp.where(some, jnp.sqrt(of_variance) / (2 * jnp.where(some, std, 1)), 0)
        limit = jnp.where(of_weights > 0, jnp.square(std) / jnp.where(of_weights > 0, of_weights, 1), jnp.inf)
        return jnp.sqrt(of_draws + of_weights), std_stderr, limit.min(-1)

    def present(self, found: Posterior) -> dict[str, jax.Array]:
        """Return the probabilities of inclusion and their errors, where they are known."""
        if found.present is None:
            return {}
        mean = self.mean(found.present)
        of_weights = self.squares(self.errors[..., None] * (found.present - mean))
        of_draws = jnp.square(self.mean(found.present_stderr))
        return {"present": mean, "present_stderr": jnp.sqrt(of_draws + of_weights)}

    def alpha(self, alphas: jax.Array, rule: dirichlet.MatchRule) -> jax.Array:
        """Return the concentrations of the Dirichlet that approximates a mixture of Dirichlets."""
        mean, std = self.moments(dirichlet.mean(alphas), jnp.sqrt(dirichlet.variance(alphas)))
        logs = self.mean(dirichlet.log_mean(alphas)) if rule == "kl" else None
        return dirichlet.from_moments(mean, jnp.square(std), rule, log_mean=logs)

    def diagnostics(self, found: Posterior, matters: jax.Array) -> dict[str, jax.Array]:
        """Return the worst diagnostics of the parts that matter."""
        tails = jnp.where(matters, found.pareto_k, jnp.nan)
        return {
            "rhat": jnp.where(matters, found.rhat, 1).max(0),
            "pareto_k": functools.reduce(jnp.fmax, list(tails)),
            "dirichlet_misfit": jnp.where(matters, found.dirichlet_misfit, 1).max(0),
            "log_evidence_stderr": (self.weights * self.errors).sum(0),
        }

    def status(self, found: Posterior, matters: jax.Array) -> jax.Array:
        """Return the flags of the parts that matter; those about the model where most of the weight has them."""
        flags = functools.reduce(jnp.bitwise_or, list(jnp.where(matters, found.status & ~int(ABOUT_THE_MODEL), 0)))
        for flag in map(int, ABOUT_THE_MODEL):
            weight = jnp.where(found.status & flag > 0, self.weights, 0).sum(0)
            flags = flags | jnp.where(weight > 0.5, flag, 0)
        return flags

    def slack(self, found: Posterior, pick: Callable[[jax.Array], jax.Array]) -> Slack | None:
        """Return the posterior of the slack, or ``None`` if there is none."""
        if found.slack is None:
            return None
        mean, std = self.moments(found.slack.mean[..., None], found.slack.std[..., None])
        draws = None if found.slack.draws is None else pick(found.slack.draws[..., None])[..., 0]
        return Slack(mean[..., 0], std[..., 0], draws)

    def nuisance(self, found: Posterior, pick: Callable[[jax.Array], jax.Array]) -> NuisancePosterior | None:
        """Return the posterior of nuisance coefficients, or ``None`` if there are none."""
        if found.nuisance is None:
            return None
        mean, std = self.moments(found.nuisance.mean, found.nuisance.std)
        return dataclasses.replace(found.nuisance, mean=mean, std=std, draws=pick(found.nuisance.draws))


def _chooser(key: jax.Array, weights: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Return the function that takes draws ``(..., D, n)`` of a mixture from those of its parts, ``(G, ..., D, n)``.

    By systematic resampling, in random order; problems share the random numbers.

    Args:
      key: a PRNG key.
      weights: of the draws of all parts, ``(G, ..., D)``, of sum one.
    """
    count = weights.shape[-1]
    if not count:
        return lambda draws: draws[0]

    def together(values, axis):
        moved = jnp.moveaxis(values, 0, axis - 1)
        return lax.collapse(moved, moved.ndim + axis - 1, moved.ndim + axis + 1)

    offset_key, order_key = jax.random.split(key)
    places = (jnp.arange(count) + jax.random.uniform(offset_key, (), weights.dtype)) / count
    places = jax.random.permutation(order_key, places)
    below = jnp.cumsum(together(weights, -1), -1)
    find = jnp.vectorize(lambda below: jnp.searchsorted(below / below[-1], places, side="right"), signature="(d)->(n)")
    index = jnp.minimum(find(below), below.shape[-1] - 1)
    return lambda draws: jnp.take_along_axis(together(draws, -2), index[..., None], -2)
