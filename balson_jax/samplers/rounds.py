"""Importance resampling (RSIRS, ISIRS): a first pass of RS or IS, then R rounds of IS from the last fit.

Round i takes ``Dir(alpha^(i-1))`` as prior *and* proposal, as in the paper, so its weights are the likelihood alone.
After R rounds the data have been counted R + 1 times: the answer is sharper and sparser than the posterior, and its
spread is too small. With ``reuse_data=False`` the weights keep the user's prior in every round (population Monte
Carlo), and the answer is the posterior.

Monte Carlo errors of a round with reused data come from its own draws and from those of all rounds before it, through
``alpha``. An error ``d`` of alpha changes the mean of any function f of omega by ``Cov(f, ln omega)'d``, because the
round's target is proportional to ``exp(alpha'ln omega)``. So the errors of replicates are carried along linearly, with
covariances from the kept draws.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet, validation
from ..problems.base import Problem
from ..proposals import DefensiveProposal, DirichletProposal
from ..targets import Needs, Target
from ..weighting.estimate import Estimate, Moment
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, NOISE_DRAWS, REPLICATES, Sampler, num_kept
from .importance import IS, Plan, importance
from .rejection import RS, rejection, require_envelope


def run_rounds(key: jax.Array, target: Target, first: Estimate, method: Rounds, axes: tuple[str, ...]) -> Estimate:
    """Run the rounds of importance sampling that follow a first pass; devices along the axes divide the draws.

    Returns:
      The last round's estimate, with the troubles of all rounds in its status, the smallest effective sample and the
      largest Pareto k. After a collapsed round the later ones look healthy around a wrong place, so the worst round
      counts.
    """
    if method.rounds == 0:
        return first
    keep = max(num_kept(method.keep, target), NOISE_DRAWS)
    plan = Plan(method.num_draws, method.chunk, method.points, method.diagnose_tail, keep)

    def one_round(carry, index):
        last, alpha, errors = carry
        proposal = DirichletProposal(alpha)
        if not method.reuse_data:
            share = jnp.asarray(method.defensive, alpha.dtype)
            proposal = DefensiveProposal(proposal, target.prior, share)
        found = importance(
            jax.random.fold_in(key, index),
            target,
            proposal,
            plan,
            corrects=not method.reuse_data,
            logs=method.match == "kl" or method.reuse_data,
            axes=axes,
        )
        if method.reuse_data:
            found = _with_errors(found, target, alpha, errors)
        found = dataclasses.replace(
            found,
            status=found.status | last.status,
            ess=jnp.minimum(found.ess, last.ess),
            pareto_k=jnp.maximum(found.pareto_k, last.pareto_k),
        )
        return (found, found.matched(method.match), _alpha_errors(found, method.match)), None

    start = first, first.matched(method.match), _alpha_errors(first, method.match)
    start = _shaped_like(jax.eval_shape(one_round, start, jnp.int32(0))[0], start)
    return lax.scan(one_round, start, jnp.arange(method.rounds))[0][0]


def _shaped_like(shapes, start):
    """Return the first pass with the fields that each round replaces in the rounds' shapes."""
    found, alpha, errors = start
    wanted, _, _ = shapes
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), wanted)
    kept = {name: value for name, value in found.diagnostics().items() if getattr(wanted, name) is not None}
    return dataclasses.replace(blank, **kept), alpha, errors


def _alpha_errors(found: Estimate, rule: dirichlet.MatchRule) -> jax.Array:
    """Return the errors of the matched concentrations that follow from those of the moments, ``(R, B, K)``."""
    names = [name for name in ("omega", "log_omega") if name in found.moments]
    moments = {name: found.moments[name] for name in names}

    def matched(values):
        (mean, variance), logs = values["omega"], values.get("log_omega")
        return dirichlet.from_moments(mean, variance, rule, log_mean=None if logs is None else logs[0])

    values = {name: (moment.mean, moment.variance) for name, moment in moments.items()}
    values = lax.stop_gradient(values)

    def one(errors):
        return jax.jvp(matched, (values,), (errors,))[1]

    errors = {name: (moment.mean_errors, moment.variance_errors) for name, moment in moments.items()}
    return jax.vmap(one)(lax.stop_gradient(errors))


def _with_errors(found: Estimate, target: Target, alpha: jax.Array, errors: jax.Array) -> Estimate:
    """Return an estimate with the errors that follow from those of its prior's concentrations added to its own."""
    moments, stderr = _propagated(*lax.stop_gradient((found, target, alpha, errors)))
    # Values keep their derivatives; errors have none.
    own = {name: Moment(*moment[:2], *moments[name][2:]) for name, moment in found.moments.items()}
    return dataclasses.replace(found, moments=own, log_evidence_stderr=stderr)


def _propagated(
    found: Estimate, target: Target, alpha: jax.Array, errors: jax.Array
) -> tuple[dict[str, Moment], jax.Array]:
    """Return the moments with all errors, and the standard error of the log-evidence."""
    log_omega = jnp.log(jnp.maximum(found.draws, jnp.finfo(alpha.dtype).tiny))
    weights, exact = found.draw_weights, lax.Precision.HIGHEST
    log_mean = jnp.einsum("bd,bkd->bk", weights, log_omega, precision=exact)
    # d ln p(draw) for each error of alpha, centred: (R, B, D).
    change = jnp.einsum("rbk,bkd->rbd", errors, log_omega - log_mean[..., None], precision=exact)
    kept = target.quantities(found.draws, target.half_square(found.draws), log_omega)
    moments = {name: _shifted(moment, kept[name], weights, change) for name, moment in found.moments.items()}
    away = found.moments["log_omega"].mean - dirichlet.log_mean(alpha)
    evidence = jnp.square(jnp.einsum("rbk,bk->rb", errors, away, precision=exact)).sum(0)
    stderr = jnp.sqrt(jnp.square(found.log_evidence_stderr) + evidence)
    return moments, stderr


def _shifted(moment: Moment, values: jax.Array, weights: jax.Array, change: jax.Array) -> Moment:
    """Return a moment with errors from a change of log-weights, ``(R, B, D)``, at kept values ``(B, n, D)``."""
    away = values - moment.mean[..., None]
    in_mean, in_variance = (
        jnp.einsum("rbd,bd,bnd->rbn", change, weights, part, precision=lax.Precision.HIGHEST)
        for part in (away, jnp.square(away) - moment.variance[..., None])
    )
    assert moment.variance_errors is not None
    return moment._replace(
        mean_errors=moment.mean_errors + in_mean, variance_errors=moment.variance_errors + in_variance
    )


@dataclasses.dataclass(frozen=True)
class Rounds(Sampler):
    """What RSIRS and ISIRS have in common: the rounds of importance sampling after the first pass.

    Not the posterior unless ``reuse_data=False``: each round counts the data once more, which makes the answer sharper
    and sparser. Use them for a sparse point estimate, as the paper does; use ``IS`` or ``RS`` for uncertainty. Their
    ``log_evidence`` is the last round's, for the sharpened prior.

    Attributes:
      num_draws: draws per problem and pass, at least 2.
      rounds: how many rounds follow the first pass; with 0 there is only that.
      reuse_data: ``True`` is the paper's recursion; ``False`` keeps the user's prior in the weights.
      defensive: share of draws from the prior in each round when ``reuse_data=False``, between 0 and 1.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      points: ``"sobol"`` or ``"pseudo"``, as for ``IS``.
      chunk: draws computed at a time; bounds the memory and does not change the result.
      diagnose_tail: whether Pareto k is computed, which takes half of the time of a large batch. Without it
        ``pareto_k`` is NaN, and ``status`` rests on the effective sample alone.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    rounds: int = dataclasses.field(default=3, metadata={"static": True})
    reuse_data: bool = dataclasses.field(default=True, metadata={"static": True})
    defensive: float | jax.Array = 0.1
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    @property
    def is_sharpened(self) -> bool:
        """Whether the answer counts the data more than once, and is not the posterior."""
        return self.reuse_data and self.rounds > 0

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if ``defensive`` is out of range."""
        validation.require_share("defensive", self.defensive)
        return super().prepare(problem)

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return min(self.chunk, self.num_draws) * num_components

    def is_valid(self) -> jax.Array:
        """Return whether ``defensive`` is in its domain; usable inside a trace."""
        defensive = jnp.asarray(self.defensive)
        return (defensive > 0) & (defensive < 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ISIRS(Rounds):
    """Importance sampling followed by rounds of importance resampling.

    Not the posterior unless ``reuse_data=False``; see ``samplers.Rounds`` for what it is and for its settings.
    """

    name = "isirs"

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the last round's estimates of B problems."""
        first_key, round_key = jax.random.split(key)
        first = IS(
            num_draws=self.num_draws,
            match=self.match,
            points=self.points,
            chunk=self.chunk,
            diagnose_tail=self.diagnose_tail,
            keep=self.keep if self.rounds == 0 else 0,
        )
        return run_rounds(round_key, target, first.run(first_key, target, axes), self, axes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RSIRS(Rounds):
    """Rejection sampling followed by rounds of importance resampling.

    Not the posterior unless ``reuse_data=False``; see ``samplers.Rounds`` for what it is and for its settings. It has
    no derivatives, and refuses to be differentiated.

    Attributes:
      max_proposals: budget of the first pass.
    """

    max_proposals: int = dataclasses.field(default=1 << 24, metadata={"static": True})

    name = "rsirs"
    has_derivatives = False
    needs = Needs(bound=True)

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if the likelihood is known to have no bound."""
        require_envelope(problem)
        return super().prepare(problem)

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the last round's estimates of B problems."""
        first_key, round_key = jax.random.split(key)
        first = RS(
            num_draws=self.num_draws,
            max_proposals=self.max_proposals,
            match=self.match,
            chunk=self.chunk,
            keep=self.keep if self.rounds == 0 else NOISE_DRAWS,
        )
        found = rejection(first_key, target, first)
        found = _in_replicates(found, min(REPLICATES, self.num_draws)) if self.rounds else found
        return run_rounds(round_key, target, found, self, axes)


def _in_replicates(found: Estimate, replicates: int) -> Estimate:
    """Return an estimate from independent draws, its errors written as those of independent replicates.

    The sum of the deviations of n kept draws from their mean, with random signs, divided by ``sqrt(n ess)``, has the
    covariance of the mean's error. Here signs alternate, and each replicate gets a share of the draws.
    """
    count = found.draws.shape[-1] // replicates * replicates
    sign = jnp.where(jnp.arange(count // replicates) % 2 == 0, 1.0, -1.0)
    filled = (found.draw_weights[:, :count] > 0).sum(-1)
    size = jnp.sqrt(jnp.maximum(found.ess, 1) * jnp.maximum(filled, 1))
    kept = {"omega": found.draws, "log_omega": jnp.log(jnp.maximum(found.draws, jnp.finfo(found.draws.dtype).tiny))}

    def dealt(values):
        parts = values[..., :count].reshape(*values.shape[:-1], replicates, -1)
        return jnp.moveaxis((parts * sign.astype(values.dtype)).sum(-1), -1, 0) / size[:, None]

    moments = dict(found.moments)
    for name in [name for name in kept if name in moments]:
        moment = moments[name]
        # Slots without a draw have zero weight.
        away = jnp.where(found.draw_weights[:, None] > 0, kept[name] - moment.mean[..., None], 0)
        squares = jnp.where(found.draw_weights[:, None] > 0, jnp.square(away) - moment.variance[..., None], 0)
        moments[name] = Moment(moment.mean, moment.variance, dealt(away), dealt(squares))
    return dataclasses.replace(found, moments=moments)
