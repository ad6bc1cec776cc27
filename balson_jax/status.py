"""The status of a fit: integer flags for problems that were found. They can be computed inside ``jit``."""

from __future__ import annotations

import enum


class Status(enum.IntFlag):
    """The status of a fit: ``OK``, or a combination of flags. ``explain`` says what they mean and what to do.

    Attributes:
      OK: no problem found.
      LOW_ESS: fewer than 100 effective draws.
      HIGH_PARETO_K: a few weights dominate the estimate.
      BUDGET: the draws that were asked for (``num_draws``, ``target_ess``) were not reached.
      NONFINITE: a number was not finite, or outside its domain.
      ENVELOPE: in rejection sampling, a model fitted better than its bound allows.
      IMPROPER: the fit is perfect and the noise is to be estimated, so the posterior is improper.
      ROUNDING: rounding errors of the data change the answer.
      HIGH_RHAT: Markov chains do not agree.
      OVERCONFIDENT: error bars are too narrow for the residuals (found by ``check``, for each problem, and by
        ``fit_stream``, for all problems of a stream; ``fit`` sees no rows).
      PRIOR_DOMINATES: the posterior mean fits far worse than it could (found by ``fit``, for linear problems
        of unknown noise).

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
    OVERCONFIDENT = 256
    PRIOR_DOMINATES = 512

    def words(self) -> str:
        """Return the names of the flags, ``"LOW_ESS|BUDGET"``, or ``"OK"``."""
        return "|".join(flag.name or "" for flag in self) or "OK"

    def explain(self) -> str:
        """Return what the flags mean and what to do about them."""
        return " ".join(text for flag, text in _MEANING.items() if flag in self) or "No problem found."


ABOUT_THE_MODEL = Status.PRIOR_DOMINATES | Status.OVERCONFIDENT
"""Troubles of the model, which say nothing of how well a sampler did."""

MIN_ESS = 100
"""``LOW_ESS`` is set below this effective sample size."""

MAX_RHAT = 1.01
"""``HIGH_RHAT`` is set above this R-hat."""

_MEANING = {
    Status.NONFINITE: (
        "NONFINITE: an input was not finite or not positive, a model returned NaN, or a number overflowed. The results "
        "are NaN or meaningless. Check the inputs, and the values that a model returns."
    ),
    Status.IMPROPER: (
        "IMPROPER: the model fits the target perfectly, up to rounding. The noise could be arbitrarily small, and with "
        'noise="estimate" the posterior is improper. State the noise, or give it an InverseGamma prior with a larger '
        "scale."
    ),
    Status.ROUNDING: (
        "ROUNDING: design and target are so large compared with the noise that rounding errors change the answer. "
        "Subtract an offset that they have in common, or work in float64 (jax.config.update('jax_enable_x64', True))."
    ),
    Status.ENVELOPE: (
        "ENVELOPE: some draws fit better than the bound on the model's residuals allows. The bound is wrong, and the "
        "answer of rejection sampling is biased. Pass a smaller bound, or use importance sampling."
    ),
    Status.BUDGET: (
        "BUDGET: there are fewer draws than asked for. Rejection sampling reached max_proposals before num_draws were "
        "accepted; the results use the accepted draws, or the prior's moments if there are none. Raise max_proposals, "
        "or use importance sampling. Chains reached max_moves, or auto its last method, before target_ess. Raise "
        "max_moves, or ask for fewer."
    ),
    Status.HIGH_RHAT: (
        f"HIGH_RHAT: independent chains do not agree after max_moves (R-hat above {MAX_RHAT}). The posterior may have "
        "several modes, or be narrower than rounding errors. Raise max_moves, or work in float64."
    ),
    Status.OVERCONFIDENT: (
        "OVERCONFIDENT: residuals go together between rows, so that the rows tell less than the model believes, and "
        "intervals are too narrow. Learn the noise from a batch of such targets with balson_jax.learn, or state it as "
        "balson_jax.Correlated."
    ),
    Status.PRIOR_DOMINATES: (
        "PRIOR_DOMINATES: the posterior mean fits far worse than the best theta does. A flat prior over many "
        "components expects them all about equal. Take a smaller concentration, such as prior=0.1, or let the data "
        "choose with balson_jax.tune or balson_jax.learn."
    ),
    Status.LOW_ESS: (
        f"LOW_ESS: fewer than {MIN_ESS} effective draws (in at least one round). The spread can't be trusted. Take "
        f"{MIN_ESS} / ess times as many draws (for chains, raise max_moves), or use "
        'method="auto" if you did not.'
    ),
    Status.HIGH_PARETO_K: (
        "HIGH_PARETO_K: a few weights dominate, because the proposal covers the posterior poorly. Even ess is "
        'unreliable. More draws may not help. Use method="tg" or "hit_and_run", which are made for narrow posteriors, '
        'or "auto", which chooses them where they are needed.'
    ),
}
"""The meaning of each flag. Causes come before their consequences."""
