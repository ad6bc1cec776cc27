"""Constraints, each an equality on a larger simplex: the lifting of theta to ``omega``, and back.

With P parameters theta and K components of ``omega >= 0``, ``sum(omega) = 1``:

| name               | what holds                            | omega                        | K       |
|--------------------|---------------------------------------|------------------------------|---------|
| ``equal``          | ``theta >= 0, sum(theta) = C``        | theta / C                    | P       |
| ``at_most``        | ``theta >= 0, sum(theta) <= C``       | theta / C, slack             | P + 1   |
| ``signed``         | ``theta = plus - minus``, both        | plus / C, minus / C          | 2 P     |
|                    | nonnegative, of sum C                 |                              |         |
| ``signed_at_most`` | the same with a sum of at most C      | plus / C, minus / C, slack   | 2 P + 1 |

Both signed constraints keep ``sum(|theta|) <= C``: where plus and minus are both positive they cancel.
"""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp

Constraint = Literal["equal", "at_most", "signed", "signed_at_most"]

CONSTRAINTS: tuple[Constraint, ...] = get_args(Constraint)


def is_signed(constraint: Constraint) -> bool:
    """Return whether parameters may be negative."""
    return constraint in ("signed", "signed_at_most")


def has_slack(constraint: Constraint) -> bool:
    """Return whether the last component of omega is what is left of the total."""
    return constraint in ("at_most", "signed_at_most")


def num_params(constraint: Constraint, num_components: int) -> int:
    """Return the number P of parameters theta, from that of components."""
    return (num_components - has_slack(constraint)) // (2 if is_signed(constraint) else 1)


def lift(constraint: Constraint, columns: jax.Array) -> jax.Array:
    """Return the columns ``(..., K)`` whose product with omega is that of ``columns``, ``(..., P)``, with theta / C."""
    parts = [columns, -columns] if is_signed(constraint) else [columns]
    if has_slack(constraint):
        parts.append(jnp.zeros_like(columns[..., :1]))
    return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else columns


def unlift(constraint: Constraint, omega: jax.Array, axis: int = -1) -> jax.Array:
    """Return theta / C from omega, whose components are on the axis."""
    count = num_params(constraint, omega.shape[axis])
    plus = jax.lax.slice_in_dim(omega, 0, count, axis=axis)
    if not is_signed(constraint):
        return plus
    return plus - jax.lax.slice_in_dim(omega, count, 2 * count, axis=axis)


def lift_prior(constraint: Constraint, prior: jax.Array, slack: jax.Array, params: int) -> jax.Array:
    """Return the concentrations ``(..., K)`` of omega.

    Args:
      constraint: which one.
      prior: concentrations ``(..., P)``, of both signs of a parameter alike, or ``(..., 2 P)`` if signed.
      slack: concentration of the slack, ``(...)``; of no matter if there is none.
      params: the number P.
    """
    if is_signed(constraint) and prior.shape[-1] == params:
        prior = jnp.concatenate([prior, prior], axis=-1)
    if not has_slack(constraint):
        return prior
    batch = jnp.broadcast_shapes(prior.shape[:-1], slack.shape)
    parts = jnp.broadcast_to(prior, (*batch, prior.shape[-1])), jnp.broadcast_to(slack, batch)[..., None]
    return jnp.concatenate(parts, axis=-1)
