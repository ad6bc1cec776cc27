"""Ordinary least squares, without a constraint or a prior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..problems.linear import linear_problem


def ordinary(design: Any, target: Any) -> jax.Array:
    """Return the theta that minimises ``|target - design @ theta|``, ``(..., K)``. A tie goes to the least norm.

    >>> ordinary(jnp.eye(2), jnp.array([3.0, -1.0])).tolist()
    [3.0, -1.0]
    """
    problem = linear_problem(design, target, noise=1.0)
    pseudo_inverse = jnp.linalg.pinv(problem.factor)
    return jnp.einsum("...km,...m->...k", pseudo_inverse, problem.projection)
