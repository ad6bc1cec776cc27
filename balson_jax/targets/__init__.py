"""The log-density of a block of problems: what samplers see.

``linear``, ``uncertain`` and ``model`` are the kinds; ``optimum`` finds the constrained least-squares
optimum; ``functions`` is the public ``balson_jax.density``.
"""

from . import linear, model, uncertain
from .base import Needs, Optimum, Quadratic, Target, Values, find_optimum, target_of

__all__ = [
    "Needs",
    "Optimum",
    "Quadratic",
    "Target",
    "Values",
    "find_optimum",
    "linear",
    "model",
    "target_of",
    "uncertain",
]
