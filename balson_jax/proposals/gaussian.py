"""The truncated Gaussian: a proposal for strong data, where the posterior is much narrower than the prior.

The likelihood of a linear problem is a Gaussian on the simplex's plane. Its components are drawn one by one, each from
its Gaussian conditional on those before it, cut to what of the sum is left (Geweke, Hajivassiliou and Keane; Genz). The
components with the smallest optimum, which feel the boundary most, come first; the last one takes what remains. A
component whose concentration is not one has its conditional adapted to the prior's factor ``omega^(alpha - 1)``: its
centre is moved inwards if ``alpha > 1``, and a piece with the same pole at zero is mixed in if ``alpha < 1``, so that
the weights stay bounded there. Whatever the Gaussian, the density of the draws is exact, and so are the weights.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..random.points import Coordinates, uniform
from ..random.truncated_normal import Cut, cut
from ..targets.functions import Quadratic

MAX_POLE_SHARE = 0.99
RIDGE = 1e-4
"""How far correlations are shrunk, so that rounding doesn't make them impossible."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TruncatedGaussian:
    """Gaussians of B problems on the simplex, whose components are drawn one by one.

    Attributes:
      order: numbers of the components in the order in which they are drawn, ``(B, K)``.
      mean: of all components but the last, in that order, ``(B, K - 1)``.
      gain: how the conditional mean depends on what was drawn before, strictly lower triangular, ``(B, K - 1, K - 1)``.
      scale: standard deviations of the conditionals, ``(B, K - 1)``.
      alpha: concentrations to which the conditionals are adapted, in the order, ``(B, K)``.
    """

    order: jax.Array
    mean: jax.Array
    gain: jax.Array
    scale: jax.Array
    alpha: jax.Array
    prior_share = 0.0

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
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
        """Return the log-density of draws ``(B, K, L)``, ``(B, L)``."""
        num_problems = self.mean.shape[0]
        log_omega = jnp.broadcast_to(log_omega, (num_problems, *log_omega.shape[-2:]))
        ordered = jnp.take_along_axis(log_omega, self.order[:, :, None], axis=1)
        omega = jnp.exp(ordered)
        # Sums of what comes later, rather than one less what came before.
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
        """Go through the components in order; a step gets their number, parameters and rows."""
        parameters = (jnp.moveaxis(part, 1, 0) for part in (self.mean, self.gain, self.scale, self.alpha[:, :-1]))
        # Not unrolled: the compiler would fuse the steps, and compute the first ones again for each later one.
        return lax.scan(step, start, (jnp.arange(self.dims), *parameters, *rows))


@dataclasses.dataclass(frozen=True)
class _Conditional:
    """One component given those before it: a cut Gaussian, and a share with a pole at zero where ``alpha < 1``."""

    alpha: jax.Array
    scale: jax.Array
    interval: Cut
    left: jax.Array
    share: jax.Array
    pole_width: jax.Array

    @staticmethod
    def of(centre, scale, left, alpha):
        left = jnp.maximum(left, jnp.finfo(left.dtype).tiny)
        # The mode of the Gaussian times omega^(alpha - 1), without cancellation; the tails stay the Gaussian's.
        push = jnp.maximum(alpha - 1, 0) * jnp.square(scale)
        moved = _root(centre, push)
        moved = jnp.where(push > 0, jnp.minimum(moved, jnp.maximum(centre, left)), centre)
        interval = cut(-moved / scale, left / scale)
        # Around zero the target is N(0) x^(alpha - 1), elsewhere about N(x) m^(alpha - 1).
        middle = jnp.minimum(_root(centre, jnp.square(scale)), left)
        exponent = jnp.minimum(alpha, 1)
        at_zero = interval.log_density(jnp.zeros_like(left), left / scale) - jnp.log(scale)
        odds = jnp.exp(jnp.minimum(at_zero, 80)) * middle / exponent
        share = jnp.where(alpha < 1, jnp.minimum(odds / (1 + odds), MAX_POLE_SHARE), 0)
        return _Conditional(exponent, scale, interval, left, share, middle)

    def draw(self, below, above):
        """Return ``ln x``, x, and what is left of the sum."""
        # The pole takes the lowest part of the probabilities.
        in_pole, rest = below < self.share, 1 - self.share
        smooth_below, smooth_above = (below - self.share) / rest, jnp.minimum(above / rest, 1)
        smooth_below = jnp.clip(smooth_below, 0.5 * jnp.finfo(below.dtype).epsneg * (self.share > 0), 1)
        from_low, from_high = self.interval.quantile(smooth_below, smooth_above)
        x, left = self.scale * from_low, self.scale * from_high
        within = jnp.where(in_pole, below / jnp.where(in_pole, self.share, 1), 1)
        log_pole = jnp.log(self.pole_width) + jnp.log(within) / self.alpha
        pole = jnp.exp(log_pole)
        # A draw from the pole may be smaller than any float; its logarithm is kept.
        log_smooth = jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
        log_x, x = jnp.where(in_pole, log_pole, log_smooth), jnp.where(in_pole, pole, x)
        return log_x, x, jnp.where(in_pole, jnp.maximum(self.left - pole, 0), left)

    def log_density(self, log_x, later):
        """Return the log-density of x, after which ``later`` is left of the sum."""
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
    """Return the positive root of ``x^2 - centre x - product``."""
    size = jnp.hypot(centre, 2 * jnp.sqrt(product))
    positive = 0.5 * (jnp.abs(centre) + size)
    return jnp.where(centre >= 0, positive, product / jnp.where(positive > 0, positive, 1))


def from_moments(
    order: jax.Array, mean: jax.Array, covariance: jax.Array, prior: jax.Array, spread: float | jax.Array = 1.0
) -> TruncatedGaussian:
    """Return Gaussians with these means ``(B, K)`` and covariances ``(B, K, K)`` before they are cut.

    Components are drawn in the order ``(B, K)``; the standard deviations are multiplied by ``spread``.
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
    """Return the Gaussian of likelihoods, times a power of the prior's Gaussian, which makes it proper.

    Args:
      quadratic: the likelihoods.
      prior: concentrations, ``(B, K)``.
      prior_share: power to which the Gaussian with the prior's moments is taken; with 1 the conditionals need not be
        moved for concentrations above one.
      spread: factor of the standard deviations, a number or ``(B, 1)``.
    """
    order = jnp.argsort(quadratic.centre, -1)
    centre, root, gradient, prior = (
        jnp.take_along_axis(part, order.reshape(order.shape[0], *(1,) * (part.ndim - 2), -1), -1)
        for part in (quadratic.centre, quadratic.root, quadratic.gradient, prior)
    )
    middle = dirichlet.mean(prior)
    stiffness = prior_share * (prior.sum(-1, keepdims=True) + 1) / middle
    pull = stiffness * (centre - middle)
    slope = gradient + pull
    slope = slope[:, :-1] - slope[:, -1:]
    count = centre.shape[-1]
    # The factor's last column belongs to what is drawn first.
    factor = jnp.linalg.qr(_rows(root, stiffness)[:, :, ::-1], mode="r")
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    step = jax.scipy.linalg.solve_triangular(factor, slope[:, ::-1, None], trans=1)
    step = jax.scipy.linalg.solve_triangular(factor, step)[:, ::-1, 0]
    gain = -(factor / diagonal[:, :, None] - jnp.eye(count - 1, dtype=centre.dtype))[:, ::-1, ::-1]
    scale = spread / jnp.abs(diagonal[:, ::-1])
    alpha = jnp.minimum(prior, 1) if prior_share == 1 else prior
    return TruncatedGaussian(order, centre[:, :-1] - step, gain, scale, alpha)


def log_volume(quadratic: Quadratic | None, prior: jax.Array) -> jax.Array:
    """Return the log of the Gaussian's width in all directions, ``(B,)``; of the prior's alone without a quadratic."""
    stiffness = (prior.sum(-1, keepdims=True) + 1) / dirichlet.mean(prior)
    root = jnp.zeros((prior.shape[0], 0, prior.shape[1]), prior.dtype) if quadratic is None else quadratic.root
    factor = jnp.linalg.qr(_rows(root, stiffness), mode="r")
    return -jnp.log(jnp.abs(jnp.diagonal(factor, axis1=-2, axis2=-1))).sum(-1)


def _rows(root: jax.Array, stiffness: jax.Array) -> jax.Array:
    """Return rows whose squares are the likelihood's and the prior's, for all components but the last.

    The last component is one less the sum of the others. Rows, and not their squares, which rounding would spoil.
    """
    identity = jnp.eye(stiffness.shape[-1], dtype=stiffness.dtype)
    rows = jnp.concatenate([root, jnp.sqrt(stiffness)[:, :, None] * identity], axis=1)
    return rows[:, :, :-1] - rows[:, :, -1:]
