"""BlackJAX's NUTS, vmapped over problems, in additive log-ratio coordinates."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .timing import race


class Walk(NamedTuple):
    """Draws, ``(problems, chains, steps, K)``, with the times of sampling and of the warm-up in seconds."""

    draws: jax.Array
    seconds: float
    warm_up_seconds: float

    def ess(self) -> jax.Array:
        """Return the effective number of draws of each component, ``(problems, K)``."""
        from blackjax.diagnostics import effective_sample_size

        return jnp.nan_to_num(jax.vmap(effective_sample_size)(self.draws))

    def rhat(self) -> float:
        """Return the largest R-hat over problems and components. It needs at least two chains."""
        from blackjax.diagnostics import potential_scale_reduction

        return float(jax.vmap(potential_scale_reduction)(self.draws).max())


def walk(
    design: np.ndarray,
    targets: np.ndarray,
    noise: float,
    *,
    prior: float = 1.0,
    warm_up: int,
    steps: int,
    chains: int = 1,
    dense_mass: bool = False,
) -> Walk:
    """Run and time NUTS on all targets at once."""
    import blackjax

    num_components = design.shape[1]
    repeated = jnp.repeat(jnp.asarray(targets), chains, axis=0)
    keys = jax.random.split(jax.random.key(0), len(repeated))
    start = jnp.zeros((len(repeated), num_components - 1))

    def log_density(position, target):
        log_omega = jax.nn.log_softmax(jnp.append(position, 0.0))
        return -0.5 * jnp.square((target - design @ jnp.exp(log_omega)) / noise).sum() + prior * log_omega.sum()

    def adapt(target, key, position):
        adaptation = blackjax.window_adaptation(
            blackjax.nuts, lambda z: log_density(z, target), is_mass_matrix_diagonal=not dense_mass
        )
        (state, parameters), _ = adaptation.run(key, position, num_steps=warm_up)
        return state, parameters["step_size"], parameters["inverse_mass_matrix"]

    def sample(target, key, state, step_size, inverse_mass_matrix):
        kernel = blackjax.nuts(lambda z: log_density(z, target), step_size, inverse_mass_matrix)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, jax.nn.softmax(jnp.append(state.position, 0.0))

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    adapted, drawn = jax.jit(jax.vmap(adapt)), jax.jit(jax.vmap(sample))
    warm = adapted(repeated, keys, start)
    times = race({"warm-up": (adapted, repeated, keys, start), "draws": (drawn, repeated, keys, *warm)}, seconds=0.5)
    draws = drawn(repeated, keys, *warm).reshape(len(targets), chains, steps, num_components)
    return Walk(draws, times["draws"].run, times["warm-up"].run)
