"""From a sampler's estimate to the posterior of theta."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import dirichlet
from ..posteriors.posterior import Posterior, Slack
from ..problems.base import Problem
from ..samplers import Sampler
from ..status import Status
from ..targets import Target
from ..weighting.estimate import Estimate

EVIDENCE_ROUNDING = 8
"""Rounding errors of a log-evidence, which sums a few large terms, in units of the last place."""


def posterior_of(problem: Problem, target: Target, found: Estimate, method: Sampler) -> Posterior:
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

    diagnostics = _diagnostics(target, found, alpha, method)
    status = jnp.where(valid, diagnostics.pop("status"), Status.NONFINITE)
    kept = found.draws.shape[-1] if method.keep else 0  # the noise may have needed some
    draws = constraint.unlift(found.draws, axis=1)[..., :kept]
    slack = None
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
        mean_stderr=scaled(theta.mean_stderr[:, :num_params]),
        std_stderr=scaled(theta.std_stderr[:, :num_params]),
        dirichlet_misfit=trusted(_misfit(alpha, omega.variance)),
        total=total,
        num_rows=jnp.broadcast_to(problem.num_rows, total.shape),
        draws=scaled(jnp.swapaxes(draws, -1, -2)),
        draw_weights=trusted(found.draw_weights[:, :kept]),
        slack=slack,
        noise=_noise(target, found, trusted),
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
    """Return the diagnostics of an estimate, with what the target knows of its own troubles."""
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
    return known | {
        "log_evidence_stderr": known["log_evidence_stderr"] + rounding,
        "acceptance_rate": jnp.where(target.unbounded, jnp.nan, known["acceptance_rate"]),
        "status": status,
    }


def _misfit(alpha: jax.Array, variance: jax.Array) -> jax.Array:
    """Return the largest factor between the variances of omega and those of ``Dir(alpha)``, ``(B,)``."""
    tiny = jnp.finfo(variance.dtype).tiny
    ratio = jnp.log(jnp.maximum(dirichlet.variance(alpha), tiny)) - jnp.log(jnp.maximum(variance, tiny))
    return jnp.exp(jnp.abs(ratio).max(-1))


def _noise(target: Target, found: Estimate, trusted):
    """Return the posterior of the noise level, or ``None`` if the level is known."""
    moment = found.moments.get("noise")
    moments = None if moment is None else (moment.mean[:, 0], moment.variance[:, 0], moment.mean_stderr[:, 0])
    level = target.noise_posterior(found.draws, found.draw_weights, moments)
    is_number = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
    return jax.tree.map(lambda leaf: trusted(leaf) if is_number(leaf) else leaf, level)
