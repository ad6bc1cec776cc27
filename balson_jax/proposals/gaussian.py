"""The truncated Gaussian: a proposal for informative data, where the posterior is much narrower than the prior.

The likelihood of a linear problem is a Gaussian on the plane of the simplex. Components are drawn one by one. Each
comes from its Gaussian conditional on the previous ones, truncated to the remaining sum (the GHK simulator of Geweke,
Hajivassiliou and Keane; Genz 1992). The last component takes the remainder. The density of the draws is exact, so the
weights are exact too.

The conditional of a component should account for the walls of the components still to come. Here each of their factors
``omega^(e)`` is replaced by its second-order expansion in omega at the centre of the posterior (see ``centre``), with
exponents ``e = 1`` for a flat prior. The Gaussian of the likelihood and all walls has its mode at the
centre, and its sequential conditionals follow from one triangular factor. From the conditional of component k its own
expanded wall is removed again, because truncation represents it exactly.

The component's own factor ``omega^(alpha - 1)`` enters its conditional. For ``alpha > 1`` the Gaussian is moved and
narrowed (see ``Conditional.of``). For ``alpha < 1`` a density with the same pole at zero is mixed in, which keeps the
weights bounded there. An unknown noise level is drawn too (see ``noise_level``).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..elimination import triangular_factor, triangular_inverse
from ..random.points import Coordinates, uniform
from ..targets import Quadratic
from .base import Given
from .centre import Centre, find_centre
from .conditional import Conditional, FlatConditional
from .noise_level import NoiseLevel

FLATTEST = 1e-3
"""Least share of a conditional's curvature that removing its own wall leaves: differences of rounded numbers cancel."""

SETTLING_STEPS = 4
"""How often centre and noise level are found from each other."""

INFLATION = 0.2
"""Largest relative increase of variances, for walls that a Gaussian represents poorly."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TruncatedGaussian:
    """Gaussians of B problems, truncated to the simplex by drawing the components one by one.

    Attributes:
      order: component indices in the order in which they are drawn, ``(B, K)``.
      pivot: point about which conditionals are expressed, all components but the last in that order, ``(B, K - 1)``.
      centre: centre of each conditional if the previous components are at the pivot, ``(B, K - 1)``.
      gain: regression coefficients on the previous components, strictly lower triangular, ``(B, K - 1, K - 1)``.
      scale: standard deviations of the conditionals, ``(B, K - 1)``.
      alpha: concentrations of the prior, in that order, ``(B, K)``.
      share: the likelihood's share of each conditional's precision, from 0 to 1, ``(B, K - 1)``.
      is_flat: whether the prior is known to be flat: then the draws are cheaper.
      level: of the noise, if it is unknown; then each draw has a precision of its own.
    """

    order: jax.Array
    pivot: jax.Array
    centre: jax.Array
    gain: jax.Array
    scale: jax.Array
    alpha: jax.Array
    share: jax.Array
    is_flat: bool = dataclasses.field(default=False, metadata={"static": True})
    level: NoiseLevel | None = None
    prior_share = 0.0

    @property
    def dims(self) -> int:
        """The number of coordinates of a point."""
        return self.pivot.shape[-1] if self.level is None else self._precision_coordinate + 1

    @property
    def _precision_coordinate(self) -> int:
        """The coordinate that gives the precision, also of draws from the prior, which use the K before."""
        return self.alpha.shape[-1]

    def draw(self, points: Coordinates, given: Given | None = None) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega``, ``(B, K, L)``, and its log-density, ``(B, L)``; of given draws the density.

        If the noise is unknown, the density is that of omega and a precision, over the precision's given omega.
        """
        bits = points(0, self.pivot.shape[-1])
        if self.level is None:
            return self._draw(bits, given, None)
        log_precision = self.level.draw(points(self._precision_coordinate, 1)[0], given)
        log_omega, density = self._draw(bits, given, log_precision - jnp.log(self.level.usual)[:, None])
        return log_omega, density + self.level.log_density(log_precision, log_omega)

    def _draw(
        self, bits: jax.Array, given: Given | None, log_precision: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density given the relative precision of the noise, ``(B, L)``."""
        below, above = uniform(bits, self.pivot.dtype), uniform(~bits, self.pivot.dtype)
        shape = (self.pivot.shape[0], below.shape[-1])
        tiny = jnp.log(jnp.finfo(self.pivot.dtype).tiny)
        known = () if given is None else self._ordered(given.log_omega)
        log_precision = jnp.zeros((1, 1), below.dtype) if log_precision is None else log_precision

        def step(carry, rows):
            deviations, left, density = carry
            index, (pivot, centre, gain, scale, alpha, share), below, above, *known = rows
            moved = centre[:, None] + jnp.einsum("bj,bjl->bl", gain, deviations, precision=lax.Precision.HIGHEST)
            # Noise widens a conditional as far as the likelihood, and not the walls of others, makes it narrow.
            width = scale[:, None] * jnp.exp(-0.5 * share[:, None] * log_precision)
            if self.is_flat:
                conditional = FlatConditional.of(moved, width, left)
            else:
                conditional = Conditional.of(moved, width, left, alpha[:, None])
            log_x, x, left = conditional.draw(below, above)
            if given is not None:
                log_known, later = known
                log_x, left = jnp.where(given.chosen, log_known, log_x), jnp.where(given.chosen, later, left)
                x = jnp.where(given.chosen, jnp.exp(log_known), x)
            density = density + conditional.log_density(log_x, x, left)
            deviations = lax.dynamic_update_index_in_dim(deviations, x - pivot[:, None], index, 1)
            return (deviations, left, density), log_x

        zeros = jnp.zeros((shape[0], len(bits), shape[1]), self.pivot.dtype)
        parts = self.pivot, self.centre, self.gain, self.scale, self.alpha[:, :-1], self.share
        parameters = tuple(jnp.moveaxis(part, 1, 0) for part in parts)
        # Do not unroll: the compiler would fuse the steps and recompute the earlier ones for each later one.
        rows = (jnp.arange(len(bits)), parameters, below, above, *known)
        (_, left, density), log_x = lax.scan(step, (zeros, jnp.ones(shape, zeros.dtype), zeros[:, 0]), rows)
        last = jnp.maximum(jnp.log(left), tiny)
        ordered = jnp.concatenate([jnp.moveaxis(log_x, 0, 1), last[:, None]], axis=1)
        drawn = jnp.take_along_axis(ordered, jnp.argsort(self.order, -1)[:, :, None], axis=1)
        return (drawn if given is None else jnp.where(given.chosen, given.log_omega, drawn)), density

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density, ``(B, L)``, of draws ``(B, K, L)``; if noise is unknown, at its likeliest level."""
        length = log_omega.shape[-1]
        bits = jnp.zeros((self.pivot.shape[-1], length), jnp.uint32)
        return self._draw(bits, Given(log_omega, jnp.ones(length, bool)), None)[1]

    def _ordered(self, log_omega: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the components but the last in order, and the sums of those after each, ``(K - 1, B, L)``."""
        log_omega = jnp.broadcast_to(log_omega, (self.pivot.shape[0], *log_omega.shape[-2:]))
        ordered = jnp.moveaxis(jnp.take_along_axis(log_omega, self.order[:, :, None], axis=1), 1, 0)
        # Sum the later components; subtracting the earlier ones from 1 would cancel.
        rest = lax.cumsum(jnp.exp(ordered), reverse=True)
        return ordered[:-1], rest[1:]


def exponents(prior: jax.Array) -> jax.Array:
    """Return the exponents of the walls: ``alpha - 1`` for concentrations above 2, 1 from there to 1, ``alpha`` below.

    The first are those of the prior's mode, the last those of its mode in log-ratio coordinates.
    """
    return jnp.maximum(prior - 1, jnp.minimum(prior, 1))


def from_quadratic(
    quadratic: Quadratic,
    prior: jax.Array,
    spread: float | jax.Array = 1.0,
    shape: jax.Array | None = None,
    is_flat: bool = False,
) -> TruncatedGaussian:
    """Return the proposal for Gaussian likelihoods of B problems and their prior, ``(B, K)``.

    Args:
      quadratic: the likelihoods, at the likeliest noise level.
      prior: concentrations, ``(B, K)``.
      spread: factor of the standard deviations, a number or ``(B, 1)``.
      shape: if the noise level is unknown, the shape of the gamma distribution of its precision, ``(B,)``.
      is_flat: whether the prior is known to be flat.
    """
    powers = exponents(prior)
    if shape is None:
        found = around(find_centre(quadratic, powers), quadratic, prior, spread)[0]
        return dataclasses.replace(found, is_flat=is_flat)
    likeliest = NoiseLevel(shape, shape, jnp.ones_like(shape), quadratic)

    def settle(_, state):
        # Where prior and data disagree, the noise at the centre is larger than at the optimum, and moves the centre.
        loss = likeliest.loss(state[0][:, :, None])[:, 0]
        usual = shape / (shape + loss)
        return find_centre(_at(quadratic, usual), powers).omega, usual

    omega, usual = lax.fori_loop(0, SETTLING_STEPS, settle, (quadratic.optimum, jnp.ones_like(shape)))
    found, determined = around(Centre(omega, powers / omega), _at(quadratic, usual), prior, spread)
    # A component at a wall loses alpha or alpha / 2 nats on average; its centre counts exponents for concentrations.
    at_walls = jnp.clip(1 - quadratic.optimum / omega, 0, 1)
    unseen = 0.5 * (at_walls * (prior - powers)).sum(-1)
    level = NoiseLevel.of(shape, usual, determined, unseen, quadratic)
    return dataclasses.replace(found, is_flat=is_flat, level=level)


def _at(quadratic: Quadratic, precision: jax.Array) -> Quadratic:
    """Return likelihoods at precisions relative to the likeliest ones, ``(B,)``."""
    root = jnp.sqrt(precision)[:, None, None] * quadratic.root
    return Quadratic(root, quadratic.optimum, precision[:, None] * quadratic.gradient)


def around(
    centre: Centre, quadratic: Quadratic, prior: jax.Array, spread: float | jax.Array
) -> tuple[TruncatedGaussian, jax.Array]:
    """Return the proposal with walls expanded about a centre, and how many components the data determine, ``(B,)``.

    With precision P of likelihood and walls, in order of drawing, the conditional of component k given the previous
    ones, with the later ones integrated out, has a precision to which its own wall contributes its stiffness d. Its
    own wall, ``exp(z (x - c) - d (x - c)^2 / 2)`` about the centre c, is divided out.
    """
    order = jnp.argsort(centre.omega, -1)

    def ordered(part):
        return jnp.take_along_axis(part, order.reshape(order.shape[0], *(1,) * (part.ndim - 2), -1), -1)

    pivot, slope, stiffness, alpha, root = map(
        ordered, (centre.omega, centre.multipliers, centre.stiffness, prior, quadratic.root)
    )
    count = pivot.shape[-1]
    # Reverse the columns, so that the last column of the triangular factor belongs to the component drawn first.
    factor = triangular_factor(_rows(root, stiffness)[:, :, ::-1])
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    gain = -(factor / diagonal[:, :, None] - jnp.eye(count - 1, dtype=pivot.dtype))[:, ::-1, ::-1]
    whole = jnp.square(diagonal[:, ::-1])
    pivot, slope, stiffness = pivot[:, :-1], slope[:, :-1], stiffness[:, :-1]
    rest = whole - stiffness
    own = _likelihood_precision(factor, diagonal, root)
    precision = jnp.maximum(rest, FLATTEST * whole)
    # A density pressed to a wall is not Gaussian: widen the conditionals if walls contribute much.
    walls = jnp.clip(2 * (stiffness / whole).mean(-1, keepdims=True), 0, 1)
    variance = (1 + INFLATION * walls / jnp.square(jnp.maximum(alpha[:, :-1], 1))) / precision
    found = TruncatedGaussian(
        order=order,
        pivot=pivot,
        centre=(rest * pivot - slope) / precision,
        gain=gain * (whole / precision)[:, :, None],
        scale=spread * jnp.sqrt(variance),
        alpha=alpha,
        share=own / jnp.maximum(jnp.maximum(rest, own), jnp.finfo(own.dtype).tiny),
    )
    return found, (own / whole).sum(-1)


def _likelihood_precision(factor: jax.Array, diagonal: jax.Array, root: jax.Array) -> jax.Array:
    """Return what the likelihood contributes to the precision of each conditional, ``(B, K - 1)``.

    Along column k of ``V = F^-1 diag(F)``, with F the triangular factor, component k moves by one and the later ones
    follow as they do when they are integrated out. So the contribution of the likelihood's root R is ``|R V_k|^2``.

    Args:
      factor: triangular, in reversed order, ``(B, K - 1, K - 1)``.
      diagonal: of the factor.
      root: in order, ``(B, M, K)``.
    """
    moves = triangular_inverse(factor) * diagonal[:, None]
    rows = (root[:, :, :-1] - root[:, :, -1:])[:, :, ::-1]
    return jnp.square(jnp.matmul(rows, moves, precision=lax.Precision.HIGHEST)).sum(1)[:, ::-1]


def log_volume(quadratic: Quadratic | None, prior: jax.Array) -> jax.Array:
    """Return half the log-determinant of the Gaussian's covariance, ``(B,)``; without a quadratic, of the prior's."""
    stiffness = (prior.sum(-1, keepdims=True) + 1) / dirichlet.mean(prior)
    root = jnp.zeros((prior.shape[0], 0, prior.shape[1]), prior.dtype) if quadratic is None else quadratic.root
    factor = triangular_factor(_rows(root, stiffness))
    return -jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def _rows(root: jax.Array, stiffness: jax.Array) -> jax.Array:
    """Return a square root of the precision: rows of the likelihood and of the prior, in all components but the last.

    The last component is eliminated: it is one minus the sum of the others. The rows are made orthogonal; their Gram
    matrix would lose digits.
    """
    identity = jnp.eye(stiffness.shape[-1], dtype=stiffness.dtype)
    rows = jnp.concatenate([root, jnp.sqrt(stiffness)[:, :, None] * identity], axis=1)
    return rows[:, :, :-1] - rows[:, :, -1:]
