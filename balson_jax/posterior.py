"""The result of a fit: moments, the approximating Dirichlet, its sparse mode, diagnostics, and a table to read."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import dirichlet, random, validation
from .status import Status
from .summary import summarize


class FitError(RuntimeError):
    """Raised by ``Posterior.raise_for_status``."""


class Prediction(NamedTuple):
    """What the posterior says of ``design @ theta``; each field has the shape ``(..., N)``."""

    mean: jax.Array
    std: jax.Array
    lower: jax.Array
    upper: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Posterior:
    """The posterior of ``theta`` for one problem or a batch, whose axes lead every field.

    Attributes:
      alpha: concentrations of the approximating Dirichlet of ``theta / total``, ``(..., K)``.
      theta: its sparse mode times ``total``: the paper's point estimate, ``(..., K)``.
      mean: posterior mean of theta, from the weighted draws themselves, ``(..., K)``.
      std: posterior standard deviation of theta, from the weighted draws themselves, ``(..., K)``.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(..., K)``.
      log_evidence: log of the marginal likelihood, constants included; for RSIRS and ISIRS that of the last round.
      log_evidence_stderr: its Monte Carlo standard error, plus the rounding of a large number.
      acceptance_rate: evidence over the likelihood's certified peak: what rejection sampling accepts.
      ess: effective number of draws (of the worst round).
      pareto_k: shape of the weights' tail (of the worst round); ``-inf`` where all weights are equal, as for RS;
        NaN with ``diagnose_tail=False``.
      status: ``Status`` as an integer; troubles of all rounds.
      total: the sum of theta.
      method: name of the method.
    """

    alpha: jax.Array
    theta: jax.Array
    mean: jax.Array
    std: jax.Array
    mean_stderr: jax.Array
    log_evidence: jax.Array
    log_evidence_stderr: jax.Array
    acceptance_rate: jax.Array
    ess: jax.Array
    pareto_k: jax.Array
    status: jax.Array
    total: jax.Array
    method: str = dataclasses.field(metadata={"static": True})

    @property
    def num_components(self) -> int:
        """The number K of components of theta."""
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``()`` for one problem."""
        return self.mean.shape[:-1]

    def __getitem__(self, index: Any) -> Posterior:
        """Return the posterior of some problems of a batch: ``posterior[3]``, ``posterior[:10]``."""
        if not self.batch_shape:
            raise TypeError("this is the posterior of one problem; there is no batch to index")
        chosen = jnp.arange(self.status.size).reshape(self.batch_shape)[index]
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(self.batch_shape) :]), self)
        return jax.tree.map(lambda leaf: leaf[chosen], flat)

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of central intervals of each component, ``(..., K)``.

        Quantiles of the Beta distribution with the component's own mean and standard deviation. (The approximating
        Dirichlet has one precision for all components and fits their spreads less well;
        ``dirichlet.marginal_interval(posterior.alpha)`` gives its intervals.)
        """
        _check_level(level)
        scale = self.total[..., None]
        lower, upper = _matched_beta(self.mean / scale, jnp.square(self.std / scale), level)
        return scale * lower, scale * upper

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """Return ``n`` draws of theta from the approximating Dirichlet, ``(n, ..., K)``."""
        validation.require_at_least("n", n, 1)
        key = validation.typed_key(key)
        omega = random.dirichlet(key, self.alpha, (n, *self.batch_shape), self.alpha.dtype)
        return self.total[..., None] * omega

    def predict(self, design: Any, level: float = 0.9) -> Prediction:
        """Return mean, standard deviation and a band of ``design @ theta``, without the noise.

        The mean is the posterior's. The spread is that of the approximating Dirichlet, which knows nothing of the
        posterior's correlations: where columns of the design resemble each other, as those of a polynomial do, the data
        fix the curve better than its coefficients, and the band comes out two or three times too wide. The band is the
        central interval of a Beta distribution on the range of values that ``design @ theta`` can take.

        Args:
          design: ``(..., N, K)``; leading axes broadcast against the batch.
          level: probability of the band.
        """
        _check_level(level)
        design = validation.float_array("design", design, self.mean.dtype)
        if design.ndim < 2 or design.shape[-1] != self.num_components:
            raise ValueError(
                f"design has shape {design.shape}; its last axis must have {self.num_components} components"
            )
        scale = self.total[..., None]
        centre = dirichlet.mean(self.alpha)
        mean = jnp.einsum("...nk,...k->...n", design, self.mean)
        fitted = jnp.einsum("...nk,...k->...n", design, centre)
        square = jnp.einsum("...nk,...k->...n", jnp.square(design - fitted[..., None]), centre)
        variance = square / (self.alpha.sum(-1)[..., None] + 1)
        low, high = design.min(-1), design.max(-1)
        width = jnp.where(high > low, high - low, 1)
        lower, upper = _matched_beta((mean / scale - low) / width, variance / width**2, level)
        std = scale * jnp.sqrt(variance)
        return Prediction(mean, std, scale * (low + width * lower), scale * (low + width * upper))

    def raise_for_status(self) -> None:
        """Raise ``FitError``, saying what is wrong and where, unless every problem's status is ``OK``."""
        if not validation.is_concrete(self.status):
            raise ValueError("raise_for_status needs concrete values; call it outside jit, or look at status")
        status = np.asarray(self.status)
        bad = np.argwhere(status != 0)
        if not len(bad):
            return
        union = Status(int(np.bitwise_or.reduce(status, axis=None)))
        where = f" in {len(bad)} of {status.size} problems, first at index {bad[0].tolist()}" if status.ndim else ""
        raise FitError(f"the fit can't be trusted{where}. {union.explain()}")

    def summary(self, level: float = 0.9) -> str:
        """Return a table for people: the components of one problem, or an overview of a batch."""
        _check_level(level)
        return summarize(self, level)

    def __repr__(self) -> str:
        """Return the summary; only the method's name inside a trace, or where the fields are not arrays."""
        leaves = jax.tree.leaves(self)
        if leaves and all(
            isinstance(leaf, (jax.Array, np.ndarray)) and validation.is_concrete(leaf) for leaf in leaves
        ):
            return self.summary()
        return f"Posterior(method={self.method!r}, ...)"


def _check_level(level: float) -> None:
    validation.require_share("level", level)


@jax.jit
def _matched_beta(mean: jax.Array, variance: jax.Array, level: float) -> tuple[jax.Array, jax.Array]:
    tiny = jnp.finfo(mean.dtype).tiny
    mean = jnp.clip(mean, tiny, 1 - jnp.finfo(mean.dtype).epsneg)
    bound = mean * (1 - mean)
    precision = jnp.clip(bound / jnp.maximum(variance, tiny) - 1, *dirichlet.PRECISION_LIMITS)
    lower, upper = dirichlet.beta_interval(mean * precision, (1 - mean) * precision, level)
    unknown = jnp.isnan(mean) | jnp.isnan(variance)
    return jnp.where(unknown, jnp.nan, lower), jnp.where(unknown, jnp.nan, upper)
