"""Plain-text tables of a posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..status import Status

if TYPE_CHECKING:
    from .posterior import Posterior

MAX_ROWS = 30
MAX_NAME = 24
"""Longer names of components are cut."""

FEW = 8
"""With more parameters than this the table has a column of inclusion probabilities, the most probable first."""


def as_text(posterior: Posterior, level: float) -> str:
    """Return the table of one problem's components, or the overview of a batch."""
    return _batch(posterior) if posterior.batch_shape else _single(posterior, level)


def _single(posterior: Posterior, level: float) -> str:
    shortest = bool(posterior.draws.shape[-2])
    lower, upper = (np.asarray(end) for end in (posterior.hdi(level) if shortest else posterior.interval(level)))
    columns = [np.asarray(column) for column in (posterior.mean, posterior.std, lower, upper, posterior.theta)]
    kind = f"{100 * level:g} % {'hdi' if shortest else 'interval'}"
    lines = [f"Posterior of theta ({posterior.method}), {posterior.constraint.label} {float(posterior.total):g}", ""]
    included = np.asarray(posterior.inclusion()) if posterior.num_params > FEW and posterior.knows_inclusion else None
    order = np.arange(posterior.num_params) if included is None else _largest_first(included, columns[0])
    names = _components(posterior, order[:MAX_ROWS])
    width = max(9, *(1 + len(name) for name in names.values()))
    middle = "" if included is None else f"{'inclusion':>11}"
    lines.append(f"{'':>{width}}{'mean':>10}{'std':>10}{kind:>23}{middle}{'sparse mode':>14}")
    for k, name in names.items():
        mean, std, low, high, mode = (_number(column[k]) for column in columns)
        middle = "" if included is None else f"{included[k]:>11.3f}"
        lines.append(f"{name:>{width}}{mean:>10}{std:>10}{f'{low} – {high}':>23}{middle}{mode:>14}")
    if posterior.num_params > MAX_ROWS:
        lines.append(f"... and {posterior.num_params - MAX_ROWS} more components")
    lines += _unknowns(posterior, level, width)
    status = Status(int(posterior.status))
    lines += [
        "",
        f"effective draws {float(posterior.ess):,.0f}   {_quality(posterior)}",
        f"log-evidence {_finite(posterior.log_evidence, '.3f')} ± {_finite(posterior.log_evidence_stderr, '.2g')}"
        f"   status {status.words()}",
    ]
    if posterior.least_residual is not None and np.isfinite(float(posterior.least_residual)):
        ends = _number(float(posterior.residual)), _number(float(posterior.least_residual))
        lines.insert(-2, "residual, root mean square: {} at the mean, {} at best".format(*ends))
    if status:
        lines.append(status.explain())
    return "\n".join(lines)


def _quality(posterior: Posterior) -> str:
    if float(posterior.rhat) > 1:
        return f"R-hat {float(posterior.rhat):.3f}"
    rate = _finite(posterior.acceptance_rate, ".3g")
    return f"Pareto k {_finite(posterior.pareto_k, '.2f')}   acceptance rate {rate}"


def _largest_first(included: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the components' order by probability of inclusion, rounded as in the table, and then by size."""
    return np.lexsort((-np.abs(mean), -np.round(included, 3)))


def _components(posterior: Posterior, shown: np.ndarray) -> dict[int, str]:
    """Return what the table calls the components that it shows."""
    if posterior.names is None:
        return {int(k): f"theta[{k}]" for k in shown}
    names = {int(k): posterior.names[k] for k in shown}
    return {k: name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for k, name in names.items()}


def _unknowns(posterior: Posterior, level: float, width: int) -> list[str]:
    """Return the rows of the slack, the nuisance, the noise and the prior's concentration, where there are such."""
    lines = []
    if posterior.slack is not None:
        mean, std = _number(float(posterior.slack.mean)), _number(float(posterior.slack.std))
        ends = posterior.slack_hdi(level) if posterior.draws.shape[-2] and posterior.slack.draws is not None else ()
        lines.append(f"{'slack':>{width}}{mean:>10}{std:>10}" + _range(ends))
    if posterior.nuisance is not None:
        means, stds = np.asarray(posterior.nuisance.mean), np.asarray(posterior.nuisance.std)
        for name, mean, std in zip(posterior.nuisance.names, means, stds, strict=True):
            lines.append(f"{name:>{width}}{_number(mean):>10}{_number(std):>10}")
    if posterior.noise is not None:
        mean, std = _number(float(posterior.noise.mean)), _number(float(posterior.noise.std))
        lines.append(f"{'noise':>{width}}{mean:>10}{std:>10}" + _range(posterior.noise.interval(level)))
    if posterior.concentration is not None:
        own = posterior.concentration
        mean, std = _number(float(own.mean)), _number(float(own.std))
        lines.append(f"{'prior':>{width}}{mean:>10}{std:>10}" + _range(own.interval(level)))
    return lines


def _range(ends: Any) -> str:
    return f"{' – '.join(_number(float(end)) for end in ends):>23}" if len(ends) else ""


def _batch(posterior: Posterior) -> str:
    status = np.asarray(posterior.status).reshape(-1)
    shape = " x ".join(str(size) for size in posterior.batch_shape)
    lines = [f"Posterior of {shape} problems with {posterior.num_params} components ({_methods(posterior)})"]
    if not status.size:
        return lines[0]
    lines.append(f"{'':>17}{'smallest':>12}{'median':>12}{'largest':>12}")
    for label, values in (
        ("effective draws", posterior.ess),
        ("Pareto k", posterior.pareto_k),
        *([("R-hat", posterior.rhat)] if np.any(np.asarray(posterior.rhat) > 1) else []),
        ("acceptance rate", posterior.acceptance_rate),
        ("log-evidence", posterior.log_evidence),
    ):
        ordered = np.sort(np.asarray(values, np.float64).reshape(-1))
        if np.isnan(ordered).all():
            continue
        ordered = ordered[~np.isnan(ordered)] if label == "Pareto k" else ordered
        middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]]
        median = middle.mean() if np.isfinite(middle).all() else middle[0]
        lines.append(
            f"{label:>17}" + "".join(f"{_finite(end, '.4g'):>12}" for end in (ordered[0], median, ordered[-1]))
        )
    counts = {Status(int(code)): int((status == code).sum()) for code in np.unique(status)}
    lines.append(f"{'status':>17}   " + ", ".join(f"{code.words()}: {count:,}" for code, count in counts.items()))
    return "\n".join(lines)


def _methods(posterior: Posterior) -> str:
    """Return the method's name, or those that ``"auto"`` used and for how many problems."""
    if len(posterior.methods) == 1:
        return posterior.methods[0]
    names, counts = np.unique(posterior.method, return_counts=True)
    return ", ".join(f"{name}: {count:,}" for name, count in zip(names, counts, strict=True))


def _finite(value: Any, form: str) -> str:
    """Return a number, or a dash where there is none, as for the tail of equal weights or an unknown bound."""
    number = float(value)
    return format(number, form) if np.isfinite(number) else "–"


def _number(value: float) -> str:
    magnitude = abs(float(value))
    return f"{value:.3e}" if magnitude >= 1e4 or 0 < magnitude < 1e-4 else f"{value:.4f}"
