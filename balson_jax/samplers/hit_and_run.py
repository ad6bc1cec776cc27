"""Ensemble hit-and-run: walkers that move along lines through the simplex, for what no proposal can reach.

Walkers come in ensembles, of two halves each. A walker moves along the difference of two walkers of the other half,
which knows the posterior's shape, or between a few components, to a point of the line that is distributed as the
posterior is along it. Where the prior is uniform and the model linear that is a cut normal distribution, drawn exactly.
Otherwise it is a step of slice sampling (Neal 2003) in the logarithm of the ratio of the distances to the line's two
ends: in that variable even the poles of a prior with concentrations below one are bounded.

Ensembles are independent of each other and start from places that are farther apart than the posterior is wide: that
their means agree (R-hat) is the sign of convergence. Rounds double in length, each going on where the last one ended
and forgetting it, until the means agree and are known well enough.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet, gaussian, reservoir, weights
from ..density import Density, Pivoted
from ..noise import InverseGamma
from ..proposals import DirichletProposal, Proposal
from ..random import points as unit_cube
from ..random.truncated_normal import cut
from ..random.variates import loggamma
from ..status import MAX_RHAT, Status
from .importance import DEFAULT_KEEP, check_sizes, match_alpha, num_kept
from .rejection import without_derivatives

ENSEMBLES = 4
BATCHES = 8
"""A round of an ensemble is cut into so many batches, whose means tell the standard error."""

MIN_WALKERS = 64
CLOSENESS = 0.8
"""How close the walkers of an ensemble begin to the first of them: 1 for at the same place."""

FIRST_ROUND = 4
"""How many times walkers are recorded in each batch of the first round."""

SUBSETS = (4, 8)
"""Directions in which so many components change are among those along which walkers move."""
MAX_SHRINKS = 10
WINDOW = 18.0
"""Along a line, what is this many nats below the likelihood's peak is left out of sight."""

SIGHT = 8.0
"""How far a walker looks along a line, in e-folds of the probability beyond."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HitAndRun:
    """Markov chains that sample the posterior: the fallback that works where the others don't.

    Estimates the exact posterior, but not its evidence. Draws are correlated: ``ess`` counts what they are worth, from
    the means of batches, for the component that is known worst; ``rhat`` compares independent ensembles. It has no
    derivatives, and refuses to be differentiated.

    Attributes:
      target_ess: a round counts if its ``ess`` is at least this, and ``rhat`` at most 1.01.
      max_moves: moves of a walker after which to give up, and to say so in ``status``.
      walkers: in each of the four ensembles, a power of two, at least 8; ``None`` for at least twice the components.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
      exact_lines: whether the prior is known to be uniform, which makes lines of linear problems exact and faster;
        ``None`` looks at it, if its value is known.
    """

    target_ess: float | jax.Array = 400.0
    max_moves: int = dataclasses.field(default=1 << 18, metadata={"static": True})
    walkers: int | None = dataclasses.field(default=None, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})
    exact_lines: bool | None = dataclasses.field(default=None, metadata={"static": True})

    name = "hit_and_run"
    is_sharpened = False
    needs_optimum = False

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.walkers is not None and (self.walkers < 8 or self.walkers & (self.walkers - 1)):
            raise ValueError(f"walkers={self.walkers} must be a power of two, at least 8")

    def is_valid(self) -> jax.Array:
        """Return whether the target is in its domain; usable inside a trace."""
        return jnp.asarray(self.target_ess) > 0

    def elements(self, num_components: int, shares_draws: bool) -> int:
        """Return how many numbers the walkers of a problem hold."""
        return 4 * ENSEMBLES * self.num_walkers(num_components) * num_components

    def num_walkers(self, num_components: int) -> int:
        """Return how many walkers an ensemble has."""
        wanted = self.walkers or max(MIN_WALKERS, 1 << (2 * num_components - 1).bit_length())
        return max(wanted, self.keep // ENSEMBLES)

    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[weights.Estimate, jax.Array]:
        """Return the estimates and the matched ``alpha`` of B problems; devices along the axes all do the same."""
        found = hit_and_run(key, without_derivatives(density), self)
        return found, match_alpha(found, self.match, density)


class Walkers(NamedTuple):
    """Walkers of B problems in E ensembles of two halves of H, the first of which moves.

    Attributes:
      log_omega: where they are, ``(2, B, E, H, K)``.
      omega: its exponential.
      fitted: product of the likelihood's root with where they are, less its centre, ``(2, B, E, H, M)``.
      precision: of the noise, relative to the quadratic's, ``(2, B, E, H)``.
    """

    log_omega: jax.Array
    omega: jax.Array
    fitted: jax.Array
    precision: jax.Array


def hit_and_run(key: jax.Array, density: Density, method: HitAndRun) -> weights.Estimate:
    """Walk rounds of doubling length until each of B problems is known well enough, or the moves are spent."""
    num_problems, num_components = density.shape
    num_walkers = method.num_walkers(num_components)
    dtype = density.prior.dtype
    sizes = weights.Sizes(0, min(num_kept(method.keep, density) // ENSEMBLES, num_walkers))
    stride = max(2, num_components // 2)
    chain = _Chain(density, method)
    walkers = chain.start(jax.random.fold_in(key, 0), num_walkers // 2)
    log_moments = method.match == "kl"
    num_logs = num_components if log_moments else 0
    nothing = weights.empty(num_problems * ENSEMBLES, density.feature_shape[1], num_logs, sizes, dtype)

    def record(walkers, key):
        """Return the moments of where all walkers are, each ensemble as a problem of its own."""

        def flat(values):
            both = jnp.moveaxis(values, 0, 2).reshape(num_problems * ENSEMBLES, num_walkers, num_components)
            return jnp.swapaxes(both, 1, 2)

        omega = flat(walkers.omega)
        gumbel = reservoir.gumbel(key, num_walkers, 0, dtype) if sizes.slots else None
        logs = jnp.zeros((omega.shape[0], num_walkers), dtype)
        log_omega = flat(walkers.log_omega) if log_moments else None
        return weights.digest(logs, density.features(omega), log_omega, jnp.asarray(num_walkers), gumbel, sizes)

    def batch(carry, _):
        walkers, key, length = carry

        def step(index, state):
            walkers, moments = state
            own = jax.random.fold_in(key, index)
            walkers = lax.fori_loop(
                0, 2 * stride, lambda move, w: chain.move(jax.random.fold_in(own, move), w, move), walkers
            )
            walkers = chain.refresh(jax.random.fold_in(own, 2 * stride), walkers)
            return walkers, weights.merge(moments, record(walkers, own))

        walkers, moments = lax.fori_loop(0, length, step, (walkers, nothing))
        return (walkers, jax.random.fold_in(key, 1 << 30), length), moments

    def unfinished(state):
        return jnp.any(~state[-1]) & (state[1] < method.max_moves)

    def round_of_batches(state):
        walkers, moves, length, parts, done = state
        own = jax.random.fold_in(jax.random.fold_in(key, 1), moves)
        (walkers, _, _), found = lax.scan(batch, (walkers, own, length), None, BATCHES)
        found = jax.tree.map(lambda leaf: _by_ensemble(leaf, num_problems), found)
        parts = jax.tree.map(
            lambda new, old: jnp.where(done.reshape(1, -1, *(1,) * (new.ndim - 2)), old, new), found, parts
        )
        ess, rhat, _ = _diagnose(parts)
        done = done | ((ess >= method.target_ess) & (rhat <= MAX_RHAT))
        return walkers, moves + BATCHES * length * stride, 2 * length, parts, done

    parts = jax.tree.map(
        lambda leaf: _by_ensemble(jnp.broadcast_to(leaf, (BATCHES, *leaf.shape)), num_problems), nothing
    )
    hopeless = ~density.valid | ~jnp.isfinite(density.log_peak) | ~jnp.isfinite(walkers.omega).all((0, 2, 3, 4))
    state = walkers, jnp.int32(0), jnp.int32(FIRST_ROUND), parts, hopeless
    _, _, _, parts, _ = lax.while_loop(unfinished, round_of_batches, state)
    return _estimate(density, parts, hopeless)


def _by_ensemble(leaf: jax.Array, num_problems: int) -> jax.Array:
    """Return moments of batches, ``(BATCHES, B E, ...)``, as ``(E BATCHES, B, ...)``, those of an ensemble together."""
    leaf = leaf.reshape(BATCHES, num_problems, ENSEMBLES, *leaf.shape[2:])
    leaf = jnp.moveaxis(leaf, (2, 0), (0, 1))
    return leaf.reshape(ENSEMBLES * BATCHES, *leaf.shape[2:])


def _diagnose(parts: weights.Moments) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return effective draws and split R-hat of the worst feature, ``(B,)``; standard errors of means, ``(B, F)``."""
    whole = weights.combine(parts)
    variance = whole.spread / whole.mass[:, None]
    count = parts.mean.shape[0]
    # From batches, and from unions of them: the shorter ones don't see slow changes, the longer ones are few.
    error_square = functools.reduce(jnp.maximum, [_error_square(parts.mean, count // size) for size in (1, 2, 4)])
    still = variance <= 0
    ess = jnp.where(
        still,
        whole.mass[:, None],
        variance / jnp.where(still, 1, jnp.maximum(error_square, variance / whole.mass[:, None])),
    )
    # Halves of ensembles, as chains (Margossian et al. 2024).
    halves = parts.mean.reshape(2 * ENSEMBLES, BATCHES // 2, *parts.mean.shape[1:]).mean(1)
    between = jnp.var(halves, 0, ddof=1)
    within = jnp.where(still, 1, variance - jnp.minimum(jnp.var(halves, 0), 0.99 * variance))
    rhat = jnp.where(still, 1, jnp.sqrt(1 + between / within))
    return ess.min(-1), rhat.max(-1), jnp.sqrt(error_square)


def _error_square(means: jax.Array, groups: int) -> jax.Array:
    """Return the squared standard error of the mean of batches, ``(B, F)``, from the spread of groups of them."""
    grouped = means.reshape(groups, -1, *means.shape[1:]).mean(1)
    return jnp.var(grouped, 0, ddof=1) / groups


def _estimate(density: Density, parts: weights.Moments, hopeless: jax.Array) -> weights.Estimate:
    whole = weights.combine(parts)
    ess, rhat, mean_stderr = _diagnose(parts)
    share = jnp.ones_like(parts.mass) / whole.mass
    draws, draw_weights = reservoir.gather(merged_kept(parts), share[:ENSEMBLES])
    unknown = jnp.full_like(ess, jnp.nan)
    status = weights.verdict(ess, unknown, 2) | jnp.where(rhat <= MAX_RHAT, 0, Status.HIGH_RHAT)
    return weights.Estimate(
        mean=whole.mean,
        variance=whole.spread / whole.mass[:, None],
        log_mean=whole.log_mean,
        mean_stderr=mean_stderr,
        log_evidence=unknown,
        log_evidence_stderr=jnp.full_like(ess, jnp.inf),
        acceptance_rate=unknown,
        ess=ess,
        pareto_k=unknown,
        rhat=rhat,
        status=status.astype(jnp.int32),
        draws=draws,
        draw_weights=draw_weights,
    )


def merged_kept(parts: weights.Moments) -> reservoir.Reservoir:
    """Return the kept draws of ensembles, those of their batches merged."""
    kept = jax.tree.map(lambda leaf: leaf.reshape(ENSEMBLES, BATCHES, *leaf.shape[1:]), parts.kept)
    return jax.vmap(lambda own: reservoir.merge(own, jnp.ones((BATCHES, own.mass.shape[1]), own.mass.dtype)))(kept)


class _Chain:
    """How walkers of B problems move."""

    def __init__(self, density: Density, method: HitAndRun) -> None:
        self.density = density
        self.prior = jnp.broadcast_to(density.prior, density.shape)
        self.quadratic = density.quadratic() if isinstance(density, Pivoted) else None
        self.is_exact = bool(method.exact_lines) and self.quadratic is not None
        self.samples_noise = self.quadratic is not None and isinstance(density.noise, InverseGamma)
        self.subsets = [functools.partial(self.subset, size) for size in SUBSETS if size <= density.shape[1]]
        pull = jnp.maximum(self.prior - 1, 0)
        self.window = (WINDOW + 6 * pull.max(-1) + 0.5 * pull.sum(-1))[:, None, None]
        self.sight = (SIGHT / jnp.minimum(self.prior.min(-1), 1))[:, None, None]

    def start(self, key: jax.Array, half: int) -> Walkers:
        """Return walkers at places more widely spread than the posterior."""
        num_problems, num_components = self.density.shape
        count = 2 * ENSEMBLES * half
        points = unit_cube.coordinates(unit_cube.pseudo, key, count, start=0, dtype=self.prior.dtype)
        log_draws, _ = self.starts().draw(points)
        draws = jnp.exp(jnp.broadcast_to(log_draws, (num_problems, *log_draws.shape[-2:])))
        draws = draws.reshape(num_problems, num_components, 2, ENSEMBLES, half)
        draws = jnp.moveaxis(draws, (2, 1), (0, -1))
        # Those of an ensemble around one of them: ensembles agree only when they have forgotten where they began.
        omega = CLOSENESS * draws[:1, :, :, :1] + (1 - CLOSENESS) * draws
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
        walkers = Walkers(
            log_omega,
            jnp.exp(log_omega),
            jnp.zeros((2, num_problems, ENSEMBLES, half, 0), self.prior.dtype),
            jnp.ones((2, num_problems, ENSEMBLES, half), self.prior.dtype),
        )
        return self.refresh(jax.random.fold_in(key, 1), walkers)

    def starts(self) -> Proposal:
        """Return where walkers begin: spread more widely than the posterior."""
        if self.quadratic is None:
            return DirichletProposal(self.prior)
        return gaussian.from_quadratic(self.quadratic, self.prior, prior_share=0.25, spread=2.0)

    def refresh(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Return the walkers with their sums and products computed anew, and new levels of the noise."""
        normalizer = jnp.log(walkers.omega.sum(-1, keepdims=True))
        log_omega = walkers.log_omega - normalizer
        omega = jnp.exp(log_omega)
        if self.quadratic is None:
            return walkers._replace(log_omega=log_omega, omega=omega)
        away = omega - self.quadratic.centre[:, None, None, :]
        fitted = jnp.einsum("bmk,sbehk->sbehm", self.quadratic.root, away, precision=lax.Precision.HIGHEST)
        precision = walkers.precision
        if self.samples_noise:
            linear = jnp.einsum("bk,sbehk->sbeh", self.quadratic.gradient, away, precision=lax.Precision.HIGHEST)
            excess = jnp.maximum(linear + 0.5 * jnp.square(fitted).sum(-1), 0)
            assert isinstance(self.density.noise, InverseGamma)
            shape = jnp.broadcast_to(self.density.noise.shape + 0.5 * self.density.num_rows, self.density.base.shape)
            shape = shape[:, None, None]
            draws = jnp.exp(loggamma(key, shape, (2, *excess.shape[1:])))
            precision = draws / (shape + excess)
        return Walkers(log_omega, omega, fitted, precision)

    def move(self, key: jax.Array, walkers: Walkers, number: jax.Array) -> Walkers:
        """Move the first half, and let the other be first."""
        choice_key, line_key = jax.random.split(key)
        moving = jax.tree.map(lambda leaf: leaf[0], walkers)
        other = jax.tree.map(lambda leaf: leaf[1], walkers)
        kinds = [self.differences, self.pairs, *self.subsets]
        direction = lax.switch(number // 2 % len(kinds), kinds, choice_key, other)
        moved = (self.exactly if self.is_exact else self.by_slices)(line_key, moving, *direction)
        return jax.tree.map(lambda first, second: jnp.stack([first, second]), other, moved)

    def differences(self, key: jax.Array, other: Walkers) -> tuple[jax.Array, jax.Array]:
        """Return differences between walkers, ``(B, E, H, K)``, and those of their products."""
        half = other.omega.shape[2]
        first, second = _two(key, half, half)
        ensembles = jnp.arange(ENSEMBLES)[:, None]

        def difference(leaf):
            return leaf[:, ensembles, first] - leaf[:, ensembles, second]

        return difference(other.omega), difference(other.fitted)

    def pairs(self, key: jax.Array, other: Walkers) -> tuple[jax.Array, jax.Array]:
        """Return directions from one component to another, ``(B, E, H, K)``, and their products."""
        num_components = other.omega.shape[-1]
        first, second = _two(key, other.omega.shape[2], num_components)
        identity = jnp.eye(num_components, dtype=other.omega.dtype)
        direction = jnp.broadcast_to(identity[first] - identity[second], other.omega.shape)
        if self.quadratic is None:
            return direction, other.fitted
        columns = jnp.swapaxes(self.quadratic.root, 1, 2)
        return direction, columns[:, first] - columns[:, second]

    def subset(self, size: int, key: jax.Array, other: Walkers) -> tuple[jax.Array, jax.Array]:
        """Return directions in which some components change, as the likelihood lets them, ``(B, E, H, K)``."""
        num_problems, _, half, num_components = other.omega.shape
        dtype = other.omega.dtype
        chosen = jax.random.permutation(key, num_components)[:size]
        normals = jax.random.normal(jax.random.fold_in(key, 1), (ENSEMBLES, half, size - 1), dtype)
        root = jnp.zeros((num_problems, 0, num_components), dtype) if self.quadratic is None else self.quadratic.root
        columns = root[:, :, chosen]
        columns = columns[:, :, :-1] - columns[:, :, -1:]
        rows = jnp.concatenate(
            [columns, jnp.broadcast_to(jnp.eye(size - 1, dtype=dtype), (num_problems, size - 1, size - 1))], 1
        )
        factor = jnp.linalg.qr(rows, mode="r")
        inverse = jax.scipy.linalg.solve_triangular(
            factor, jnp.broadcast_to(jnp.eye(size - 1, dtype=dtype), factor.shape)
        )
        steps = jnp.einsum("bij,ehj->behi", inverse, normals)
        product = jnp.einsum("bmi,behi->behm", columns, steps) if self.quadratic is not None else other.fitted
        steps = jnp.concatenate([steps, -steps.sum(-1, keepdims=True)], -1)
        direction = jnp.zeros_like(other.omega).at[..., chosen].set(steps)
        return direction, product

    def line(self, walkers: Walkers, direction: jax.Array, product: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return curvature and slope of the negative log-likelihood along lines, ``(B, E, H)``."""
        assert self.quadratic is not None
        linear = jnp.einsum("bk,behk->beh", self.quadratic.gradient, direction, precision=lax.Precision.HIGHEST)
        curvature = walkers.precision * jnp.square(product).sum(-1)
        return curvature, walkers.precision * (linear + (walkers.fitted * product).sum(-1))

    def exactly(self, key: jax.Array, walkers: Walkers, direction: jax.Array, product: jax.Array) -> Walkers:
        """Return walkers moved along lines to draws of cut normal distributions."""
        curvature, slope = self.line(walkers, direction, product)
        size = jnp.abs(direction)
        reach = jnp.where(size > 0, walkers.omega / jnp.where(size > 0, size, 1), jnp.inf)
        low = jnp.where(direction > 0, reach, jnp.inf).min(-1)
        high = jnp.where(direction < 0, reach, jnp.inf).min(-1)
        movable = jnp.isfinite(low) & jnp.isfinite(high) & (low + high > 0)
        low, high = jnp.where(movable, low, 1), jnp.where(movable, high, 1)
        stiffness = jnp.maximum(jnp.sqrt(curvature), 1e-6 / (low + high))
        interval = cut(slope / stiffness - low * stiffness, (low + high) * stiffness)
        bits = jax.random.bits(key, low.shape[1:], unit_cube.bits_dtype(low.dtype))
        from_low, from_high = interval.quantile(unit_cube.uniform(bits, low.dtype), unit_cube.uniform(~bits, low.dtype))
        # From the nearer end, which keeps its digits.
        step = jnp.where(from_low < from_high, from_low / stiffness - low, high - from_high / stiffness)
        step = jnp.where(movable, step, 0)[..., None]
        omega = jnp.maximum(walkers.omega + step * direction, 0)
        return walkers._replace(
            omega=omega,
            log_omega=jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny)),
            fitted=walkers.fitted + step * product,
        )

    def by_slices(self, key: jax.Array, walkers: Walkers, direction: jax.Array, product: jax.Array) -> Walkers:
        """Return walkers moved along lines by a step of slice sampling."""
        size, rises = jnp.abs(direction), direction > 0
        log_size = jnp.log(jnp.where(size > 0, size, 1))
        log_reach = jnp.where(size > 0, walkers.log_omega - log_size, jnp.inf)
        log_low = jnp.where(rises, log_reach, jnp.inf).min(-1)
        log_high = jnp.where(rises, jnp.inf, log_reach).min(-1)
        curvature = slope = jnp.zeros_like(log_low)
        if self.quadratic is not None:
            curvature, slope = self.line(walkers, direction, product)
            log_low, log_high = self.within_sight(curvature, slope, log_low, log_high)
        low, high = jnp.exp(log_low), jnp.exp(log_high)
        length = low + high
        movable = jnp.isfinite(length) & (length > 0)
        log_length = jnp.log(jnp.where(movable, length, 1))
        tiny = jnp.finfo(size.dtype).tiny
        # What a component has left at the end towards which it falls.
        end, log_end = (
            jnp.where(rises, low[..., None], high[..., None]),
            jnp.where(rises, log_low[..., None], log_high[..., None]),
        )
        gap = jnp.where(log_reach <= log_end, 0, jnp.maximum(walkers.omega - size * jnp.where(size > 0, end, 0), tiny))
        log_scale = log_size + log_length[..., None]

        def place(position):
            """Return ``ln omega`` at a position of the line, and omega."""
            log_up, log_down = -jax.nn.softplus(-position), -jax.nn.softplus(position)
            up, down = jnp.exp(log_up) * length, jnp.exp(log_down) * length
            omega = gap + size * jnp.where(rises, up[..., None], down[..., None])
            at_end = log_scale + jnp.where(rises, log_up[..., None], log_down[..., None])
            log_omega = jnp.where(gap > 0, jnp.log(jnp.maximum(omega, tiny)), at_end)
            return log_omega, omega, log_up + log_down, up - low

        def log_target(position):
            log_omega, omega, jacobian, step = place(position)
            log_prior = jnp.einsum("bk,behk->beh", self.prior - 1, log_omega, precision=lax.Precision.HIGHEST)
            if self.quadratic is None:
                log_likelihood = self.model_likelihood(omega)
            else:
                log_likelihood = -step * (slope + 0.5 * curvature * step)
            return log_prior + log_likelihood + jacobian

        here = jnp.where(movable, log_low - log_high, 0)
        level_key, place_key, shrink_key = jax.random.split(key, 3)
        height = log_target(here) + jnp.log(unit_cube.uniform(self.bits(level_key, here), here.dtype))

        def searching(state):
            return jnp.any(~state[-1]) & (state[0] < MAX_SHRINKS)

        def shrink(state):
            count, left, right, position, found = state
            share = unit_cube.uniform(self.bits(jax.random.fold_in(shrink_key, count), here), here.dtype)
            tried = left + share * (right - left)
            hit = ~found & (log_target(tried) > height)
            missed = ~found & ~hit
            return (
                count + 1,
                jnp.where(missed & (tried < here), tried, left),
                jnp.where(missed & (tried >= here), tried, right),
                jnp.where(hit, tried, position),
                found | hit,
            )

        # An interval of fixed width around the walker, at random.
        left = here - self.sight * unit_cube.uniform(self.bits(place_key, here), here.dtype)
        state = jnp.int32(0), left, left + self.sight, here, ~movable | ~jnp.isfinite(height)
        position = lax.while_loop(searching, shrink, state)[3]
        log_omega, omega, _, step = place(position)
        moved = (movable & (position != here))[..., None]
        step = jnp.where(moved, step[..., None], 0)
        fitted = walkers.fitted if self.quadratic is None else walkers.fitted + step * product
        return walkers._replace(
            log_omega=jnp.where(moved, log_omega, walkers.log_omega),
            omega=jnp.where(moved, omega, walkers.omega),
            fitted=fitted,
        )

    def bits(self, key: jax.Array, like: jax.Array) -> jax.Array:
        """Return random bits that all problems share, ``(E, H)``."""
        return jax.random.bits(key, like.shape[1:], unit_cube.bits_dtype(like.dtype))

    def within_sight(self, curvature, slope, log_low, log_high):
        """Return logarithms of the distances to the line's ends, or to where the likelihood has become nothing."""
        low, high = jnp.exp(log_low), jnp.exp(log_high)
        peak = jnp.clip(-slope / jnp.where(curvature > 0, curvature, 1), -low, high)
        peak = jnp.where(curvature > 0, peak, 0)
        steepness = jnp.abs(slope + curvature * peak)
        width = 2 * self.window / (steepness + jnp.sqrt(jnp.square(steepness) + 2 * curvature * self.window))
        below, above = width - peak, width + peak
        below, above = jnp.where(below > 0, below, width), jnp.where(above > 0, above, width)
        return jnp.minimum(log_low, jnp.log(below)), jnp.minimum(log_high, jnp.log(above))

    def model_likelihood(self, omega: jax.Array) -> jax.Array:
        num_problems, ensembles, half, num_components = omega.shape
        draws = jnp.swapaxes(omega.reshape(num_problems, ensembles * half, num_components), 1, 2)
        return self.density.log_ratio(draws).reshape(num_problems, ensembles, half)


def _two(key: jax.Array, count: int, number: int) -> tuple[jax.Array, jax.Array]:
    """Return pairs of different integers below a number, each ``(E, count)``."""
    first_key, second_key = jax.random.split(key)
    first = jax.random.randint(first_key, (ENSEMBLES, count), 0, number)
    other = jax.random.randint(second_key, (ENSEMBLES, count), 0, number - 1)
    return first, other + (other >= first)
