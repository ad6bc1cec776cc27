"""From a sampler's estimate to the posterior of theta."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import dirichlet
from ..posteriors.nuisance import NuisancePosterior
from ..posteriors.posterior import Posterior, Slack
from ..problems.base import Problem
from ..samplers import Sampler
from ..status import Status
from ..targets import Target
from ..targets.base import PRESENT
from ..weighting.estimate import Estimate, Moment

EVIDENCE_ROUNDING = 8
"""Rounding errors of a log-evidence, which sums a few large terms, in units of the last place."""

TYPICAL_ROUNDING = 1 / 32
"""Typical rounding errors of residuals as a share of their bound, eight units in the last place of the data."""

DOMINATED_NATS = 5.0
"""The prior dominates only if the mean loses more nats than this plus one for each component that the data
determine."""

DOMINATED_RATIO = 1.5
"""The prior dominates only if, too, the residuals at the mean exceed the least ones by this factor."""

NUISANCE_STREAM = 0x6E756973
"""Folded into the key for draws of nuisance coefficients, so that their random numbers are not the sampler's."""


def posterior_of(key: jax.Array, problem: Problem, target: Target, found: Estimate, method: Sampler) -> Posterior:
    """Return the posterior of a flattened batch of B problems; NaN where a problem's numbers are out of range."""
    constraint, num_params = problem.constraint, problem.num_params
    alpha, omega = found.matched(method.match), found.moments["omega"]
    theta = omega if constraint.theta_is_omega else found.moments.get("theta")
    if theta is None:
        raise TypeError(f"{method.name}: run returned no moments of theta; take all that target.quantities names")
    valid = target.valid & method.is_valid()
    total = jnp.broadcast_to(problem.total, found.ess.shape)

    def trusted(value):
        return jnp.where(_expanded(valid, value), value, jnp.nan)

    def scaled(value):
        return trusted(_expanded(total, value) * value)

    off = _rounding_errors(target, theta)[:, :num_params]
    diagnostics = _diagnostics(target, found, alpha, method)
    residual, least, dominated = _residuals(target, omega.mean)
    status = diagnostics.pop("status") | jnp.where(dominated, Status.PRIOR_DOMINATES, 0)
    status = jnp.where(valid, status, Status.NONFINITE)
    kept = found.draws.shape[-1] if method.keep else 0  # the noise may have needed some
    draws = constraint.unlift(found.draws, axis=1)[..., :kept]
    noise, slack = _noise(target, found, trusted), None
    if constraint.has_slack:
        slack = Slack(
            scaled(omega.mean[:, -1]),
            scaled(jnp.sqrt(omega.variance[:, -1])),
            scaled(found.draws[:, -1, :kept]),
        )
    return Posterior(
        **{name: trusted(value) for name, value in diagnostics.items()},
        status=status,
        alpha=trusted(alpha),
        theta=scaled(constraint.unlift(dirichlet.mode(alpha))),
        mean=scaled(theta.mean[:, :num_params]),
        std=scaled(jnp.sqrt(theta.variance[:, :num_params])),
        mean_stderr=scaled(jnp.hypot(theta.mean_stderr[:, :num_params], off)),
        std_stderr=scaled(jnp.hypot(theta.std_stderr[:, :num_params], off)),
        dirichlet_misfit=trusted(_misfit(alpha, omega.variance)),
        **_presence(found, trusted),
        residual=trusted(residual),
        least_residual=trusted(least),
        total=total,
        num_rows=jnp.broadcast_to(problem.num_rows, total.shape),
        draws=scaled(jnp.swapaxes(draws, -1, -2)),
        draw_weights=trusted(found.draw_weights[:, :kept]),
        slack=slack,
        noise=noise,
        nuisance=_nuisance(key, target, found, noise, kept, trusted),
        concentration=None,
        choice=jnp.zeros(total.shape, jnp.int32),
        methods=(method.name,),
        constraint=constraint,
        certified=problem.certified,
        sharpened=method.is_sharpened,
    )


def _expanded(per_problem: jax.Array, value: jax.Array) -> jax.Array:
    """Return one number per problem with the axes of another array."""
    return per_problem.reshape(-1, *(1,) * (value.ndim - 1))


def _diagnostics(target: Target, found: Estimate, alpha: jax.Array, method: Sampler) -> dict[str, jax.Array]:
    """Return the diagnostics of an estimate, with the troubles that the target reports."""
    omega = found.moments["omega"]
    finite = (jnp.isfinite(omega.mean) & jnp.isfinite(omega.variance)).all(-1) & jnp.isfinite(alpha).all(-1)
    finite = finite & jnp.isfinite(target.log_peak)
    troubles = ((~finite, Status.NONFINITE), (target.improper, Status.IMPROPER), (target.rounded, Status.ROUNDING))
    status = found.status
    for condition, flag in troubles:
        status = status | jnp.where(condition, flag, 0)
    known = found.diagnostics()
    if not method.has_evidence:
        known["log_evidence"] = jnp.full_like(found.ess, jnp.nan)
    if not method.is_chain:
        known["rhat"] = jnp.ones_like(found.ess)
    rounding = EVIDENCE_ROUNDING * jnp.finfo(found.ess.dtype).eps * jnp.abs(known["log_evidence"])
    # A residual r that is off by e, both in units of the noise level, changes the log-likelihood by r e.
    level = target.noise.likeliest_level(target.num_rows, target.base)
    residual = jnp.sqrt(2 * jnp.maximum(target.base, 0)) / level
    rounding = rounding + jnp.where(target.rounding > 0, TYPICAL_ROUNDING * target.rounding * residual, 0)
    return known | {
        "log_evidence_stderr": known["log_evidence_stderr"] + rounding,
        "acceptance_rate": jnp.where(target.unbounded, jnp.nan, known["acceptance_rate"]),
        "status": status,
    }


def _presence(found: Estimate, trusted: Any) -> dict[str, jax.Array]:
    """Return how probable it is that each parameter is present, and its error; NaN where no draw has any weight."""
    moment = found.moments.get(PRESENT)
    if moment is None:
        return {}
    some = (found.ess > 0)[:, None]
    return {
        "present": trusted(jnp.where(some, jnp.clip(moment.mean, 0, 1), jnp.nan)),
        "present_stderr": trusted(jnp.where(some, moment.mean_stderr, jnp.nan)),
    }


def _rounding_errors(target: Target, theta: Moment) -> jax.Array:
    """Return typical rounding errors of means and standard deviations, ``(B, n)``.

    Residuals that are off by a share of the noise level move a mean by at most this share of a standard deviation.
    Draws are rounded, too: that adds half a unit in the last place of the mean.
    """
    of_data = TYPICAL_ROUNDING * target.rounding[:, None] * jnp.sqrt(theta.variance)
    return jnp.hypot(of_data, 0.5 * jnp.finfo(theta.mean.dtype).eps * jnp.abs(theta.mean))


def _residuals(target: Target, mean: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return root mean squares of residuals at the mean and at best, and whether the prior outweighs the data.

    The data determine ``min(K - 1, N)`` components. The mean is expected to lose half a nat for each of them. If it
    loses far more, a noise of unknown level has grown to make room for the prior.
    """
    half_square, base = target.half_square(mean[:, :, None])[:, 0], target.least_half_square
    # Rounding may leave a perfect fit a little below zero.
    residual, least = (jnp.sqrt(2 * jnp.maximum(value, 0) / target.num_rows) for value in (half_square, base))
    if not target.noise.estimates_level:
        return residual, least, jnp.zeros(base.shape, bool)
    loss = -target.noise.log_ratio(target.num_rows, base, half_square - base)
    determined = jnp.minimum(mean.shape[-1] - 1, target.num_rows)
    return residual, least, (loss > determined + DOMINATED_NATS) & (residual > DOMINATED_RATIO * least)


def _misfit(alpha: jax.Array, variance: jax.Array) -> jax.Array:
    """Return the largest factor between the variances of omega and those of ``Dir(alpha)``, ``(B,)``."""
    tiny = jnp.finfo(variance.dtype).tiny
    ratio = jnp.log(jnp.maximum(dirichlet.variance(alpha), tiny)) - jnp.log(jnp.maximum(variance, tiny))
    return jnp.exp(jnp.abs(ratio).max(-1))


def _nuisance(key: jax.Array, target: Target, found: Estimate, level: Any, kept: int, trusted: Any) -> Any:
    """Return the posterior of nuisance coefficients, or ``None`` if there are none."""
    given = target.nuisance
    if given is None:
        return None
    moment = found.moments.get("nuisance")
    if moment is None:
        raise TypeError("run returned no moments of nuisance; take all that target.quantities names")
    likeliest = target.noise.likeliest_level(target.num_rows, target.base)
    square = jnp.square(likeliest) if level is None else jnp.square(level.mean) + jnp.square(level.std)
    own = square[:, None] * jnp.square(given.root).sum(-1)
    key = jax.random.fold_in(key, NUISANCE_STREAM)
    draws = found.draws[..., :kept]
    # The same random numbers for all problems, whatever the block in which they are computed.
    normal = jax.random.normal(key, (own.shape[-1], kept), own.dtype)
    excess = (target.half_square(draws) - target.base[:, None]) / jnp.square(likeliest)[:, None]
    bits = jax.random.bits(jax.random.fold_in(key, 1), (1, 1, kept), jnp.uint32)
    precision = target.noise.draw_precision(bits, target.num_rows, excess[None])[0]
    errors = (likeliest[:, None] / jnp.sqrt(precision))[:, None] * jnp.matmul(given.root, normal)
    return NuisancePosterior(
        mean=trusted(moment.mean),
        std=trusted(jnp.sqrt(moment.variance + own)),
        draws=trusted(jnp.swapaxes(given.mean_given(draws) + errors, -1, -2)),
        intercept=given.intercept,
    )


def _noise(target: Target, found: Estimate, trusted):
    """Return the posterior of the noise level, or ``None`` if the level is known."""
    moment = found.moments.get("noise")
    moments = None if moment is None else (moment.mean[:, 0], moment.variance[:, 0], moment.mean_stderr[:, 0])
    level = target.noise_posterior(found.draws, found.draw_weights, moments)
    is_number = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
    return jax.tree.map(lambda leaf: trusted(leaf) if is_number(leaf) else leaf, level)
