"""Climbing a ladder of methods: each problem of a batch takes the first that serves it.

After each rung the problems whose result can't be trusted are gathered on the host into a smaller batch, filled up to a
power of two so that little is compiled, and climb on: one hard problem does not slow ten thousand easy ones.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..problems.batching import map_blocks
from ..samplers import Rung, Sampler
from ..samplers.auto import Outlook, prior_share
from ..status import Status
from ..targets import Needs, Optimum, find_optimum, target_of
from .blocks import fit_by, fit_from
from .placement import placement_of

BEYOND_REMEDY = Status.IMPROPER | Status.ROUNDING
"""Troubles that no sampler cures."""

OUTLOOK_BLOCK = 1 << 14


def fit_problem(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior by a method, or by the methods of its ladder if it has one and the data are at hand."""
    rungs = method.rungs(problem) if _is_open(key, problem) else []
    if not rungs:
        method = method.inside_trace(problem)
        return fit_by(key, problem, method.prepare(problem))
    if math.prod(problem.batch_shape) == 0:
        return _renamed(fit_by(key, problem, rungs[0].method), method_names(rungs))
    batch = problem.batch_shape
    found = _Climb(key, problem.flatten_batch(), rungs, method.target_ess).run()
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(batch + leaf.shape[1:]), found)


def method_names(rungs: list[Rung]) -> tuple[str, ...]:
    """Return the names of the methods of a ladder."""
    return tuple(dict.fromkeys(rung.method.name for rung in rungs))


def _is_open(key: jax.Array, problem: Problem) -> bool:
    """Return whether values are known on this host, so that the data can choose the method."""
    leaves = (key, *jax.tree.leaves(problem))
    return all(validation.is_concrete(leaf) for leaf in leaves) and placement_of(problem) is None


class _Climb:
    """The climb of a flattened batch; arrays have one entry per problem."""

    def __init__(self, key: jax.Array, flat: Problem, rungs: list[Rung], target_ess: float) -> None:
        self.key, self.flat, self.rungs, self.target_ess = key, flat, rungs, target_ess
        self.names = method_names(rungs)
        self.count = flat.batch_shape[0]
        # The optima are found once for all rungs.
        needs = [rung.method.needs for rung in rungs]
        self.optimum = find_optimum(flat, key, Needs(*(any(wanted) for wanted in zip(*needs, strict=True))))
        self.prior_share = np.asarray(_prior_shares(flat, self.optimum))
        self.hopeless = ~np.broadcast_to(np.asarray(flat.is_valid()), (self.count,))
        self.served = np.zeros(self.count, bool)
        self.found: Posterior | None = None

    def run(self) -> Posterior:
        """Return the posterior of all problems."""
        pending = np.arange(self.count)
        for number, rung in enumerate(self.rungs):
            is_last = number == len(self.rungs) - 1
            promising = np.ones(len(pending), bool) if is_last else rung.promising(self._outlook(pending))
            chosen = pending[promising]
            if len(chosen):
                good = self._climb(number, rung, chosen)
                pending = np.sort(np.concatenate([pending[~promising], chosen[~good]]))
            if not len(pending):
                break
        assert self.found is not None
        status = np.asarray(self.found.status)
        short = (np.asarray(self.found.ess) < self.target_ess) & ~self.hopeless & ((status & int(BEYOND_REMEDY)) == 0)
        status = status | np.where(short, np.int32(Status.BUDGET), np.int32(0))
        return dataclasses.replace(self.found, status=status)

    def _climb(self, number: int, rung: Rung, chosen: np.ndarray) -> np.ndarray:
        """Fit some problems by one method; return which of them need no other."""
        part = self._fit(jax.random.fold_in(self.key, number), chosen, rung.method)
        status, ess = np.asarray(part.status), np.asarray(part.ess)
        serves = (status == 0) & (ess >= self.target_ess)
        # A result that serves is replaced only by one that serves too.
        self._store(part, chosen, serves | ~self.served[chosen])
        self.served[chosen] |= serves
        beyond = (status & int(BEYOND_REMEDY)) > 0
        return (serves & rung.safe(ess, np.asarray(part.pareto_k))) | beyond | self.hopeless[chosen]

    def _outlook(self, pending: np.ndarray) -> Outlook:
        if self.found is None:
            unknown = np.full(len(pending), np.nan), np.full(len(pending), "")
            return Outlook(self.prior_share[pending], *unknown)
        tried = np.asarray(self.found.choice)[pending]
        names = np.asarray(["", *self.names])[tried + 1]
        return Outlook(self.prior_share[pending], np.asarray(self.found.ess)[pending], names)

    def _fit(self, key: jax.Array, chosen: np.ndarray, method: Sampler) -> Posterior:
        """Return the posterior of some problems; copies fill the batch up to a power of two."""
        flat, optimum, count = self.flat, self.optimum, len(chosen)
        if count < self.count:
            filled = np.resize(chosen, 1 << (count - 1).bit_length())
            flat = flat.map_leaves(lambda leaf, ndim: leaf[filled] if leaf.ndim > ndim else leaf)
            optimum = jax.tree.map(lambda rows: rows[filled], optimum)
        part = fit_from(key, flat, optimum, method)
        return _renamed(jax.tree.map(lambda leaf: np.asarray(leaf)[:count], part), self.names)

    def _store(self, part: Posterior, chosen: np.ndarray, wanted: np.ndarray) -> None:
        """Replace the results of those of the chosen problems that are wanted."""
        if self.found is None:
            if len(chosen) == self.count:
                self.found = part
                return
            empty = jax.tree.map(lambda leaf: np.zeros((self.count, *leaf.shape[1:]), leaf.dtype), part)
            self.found = dataclasses.replace(empty, choice=np.full(self.count, -1, np.int32))

        def put(whole, own):
            whole = np.array(whole)
            whole[chosen[wanted]] = own[wanted]
            return whole

        self.found = jax.tree.map(put, self.found, part)


@jax.jit
def _prior_shares(flat: Problem, optimum: Optimum) -> jax.Array:
    return map_blocks(lambda flat, own: prior_share(target_of(flat, own)), flat, OUTLOOK_BLOCK, (optimum,))


def _renamed(part: Posterior, names: tuple[str, ...]) -> Posterior:
    """Return a posterior by one method as one by a ladder of methods."""
    choice = np.full(np.shape(part.choice), names.index(part.methods[0]), np.int32)
    return dataclasses.replace(part, choice=choice, methods=names)
