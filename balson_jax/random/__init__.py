"""Fast random variates: drop-in replacements for ``jax.random``, and quasi-random points of the unit cube."""

from . import points
from .variates import beta, dirichlet, gamma, loggamma

__all__ = ["beta", "dirichlet", "gamma", "loggamma", "points"]
