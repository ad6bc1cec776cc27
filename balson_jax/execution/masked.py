"""Climbing a ladder of methods where the host can't see the data: inside ``jit``, or where devices divide the draws.

Every rung is part of the program. Problems that need the next one are gathered into blocks of their own, and
``lax.cond`` skips the other blocks: a rung costs what its problems cost. Under ``vmap`` a condition becomes a
selection: every rung runs for every problem, though chains stop early where they are not needed.

Rules, keys and random numbers are those of ``ladder``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..problems.batching import map_blocks
from ..samplers import Rung, Sampler
from ..samplers.auto import Outlook, prior_share
from ..targets import Optimum, find_optimum, target_of
from .assembly import posterior_of
from .placement import Placement
from .programs import block_size, fit_from, on_devices, without_derivatives
from .verdict import flagged, judge, method_names, needs_of, renamed


def fit_masked(key: jax.Array, problem: Problem, method: Sampler, placement: Placement | None) -> Posterior:
    """Return the posterior by the first ``method.rungs_inside_jit`` methods of a ladder."""
    if placement is None:
        return _fit(key, problem, method)
    return _fit_placed(key, placement.place(problem), method, placement)


@functools.partial(jax.jit, static_argnames="placement")
def _fit_placed(key: jax.Array, problem: Problem, method: Sampler, placement: Placement) -> Posterior:
    """Fit each device's problems there. Devices that hold copies have the same results, and so climb together."""

    def fit_own(key, problem, method):
        return _fit(key, problem, method, placement.copies)

    return on_devices(fit_own, key, problem, method, placement)


@functools.partial(jax.jit, static_argnames="axes")
def _fit(key: jax.Array, problem: Problem, method: Sampler, axes: tuple[str, ...] = ()) -> Posterior:
    rungs = method.rungs(problem)[: method.rungs_inside_jit]
    batch, count = problem.batch_shape, math.prod(problem.batch_shape)
    optimum = find_optimum(problem, key, needs_of(rungs))
    if count == 0:
        return renamed(fit_from(key, problem, optimum, rungs[0].method), method_names(rungs))
    rows = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[len(batch) :]), optimum)
    found = _Climb(key, problem.flatten_batch(), rows, rungs, method.target_ess, axes).run()
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), found)


class _Names:
    """Names of methods by number, one number per problem; none for -1. Comparison with a name gives an array."""

    def __init__(self, choice: jax.Array, names: tuple[str, ...]) -> None:
        self.choice, self.names = choice, names

    def __eq__(self, name: Any) -> Any:
        return self.choice == (self.names.index(name) if name in self.names else -1 if name == "" else -2)

    def __ne__(self, name: Any) -> Any:
        return ~(self == name)

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True)
class _Climb:
    """The climb of a flattened batch inside a trace; arrays have one entry per problem."""

    key: jax.Array
    flat: Problem
    optimum: Optimum
    rungs: list[Rung]
    target_ess: float
    axes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return method_names(self.rungs)

    def run(self) -> Posterior:
        """Return the posterior of all problems."""
        share, valid = map_blocks(_prospects, self.flat, self._size(self.rungs[0].method), (self.optimum,))
        served, pending = jnp.zeros_like(valid), jnp.ones_like(valid)
        draws, found = jnp.full_like(share, jnp.nan), None
        for number, rung in enumerate(self.rungs):
            wanted = pending
            if number < len(self.rungs) - 1:
                wanted = wanted & rung.promising(self._outlook(share, draws, found))
            part = self._fit(jax.random.fold_in(self.key, number), rung.method, wanted)
            serves, final = judge(part, rung, self.target_ess)
            # A result that serves is replaced only by one that serves too.
            stored = wanted & (serves | ~served)
            found = _where(stored, part, _nothing(part) if found is None else found)
            draws = jnp.where(stored, rung.method.draws_made, draws)
            served = served | (wanted & serves)
            pending = pending & ~(wanted & (final | ~valid))
        assert found is not None
        return flagged(found, valid, self.target_ess)

    def _outlook(self, share: jax.Array, draws: jax.Array, found: Posterior | None) -> Outlook:
        tried = jnp.full(share.shape, -1) if found is None else found.choice
        ess = jnp.full_like(share, jnp.nan) if found is None else jnp.where(tried < 0, jnp.nan, found.ess)
        return Outlook(share, ess, ess / draws, _Names(tried, self.names))  # type: ignore[arg-type]

    def _fit(self, key: jax.Array, method: Sampler, wanted: jax.Array) -> Posterior:
        """Return the posterior of the problems that are wanted, by one method; anything for the others."""
        run = functools.partial(_fit_wanted, key, method, self.axes)
        size = self._size(method)
        if len(wanted) <= size:
            found = map_blocks(run, self.flat, None, (self.optimum, wanted))
        else:
            # The wanted ones go to the last blocks. If the last is filled up, then by copies of the first problems.
            order = jnp.argsort(wanted)
            flat = self.flat.map_leaves(lambda leaf, ndim: leaf[order] if leaf.ndim > ndim else leaf)
            rows = jax.tree.map(lambda leaf: leaf[order], (self.optimum, wanted))
            back = jnp.argsort(order)
            found = jax.tree.map(lambda leaf: leaf[back], map_blocks(run, flat, size, rows))
        named = renamed(found, self.names)
        return dataclasses.replace(named, choice=jnp.asarray(named.choice))

    def _size(self, method: Sampler) -> int:
        return block_size(self.flat, method)


def _prospects(flat: Problem, optimum: Optimum) -> tuple[jax.Array, jax.Array]:
    """Return the rough share of draws from the prior that would be effective, and which problems are valid."""
    target = target_of(flat, optimum)
    return prior_share(target), target.valid


def _fit_wanted(
    key: jax.Array, method: Sampler, axes: tuple[str, ...], flat: Problem, optimum: Optimum, wanted: jax.Array
) -> Posterior:
    """Return the posterior of a block, or zeros if no problem of it is wanted."""

    def some():
        target = target_of(flat, optimum)
        # Rejection and chains don't wait for problems that are not valid.
        target = dataclasses.replace(target, valid=target.valid & wanted)
        target = target if method.has_derivatives else without_derivatives(target)
        return posterior_of(key, flat, target, method.run(key, target, axes), method)

    def none():
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(some))

    return lax.cond(wanted.any(), some, none)


def _nothing(part: Posterior) -> Posterior:
    """Return a posterior of zeros, by no method."""
    return dataclasses.replace(jax.tree.map(jnp.zeros_like, part), choice=jnp.full_like(part.choice, -1))


def _where(chosen: jax.Array, new: Posterior, old: Posterior) -> Posterior:
    """Return the new results of the chosen problems and the old ones of the others."""

    def pick(new, old):
        return jnp.where(chosen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, new, old)
