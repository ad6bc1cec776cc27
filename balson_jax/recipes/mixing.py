"""Mixing models of tracers: which shares of a consumer's diet came from which sources (as MixSIR, SIAR, MixSIAR).

The tracer j of a consumer is a mean of that of the sources, weighted by the shares p of its diet, where each consumer
has sources of its own that vary about the sources' means:

    y_j ~ N(sum_k p_k (m_jk + d_jk),  s_j^2 + sum_k p_k^2 (sd_jk^2 + sd'_jk^2)),    p >= 0, sum p = 1,

with the mean m and standard deviation sd of a source, the mean d and standard deviation sd' of the discrimination
factor (trophic enrichment), and a residual error s. A mean of n samples is itself off by sd^2 / n, which adds to it.

The mean tracer of a group of M consumers is fitted by the same model, with sd^2 / M, sd'^2 / M and s^2 / M in the place
of the variances, but sd^2 / n as it is. This assumes that the members of a group eat alike, each from sources of its
own; how much members differ isn't looked at.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import numpy as np
from jax.scipy.special import gammaincc

from .. import validation
from ..fit import fit
from ..posteriors.posterior import Posterior
from ..problems.linear import linear_problem
from ..problems.uncertain_design import UncertainDesign
from ..status import Status
from .extras import load
from .tracers import Sources, averages, discrimination_of, observations, read, refuse_concentration

SMALL_NOISE = 0.1
"""The default residual error, as a share of the root mean square of the sources' standard deviations."""

OUTSIDE = 0.01
"""A consumer lies outside the mixing polygon if residuals as large as its own have a smaller probability."""


@dataclasses.dataclass(frozen=True, repr=False)
class Mixing:
    """The result of ``mixing``.

    Attributes:
      table: a frame with a row for each consumer and source: ``consumer``, ``source``, and of the share ``mean``,
        ``std``, ``low`` and ``high`` (the shortest interval).
      groups: the same for groups, with ``group`` in the place of ``consumer``; ``None`` without groups.
      consumers: a frame with a row for each consumer: ``distance`` of its tracers from those at the mean shares, root
        mean square in standard deviations; the ``p_value`` of a distance as large; ``outside``, whether that is below
        1 %, so that no shares explain the tracers; and ``status``, that of the fit.
      sources: names of the sources, in the order of the posterior's components.
      tracers: names of the tracers, in the order of the rows.
      noise: the residual error that was used, one per tracer.
      level: probability of the intervals.
      posterior: of the consumers' shares, a batch.
      group_posterior: of the groups' shares, a batch in the order of ``groups``; ``None`` without groups.
    """

    table: Any
    groups: Any
    consumers: Any
    sources: list[Any]
    tracers: list[str]
    noise: np.ndarray
    level: float
    posterior: Posterior
    group_posterior: Posterior | None

    def summary(self, rows: int = 10) -> str:
        """Return a table for people: shares of the groups, or of the first consumers if there are none."""
        kind = "consumer" if self.groups is None else "group"
        table = self.table if self.groups is None else self.groups
        names = list(dict.fromkeys(table[kind]))
        width = max(10, *(len(str(name)) + 1 for name in [kind, *names, *self.sources]))
        lines = [
            f"Mixing of {len(self.sources)} sources by {len(self.consumers)} consumers, "
            f"tracers {', '.join(self.tracers)}",
            "",
            f"{kind:>{width}}{'source':>{width}}{'share':>10}{'std':>10}{f'{100 * self.level:g} % hdi':>20}",
        ]
        for row in table[table[kind].isin(names[:rows])].itertuples(index=False):
            ends = f"{row.low:.3f} – {row.high:.3f}"
            lines.append(f"{row[0]!s:>{width}}{row.source!s:>{width}}{row.mean:>10.3f}{row.std:>10.3f}{ends:>20}")
        if len(names) > rows:
            lines.append(f"... and {len(names) - rows} more")
        outside = self.consumers.index[self.consumers["outside"]]
        if len(outside):
            lines += ["", _outside(outside)]
        flags = Status(int(np.bitwise_or.reduce(np.asarray(self.posterior.status))))
        return "\n".join([*lines, "", f"status: {flags.explain() if flags else 'OK'}"])

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()


def mixing(
    consumers: Any,
    sources: Any,
    *,
    discrimination: Any = None,
    concentration: Any = None,
    group: str | None = None,
    noise: Any = None,
    prior: Any = 1.0,
    level: float = 0.9,
    key: jax.Array | None = None,
    method: Any = "auto",
) -> Mixing:
    """Return the posterior of the shares of sources in the diet of each consumer, and of each group of them.

    Warns if consumers lie outside the mixing polygon: tracers that no mixture of the sources explains.

    Args:
      consumers: a frame with a row per consumer and a column per tracer; others are ignored.
      sources: a frame as for MixSIAR, one row per source with its name, ``Mean<tracer>``, ``SD<tracer>`` (such as
        ``Meand13C``) and ``n``, the number of samples (without it, means are taken as exact); or one row per sample,
        with the source's name and the tracers. Tracers vary independently of each other.
      discrimination: discrimination factors by source, in either form. Means and variances are added to the sources';
        their ``n`` isn't used.
      concentration: concentrations of the tracers' elements in the sources. Only equal ones serve, because others
        make the mixture nonlinear.
      group: column of the consumers that holds their group.
      noise: standard deviation of the residual error, a number, or one per tracer (a list, or a mapping by name). Two
        tracers can't determine it. By default a tenth of the root mean square of the standard deviations of sources and
        discrimination, per tracer: hardly any beside these, as in MixSIR. State what measurements add, if that is more.
      prior: concentration of the Dirichlet prior on the shares, a number, or one per source (a list, or a mapping).
      level: probability of the intervals.
      key: a PRNG key; ``jax.random.key(0)`` if ``None``.
      method: of ``fit``; it must keep draws.

    Raises:
      ValueError: naming the argument and the row or column that is wrong.
    """
    pd = load("pandas", "mixing")
    validation.require_share("level", level)
    known = read(pd, sources, "sources", consumers)
    refuse_concentration(pd, concentration, known)
    mean, own, shared = known.mean, np.square(known.std), np.square(known.std) / known.samples
    if discrimination is not None:
        added = discrimination_of(pd, discrimination, known, consumers)
        mean, own = mean + added.mean, own + np.square(added.std)
    levels = _noise(noise, known, own)
    prior = _per(prior, known.names, "prior")
    observed, labels = observations(consumers, known.tracers)
    members, names = averages(consumers, group)
    # Consumers are groups of one. All are one batch.
    tracers = np.concatenate([observed, members @ observed])
    size = np.concatenate([np.ones(len(observed)), 1 / members.max(1)])[:, None]
    std = np.sqrt(own / size[..., None] + shared)
    # Shares sum to one, so that an offset changes nothing; without it float32 has more digits.
    offset = mean.mean(1)
    design = UncertainDesign(np.broadcast_to(mean - offset[:, None], std.shape), std=std)
    problem = linear_problem(design, tracers - offset, noise=levels / np.sqrt(size), prior=prior)
    found = fit(jax.random.key(0) if key is None else key, problem, method)
    single, pooled = found[: len(observed)], found[len(observed) :] if len(names) else None
    return _result(pd, known, mean, std, levels, observed, (single, pooled), (labels, names), level)


def _result(
    pd: Any,
    known: Sources,
    mean: np.ndarray,
    std: np.ndarray,
    levels: np.ndarray,
    observed: np.ndarray,
    posteriors: tuple[Posterior, Posterior | None],
    names: tuple[list[Any], list[Any]],
    level: float,
) -> Mixing:
    """Return the frames of the result, and warn of consumers outside the mixing polygon."""
    single, pooled = posteriors
    shares = np.asarray(single.mean, np.float64)
    spread = np.square(levels) + np.einsum("njk,nk->nj", np.square(std[: len(shares)]), np.square(shares))
    square = (np.square(observed - shares @ mean.T) / spread).sum(1)
    p_value = np.asarray(gammaincc(0.5 * len(mean), 0.5 * square), np.float64)
    seen = pd.DataFrame(
        {
            "distance": np.sqrt(square / len(mean)),
            "p_value": p_value,
            "outside": p_value < OUTSIDE,
            "status": np.asarray(single.status),
        },
        names[0],
    )
    if seen["outside"].any():
        warnings.warn(_outside(seen.index[seen["outside"]]), UserWarning, stacklevel=3)
    return Mixing(
        table=_table(pd, "consumer", names[0], known.names, single, level),
        groups=None if pooled is None else _table(pd, "group", names[1], known.names, pooled, level),
        consumers=seen,
        sources=known.names,
        tracers=known.tracers,
        noise=levels,
        level=level,
        posterior=single,
        group_posterior=pooled,
    )


def _table(pd: Any, kind: str, names: list[Any], sources: list[Any], found: Posterior, level: float) -> Any:
    low, high = found.hdi(level)
    columns = {"mean": found.mean, "std": found.std, "low": low, "high": high}
    numbers = {name: np.asarray(column, np.float64).ravel() for name, column in columns.items()}
    return pd.DataFrame({kind: [name for name in names for _ in sources], "source": [*sources] * len(names), **numbers})


def _outside(names: Any) -> str:
    shown = ", ".join(map(str, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"outside the mixing polygon: {shown}. No shares of these sources explain such tracers. A source may be "
        "missing, or the discrimination factors wrong."
    )


def _noise(noise: Any, known: Sources, variance: np.ndarray) -> np.ndarray:
    """Return the residual standard deviation of each tracer."""
    levels = SMALL_NOISE * np.sqrt(variance.mean(1)) if noise is None else _per(noise, known.tracers, "noise")
    levels = np.broadcast_to(levels, len(known.tracers))
    if not (levels > 0).all():
        hint = "sources have no standard deviation; " if noise is None else ""
        raise ValueError(f"noise={noise!r}: {hint}pass a positive residual error, a number or one per tracer")
    return levels


def _per(value: Any, names: list[Any], argument: str) -> np.ndarray:
    """Return a number, or one for each name, from a list or a mapping."""
    if hasattr(value, "keys"):  # a mapping or a Series
        value = dict(value)
        if set(value) != set(names):
            raise ValueError(f"{argument} has values for {list(value)}; pass one for each of {names}")
        value = [value[name] for name in names]
    array = np.asarray(validation.float_array(argument, value), np.float64)
    if array.shape not in ((), (len(names),)):
        raise ValueError(f"{argument} has shape {array.shape}; pass one number, or one for each of {names}")
    return array
