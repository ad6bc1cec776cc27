"""Synthetic control (Abadie, Diamond and Hainmueller 2010) with a posterior of the donors' weights.

One unit is treated from some time on. Before that time its outcome is fitted as a weighted mean of the outcomes of
units that are never treated, the donors:

    y_t = sum_k w_k Y_tk + noise,    w >= 0, sum w = 1.

After it the weighted mean estimates what would have been observed without treatment; the effect is the difference.
Placebos repeat the analysis with each donor in the place of the treated unit, which stays out. The ratio of root mean
squared errors after and before the treatment, compared with that of the placebos, gives a p-value.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import numpy as np

from .. import validation
from ..fit import fit
from ..posteriors.posterior import Posterior, Prediction
from ..problems import constraints
from ..problems.linear import linear_problem
from ..problems.noise_arguments import level_of, split
from .effects import AverageEffect, SyntheticControl
from .extras import load
from .panel import require_panel, wide

OPTIONS = ("constraint", "intercept", "noise", "slack_prior", "total")
FEW_DONORS = 3.0
"""Sum of the default concentrations over many donors. A priori weights are then those of about four donors."""


def synthetic_control(
    frame: Any,
    treated: Any,
    start: Any,
    *,
    unit: str | None = None,
    time: str | None = None,
    outcome: str | None = None,
    prior: Any = None,
    level: float = 0.9,
    band: Literal["central", "shortest"] = "central",
    placebos: bool = True,
    key: jax.Array | None = None,
    method: Any = "auto",
    **options: Any,
) -> SyntheticControl:
    """Return the effect of a treatment on one unit, from the weighted outcomes of units without it.

    Intervals of effects include the noise of single outcomes, and take it for independent between times. That of the
    average is too narrow if errors before the start go together from one time to the next.

    Args:
      frame: a pandas frame with times in rows (sorted by its index) and units in columns; or a long one, with the
        columns named by ``unit``, ``time`` and ``outcome``.
      treated: the treated unit.
      start: its first treated time, in the units of the index.
      unit: column of the units of a long frame.
      time: column of the times of a long frame.
      outcome: column of the outcomes of a long frame.
      prior: concentration of the Dirichlet prior on the weights, a number or one per donor. A flat prior, 1, over
        many donors expects nearly equal weights, and pulls the mean there. The default is ``min(1, 3 / donors)``.
      level: probability of intervals and bands.
      band: of the effects, ``"central"`` or ``"shortest"``.
      placebos: whether to treat each donor in turn; this takes three donors or more.
      key: a PRNG key; ``jax.random.key(0)`` if ``None``.
      method: of ``fit``; it must keep draws.
      **options: ``intercept``, for units that differ by a constant, ``noise``, ``total``, ``constraint`` or
        ``slack_prior`` of ``linear_problem``.

    Raises:
      ValueError: naming the argument, or the unit and the time, that is wrong.
    """
    pd = load("pandas", "synthetic_control")
    _require_options(options)
    validation.require_share("level", level)
    frame = wide(pd, frame, unit, time, outcome)
    is_before = require_panel(frame, treated, start, 3 if placebos else 2, 4 if options.get("intercept") else 3)
    names, key = frame.columns.drop(treated), jax.random.key(0) if key is None else key
    prior = np.asarray(min(1.0, FEW_DONORS / len(names)) if prior is None else prior, np.float64)
    observed = frame[[treated, *names]].to_numpy(np.float64)
    targets, donors = _centred(observed, options)
    found = fit(key, linear_problem(donors[is_before], targets[is_before, 0], prior=prior, **options), method)
    lower, upper = found.hdi(level)
    noise = options["noise"] if found.noise is None else np.hypot(found.noise.mean, found.noise.std)
    effect, low, high, _ = _effects(found.predict(donors, level, noise=noise, band=band), targets[:, 0])
    path = {"observed": observed[:, 0], "synthetic": observed[:, 0] - effect, "effect": effect, "low": low}
    # The mean of T treated times has the mean of their noise.
    after, shrink = donors[~is_before].mean(0)[None], np.sqrt((~is_before).sum())
    average = found.predict(after, level, noise=noise / shrink, band=band)
    mean, *ends, std = (float(part[0]) for part in _effects(average, targets[~is_before, :1].mean(0)))
    ratio, ratios, effects, others = float(_ratio(effect, is_before)), None, None, None
    if placebos:
        others, paths = _placebos(key, targets[:, 1:], donors, is_before, prior, method, options)
        ratios = pd.Series(_ratio(paths, is_before), names, name="ratio")
        effects = pd.DataFrame(paths.T, frame.index, names)
    return SyntheticControl(
        treated=treated,
        start=frame.index[~is_before][0],
        level=level,
        weights=_frame(pd, names, mean=found.mean, std=found.std, low=lower, high=upper),
        effect=_frame(pd, frame.index, **path, high=high),
        average_effect=AverageEffect(mean, std, *ends),
        ratio=ratio,
        placebo_ratios=ratios,
        placebo_effects=effects,
        p_value=float("nan") if ratios is None else (1 + int((ratios >= ratio).sum())) / (1 + len(names)),
        posterior=found,
        placebo_posterior=others,
    )


def _placebos(
    key: jax.Array,
    targets: np.ndarray,
    donors: np.ndarray,
    is_before: np.ndarray,
    prior: np.ndarray,
    method: Any,
    options: dict[str, Any],
) -> tuple[Posterior, np.ndarray]:
    """Return the posteriors of the donors, each fitted by the others in one batch, and effects, ``(units, times)``."""
    count = donors.shape[1]
    pools = np.stack([np.delete(np.arange(count), k) for k in range(count)])
    designs = np.moveaxis(donors[:, pools], 1, 0)  # (units, times, other donors)
    prior = prior[pools] if prior.ndim else prior
    problem = linear_problem(designs[:, is_before], targets[is_before].T, prior=prior, **options)
    found = fit(key, problem, method)
    fitted = np.einsum("utk,uk->ut", designs, np.asarray(found.mean, np.float64))
    if found.nuisance is not None:
        fitted += np.asarray(found.nuisance.mean, np.float64)[:, :1]
    return found, targets.T - fitted


def _effects(curve: Prediction, target: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the effect, the ends of its interval and its standard deviation, from what the donors predict."""
    mean, high, low, std = (np.asarray(part, np.float64) for part in (curve.mean, curve.lower, curve.upper, curve.std))
    return target - mean, target - low, target - high, std


def _ratio(effects: np.ndarray, is_before: np.ndarray) -> np.ndarray:
    """Return root mean squares after the start over those before it, of effects ``(..., times)``."""
    square = np.square(effects)
    before = np.maximum(square[..., is_before].mean(-1), np.finfo(float).tiny)
    return np.sqrt(square[..., ~is_before].mean(-1) / before)


def _centred(observed: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return targets, the treated unit first, and donors, less the donors' mean of each time.

    That changes nothing where weights have a fixed sum, and leaves float32 its digits for differences between units.
    """
    donors = observed[:, 1:]
    if constraints.named(options.get("constraint", "equal")).name != "equal":
        return observed, donors
    mean = donors.mean(1, keepdims=True)
    return observed - options.get("total", 1.0) * mean, donors - mean


def _require_options(options: dict[str, Any]) -> None:
    """Raise ``ValueError`` unless the options serve all times and all units."""
    for name in options:
        validation.require_choice("option", name, OPTIONS)
    if np.ndim(options.get("total", 1.0)):
        raise ValueError(f"total={options['total']!r}: pass one number")
    noise = options.get("noise", "estimate")
    if not _serves_all_times(noise):
        raise ValueError(f'noise={noise!r}: pass "estimate", an InverseGamma, or a number, which serves all times')


def _serves_all_times(noise: Any) -> bool:
    """Return whether noise has one level, known or estimated, for new observations too."""
    level, *correlation = split(noise)
    if level is None or np.ndim(level) or any(part is not None for part in correlation):
        return False
    model, _ = level_of(level, (), (), None)
    return model.has_fixed_level or model.estimates_level


def _frame(pd: Any, index: Any, **columns: Any) -> Any:
    return pd.DataFrame({name: np.asarray(column, np.float64) for name, column in columns.items()}, index)
