"""The method that chooses: the cheapest sampler that can be trusted, for each problem of a batch.

Problems climb a ladder: a truncated Gaussian, with few draws and then with more (or, for models and for very many
components, importance sampling from the prior); Markov chains. ``execution.ladder`` does the climbing. To change what
is tried, change ``Auto.rungs``: a rung is one line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import dirichlet, validation
from ..problems.base import Problem
from ..proposals.gaussian import log_volume
from ..targets import Target
from ..weighting.estimate import Estimate
from .base import DEFAULT_KEEP, MAX_SOBOL_COMPONENTS, Sampler, require_target_ess
from .chains.hit_and_run import HitAndRun
from .gaussian import TG
from .importance import IS

MAX_GAUSSIAN = 64
"""With more components a truncated Gaussian has hardly any effective draws, whatever the prior."""

MAX_FIXED_GAUSSIAN = 32
"""The same limit where the choice can't depend on the data."""

OPTIMISM = 3.0
"""Margin for guesses, by judgement. Small samples miss rare large weights, and so overestimate the share of effective
draws: a result of few draws must have this many times the target. The share of draws from the prior that would be
effective is only a rough guess: ``IS`` is tried even if the guess is too small by this factor."""

SAFE_PARETO_K = 0.5
"""Above this k the weights have infinite variance and ESS is optimistic; try the next method."""

AMPLE = 8.0
"""A result with this many times the wanted effective draws is safe whatever its k. Estimates converge more slowly at a
larger k, but their error is then still far below what was asked for. (Status must be ``OK``, so k is at most 0.7.)"""

FEW_DRAWS, MOST_DRAWS = 2048, 1 << 19
MULTIPLES = 1, 4, 32
"""Draws of the rungs of ``TG`` but the last, as multiples of those of the first."""

MANY_COMPONENTS = 12
"""With more components the first rung has four times as many draws, because fewer of them are effective."""

PRIOR_DRAWS = 1 << 15
"""Draws of ``IS``."""

MAX_MOVES = 1 << 16


class Outlook(NamedTuple):
    """What is known of the pending problems before a rung. Each array has one entry per problem.

    Attributes:
      prior_share: rough share of draws from the prior that would be effective.
      ess: effective draws of the best result so far; NaN if there is none.
      share: the same as a share of its draws; NaN for chains.
      method: name of the method that made it; empty if there is none.
    """

    prior_share: np.ndarray
    ess: np.ndarray
    share: np.ndarray
    method: np.ndarray


class Rung(NamedTuple):
    """One method of a ladder.

    Attributes:
      method: what to run.
      promising: which of the pending problems it may serve, from their ``Outlook``.
      safe: for which problems its result needs no better one, from effective draws and Pareto k. (A result must also
        have status ``OK`` and enough effective draws.)

    Inside ``jit`` both functions get arrays of JAX's, and ``outlook.method`` can only be compared with a name: write
    them with operators, which serve both.
    """

    method: Sampler
    promising: Callable[[Outlook], np.ndarray] = lambda outlook: np.ones(len(outlook.ess), bool)
    safe: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda ess, pareto_k: ~(pareto_k > SAFE_PARETO_K)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Auto(Sampler):
    """For each problem the cheapest method that gives enough effective draws and can be trusted; the default.

    Enough is ``target_ess``. A result is trusted if its status is ``OK``, apart from flags about the model. If a later
    method remains, three more conditions must hold. Pareto k is at most 0.5, unless there are 24 times the effective
    draws asked for. A run with few draws has three times the target. The standard deviations are about as precise as
    the target implies (``posterior.std_stderr``).

    Linear problems begin with ``TG``. More draws follow as long as they promise enough effective ones; then
    ``HitAndRun``. With more than 64 components they begin with ``IS`` instead, unless the data are plainly too strong
    for it. Models begin with ``IS``, because they may have several peaks and ``TG`` sees one.
    ``posterior.method`` names the method that was used. Problems that no method could serve are flagged in ``status``:
    with ``BUDGET`` if there were fewer effective draws than asked for.

    Where the host can't see the data, inside ``jit``, ``vmap`` or ``grad``, or where several devices divide the draws
    of a problem, it is one method for all: ``TG()`` for linear problems up to 32 components, ``HitAndRun()`` above, and
    ``IS()`` for models. ``Auto(rungs_inside_jit=5)`` climbs there too, by the same rules. The whole ladder is then part
    of the program, which takes longer to compile, and a rung is computed only for problems that need it. Under ``vmap``
    every rung is computed for every problem: pass a batch to ``fit`` instead. Values of the prior are not known there,
    so chains move along straight lines (see ``HitAndRun.walls``).

    Attributes:
      target_ess: how many effective draws each problem is to have.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
      rungs_inside_jit: how many methods of the ladder may be tried where the host can't see the data. 1, the default,
        is the one method above. For linear problems up to 64 components 2 means ``TG`` with 2,048 draws, then with
        8,192; 3 adds 65,536; 4 adds 524,288; 5 adds ``HitAndRun``, which has no derivatives. (From 13 components on
        the first three numbers are four times as large.) For others 2 means ``IS``, then ``HitAndRun``.
      evidence: whether ``HitAndRun`` estimates the evidence too, where it is used (see there).
    """

    target_ess: float = dataclasses.field(default=400.0, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})
    rungs_inside_jit: int = dataclasses.field(default=1, metadata={"static": True, "min": 1})
    evidence: bool = dataclasses.field(default=False, metadata={"static": True})

    name = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.require_flag("evidence", self.evidence)

    def with_evidence(self) -> Self:
        """Return the method with ``evidence=True``."""
        return dataclasses.replace(self, evidence=True)

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if ``target_ess`` or ``rungs_inside_jit`` is out of range."""
        require_target_ess(self.target_ess)
        most = len(self.rungs(problem)) if self.rungs_inside_jit > 1 else 1
        if self.rungs_inside_jit > most:
            raise ValueError(f"rungs_inside_jit={self.rungs_inside_jit}, but this problem's ladder has {most} rungs")
        return super().prepare(problem)

    def rungs(self, problem: Problem) -> list[Rung]:
        """Return the methods to try, the cheapest first."""
        common: dict[str, Any] = {"match": self.match, "keep": self.keep}
        num_components = problem.num_components
        chains = HitAndRun(target_ess=self.target_ess, max_moves=MAX_MOVES, evidence=self.evidence, **common)
        walk = Rung(chains.prepare(problem))
        if problem.is_linear and num_components <= MAX_GAUSSIAN:
            few = max(FEW_DRAWS * (4 if num_components > MANY_COMPONENTS else 1), self.keep)
            most = max(MOST_DRAWS, self.keep)
            # One program serves few and many draws: how many to make is an argument.
            gaussian = TG(num_draws=most, chunk=few, **common).prepare(problem)
            # Few draws that just reach the target may be lucky. More are worth trying if few promise enough.
            draws = sorted({*(min(few * factor, most) for factor in MULTIPLES), most})
            return [*(self._gaussian_rung(gaussian, number, few) for number in draws), walk]
        prior = IS(num_draws=max(PRIOR_DRAWS, self.keep), points=_points(num_components), **common)
        return [Rung(prior, lambda known: known.prior_share * prior.num_draws * OPTIMISM >= self.target_ess), walk]

    def _gaussian_rung(self, method: TG, draws: int, few: int) -> Rung:
        """Return the rung that makes some of a method's draws; ``few`` are those of the first."""
        wanted = OPTIMISM * self.target_ess
        return Rung(
            dataclasses.replace(method, used=np.int32(draws)),
            lambda known: (draws == few) | ((known.method == TG.name) & (known.share * draws >= wanted)),
            lambda ess, k: (
                ((ess >= wanted) | (draws == method.num_draws)) & (~(k > SAFE_PARETO_K) | (ess >= AMPLE * wanted))
            ),
        )

    def inside_trace(self, problem: Problem) -> Sampler:
        """Return the method for problems whose values are not known."""
        return self._fixed(problem.is_linear, problem.num_components)

    def _fixed(self, is_linear: bool, num_components: int) -> Sampler:
        if not is_linear:
            return IS(max(IS.num_draws, self.keep), points=_points(num_components), match=self.match, keep=self.keep)
        if num_components <= MAX_FIXED_GAUSSIAN:
            return TG(max(TG.num_draws, self.keep), match=self.match, keep=self.keep)
        options: dict[str, Any] = {"target_ess": self.target_ess, "match": self.match, "keep": self.keep}
        return HitAndRun(**options, walls="none", evidence=self.evidence)

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems by the method for problems whose values are not known."""
        return self._fixed(target.is_linear, target.shape[1]).run(key, target, axes)


def _points(num_components: int) -> str:
    """Return the points for importance sampling: quasi-random ones have a limited number of coordinates."""
    return "sobol" if num_components <= MAX_SOBOL_COMPONENTS else "pseudo"


def prior_share(target: Target) -> jax.Array:
    """Return the rough share of draws from the prior that would be effective, ``(B,)``; 1 where nothing is known.

    For a Gaussian prior and likelihood in d dimensions the share is the ratio of the posterior's volume to the prior's,
    times ``2^(d/2)``: with prior N(0, s^2) and weights of width t << s, ``E[w]^2 / E[w^2] = sqrt(2) t / s`` in each.
    """
    # For models nothing is known, and problems that begin with TG do not need it.
    if not target.is_linear or target.shape[1] <= MAX_GAUSSIAN:
        return jnp.ones(target.shape[0], target.prior.dtype)
    both, alone = (log_volume(part, target.full_prior) for part in (target.quadratic(), None))
    free = target.shape[1] - 1
    return jnp.exp(jnp.minimum(both - alone + 0.5 * free * math.log(2), 0))
