"""Noise and prior, learned from a batch of problems with the same rows.

By expectation and maximisation (Dempster, Laird and Rubin 1977), with fits inside. Given covariance and prior, fits
give draws of theta. Given these, the covariance (see ``residuals.covariance``) and the concentrations of the prior are
those that make them likeliest. Each round is judged by the evidence of problems held out of the learning, and the best
is kept; that is the plain fit if nothing beats it.

All components have the same concentration at first. A design that is off biases all thetas alike, and concentrations
that follow this bias make it larger. They differ only if problems held out gain much by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from .. import tables, validation
from ..execution.progress import reporter
from ..posteriors.posterior import Posterior
from ..problems.linear import design_and_target
from ..problems.uncertain_design import split
from ..samplers import Sampler
from .learned import Learned, Round
from .rounds import State, Work

LEAST_GAIN = 0.02
"""Learning stops when the score grows by less than this in two rounds, in nats per problem held out."""

CORRECTED_GAIN = 0.3
"""The design is corrected if the score grows by more than this, in nats per problem held out."""

APART_GAIN = 0.3
"""Components get concentrations of their own if the score grows by more than this, in nats per problem held out."""


def learn(
    key: jax.Array,
    design: Any,
    targets: Any,
    *,
    noise: Literal["covariance", "rows"] | None = "covariance",
    prior: Any = "learn",
    level: Literal["estimate", "common"] = "estimate",
    coordinates: Any = None,
    correct: bool = False,
    sample: int = 1000,
    rounds: int = 12,
    method: str | Sampler = "auto",
    progress: bool | Callable[[int, int], None] = True,
    **options: Any,
) -> Learned:
    """Learn the noise and the prior of many targets that share a design, so that intervals hold for real data.

    Real residuals are correlated between rows: columns of the design vary from target to target, gains drift. The plain
    model takes every row for an independent observation, and its error bars are too narrow, often by a factor of five
    to ten. This learns a covariance of the residuals, with few parameters (see ``residuals.covariance``), and the
    concentration of the prior: one for all components, or one for each if that predicts problems held out much better.
    Nothing needs to be known of the true theta.

    Errors of the design that all targets share bias all thetas alike. If the bias is as large as the errors that differ
    between targets, intervals hold less often than they say. With ``correct=True`` the design is corrected where the
    part of the data that no theta reaches shows such errors, and problems held out are predicted better (see
    ``residuals.correction``). That is experimental: errors of theta were mostly smaller in simulated scenes, but a
    corrected design may be farther from the truth than the one given.

    Args:
      key: a PRNG key.
      design: ``(N, P)``; or a DataFrame, as for ``linear_problem``.
      targets: ``(B, N)``; dozens at least. Or a DataFrame with one column per target.
      noise: ``"covariance"`` learns how errors are correlated between rows; ``"rows"`` a noise level for each row, for
        rows without order or neighbours, or more than 1,000; ``None`` neither.
      prior: ``"learn"`` learns the concentrations; or the prior, as for ``linear_problem``.
      level: ``"estimate"`` if each target has a noise level of its own, which multiplies what was learned;
        ``"common"`` if all have the same.
      coordinates: of the rows, ``(N,)``, such as wavelengths; default: their numbers. Errors of rows with near
        coordinates may be alike.
      correct: whether the design may be corrected, with ``noise="covariance"``: each column by a factor that changes
        slowly along the coordinates.
      sample: how many of the targets to learn from, at most.
      rounds: how many rounds, at most. Correcting the design may take this many more, and so may concentrations that
        differ between components.
      method: with which the rounds fit; the default is ``TG`` up to 64 components. Chains estimate the evidence too.
      progress: whether to show a progress bar, or a function called with the numbers of rounds done and in total.
      **options: ``total``, ``constraint``, ``weights``, ``mask``, ``missing`` and ``slack_prior`` of
        ``linear_problem``.

    Returns:
      What was learned; ``fit(key, learned.problem)`` is the posterior of all targets.

    >>> rng = np.random.default_rng(0)
    >>> design = np.cumsum(rng.normal(size=(40, 3)), axis=0)
    >>> errors = 0.5 * np.cumsum(rng.normal(size=(60, 40)), axis=1)
    >>> targets = rng.dirichlet(np.ones(3), 60) @ design.T + errors
    >>> learned = learn(jax.random.key(0), design, targets, rounds=2, progress=False)
    >>> learned.gain > 10
    True
    """
    key = validation.typed_key(key)
    if noise is not None:
        validation.require_choice("noise", noise, ("covariance", "rows"))
    validation.require_choice("level", level, ("estimate", "common"))
    validation.require_at_least("rounds", rounds, 1)
    validation.require_at_least("sample", sample, 2)
    design, targets, given, labels = tables.read(design, targets, {**options, "prior": prior}, "targets")
    prior, options = given.pop("prior"), given
    design, targets = _read(design, targets)
    work = Work(key, design, targets, noise, prior, level, coordinates, sample, method, options)
    steps = [(work.corrected, CORRECTED_GAIN)] if correct else []
    steps += [(work.apart, APART_GAIN)] if work.learns_prior else []
    with reporter(progress, (1 + len(steps)) * (rounds + 1), "learned", "rounds") as report:
        attempts = _rounds(work, work.plain, rounds, report, work.next)
        best = max(attempts, key=_score)
        for step, gain in steps:
            done = len(attempts)
            own = _rounds(work, best.state, rounds, lambda number, done=done: report(done + number), step)[1:]
            found = max([best, *own], key=_score)
            best = found if _score(found) > _score(best) + gain else best
            attempts += own
    chosen = next(number for number, attempt in enumerate(attempts) if attempt is best)
    found = work.learned(best.state, [attempt.record for attempt in attempts], chosen)
    found.problem.labelled(labels)
    return found


class _Attempt(NamedTuple):
    """What was learned before a round, and how well it served."""

    state: State
    record: Round


def _score(attempt: _Attempt) -> float:
    return attempt.record.score


def _rounds(
    work: Work,
    state: State,
    rounds: int,
    report: Callable[[int], None],
    step: Callable[[int, Posterior, State], State | None],
) -> list[_Attempt]:
    """Return the rounds that begin with a state, until the score hardly grows.

    Args:
      work: the batch.
      state: where to begin.
      rounds: how many rounds follow the first, at most.
      report: called with the number of rounds done.
      step: returns the state that follows from a round's posterior, or ``None`` to end.
    """
    attempts: list[_Attempt] = []
    following: State | None = state
    for number in range(rounds + 1):
        if following is None:
            break
        state = following
        found = work.fit(number, state)
        attempts.append(_Attempt(state, work.judged(found, state)))
        report(number + 1)
        if number > 2 and _score(attempts[-1]) < _score(attempts[-3]) + LEAST_GAIN:
            break
        if number < rounds:
            following = step(number, found, state)
    return attempts


def _read(design: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    """Return design and targets, or raise ``ValueError`` saying what is wrong with them."""
    if split(design)[1] is not None:
        raise ValueError("design is an UncertainDesign; pass its mean, as learn finds out how columns vary")
    if np.ndim(design) != 2 or np.ndim(targets) != 2:
        shapes = f"design has shape {np.shape(design)} and targets {np.shape(targets)}"
        single = np.ndim(targets) == 1
        remedy = (
            "one problem tells too little of its own errors: state noise and prior, or compare several with tune"
            if single
            else "learn takes one design (N, P) and targets (B, N); reshape a batch with several axes"
        )
        raise ValueError(f"{shapes}; {remedy}")
    if len(targets) < 2:
        raise ValueError("targets has 1 problem, too few to learn its errors from; state noise and prior")
    # Raises what linear_problem would raise.
    return design_and_target(design, targets, 1)
