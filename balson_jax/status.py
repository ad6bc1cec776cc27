"""What can be wrong with a fit, as an integer that survives a trace."""

from __future__ import annotations

import enum


class Status(enum.IntFlag):
    """The verdict on a fit: ``OK``, or a sum of troubles, which ``explain`` puts in words.

    Attributes:
      OK: no trouble found.
      LOW_ESS: fewer than 100 effective draws.
      HIGH_PARETO_K: a few weights dominate.
      BUDGET: rejection sampling ran out of proposals.
      NONFINITE: a number was not finite, or out of its domain.
      ENVELOPE: rejection sampling of a model met a better fit than its bound allows.
      IMPROPER: a perfect fit, and noise to be estimated.
      ROUNDING: the rounding of the data moves the answer.
      HIGH_RHAT: Markov chains have not come to agree.

    >>> Status(3)
    <Status.LOW_ESS|HIGH_PARETO_K: 3>
    """

    OK = 0
    LOW_ESS = 1
    HIGH_PARETO_K = 2
    BUDGET = 4
    NONFINITE = 8
    ENVELOPE = 16
    IMPROPER = 32
    ROUNDING = 64
    HIGH_RHAT = 128

    def explain(self) -> str:
        """Return what the troubles mean and what to do about them, one sentence each."""
        return " ".join(text for flag, text in _MEANING.items() if flag in self) or "No trouble found."


MIN_ESS = 100
"""Fewer effective draws than this set ``LOW_ESS``."""

MAX_RHAT = 1.01
"""A larger R-hat than this sets ``HIGH_RHAT``."""

_MEANING = {
    Status.NONFINITE: (
        "NONFINITE: an input was not finite or not positive, a model returned NaN, or a number overflowed; the results "
        "are NaN or meaningless."
    ),
    Status.IMPROPER: (
        "IMPROPER: the model fits the target perfectly, to rounding, so that the noise could be infinitely small and "
        'noise="estimate" has no posterior. State the noise, or give it an InverseGamma prior with a larger scale.'
    ),
    Status.ROUNDING: (
        "ROUNDING: design and target are so large beside the noise that their rounding moves the answer. Subtract what "
        "they have in common, or work in float64 (jax.config.update('jax_enable_x64', True))."
    ),
    Status.ENVELOPE: (
        "ENVELOPE: draws lay above the envelope of rejection sampling, so that its answer is distorted: the bound of "
        "the model's residuals is wrong. Give a smaller bound, or use importance sampling."
    ),
    Status.BUDGET: (
        "BUDGET: max_proposals were spent before num_draws were accepted; the accepted ones were used "
        "(the prior's moments if none was). Raise max_proposals or use importance sampling."
    ),
    Status.HIGH_RHAT: (
        f"HIGH_RHAT: independent chains have not come to agree (R-hat above {MAX_RHAT}) within max_moves: the "
        "posterior may have several peaks, or be narrower than rounding. Raise max_moves, or work in float64."
    ),
    Status.LOW_ESS: (
        f"LOW_ESS: fewer than {MIN_ESS} effective draws (in some round): the spread can't be trusted. Take "
        f"{MIN_ESS} / ess times as many draws (of chains: a larger max_moves), or let "
        'method="auto" choose, if it did not.'
    ),
    Status.HIGH_PARETO_K: (
        "HIGH_PARETO_K: a few weights dominate, so that even ess is doubtful: the proposal hardly meets the posterior. "
        'Several times as many draws may cure it, or not even hundreds; method="tg" and "hit_and_run" are made for it, '
        'and "auto" takes them where they are needed.'
    ),
}
"""Causes come before what follows from them."""
