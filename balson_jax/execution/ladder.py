"""Climbing a ladder of methods: each problem of a batch takes the first that serves it.

After each rung the problems whose result can't be trusted are gathered on the host into a smaller batch and climb on:
one hard problem does not slow ten thousand easy ones. Blocks of fixed sizes (see ``blocks``) keep a new batch, key or
share of hard problems from compiling anything. Where the host can't see the data, ``masked`` climbs instead.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np

from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..samplers import Rung, Sampler
from ..samplers.auto import Outlook
from . import masked
from .blocks import Flat, device_of, fit_by, is_known, with_batch
from .placement import Placement, placement_of
from .verdict import flagged, judge, method_names, needs_of, renamed


def fit_problem(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior by a method, or by the methods of its ladder if it has one and the data are at hand."""
    rungs = method.rungs(problem)
    placement = placement_of(problem)
    if not rungs or not _can_climb(key, problem, placement):
        if rungs and method.rungs_inside_jit > 1:
            return masked.fit_masked(key, problem, method, placement)
        method = method.inside_trace(problem)
        return fit_by(key, problem, method.prepare(problem))
    if math.prod(problem.batch_shape) == 0:
        return renamed(fit_by(key, problem, rungs[0].method), method_names(rungs))
    if placement is None:
        with device_of(problem):
            found = _Climb(key, Flat(problem), rungs, method.target_ess).run()
            return jax.device_put(with_batch(found, problem.batch_shape))
    # Each process climbs for the problems that lie on its devices.
    own = placement.own_problems(problem)
    found = _Climb(key, Flat(own, placement.own_mesh), rungs, method.target_ess).run()
    return placement.spread(with_batch(found, own.batch_shape))


def _can_climb(key: jax.Array, problem: Problem, placement: Placement | None) -> bool:
    """Return whether the method can depend on the data: they are known, and no other process has the same problems."""
    if placement is None:
        return is_known(key, problem)
    return placement.splits_problems and is_known(key)


_UNPROMISING = Outlook(np.zeros(1), np.full(1, np.nan), np.full(1, np.nan), np.array([""]))
"""The outlook of a hopeless problem. If the first rung tries even this one, it tries all, and can be compiled ahead."""


class _Climb:
    """The climb of a flattened batch; arrays have one entry per problem."""

    def __init__(self, key: jax.Array, flat: Flat, rungs: list[Rung], target_ess: float) -> None:
        self.key, self.flat, self.rungs, self.target_ess = key, flat, rungs, target_ess
        self.names = method_names(rungs)
        self.count = self.flat.count
        # The optima are found once for all rungs.
        first = rungs[0].method if rungs[0].promising(_UNPROMISING)[0] else None
        self.optimum, self.prior_share, self.valid = self.flat.prepare(key, needs_of(rungs), first)
        self.served = np.zeros(self.count, bool)
        self.draws = np.full(self.count, np.nan)
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
        return flagged(self.found, self.valid, self.target_ess)

    def _climb(self, number: int, rung: Rung, chosen: np.ndarray) -> np.ndarray:
        """Fit some problems by one method; return which of them need no other."""
        part = self._fit(jax.random.fold_in(self.key, number), chosen, rung.method)
        serves, final = judge(part, rung, self.target_ess)
        # A result that serves is replaced only by one that serves too.
        stored = serves | ~self.served[chosen]
        self._store(part, chosen, stored)
        self.draws[chosen[stored]] = rung.method.draws_made
        self.served[chosen] |= serves
        return final | ~self.valid[chosen]

    def _outlook(self, pending: np.ndarray) -> Outlook:
        unknown = np.full(len(pending), np.nan)
        if self.found is None:
            return Outlook(self.prior_share[pending], unknown, unknown, np.full(len(pending), ""))
        tried = np.asarray(self.found.choice)[pending]
        names = np.asarray(["", *self.names])[tried + 1]
        ess = np.where(tried < 0, np.nan, np.asarray(self.found.ess)[pending])
        return Outlook(self.prior_share[pending], ess, ess / self.draws[pending], names)

    def _fit(self, key: jax.Array, chosen: np.ndarray, method: Sampler) -> Posterior:
        """Return the posterior of some problems."""
        return renamed(self.flat.fit(key, chosen, self.optimum, method), self.names)

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
