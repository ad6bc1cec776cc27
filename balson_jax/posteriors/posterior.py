"""The result of a fit: moments, kept draws, the approximating Dirichlet, its sparse mode, diagnostics, a table."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import tables, validation
from ..labels import Labelled, Labels, position
from ..problems import constraints
from ..problems.constraints import Constraint
from ..problems.noise_posterior import NoisePosterior, NoiseQuantiles
from ..status import Status
from ..weighting.diagnostics import Diagnostics
from . import files
from .component import REMEDY, Component
from .concentration import ConcentrationPosterior
from .intervals import matched_beta, quantiles, shortest
from .nuisance import NuisancePosterior, joined
from .outputs import Outputs
from .prediction import Prediction, curves, resample
from .summary import as_text


class FitError(RuntimeError):
    """Raised by ``Posterior.raise_for_status``."""


class Slack(NamedTuple):
    """The posterior of the unused part of the total: mean and standard deviation, ``(...)``, and kept draws."""

    mean: jax.Array
    std: jax.Array
    draws: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Posterior(Labelled, Outputs, Diagnostics):
    """The posterior of ``theta`` for one problem or a batch, whose axes lead every field.

    The diagnostics (``ess``, ``pareto_k``, ``rhat``, ``acceptance_rate``, ``log_evidence``, ``log_evidence_stderr`` and
    ``status``) are described in ``Diagnostics``. ``names`` and ``labels`` are those of the problem; transformations of
    JAX drop them.

    Attributes:
      alpha: concentrations of the approximating Dirichlet of omega, ``(..., K)``: of ``theta / total``, unless the
        constraint lifts it (see ``problems.constraints``).
      theta: its sparse mode, as theta: the paper's point estimate, ``(..., P)``.
      mean: posterior mean of theta, from all weighted draws, ``(..., P)``.
      std: posterior standard deviation of theta, from all weighted draws, ``(..., P)``.
      mean_stderr: Monte Carlo standard error of ``mean``, with typical rounding errors, ``(..., P)``.
      std_stderr: the same of ``std``, ``(..., P)``; NaN where a method does not know it. For ``RS``
        ``(x - mean)^2 / variance`` is taken to have a variance of 4; that of a normal distribution has 2.
      dirichlet_misfit: the largest factor by which a variance of omega differs from that of the approximating
        Dirichlet; 1 if all agree. Where it is large, ``alpha`` and ``theta`` describe the posterior poorly; means,
        standard deviations, intervals and draws don't depend on them.
      present: probability that each parameter exceeds a hundredth of the total in magnitude, from all weighted draws,
        ``(..., P)``; ``None`` with up to 8 components of omega (see ``inclusion``).
      present_stderr: its Monte Carlo standard error.
      residual: root mean square of the residuals at ``mean``, ``(...)``; in units of the rows' own noise, if they have
        any.
      least_residual: the same at the constrained optimum, the smallest of any theta; NaN if that is not known.
      total: the constant C.
      num_rows: how many observations counted.
      draws: some draws of theta that represent all, ``(..., D, P)``; D is the method's ``keep``.
      draw_weights: their weights, of sum one, ``(..., D)``.
      slack: mean, standard deviation and draws of the unused part of the total, or ``None`` if the constraint has no
        slack.
      noise: posterior of the noise level, with ``mean``, ``std`` and ``interval``, or ``None`` if it was given.
      nuisance: posterior of the coefficients of nuisance columns, with ``mean``, ``std`` and ``draws``, or ``None``.
      concentration: posterior of a common concentration of the prior, with ``mean``, ``std``, ``interval`` and the
        ``weights`` of its grid, if ``prior="estimate"``; else ``None``. ``method`` is then that of the heaviest value.
      choice: which of ``methods`` was used, ``(...)``; see ``method``.
      methods: names of the methods that might have been used.
      constraint: the problem's; it equals its name.
      certified: whether the bound of rejection sampling is proven.
      sharpened: whether the data were counted more than once, so that this is not the posterior.
    """

    alpha: jax.Array
    theta: jax.Array
    mean: jax.Array
    std: jax.Array
    mean_stderr: jax.Array
    dirichlet_misfit: jax.Array
    total: jax.Array
    num_rows: jax.Array
    draws: jax.Array
    draw_weights: jax.Array
    slack: Slack | None
    noise: NoisePosterior | NoiseQuantiles | None
    choice: jax.Array
    std_stderr: jax.Array = None  # type: ignore[assignment]
    residual: jax.Array = None  # type: ignore[assignment]
    least_residual: jax.Array = None  # type: ignore[assignment]
    nuisance: NuisancePosterior | None = None
    present: jax.Array = None  # type: ignore[assignment]
    present_stderr: jax.Array = None  # type: ignore[assignment]
    concentration: ConcentrationPosterior | None = None
    methods: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    constraint: Constraint = dataclasses.field(metadata={"static": True})
    certified: bool = dataclasses.field(default=True, metadata={"static": True})
    sharpened: bool = dataclasses.field(default=False, metadata={"static": True})

    @property
    def method(self) -> Any:
        """The name of the method that was used; of a batch by ``"auto"`` an array of names, ``(...)``."""
        if len(self.methods) == 1:
            return self.methods[0]
        names = np.asarray(self.methods)[np.asarray(self.choice)]
        return names if self.batch_shape else str(names)

    @property
    def num_params(self) -> int:
        """The number P of parameters theta."""
        return self.mean.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``()`` for one problem."""
        return self.mean.shape[:-1]

    @overload
    def __getitem__(self, index: str) -> Component: ...  # type: ignore[overload-overlap]

    @overload
    def __getitem__(self, index: Any) -> Posterior: ...

    def __getitem__(self, index: Any) -> Posterior | Component:
        """Return the posterior of some problems of a batch, ``posterior[:10]``, or of one component by its name."""
        if isinstance(index, str):
            return self._component(index)
        if not self.batch_shape:
            raise TypeError("this is the posterior of one problem; there is no batch to index")
        # In NumPy, which refuses an index that is out of range.
        places = np.arange(self.status.size).reshape(self.batch_shape)
        chosen = places[index] if validation.is_concrete(index) else jnp.asarray(places)[index]
        flat = jax.tree.map(lambda leaf: leaf.reshape(self.status.size, *leaf.shape[len(self.batch_shape) :]), self)
        found = jax.tree.map(lambda leaf: leaf[chosen], flat)
        labels = self.labels.selected(np.asarray(chosen)) if validation.is_concrete(chosen) else Labels(self.names)
        return found.labelled(labels)

    def _component(self, name: str) -> Component:
        """Return the posterior of one component, or raise ``ValueError`` with names that resemble it."""
        k = position(self.names, name)
        least = jnp.zeros_like(self.total) if self.constraint.shares_are_beta else -self.total
        return Component(
            name, self.mean[..., k], self.std[..., k], self.draws[..., k], self.draw_weights, least, self.total
        )

    def __len__(self) -> int:
        """Return the length of the batch's first axis."""
        if not self.batch_shape:
            raise TypeError("this is the posterior of one problem; there is no batch to count")
        return self.batch_shape[0]

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of central intervals of each parameter, ``(..., P)``.

        Quantiles of the kept draws; with the default 512 of them, an end is off by about a tenth of a standard
        deviation. If none were kept: quantiles of Beta distributions with the parameters' means and standard
        deviations, which signed parameters do not have.
        """
        validation.require_share("level", level)
        if self.draws.shape[-2]:
            tail = 0.5 * (1 - jnp.asarray(level, self.mean.dtype))
            return quantiles(jnp.moveaxis(self.draws, -1, -2), self.draw_weights[..., None, :], tail)
        if not self.constraint.shares_are_beta:
            raise ValueError(f"constraint={self.constraint!r} takes its intervals from kept draws; {REMEDY}")
        scale = self.total[..., None]
        lower, upper = matched_beta(self.mean / scale, jnp.square(self.std / scale), level)
        return scale * lower, scale * upper

    def hdi(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the shortest intervals of each parameter, ``(..., P)``.

        They begin at 0 (or end at the total) where the density piles up there. A central interval never contains a
        share of exactly 0; this one does, where the posterior is highest there. From the kept draws. Where several
        intervals are equally short, up to Monte Carlo error, one that reaches an end of the range is preferred. As the
        shortest of many, an interval inside the range holds about 1 % less than its level with 512 kept draws.
        """
        validation.require_share("level", level)
        self.require_draws("hdi")
        return self._shortest(jnp.moveaxis(self.draws, -1, -2), level, self.constraint.shares_are_beta)

    def slack_hdi(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the shortest interval of the unused part of the total, ``(...)``."""
        validation.require_share("level", level)
        self.require_draws("slack_hdi")
        if self.slack is None or self.slack.draws is None:
            raise ValueError(f"constraint={self.constraint!r} has no slack")
        lower, upper = self._shortest(self.slack.draws[..., None, :], level, True)
        return lower[..., 0], upper[..., 0]

    def _shortest(self, draws: jax.Array, level: float, from_zero: bool) -> tuple[jax.Array, jax.Array]:
        """Return the shortest intervals of draws ``(..., n, D)``, of quantities up to the total."""
        most = self.total[..., None]
        least = jnp.zeros_like(most) if from_zero else -most
        return shortest(draws, self.draw_weights[..., None, :], jnp.asarray(level, self.mean.dtype), least, most)

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """Return ``n`` draws of theta, ``(n, ..., P)``: taken from the kept ones by weight, so that some may repeat."""
        validation.require_at_least("n", n, 1)
        key = validation.typed_key(key)
        self.require_draws("sample")
        uniforms = jax.random.uniform(key, (*self.batch_shape, n), self.draw_weights.dtype)
        return jnp.moveaxis(resample(self.draws, self.draw_weights, uniforms), -2, 0)

    def predict(
        self,
        model: Any,
        level: float = 0.9,
        *,
        noise: Any = 0.0,
        band: Literal["central", "shortest"] = "central",
        nuisance: Any = None,
    ) -> Prediction:
        """Return mean, standard deviation and a band of a curve; of new observations of it, if noise is added.

        From the kept draws, but for the mean of ``design @ theta``, which comes from all.

        Args:
          model: a design ``(..., N, P)``, whose leading axes broadcast against the batch; or a DataFrame, whose
            columns are taken by name; or a JAX function of theta, ``(P,)``, that returns an array, as
            ``lambda theta: predict(theta, new_inputs)``.
          level: probability of the band at each point.
          noise: standard deviation of new observations, a number or one per problem; or ``"estimate"`` for that of the
            posterior (the root of its mean square).
          band: ``"central"``, with equal probabilities above and below, or ``"shortest"``.
          nuisance: nuisance columns of the rows of a design, ``(..., N, q)``, if the problem had any; an intercept is
            added by itself.
        """
        validation.require_share("level", level)
        validation.require_choice("band", band, ("central", "shortest"))
        central = band == "central"
        self.require_draws("predict")
        if callable(model):
            if nuisance is not None:
                raise ValueError("nuisance goes with a design; add its part to what your function returns")
            return curves(self.draws, self.draw_weights, model, level, self._added(noise), central=central)
        model = tables.columns_in_order("design", model, self.names)
        design = validation.float_array("design", model, self.mean.dtype)
        if design.ndim < 2 or design.shape[-1] != self.num_params:
            raise ValueError(f"design has shape {design.shape}; its last axis must have {self.num_params} components")
        validation.require_broadcast("design", design.shape[:-2], self.batch_shape)
        draws, mean = self.draws, self.mean
        if self.nuisance is not None:
            design = joined(design, self.nuisance.columns(nuisance, design.shape[-2], design.dtype))
            draws = jnp.concatenate([draws, self.nuisance.draws], -1)
            mean = jnp.concatenate([mean, self.nuisance.mean], -1)
        elif nuisance is not None:
            raise ValueError("nuisance was given, but the problem that was fitted had no nuisance columns")
        batch = np.broadcast_shapes(design.shape[:-2], self.batch_shape)
        draws = jnp.broadcast_to(draws, (*batch, *draws.shape[-2:]))
        weights = jnp.broadcast_to(self.draw_weights, (*batch, self.draw_weights.shape[-1]))
        own = design if design.ndim == 2 else jnp.broadcast_to(design, (*batch, *design.shape[-2:]))
        found = curves(draws, weights, jnp.matmul, level, self._added(noise), own, central)
        return found._replace(mean=jnp.einsum("...nk,...k->...n", design, mean))

    def _added(self, noise: Any) -> jax.Array | None:
        """Return the standard deviation of new observations, ``(...)``, or ``None`` for none."""
        if np.isscalar(noise) and noise == 0:
            return None
        if isinstance(noise, str):
            validation.require_choice("noise", noise, ("estimate",))
            if self.noise is None:
                raise ValueError('noise="estimate": the noise was given for this fit; pass it as a number')
            return jnp.hypot(self.noise.mean, self.noise.std)
        level = validation.float_array("noise", noise, self.mean.dtype)
        validation.require_positive("noise", level)
        validation.require_broadcast("noise", level.shape, self.batch_shape)
        return jnp.broadcast_to(level, self.batch_shape)

    def require_draws(self, name: str) -> None:
        """Raise ``ValueError``, naming who needs them, if no draws were kept."""
        if not self.draws.shape[-2]:
            raise ValueError(f"{name} needs kept draws; {REMEDY}")

    def save(self, path: str | os.PathLike) -> None:
        """Write the posterior and its names to a NumPy ``.npz`` file, which ``Posterior.load`` reads."""
        files.save(path, jax.tree.map(np.asarray, self.arrays()), self._words())

    @staticmethod
    def load(path: str | os.PathLike, constraint: Constraint | None = None) -> Posterior:
        """Return the posterior that ``save`` wrote to a file, with NumPy arrays for fields.

        A constraint of one's own, which the package has no name for, must be passed.
        """
        arrays, words = files.load(path)
        return Posterior.from_arrays(arrays, words if constraint is None else {**words, "constraint": constraint})

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name; those of ``slack`` and ``noise`` as ``"slack.mean"``."""
        found = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self):
            found[".".join(entry.name for entry in path)] = leaf
        return found

    def _words(self) -> dict[str, Any]:
        words = {name: getattr(self, name) for name in ("methods", "certified", "sharpened")}
        has_intercept = self.nuisance is not None and self.nuisance.intercept
        labels = self.labels.words()
        optional = {**({"intercept": True} if has_intercept else {}), **({"labels": labels} if labels else {})}
        return {**words, "constraint": self.constraint.name, **optional}

    @staticmethod
    def from_arrays(arrays: dict[str, Any], words: dict[str, Any]) -> Posterior:
        """Return the posterior with these arrays, by name, and these other fields."""
        plain = {name: array for name, array in arrays.items() if "." not in name}
        words = dict(words)
        labels = Labels.from_words(words.pop("labels", {}))
        with_intercept = functools.partial(NuisancePosterior, intercept=words.pop("intercept", False))
        parts = {"slack": Slack, "noise": NoisePosterior, "nuisance": with_intercept}
        parts |= {"concentration": ConcentrationPosterior}
        for part, make in parts.items():
            own = {
                name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")
            }
            make = NoiseQuantiles if "quantiles" in own else make
            plain[part] = make(**own) if own else None
        constraint = constraints.named(words["constraint"])
        found = Posterior(**plain, **{**words, "methods": tuple(words["methods"]), "constraint": constraint})
        return found.labelled(labels)

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
        validation.require_share("level", level)
        return as_text(self, level)

    def __repr__(self) -> str:
        """Return the summary; only the methods' names inside a trace, or where the fields are not arrays."""
        leaves = jax.tree.leaves(self)
        if leaves and all(
            isinstance(leaf, (jax.Array, np.ndarray, np.generic)) and validation.is_concrete(leaf) for leaf in leaves
        ):
            return self.summary()
        return f"Posterior(methods={self.methods!r}, ...)"
