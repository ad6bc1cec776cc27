"""The constrained least-squares problem of the paper's equation 1, by the interior-point solver ``least_squares``."""

from __future__ import annotations

from typing import Any, Literal

import jax

from .. import validation
from ..least_squares import least_squares
from ..problems.linear import linear_problem


def interior_point(
    design: Any, target: Any, total: Any = 1.0, constraint: Literal["at_most", "equal"] = "at_most"
) -> jax.Array:
    """Return the theta >= 0 that minimises ``|target - design @ theta|`` under a constraint on its sum, ``(..., K)``.

    Args:
      design: ``(..., N, K)``.
      target: ``(..., N)``.
      total: the bound, one number or one per problem. A bound far above the solution's sum loses digits in float32.
      constraint: ``"at_most"`` for ``sum(theta) <= total``, ``"equal"`` for ``sum(theta) = total``.

    >>> import jax.numpy as jnp
    >>> [round(x, 3) for x in interior_point(jnp.eye(2), jnp.array([0.3, -1.0])).tolist()]
    [0.3, 0.0]
    """
    validation.require_choice("constraint", constraint, ("at_most", "equal"))
    return least_squares(linear_problem(design, target, total=total, constraint=constraint, noise=1.0)).theta
