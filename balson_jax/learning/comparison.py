"""Choosing between models by their evidence.

The evidence, ``p(target | model)``, is the prior's mean of the likelihood. It rises with the fit and falls with the
prior mass on fits that the data exclude. Differences of its logarithm are log-odds of the models, if these were equally
plausible before.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..fit import fit
from ..posteriors.posterior import Posterior
from ..problems.base import Problem, is_problem
from ..samplers import METHODS, Sampler, chosen
from ..status import Status


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Candidates ranked by their evidence, the best first: over all problems together, if they are a batch.

    Attributes:
      names: of the M candidates.
      log_evidence: ``(M, ...)``.
      log_evidence_stderr: its Monte Carlo error, ``(M, ...)``.
      weights: the candidates' posterior probabilities if they were equally likely before, ``(M, ...)``; zero where no
        candidate has an evidence, NaN if they don't compare.
      status: ``(M, ...)``; the evidence of a fit whose status isn't ``OK`` is in doubt.
      posteriors: by name.
    """

    names: tuple[str, ...]
    log_evidence: np.ndarray
    log_evidence_stderr: np.ndarray
    weights: np.ndarray
    status: np.ndarray
    posteriors: dict[str, Posterior]

    @property
    def best(self) -> np.ndarray:
        """The name of each problem's best candidate, ``(...)``."""
        return np.asarray(self.names)[self.log_evidence.argmax(0)]

    def __repr__(self) -> str:
        """Return the table."""
        width = max(9, *map(len, self.names))
        count = self.log_evidence[0].size
        last = "weight" if count == 1 else "best in"
        header = f"{'':>{width}}{'log-evidence':>14}{'± error':>10}{'difference':>12}{last:>10}   status"
        lines = [f"{count:,} problems; log-evidence is their sum"] if count != 1 else []
        lines.append(header)
        sums = self.log_evidence.reshape(len(self.names), -1).sum(-1)
        errors = np.sqrt(np.square(self.log_evidence_stderr.reshape(len(self.names), -1)).sum(-1))
        for i, name in enumerate(self.names):
            share = f"{int(np.sum(self.best == name)):,}"
            if count == 1:
                share = f"{float(self.weights[i].reshape(())):.4f}".replace("nan", "–")
            bad = Status(int(np.bitwise_or.reduce(self.status[i], axis=None)))
            difference = sums[i] - sums[0]
            lines.append(
                f"{name:>{width}}{sums[i]:>14.3f}{errors[i]:>10.2g}{difference:>12.3f}{share:>10}   {bad.words()}"
            )
        return "\n".join(lines)


def compare(
    candidates: Mapping[str, Posterior | Problem | Sampler | str],
    *,
    key: jax.Array | None = None,
    problem: Problem | None = None,
    method: str | Sampler = "auto",
) -> Comparison:
    """Return candidates ranked by evidence.

    All must be about the same data: problems that differ in design, constraint or prior, say, but not in the target or
    in which of its rows count. RSIRS and ISIRS (unless ``reuse_data=False``) report the evidence of data that were
    counted already, which grows with the rounds and says nothing of the model: comparing it draws a warning.

    Args:
      candidates: by name, posteriors; or problems, which are fitted by ``method``; or methods, which fit ``problem``
        (to see that they agree).
      key: for fitting.
      problem: the problem that methods fit.
      method: how problems are fitted. Chains, here and among the candidates, estimate the evidence too.

    >>> import jax.numpy as jnp
    >>> from balson_jax import IS, linear_problem
    >>> x = jnp.linspace(-1, 1, 50)
    >>> y = 0.3 + 0.7 * x**2 + 0.3 * jax.random.normal(jax.random.key(3), (50,))
    >>> powers = {"odd": jnp.array([0, 1, 3]), "even": jnp.array([0, 2, 4])}
    >>> problems = {name: linear_problem(x[:, None] ** power, y, noise=0.3) for name, power in powers.items()}
    >>> compare(problems, key=jax.random.key(0), method=IS(num_draws=4000)).names
    ('even', 'odd')
    """
    is_mapping = isinstance(candidates, Mapping)
    if not is_mapping or not candidates:
        trouble = "is empty" if is_mapping else f"is a {type(candidates).__name__}"
        raise ValueError(f"candidates {trouble}; pass a dict of posteriors, problems or methods by name")
    posteriors = {str(name): _posterior(name, value, key, problem, method) for name, value in candidates.items()}
    sharpened = [name for name, found in posteriors.items() if found.sharpened]
    warn_of_sharpened(sharpened)
    shapes = {name: found.batch_shape for name, found in posteriors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"candidates have batches of different shapes, {shapes}; compare like with like")
    first, *others = posteriors.values()
    if not all(np.array_equal(first.num_rows, other.num_rows) for other in others):
        rows = {name: np.asarray(found.num_rows).tolist() for name, found in posteriors.items()}
        raise ValueError(f"candidates rest on different numbers of rows, {rows}; give them the same data")
    mixed = len({found.noise is not None and bool(np.any(found.noise.relative)) for found in posteriors.values()}) > 1
    if mixed:
        warnings.warn(
            'under noise="estimate" the evidence has an arbitrary constant, which some candidates have and some do '
            "not, so that these don't compare; estimate the noise in all, or with a proper InverseGamma prior",
            stacklevel=2,
        )
    evidence, errors, status = (
        np.stack([np.asarray(getattr(found, field)) for found in posteriors.values()])
        for field in ("log_evidence", "log_evidence_stderr", "status")
    )
    for name, posterior in posteriors.items():
        require_evidence(f"candidate {name!r}", posterior)
    evidence = np.where(np.isnan(evidence), -np.inf, evidence)
    order = np.argsort(-np.asarray(summed(jnp.asarray(evidence))), kind="stable")
    names = tuple(list(posteriors)[i] for i in order)
    peak = evidence.max(0)
    odds = np.exp(evidence[order] - np.where(np.isfinite(peak), peak, 0))
    weights = odds / np.where(odds.sum(0) > 0, odds.sum(0), 1)
    if mixed or sharpened:
        weights = np.full_like(weights, np.nan)
    return Comparison(names, evidence[order], errors[order], weights, status[order], posteriors)


def summed(evidence: jax.Array) -> jax.Array:
    """Return sums over problems of log-evidences ``(candidates, ...)``; a problem without any does not count."""
    has_none = jnp.isneginf(evidence).all(0)
    return jnp.where(has_none, 0, evidence).reshape(len(evidence), -1).sum(-1)


def require_evidence(name: str, posterior: Posterior) -> None:
    """Raise ``ValueError`` if a fit without trouble has no evidence, because its method doesn't estimate it."""
    missing = np.isnan(posterior.log_evidence) & ((np.asarray(posterior.status) & int(Status.NONFINITE)) == 0)
    if missing.any():
        raise ValueError(
            f"{name} was fitted by a method that doesn't tell the evidence; fit with Auto(evidence=True), or for "
            "chains HitAndRun(evidence=True)"
        )


def _posterior(name: Any, value: Any, key: Any, problem: Problem | None, method: str | Sampler) -> Posterior:
    if isinstance(value, Posterior):
        return value
    if key is None:
        raise ValueError(f"candidate {name!r} is to be fitted; pass key=jax.random.key(0)")
    if is_problem(value):
        return fit(key, value, chosen(method).with_evidence())
    if isinstance(value, (Sampler, str)):
        if problem is None:
            raise ValueError(f"candidate {name!r} is a method; pass problem=, which it is to fit")
        return fit(key, problem, chosen(value).with_evidence())
    known = f"a posterior, a problem or a method ({', '.join(METHODS)})"
    raise ValueError(f"candidate {name!r} is a {type(value).__name__}; pass {known}")


def warn_of_sharpened(names: list[str]) -> None:
    """Warn if the evidence of some fits counts the data more than once."""
    if names:
        warnings.warn(
            f"{', '.join(names)}: the evidence is that of data counted more than once, and does not compare models; "
            "use IS, RS, or reuse_data=False",
            stacklevel=3,
        )
