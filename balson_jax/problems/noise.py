"""The noise: of a known level, or of an unknown one that is integrated out.

With h half the sum of squared residuals (in units of the rows' own noise, if they have any), the likelihood of N rows
is ``(2 pi s^2)^(-N/2) exp(-h / s^2)`` for a known standard deviation s. With ``s^2`` unknown and an inverse-gamma
prior of shape a and scale b, the integral over it is

    (2 pi)^(-N/2)  b^a / Gamma(a)  Gamma(a + N/2)  (b + h)^-(a + N/2),

a power of the residual sum of squares. For ``a = b = 0`` the prior is ``1 / s^2``, scale-invariant and improper: the
factor ``b^a / Gamma(a)`` is left out, and evidences compare only with others of the same kind.

To add a noise model, subclass ``Noise`` and pass an instance as ``noise=``. One line in ``NAMED`` gives it a name that
users can pass instead.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from .. import validation
from ..random.gamma_quantile import unlifted
from .noise_posterior import NoisePosterior, mixture
from .variance_prior import VariancePrior


class Noise(abc.ABC):
    """How likely residuals are, given half the sum h of their squares in units of the rows' own noise.

    A subclass is a frozen dataclass, registered as a pytree, whose fields are arrays with one number per problem (or
    one for all). All methods broadcast the fields against their arguments. The log-likelihood must not rise with h:
    samplers rely on it for their bounds.

    A complete noise model whose level is one of two known ones:

    >>> @jax.tree_util.register_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class TwoLevels(Noise):
    ...     small: jax.Array
    ...     large: jax.Array
    ...
    ...     def log_likelihoods(self, num_rows, half_square):
    ...         return [Known(level).log_likelihood(num_rows, half_square) for level in (self.small, self.large)]
    ...
    ...     def log_likelihood(self, num_rows, half_square):
    ...         return jnp.logaddexp(*self.log_likelihoods(num_rows, half_square)) - jnp.log(2)
    ...
    ...     def likeliest_level(self, num_rows, half_square):
    ...         small, large = self.log_likelihoods(num_rows, half_square)
    ...         return jnp.where(small > large, self.small, self.large)
    >>> import balson_jax as balson
    >>> problem = balson.linear_problem(jnp.eye(3), jnp.array([0.9, 0.3, -0.4]), noise=TwoLevels(0.1, 0.5))
    >>> balson.fit(jax.random.key(0), problem, balson.IS(num_draws=4000)).status
    Array(0, dtype=int32)
    """

    estimates_level = False
    """Whether the posterior of the level is computed, from moments of ``statistic``."""

    has_fixed_level = False
    """Whether the noise is Gaussian of one known level."""

    is_scale_mixture = False
    """Whether the likelihood is Gaussian given a precision that ``draw_precision`` draws. Chains are faster then."""

    def checked(self, batch: tuple[int, ...], dtype: Any) -> Self:
        """Return the noise with arrays for fields, or raise ``ValueError`` naming a field that is out of range."""
        arrays = {}
        for field in _numbers(self):
            name = f"noise.{field.name}"
            arrays[field.name] = validation.float_array(name, getattr(self, field.name), dtype)
            self.require(name, arrays[field.name])
            validation.require_broadcast(name, arrays[field.name].shape, batch)
        return dataclasses.replace(self, **arrays)  # type: ignore[type-var]

    def require(self, name: str, value: jax.Array) -> None:
        """Raise ``ValueError`` if a field is out of range: positive unless a subclass says otherwise."""
        validation.require_positive(name, value)

    def is_valid(self) -> jax.Array:
        """Return, per problem, whether the fields are in their domain; usable inside a trace."""
        valid = jnp.bool_(True)
        for field in _numbers(self):
            valid = valid & (getattr(self, field.name) > 0)
        return valid

    @abc.abstractmethod
    def log_likelihood(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the log-likelihood of rows with this half-square, constants included."""

    @abc.abstractmethod
    def likeliest_level(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the standard deviation under which a half-square is likeliest."""

    def log_ratio(self, num_rows: jax.Array, base: jax.Array, excess: jax.Array) -> jax.Array:
        """Return the log-likelihood at ``base + excess`` less that at ``base``; accurate for a small excess."""
        return self.log_likelihood(num_rows, base + excess) - self.log_likelihood(num_rows, base)

    def far_log_ratio(self, num_rows: jax.Array, base: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the log-likelihood at a half-square less that at ``base``, where the two may be far apart."""
        return self.log_ratio(num_rows, base, half_square - base)

    def floored(self, base: jax.Array, floor: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the smallest half-square, not below its rounding error, and whether there is no posterior.

        Only a noise under which a perfect fit is infinitely likely needs the floor.
        """
        return base, jnp.zeros(jnp.shape(base), bool)

    def is_unbounded(self, bound: jax.Array) -> jax.Array:
        """Return whether the likelihood has no maximum, if half-squares may be as small as ``bound``."""
        return jnp.zeros(jnp.shape(bound), bool)

    def precision_shape(self, num_rows: jax.Array) -> jax.Array | None:
        """Return the shape a if the precision given theta is ``Gamma(a) / rate``, ``(B,)``; else ``None``.

        The precision is relative to the likeliest one. The rate is a at the optimum. It grows by one for each nat of
        likelihood lost at the likeliest level.
        """
        return None

    def widening(self, num_rows: jax.Array, num_free: int) -> jax.Array | float:
        """Return the factor by which a Gaussian proposal is to be wider than at the likeliest level."""
        return 1.0

    def draw_precision(self, bits: jax.Array, num_rows: jax.Array, excess: jax.Array) -> jax.Array:
        """Return draws of the precision given theta, relative to that of the likeliest level at the optimum.

        Args:
          bits: random integers, ``(2, 1, L)``.
          num_rows: ``(B,)``.
          excess: half-squares above the smallest, in units of the likeliest variance there, ``(2, B, L)``.
        """
        return jnp.ones_like(excess)

    def variance_prior(self) -> VariancePrior | None:
        """Return the prior of an unknown variance, which an uncertain design needs; ``None`` if there is none."""
        return None

    def statistic(self, half_square: jax.Array) -> jax.Array:
        """Return the function of half-squares whose moments over all draws ``posterior`` needs."""
        return half_square

    def posterior(
        self,
        num_rows: jax.Array,
        half_square: jax.Array,
        weights: jax.Array,
        moments: tuple[jax.Array, jax.Array, jax.Array] | None = None,
    ) -> NoisePosterior | None:
        """Return the posterior of the level, or ``None`` if there is nothing to estimate.

        Args:
          num_rows: ``(B,)``.
          half_square: of some draws of theta, ``(B, D)``.
          weights: of these draws, ``(B, D)``, of sum one.
          moments: mean, variance and standard error of the mean of ``statistic`` over all draws, ``(B,)`` each.
        """
        return None


def _numbers(noise: Any) -> list[dataclasses.Field]:
    """Return the fields that hold numbers: all but the static ones."""
    return [field for field in dataclasses.fields(noise) if not field.metadata.get("static")]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Known(Noise):
    """Gaussian noise of a known standard deviation; a plain number or array passed as ``noise`` means this.

    Attributes:
      level: the standard deviation, ``(...)``.
    """

    level: Any

    has_fixed_level = True
    is_scale_mixture = True

    def log_likelihood(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the log-likelihood of rows with this half-square, constants included."""
        constant = -0.5 * np.log(2 * np.pi) * num_rows
        return constant - num_rows * jnp.log(self.level) - half_square / jnp.square(self.level)

    def log_ratio(self, num_rows: jax.Array, base: jax.Array, excess: jax.Array) -> jax.Array:
        """Return the log-likelihood at ``base + excess`` less that at ``base``."""
        return -excess / jnp.square(self.level)

    def likeliest_level(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the standard deviation."""
        return jnp.broadcast_to(self.level, jnp.shape(half_square))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the standard deviation, as NumPy sees it."""
        return np.asarray(self.level, dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InverseGamma(Noise):
    """Gaussian noise of unknown variance with an inverse-gamma prior, to pass as ``noise``.

    The density of the variance v is proportional to ``v^-(shape + 1) exp(-scale / v)``. It weighs as much as
    ``2 shape`` observations whose mean square is ``scale / shape``.

    Attributes:
      shape: a number, or one per problem; 0 with ``scale=0`` is the scale-invariant prior.
      scale: the same. If either is 0 the prior is improper, and the evidence has an arbitrary constant.
    """

    shape: Any = 0.0
    scale: Any = 0.0

    estimates_level = True
    is_scale_mixture = True

    def require(self, name: str, value: jax.Array) -> None:
        """Raise ``ValueError`` if a field is negative."""
        validation.require_nonnegative(name, value)

    def is_valid(self) -> jax.Array:
        """Return, per problem, whether neither field is negative."""
        return (self.shape >= 0) & (self.scale >= 0)

    def log_likelihood(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the log of the likelihood integrated over the variance."""
        proper = (self.shape > 0) & (self.scale > 0)
        shape, scale = jnp.where(proper, self.shape, 1), jnp.where(proper, self.scale, 1)
        prior = jnp.where(proper, shape * jnp.log(scale) - gammaln(shape), 0)
        power = self.shape + 0.5 * num_rows
        constant = -0.5 * np.log(2 * np.pi) * num_rows
        return constant + prior + gammaln(power) - power * jnp.log(self.scale + half_square)

    def log_ratio(self, num_rows: jax.Array, base: jax.Array, excess: jax.Array) -> jax.Array:
        """Return the log-likelihood at ``base + excess`` less that at ``base``; accurate for a small excess."""
        return -(self.shape + 0.5 * num_rows) * jnp.log1p(excess / (self.scale + base))

    def far_log_ratio(self, num_rows: jax.Array, base: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the log-likelihood at a half-square less that at ``base``; logarithms keep digits far from it."""
        power = self.shape + 0.5 * num_rows
        return power * (jnp.log(self.scale + base) - jnp.log(self.scale + half_square))

    def likeliest_level(self, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
        """Return the standard deviation that maximises likelihood times prior of the logarithm."""
        return jnp.sqrt((self.scale + half_square) / (self.shape + 0.5 * num_rows))

    def floored(self, base: jax.Array, floor: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the smallest half-square, not below its rounding error, and whether there is no posterior.

        The logarithm of the half-square matters, and a perfect fit would be infinitely likely.
        """
        return jnp.maximum(base, floor), self.scale + base <= floor

    def is_unbounded(self, bound: jax.Array) -> jax.Array:
        """Return whether a perfect fit would be infinitely likely."""
        return self.scale + bound <= 0

    def precision_shape(self, num_rows: jax.Array) -> jax.Array:
        """Return ``shape + N / 2``."""
        return self.shape + 0.5 * num_rows

    def draw_precision(self, bits: jax.Array, num_rows: jax.Array, excess: jax.Array) -> jax.Array:
        """Return draws of the precision given theta: a gamma variate over ``shape + N/2 + excess``."""
        shape = jnp.broadcast_to(self.shape + 0.5 * num_rows, excess.shape[1:2])[:, None]
        # The shape is at least one half, for which quantiles need no second number.
        draws = jax.vmap(lambda own: unlifted(own, shape)[:, 0])(bits)
        return jnp.exp(draws) / (shape + excess)

    def variance_prior(self) -> VariancePrior:
        """Return the prior of the variance."""
        return VariancePrior(self.shape, self.scale)

    def statistic(self, half_square: jax.Array) -> jax.Array:
        """Return ``sqrt(scale + half_square)``, to which the mean of the level given theta is proportional."""
        return jnp.sqrt(self.scale + half_square)

    def posterior(
        self,
        num_rows: jax.Array,
        half_square: jax.Array,
        weights: jax.Array,
        moments: tuple[jax.Array, jax.Array, jax.Array] | None = None,
    ) -> NoisePosterior:
        """Return the posterior of the level: a mixture over draws, with the moments of all draws."""
        shape = self.shape + 0.5 * num_rows
        return mixture(shape, self.scale[:, None] + half_square, weights, self.variance_prior().is_relative, moments)


NAMED: dict[str, type[Noise]] = {"estimate": InverseGamma}
"""The noise models that users may pass by name."""


def named(noise: Any) -> Any:
    """Return the noise model that a name stands for, and anything else as it is."""
    return NAMED[noise]() if isinstance(noise, str) and noise in NAMED else noise


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Correlated:
    """Noise that is correlated between rows: pass it as ``noise``.

    Attributes:
      covariance: ``(..., N, N)``, positive definite; or give ``cholesky``.
      cholesky: its lower factor.
      scale: the covariance is multiplied by ``scale**2``: a number, ``"estimate"``, or a ``Noise`` such as
        ``InverseGamma``.
    """

    covariance: Any = None
    cholesky: Any = None
    scale: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", named(self.scale))  # so that all fields are numbers
