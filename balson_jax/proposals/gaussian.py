"""The truncated Gaussian: a proposal for informative data, where the posterior is much narrower than the prior.

The likelihood of a linear problem is a Gaussian on the plane of the simplex. Components are drawn one by one. Each
comes from its Gaussian conditional on the previous ones, truncated to the remaining sum (the GHK simulator of Geweke,
Hajivassiliou and Keane; Genz 1992). Components with the smallest optimum, which are closest to the boundary, are drawn
first. The last component takes the remainder.

Conditionals are adapted to the prior's factor ``omega^(alpha - 1)``. For ``alpha > 1`` the centre is moved to the mode
of the product. For ``alpha < 1`` a density with the same pole at zero is mixed in, which keeps the weights bounded
there. The density of the draws is exact for any Gaussian, so the weights are exact too.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..random.points import Coordinates, uniform
from ..random.truncated_normal import Cut, cut
from ..targets import Quadratic

MAX_POLE_SHARE = 0.99
"""Largest share of the pole, so that the truncated Gaussian always covers the whole interval."""

RIDGE = 1e-4
"""Share of the identity in correlation matrices, which keeps them positive definite under rounding."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TruncatedGaussian:
    """Gaussians of B problems, truncated to the simplex by drawing the components one by one.

    Attributes:
      order: component indices in the order in which they are drawn, ``(B, K)``.
      mean: means of all components but the last, in that order, ``(B, K - 1)``.
      gain: regression coefficients on the previous components, strictly lower triangular, ``(B, K - 1, K - 1)``.
      scale: standard deviations of the conditionals, ``(B, K - 1)``.
      alpha: concentrations to which the conditionals are adapted, in that order, ``(B, K)``.
    """

    order: jax.Array
    mean: jax.Array
    gain: jax.Array
    scale: jax.Array
    alpha: jax.Array
    prior_share = 0.0

    @property
    def dims(self) -> int:
        """The number of coordinates of a point."""
        return self.mean.shape[-1]

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega``, ``(B, K, L)``, and its log-density, ``(B, L)``."""
        bits = points(0, self.dims)
        below, above = uniform(bits, self.mean.dtype), uniform(~bits, self.mean.dtype)
        num_problems, length = self.mean.shape[0], below.shape[-1]
        tiny = jnp.log(jnp.finfo(self.mean.dtype).tiny)

        def step(carry, rows):
            deviations, left, density = carry
            index, mean, gain, scale, alpha, below, above = rows
            centre = mean[:, None] + jnp.einsum("bj,bjl->bl", gain, deviations, precision=lax.Precision.HIGHEST)
            conditional = _Conditional.of(centre, scale[:, None], left, alpha[:, None])
            log_x, x, left = conditional.draw(below, above)
            density = density + conditional.log_density(log_x, left)
            deviations = lax.dynamic_update_index_in_dim(deviations, x - mean[:, None], index, 1)
            return (deviations, left, density), log_x

        zeros = jnp.zeros((num_problems, self.dims, length), self.mean.dtype)
        start = zeros, jnp.ones_like(zeros[:, 0]), zeros[:, 0]
        (_, left, density), log_x = self._scan(step, start, (below, above))
        last = jnp.maximum(jnp.log(left), tiny)
        ordered = jnp.concatenate([jnp.moveaxis(log_x, 0, 1), last[:, None]], axis=1)
        return jnp.take_along_axis(ordered, jnp.argsort(self.order, -1)[:, :, None], axis=1), density

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density, ``(B, L)``, of draws ``(B, K, L)``."""
        num_problems = self.mean.shape[0]
        log_omega = jnp.broadcast_to(log_omega, (num_problems, *log_omega.shape[-2:]))
        ordered = jnp.take_along_axis(log_omega, self.order[:, :, None], axis=1)
        omega = jnp.exp(ordered)
        # Sum the later components; subtracting the earlier ones from 1 would cancel.
        rest = jnp.cumsum(omega[:, ::-1], axis=1)[:, ::-1]
        deviations = omega[:, :-1] - self.mean[:, :, None]
        centre = self.mean[:, :, None] + jnp.matmul(self.gain, deviations, precision=lax.Precision.HIGHEST)

        def step(total, rows):
            _, _, _, scale, alpha, centre, log_x, left, later = rows
            conditional = _Conditional.of(centre, scale[:, None], left, alpha[:, None])
            return total + conditional.log_density(log_x, later), None

        rows = (jnp.moveaxis(part, 1, 0) for part in (centre, ordered[:, :-1], rest[:, :-1], rest[:, 1:]))
        return self._scan(step, jnp.zeros((num_problems, log_omega.shape[-1]), omega.dtype), tuple(rows))[0]

    def _scan(self, step, start, rows):
        """Scan over the components in order. A step gets the component's position, parameters and rows."""
        parameters = (jnp.moveaxis(part, 1, 0) for part in (self.mean, self.gain, self.scale, self.alpha[:, :-1]))
        # Do not unroll: the compiler would fuse the steps and recompute the earlier ones for each later one.
        return lax.scan(step, start, (jnp.arange(self.dims), *parameters, *rows))


@dataclasses.dataclass(frozen=True)
class _Conditional:
    """One component given the previous ones: a truncated Gaussian, mixed with a pole at zero if ``alpha < 1``.

    Attributes:
      alpha: exponent of the pole, at most 1.
      scale: standard deviation of the Gaussian before truncation.
      interval: the truncation, in units of ``scale``.
      left: the remaining sum, which is the upper end of the interval.
      share: probability of the pole.
      pole_width: the pole has density ``alpha x^(alpha - 1) / pole_width^alpha`` on ``(0, pole_width)``.
    """

    alpha: jax.Array
    scale: jax.Array
    interval: Cut
    left: jax.Array
    share: jax.Array
    pole_width: jax.Array

    @staticmethod
    def of(centre, scale, left, alpha):
        left = jnp.maximum(left, jnp.finfo(left.dtype).tiny)
        # For alpha > 1 centre the Gaussian at the mode of N(x) x^(alpha - 1), the positive root of
        # x^2 - centre x - (alpha - 1) scale^2. The width, and with it the tails, stay the same.
        push = jnp.maximum(alpha - 1, 0) * jnp.square(scale)
        moved = _root(centre, push)
        moved = jnp.where(push > 0, jnp.minimum(moved, jnp.maximum(centre, left)), centre)
        interval = cut(-moved / scale, left / scale)
        # Share of the pole for alpha < 1. The target is N(x) x^(alpha - 1), with N the truncated Gaussian of mass one.
        # Let m be a typical x. Near zero the target is about N(0) x^(alpha - 1), with mass N(0) m^alpha / alpha on
        # (0, m). Elsewhere it is about N(x) m^(alpha - 1), with mass m^(alpha - 1). The odds of the pole are the ratio
        # of these masses, N(0) m / alpha. For m take the positive root of x^2 - centre x - scale^2: about centre if
        # centre >> scale, scale if centre = 0, and the decay length scale^2 / |centre| if centre << -scale.
        middle = jnp.minimum(_root(centre, jnp.square(scale)), left)
        exponent = jnp.minimum(alpha, 1)
        at_zero = interval.log_density(jnp.zeros_like(left), left / scale) - jnp.log(scale)
        odds = jnp.exp(jnp.minimum(at_zero, 80)) * middle / exponent
        share = jnp.where(alpha < 1, jnp.minimum(odds / (1 + odds), MAX_POLE_SHARE), 0)
        return _Conditional(exponent, scale, interval, left, share, middle)

    def draw(self, below, above):
        """Return ``ln x``, x, and the remaining sum."""
        # Probabilities below the share select the pole, the others the truncated Gaussian.
        in_pole, rest = below < self.share, 1 - self.share
        smooth_below, smooth_above = (below - self.share) / rest, jnp.minimum(above / rest, 1)
        smooth_below = jnp.clip(smooth_below, 0.5 * jnp.finfo(below.dtype).epsneg * (self.share > 0), 1)
        from_low, from_high = self.interval.quantile(smooth_below, smooth_above)
        x, left = self.scale * from_low, self.scale * from_high
        within = jnp.where(in_pole, below / jnp.where(in_pole, self.share, 1), 1)
        log_pole = jnp.log(self.pole_width) + jnp.log(within) / self.alpha
        pole = jnp.exp(log_pole)
        # A draw from the pole may underflow; its logarithm does not.
        log_smooth = jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
        log_x, x = jnp.where(in_pole, log_pole, log_smooth), jnp.where(in_pole, pole, x)
        return log_x, x, jnp.where(in_pole, jnp.maximum(self.left - pole, 0), left)

    def log_density(self, log_x, later):
        """Return the log-density of x; ``later`` is the remaining sum after x."""
        x = jnp.exp(log_x)
        smooth = self.interval.log_density(x / self.scale, later / self.scale) - jnp.log(self.scale)
        pole = jnp.log(self.alpha) + (self.alpha - 1) * log_x - self.alpha * jnp.log(self.pole_width)
        pole = jnp.where(
            (x <= self.pole_width) & (self.share > 0),
            pole + jnp.log(jnp.where(self.share > 0, self.share, 1)),
            -jnp.inf,
        )
        return jnp.logaddexp(smooth + jnp.log1p(-self.share), pole)


def _root(centre: jax.Array, product: jax.Array) -> jax.Array:
    """Return the positive root of ``x^2 - centre x - product``, without cancellation."""
    size = jnp.hypot(centre, 2 * jnp.sqrt(product))
    positive = 0.5 * (jnp.abs(centre) + size)
    return jnp.where(centre >= 0, positive, product / jnp.where(positive > 0, positive, 1))


def from_moments(
    order: jax.Array, mean: jax.Array, covariance: jax.Array, prior: jax.Array, spread: float | jax.Array = 1.0
) -> TruncatedGaussian:
    """Return Gaussians that have the given moments before truncation.

    Args:
      order: component indices in the order in which they are drawn, ``(B, K)``.
      mean: means, ``(B, K)``.
      covariance: covariances, ``(B, K, K)``.
      prior: concentrations of the prior, ``(B, K)``.
      spread: factor of the standard deviations.
    """
    mean, prior = (jnp.take_along_axis(part, order, -1) for part in (mean, prior))
    covariance = jnp.take_along_axis(jnp.take_along_axis(covariance, order[:, :, None], 1), order[:, None, :], 2)
    covariance = covariance[:, :-1, :-1]
    variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    std = jnp.sqrt(jnp.maximum(variance, jnp.finfo(mean.dtype).tiny))
    identity = jnp.eye(mean.shape[-1] - 1, dtype=mean.dtype)
    correlation = covariance / (std[:, :, None] * std[:, None, :]) * (1 - RIDGE) + RIDGE * identity
    lower = std[:, :, None] * jnp.linalg.cholesky(correlation)
    diagonal = jnp.diagonal(lower, axis1=-2, axis2=-1)
    inverse = jax.scipy.linalg.solve_triangular(lower, jnp.broadcast_to(identity, lower.shape), lower=True)
    gain = jnp.tril(-diagonal[:, :, None] * inverse, -1)
    return TruncatedGaussian(order, mean[:, :-1], gain, spread * diagonal, jnp.minimum(prior, 1))


def from_quadratic(
    quadratic: Quadratic, prior: jax.Array, *, prior_share: float, spread: float | jax.Array = 1.0
) -> TruncatedGaussian:
    """Return the Gaussian likelihood times a power of a Gaussian with the prior's moments.

    The prior's factor makes the product proper. On the simplex's plane ``Dir(prior)`` has precision
    ``(prior_0 + 1) diag(1 / m)``, because its covariance is ``(diag(m) - m m') / (prior_0 + 1)``.

    Args:
      quadratic: the likelihoods.
      prior: concentrations, ``(B, K)``.
      prior_share: power of the prior's Gaussian. With 1 the Gaussian includes the whole prior, and conditionals are not
        moved for concentrations above one.
      spread: factor of the standard deviations, a number or ``(B, 1)``.
    """
    order = jnp.argsort(quadratic.optimum, -1)
    centre, root, gradient, prior = (
        jnp.take_along_axis(part, order.reshape(order.shape[0], *(1,) * (part.ndim - 2), -1), -1)
        for part in (quadratic.optimum, quadratic.root, quadratic.gradient, prior)
    )
    middle = dirichlet.mean(prior)
    stiffness = prior_share * (prior.sum(-1, keepdims=True) + 1) / middle
    pull = stiffness * (centre - middle)
    slope = gradient + pull
    slope = slope[:, :-1] - slope[:, -1:]
    count = centre.shape[-1]
    # Reverse the columns, so that the last column of the triangular factor belongs to the component drawn first.
    factor = jnp.linalg.qr(_rows(root, stiffness)[:, :, ::-1], mode="r")
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    step = jax.scipy.linalg.solve_triangular(factor, slope[:, ::-1, None], trans=1)
    step = jax.scipy.linalg.solve_triangular(factor, step)[:, ::-1, 0]
    gain = -(factor / diagonal[:, :, None] - jnp.eye(count - 1, dtype=centre.dtype))[:, ::-1, ::-1]
    scale = spread / jnp.abs(diagonal[:, ::-1])
    alpha = jnp.minimum(prior, 1) if prior_share == 1 else prior
    return TruncatedGaussian(order, centre[:, :-1] - step, gain, scale, alpha)


def log_volume(quadratic: Quadratic | None, prior: jax.Array) -> jax.Array:
    """Return half the log-determinant of the Gaussian's covariance, ``(B,)``; without a quadratic, of the prior's."""
    stiffness = (prior.sum(-1, keepdims=True) + 1) / dirichlet.mean(prior)
    root = jnp.zeros((prior.shape[0], 0, prior.shape[1]), prior.dtype) if quadratic is None else quadratic.root
    factor = jnp.linalg.qr(_rows(root, stiffness), mode="r")
    return -jnp.log(jnp.abs(jnp.diagonal(factor, axis1=-2, axis2=-1))).sum(-1)


def _rows(root: jax.Array, stiffness: jax.Array) -> jax.Array:
    """Return a square root of the precision: rows of the likelihood and of the prior, in all components but the last.

    The last component is eliminated: it is one minus the sum of the others. The rows go to a QR decomposition, because
    forming their Gram matrix would lose digits.
    """
    identity = jnp.eye(stiffness.shape[-1], dtype=stiffness.dtype)
    rows = jnp.concatenate([root, jnp.sqrt(stiffness)[:, :, None] * identity], axis=1)
    return rows[:, :, :-1] - rows[:, :, -1:]
