"""The method that chooses: the cheapest sampler that can be trusted, for each problem of a batch.

Problems climb a ladder: importance sampling from the prior, which all problems share; a truncated Gaussian, with few
draws and then with many; Markov chains. After each rung those whose result can't be trusted are gathered on the host
into a smaller batch, filled up to a power of two so that little is compiled, and climb on: one hard problem does not
slow ten thousand easy ones.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import dirichlet, validation
from ..posteriors.posterior import Posterior
from ..problems.batching import map_blocks
from ..problems.linear import LinearProblem, Problem
from ..proposals import gaussian
from ..samplers import IS, TG, HitAndRun, Method
from ..samplers.base import DEFAULT_KEEP, check_sizes
from ..status import Status
from ..targets.linear import pivot_at
from .blocks import fit_by, fit_from, reference_of
from .placement import placement_of

MAX_GAUSSIAN = 16
"""With more components a truncated Gaussian is hopeless."""

OPTIMISM = 3.0
"""Small samples overestimate the share of their draws that is effective by up to about this factor."""

SAFE_PARETO_K = 0.5
"""Weights with a larger one have no variance, and spreads less than their effective draws promise: go on climbing."""

METHOD_NAMES = (IS.name, TG.name, HitAndRun.name)
FEW_DRAWS, MANY_DRAWS = 2048, 65_536
MAX_MOVES = 1 << 16
BEYOND_REMEDY = Status.IMPROPER | Status.ROUNDING
"""Troubles that no sampler cures."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Auto:
    """For each problem the cheapest method that gives enough effective draws and can be trusted; the default.

    Enough is ``target_ess``; trusted is a status of ``OK`` and, if a later method does no worse, a Pareto k below 0.5
    and, for few draws, three times the target.
    In this order: ``IS`` from the prior, unless the data are plainly too strong for it; ``TG``, for linear problems
    with up to 16 components (a model may have several peaks, of which ``TG`` would see one); ``HitAndRun``.
    ``posterior.method`` tells which was used. What no method could do is flagged in ``status``.

    Where the choice can't depend on the data, inside ``jit``, ``vmap`` or ``grad``, or for a problem spread over a mesh
    of devices, it is ``TG()`` for linear problems up to 16 components, ``HitAndRun()`` above, ``IS()`` for models.

    Attributes:
      target_ess: how many effective draws each problem is to have.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    target_ess: float = dataclasses.field(default=400.0, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    name = "auto"
    is_sharpened = False

    def __post_init__(self) -> None:
        check_sizes(self)

    def fixed(self, problem: Problem) -> Method:
        """Return the method for problems whose values are not known."""
        if not isinstance(problem, LinearProblem):
            return IS(match=self.match, keep=self.keep)
        if problem.num_components <= MAX_GAUSSIAN:
            return TG(match=self.match, keep=self.keep)
        return HitAndRun(target_ess=self.target_ess, match=self.match, keep=self.keep, walls="none")

    def ladder(self, problem: Problem) -> list[Method]:
        """Return the methods to try, the cheapest first."""
        common: dict[str, Any] = {"match": self.match, "keep": self.keep}
        rungs: list[Method] = [IS(num_draws=MANY_DRAWS // 2, **common)]
        if isinstance(problem, LinearProblem) and problem.num_components <= MAX_GAUSSIAN:
            rungs += [TG(num_draws=FEW_DRAWS, **common), TG(num_draws=MANY_DRAWS, **common)]
        walk = HitAndRun(target_ess=self.target_ess, max_moves=MAX_MOVES, **common)
        return [*rungs, walk.suited_to(np.asarray(problem.prior))]


def escalate(key: jax.Array, problem: Problem, method: Auto) -> Posterior:
    """Return the posterior by the cheapest methods that do; see ``Auto``."""
    concrete = all(validation.is_concrete(leaf) for leaf in (key, *jax.tree.leaves(problem)))
    if not concrete or placement_of(problem) is not None:
        return fit_by(key, problem, method.fixed(problem))
    batch = problem.batch_shape
    count = math.prod(batch)
    ladder = method.ladder(problem)
    if count == 0:
        return _as_auto(fit_by(key, problem, ladder[0]))
    flat = problem.flatten_batch()
    # None of the rungs asks for more than the first: found once, and for all.
    reference = reference_of(key, flat, ladder[0])
    is_linear = isinstance(flat, LinearProblem)
    expected = np.asarray(_expected_shares(flat, *reference)) if is_linear else np.ones(count)
    hopeless = ~np.broadcast_to(np.asarray(flat.is_valid()), (count,))
    found: Posterior | None = None
    pending, served = np.arange(count), np.zeros(count, bool)
    for rung, sampler in enumerate(ladder):
        is_last = rung == len(ladder) - 1
        promising = np.ones(len(pending), bool) if is_last else _promising(sampler, method, found, expected, pending)
        chosen = pending[promising]
        if not len(chosen):
            continue
        part = _fit_some(jax.random.fold_in(key, rung), flat, reference, chosen, sampler)
        serves = (np.asarray(part.status) == 0) & (np.asarray(part.ess) >= method.target_ess)
        # What served already is replaced only by what serves too.
        found = _scatter(found, part, chosen, serves | ~served[chosen], count)
        served[chosen] |= serves
        beyond = (np.asarray(part.status) & int(BEYOND_REMEDY)) > 0
        good = (serves & _is_safe(sampler, method, part)) | beyond | hopeless[chosen]
        pending = np.sort(np.concatenate([pending[~promising], chosen[~good]]))
        if not len(pending):
            break
    assert found is not None
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(batch + leaf.shape[1:]), found)


def _promising(
    sampler: Method, method: Auto, found: Posterior | None, expected: np.ndarray, pending: np.ndarray
) -> np.ndarray:
    """Return which of the pending problems a sampler may do."""
    if isinstance(sampler, IS):
        return expected[pending] * sampler.num_draws * OPTIMISM >= method.target_ess
    if isinstance(sampler, TG) and sampler.num_draws > FEW_DRAWS and found is not None:
        # What few draws were worth, unless it was another method that drew them.
        by_gaussian = np.asarray(found.choice)[pending] == METHOD_NAMES.index(TG.name)
        share = np.asarray(found.ess)[pending] / FEW_DRAWS
        return by_gaussian & (share * sampler.num_draws >= OPTIMISM * method.target_ess)
    return np.ones(len(pending), bool)


def _is_safe(sampler: Method, method: Auto, part: Posterior) -> np.ndarray:
    """Return for which problems a result that serves needs no better one."""
    # Few draws that just reach the target may be the lucky ones.
    is_few = isinstance(sampler, TG) and sampler.num_draws == FEW_DRAWS
    enough = np.asarray(part.ess) >= (OPTIMISM if is_few else 1) * method.target_ess
    return enough & ~(np.asarray(part.pareto_k) > SAFE_PARETO_K)


@jax.jit
def _expected_shares(flat: LinearProblem, optimum: jax.Array) -> jax.Array:
    """Return roughly which share of draws from the prior would be effective: how much narrower the posterior is."""

    def widths(flat, optimum):
        density = pivot_at(flat, optimum)
        prior = jnp.broadcast_to(density.prior, density.shape)
        both, alone = (gaussian.log_volume(quadratic, prior) for quadratic in (density.quadratic(), None))
        free = prior.shape[-1] - 1
        return jnp.exp(jnp.minimum(both - alone + 0.5 * free * math.log(2), 0))

    return map_blocks(widths, flat, 1 << 14, (optimum,))


def _fit_some(
    key: jax.Array, flat: Problem, reference: tuple[jax.Array, ...], chosen: np.ndarray, sampler: Method
) -> Posterior:
    """Return the posterior of some problems of a flattened batch; copies fill it up to a power of two."""
    count = len(chosen)
    if count < flat.batch_shape[0]:
        filled = np.resize(chosen, 1 << (count - 1).bit_length())
        flat = flat.map_leaves(lambda leaf, ndim: leaf[filled] if leaf.ndim > ndim else leaf)
        reference = tuple(rows[filled] for rows in reference)
    part = fit_from(key, flat, reference, sampler)
    return _as_auto(jax.tree.map(lambda leaf: np.asarray(leaf)[:count], part))


def _as_auto(part: Posterior) -> Posterior:
    """Return a posterior by one method as one by ``Auto``."""
    choice = np.full(np.shape(part.choice), METHOD_NAMES.index(part.methods[0]), np.int32)
    return dataclasses.replace(part, choice=choice, methods=METHOD_NAMES)


def _scatter(found: Posterior | None, part: Posterior, chosen: np.ndarray, wanted: np.ndarray, count: int) -> Posterior:
    """Return the posterior of all problems with those of the chosen ones that are wanted replaced."""
    if found is None:
        if len(chosen) == count:
            return part
        found = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape[1:]), leaf.dtype), part)

    def put(whole, own):
        whole = np.array(whole)
        whole[chosen[wanted]] = own[wanted]
        return whole

    return jax.tree.map(put, found, part)
