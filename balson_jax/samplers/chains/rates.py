"""Flights for sparse priors: poles of the prior become rates of exponential distributions.

A concentration ``alpha < 1`` has a pole, off which no walker can bounce. It is a mixture of exponentials,

    omega^(alpha - 1)  is proportional to  the integral of  r^(-alpha) exp(-r omega)  over r > 0,

so rates ``r ~ Gamma(1 - alpha) / omega`` are drawn given the places (a Gibbs step). Given the rates the posterior is
``likelihood * exp(-r'omega)`` with plain walls. A move has four steps, each of which leaves the posterior invariant:

1. *Tiny components*, too small for the data to see, are drawn anew from the prior below a fixed size; the largest
   component takes up the difference, and a Metropolis test accepts or rejects.
2. *Rates* are drawn.
3. *Inactive components*, those of large rates, are drawn anew from their exponential distributions; the component of
   the least rate takes up the difference, and a Metropolis test accepts or rejects.
4. *Active components*, the others, fly along straight lines with reflections (see ``active``).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from ...random.gamma_quantile import lift, unlifted
from ...targets import Quadratic
from . import active
from .walkers import EXACT, Population, Walkers

MAX_ACTIVE = 24
"""Number of components that take part in a flight, at most."""

TINY = 1e-3
"""Components below this are drawn anew from the prior; a smaller number where the data are strong."""

UNSEEN = 0.3
"""A tiny component changes the log-likelihood by no more than about the square of this, halved, through its
curvature; a slope may add more."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Moves of the walkers of B linear problems with concentrations of at most one.

    Attributes:
      quadratic: the likelihoods, with arrays for both halves of the walkers: ``N = 2 B`` rows.
      prior: concentrations, ``(N, K)``.
      tiny: size below which components are tiny, ``(N, 1, 1)``.
    """

    quadratic: Quadratic
    prior: jax.Array
    tiny: jax.Array

    @staticmethod
    def of(population: Population) -> Rates | None:
        """Return the moves; ``None`` for models."""
        if population.quadratic is None:
            return None
        quadratic = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 2), population.quadratic)
        steepest = jnp.sqrt(jnp.square(quadratic.root).sum(1).max(-1))
        tiny = jnp.minimum(TINY, UNSEEN / jnp.maximum(steepest, 1.0))
        return Rates(quadratic, jnp.concatenate([population.prior] * 2), tiny[:, None, None])

    def suits(self) -> jax.Array:
        """Return whether no concentration of a problem exceeds one, ``(B,)``."""
        return (self.prior[: len(self.prior) // 2] <= 1).all(-1)

    def move(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Return walkers after one move each; their products must be refreshed."""
        halves, num_problems = walkers.omega.shape[:2]
        keys = jax.random.split(key, 4)
        flat = Walkers(*(leaf.reshape(halves * num_problems, *leaf.shape[2:]) for leaf in walkers))
        flat = self._refresh_tiny(keys[0], flat)
        log_rates = self._log_rates(keys[1], flat.log_omega)
        flat = self._refresh_inactive(keys[2], flat, log_rates)
        flat = self._fly(keys[3], flat, log_rates)
        return Walkers(*(leaf.reshape(whole.shape) for leaf, whole in zip(flat, walkers, strict=True)))

    def _uniforms(self, key: jax.Array, rows: int, count: int) -> jax.Array:
        """Return uniform variates, ``(N, rows, L)``; problems share them, halves don't."""
        dtype = self.prior.dtype
        bits = jax.random.bits(key, (2, 1, rows, count), unit_cube.bits_dtype(dtype))
        return self._shared(unit_cube.uniform(bits, dtype))

    def _shared(self, draws: jax.Array) -> jax.Array:
        """Return draws ``(2, 1, ...)`` as ``(N, ...)``."""
        num_problems = len(self.prior) // 2
        return jnp.broadcast_to(draws, (2, num_problems, *draws.shape[2:])).reshape(-1, *draws.shape[2:])

    def _log_rates(self, key: jax.Array, log_omega: jax.Array) -> jax.Array:
        """Return logarithms of the rates given the places, ``(N, K, L)``; ``-inf`` for a concentration of one."""
        num_components, count = log_omega.shape[1:]
        shape = 1 - self.prior
        bits = jax.random.bits(key, (2, 2, 1, num_components, count), unit_cube.bits_dtype(log_omega.dtype))
        first, second = (self._shared(part) for part in bits)
        drawn = lift(unlifted(first, shape, rolled=True), second, jnp.maximum(shape, 1e-3))
        return jnp.where(shape[:, :, None] > 0, drawn - log_omega, -jnp.inf)

    def _loss(self, walkers: Walkers, change: jax.Array) -> jax.Array:
        """Return by how much the negative log-likelihood grows with changes of omega ``(N, K, L)``, ``(N, L)``."""
        product = jnp.matmul(self.quadratic.root, change, precision=EXACT)
        linear = jnp.einsum("nk,nkl->nl", self.quadratic.gradient, change, precision=EXACT)
        return walkers.precision * (linear + ((walkers.fitted + 0.5 * product) * product).sum(1))

    def _tested(
        self, key: jax.Array, walkers: Walkers, log_omega: jax.Array, change: jax.Array, log_ratio: jax.Array
    ) -> Walkers:
        """Return walkers at proposed places with the probability of a Metropolis test, and else where they were."""
        uniform = self._uniforms(key, 1, change.shape[-1])[:, 0]
        accepted = (jnp.log(uniform) < log_ratio - self._loss(walkers, change))[:, None]
        product = jnp.matmul(self.quadratic.root, change, precision=EXACT)
        return walkers._replace(
            log_omega=jnp.where(accepted, log_omega, walkers.log_omega),
            omega=jnp.where(accepted, jnp.exp(log_omega), walkers.omega),
            fitted=jnp.where(accepted, walkers.fitted + product, walkers.fitted),
        )

    def _refresh_tiny(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Draw components below ``tiny`` anew from the prior below it."""
        draw_key, test_key = jax.random.split(key)
        num_components, count = walkers.omega.shape[1:]
        omega, log_tiny = walkers.omega, jnp.log(self.tiny)
        largest = _one_hot(omega.argmax(1), num_components)
        chosen = (walkers.log_omega < log_tiny) & ~largest
        drawn = log_tiny + jnp.log(self._uniforms(draw_key, num_components, count)) / self.prior[:, :, None]
        change = jnp.where(chosen, jnp.exp(drawn) - omega, 0)
        rest = -change.sum(1, keepdims=True)
        new = jnp.where(largest, omega + rest, 0).sum(1)
        old = omega.max(1)
        others = jnp.where(largest, 0, omega).max(1)
        possible = (new > others) & (new > self.tiny[:, 0])
        powers = jnp.where(largest, self.prior[:, :, None] - 1, 0).sum(1)
        log_ratio = powers * (jnp.log(jnp.where(possible, new, old)) - jnp.log(old))
        log_omega = jnp.where(chosen, drawn, walkers.log_omega)
        log_omega = jnp.where(largest, jnp.log(jnp.where(possible, new, old))[:, None], log_omega)
        change = jnp.where(largest, rest, change)
        return self._tested(test_key, walkers, log_omega, change, jnp.where(possible, log_ratio, -jnp.inf))

    def _is_inactive(self, log_rates: jax.Array) -> jax.Array:
        """Return which components have rates so large that they are tiny, ``(N, K, L)``, except the least rate."""
        least = _one_hot(log_rates.argmin(1), log_rates.shape[1])
        return (log_rates > -jnp.log(self.tiny)) & ~least

    def _refresh_inactive(self, key: jax.Array, walkers: Walkers, log_rates: jax.Array) -> Walkers:
        """Draw components of large rates anew, from exponential distributions."""
        draw_key, test_key = jax.random.split(key)
        num_components, count = walkers.omega.shape[1:]
        omega, chosen = walkers.omega, self._is_inactive(log_rates)
        least = _one_hot(log_rates.argmin(1), num_components)
        drawn = jnp.log(-jnp.log(self._uniforms(draw_key, num_components, count))) - log_rates
        change = jnp.where(chosen, jnp.exp(drawn) - omega, 0)
        rest = -change.sum(1)
        old = jnp.where(least, omega, 0).sum(1)
        possible = old + rest > 0
        new = jnp.where(possible, old + rest, old)
        rate = jnp.exp(log_rates.min(1))
        log_omega = jnp.where(chosen, drawn, walkers.log_omega)
        log_omega = jnp.where(least, jnp.log(new)[:, None], log_omega)
        change = jnp.where(least, rest[:, None], change)
        return self._tested(test_key, walkers, log_omega, change, jnp.where(possible, -rate * rest, -jnp.inf))

    def _fly(self, key: jax.Array, walkers: Walkers, log_rates: jax.Array) -> Walkers:
        """Let the active components of each walker fly, at most ``MAX_ACTIVE`` of them, chosen at random."""
        choice_key, start_key, event_key = jax.random.split(key, 3)
        num_components, count = walkers.omega.shape[1:]
        size = min(num_components, MAX_ACTIVE)
        least = _one_hot(log_rates.argmin(1), num_components)
        score = jnp.where(self._is_inactive(log_rates), -1, self._uniforms(choice_key, num_components, count))
        value, chosen = lax.top_k(jnp.swapaxes(jnp.where(least, 2, score), 1, 2), size)
        omega, rates = (
            jnp.take_along_axis(jnp.swapaxes(values, 1, 2), chosen, -1) for values in (walkers.omega, log_rates)
        )
        frame = active.frame(self.quadratic, walkers, jnp.exp(rates), chosen, value >= 0)
        velocity = self._shared(jax.random.normal(start_key, (2, 1, count, size), omega.dtype))

        def losses(number: jax.Array) -> jax.Array:
            return -jnp.log(self._uniforms(jax.random.fold_in(event_key, number), 1, count))[:, 0]

        found = active.fly(frame, omega, velocity, losses)
        put = jax.vmap(jax.vmap(lambda whole, at, values: whole.at[at].set(values)))
        omega = jnp.swapaxes(put(jnp.swapaxes(walkers.omega, 1, 2), chosen, found), 1, 2)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
        return walkers._replace(omega=omega, log_omega=jnp.where(omega == walkers.omega, walkers.log_omega, log_omega))


def _one_hot(index: jax.Array, size: int) -> jax.Array:
    """Return a mask ``(N, size, L)`` of indices ``(N, L)``."""
    return jnp.arange(size)[:, None] == index[:, None]
