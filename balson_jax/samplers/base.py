"""What all samplers have in common."""

from __future__ import annotations

import abc

import jax
import jax.numpy as jnp

from .. import dirichlet, validation
from ..problems.noise import InverseGamma
from ..random import points as unit_cube
from ..targets.functions import Density
from ..weighting.estimate import Estimate

REPLICATES = 8
"""Fewer would give larger nets of quasi-random points and so smaller errors, more would give better error bars."""

DEFAULT_CHUNK = 4096
DEFAULT_KEEP = 512
MAX_KEEP = 1 << 16
NOISE_DRAWS = 64
"""Theta says little of the noise's level that rows don't: so many draws of it suffice."""

MAX_DRAWS = 1 << 30
"""Draws are numbered by 32-bit integers."""


class Sampler(abc.ABC):
    """A method: a frozen dataclass of its settings, registered as a pytree, that runs on a block of problems."""

    name: str
    """How ``fit`` and ``posterior.method`` call it."""

    keep: int

    needs_optimum = False
    """Whether it starts from the optimum of a model that is not linear."""

    def __post_init__(self) -> None:
        check_sizes(self)

    @property
    def is_sharpened(self) -> bool:
        """Whether the answer counts the data more than once, and is not the posterior."""
        return False

    def is_valid(self) -> jax.Array:
        """Return whether the settings that are arrays are in their domain; usable inside a trace."""
        return jnp.bool_(True)

    @abc.abstractmethod
    def elements(self, num_components: int, shares_draws: bool) -> int:
        """Return how many numbers a problem's chunk of draws holds, if all problems share the draws or if not."""

    @abc.abstractmethod
    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[Estimate, jax.Array]:
        """Return the estimates and the matched ``alpha`` of B problems.

        Devices along the axes of a mesh, which hold the same problems, may divide the draws among them.
        """


def match_alpha(found: Estimate, match: dirichlet.MatchRule, density: Density) -> jax.Array:
    """Return the concentrations of the Dirichlets that match an estimate, ``(B, K)``."""
    count = density.shape[1]
    return dirichlet.from_moments(found.mean[:, :count], found.variance[:, :count], match, log_mean=found.log_mean)


def num_kept(keep: int, density: Density) -> int:
    """Return how many draws to keep: what the user wants, or a few for the noise if its level is to be estimated."""
    return max(keep, NOISE_DRAWS) if isinstance(density.noise, InverseGamma) else keep


def check_sizes(method) -> None:
    """Raise ``ValueError`` at a static field of a method that is out of range."""
    if hasattr(method, "num_draws"):
        validation.require_at_least("num_draws", method.num_draws, 2)
        if method.num_draws >= MAX_DRAWS:
            raise ValueError(f"num_draws={method.num_draws} must be below {MAX_DRAWS:,}; merge several fits instead")
        validation.require_at_least("chunk", method.chunk, 1)
        if method.chunk > MAX_DRAWS:
            raise ValueError(f"chunk={method.chunk} must be at most {MAX_DRAWS:,}")
    if hasattr(method, "match"):
        validation.require_choice("match", method.match, dirichlet.MATCH_RULES)
    validation.require_at_least("keep", method.keep, 0)
    if method.keep and (method.keep & (method.keep - 1) or not REPLICATES <= method.keep <= MAX_KEEP):
        raise ValueError(f"keep={method.keep} must be 0 or a power of two from {REPLICATES} to {MAX_KEEP:,}")
    if hasattr(method, "diagnose_tail"):
        validation.require_flag("diagnose_tail", method.diagnose_tail)
    if hasattr(method, "points"):
        validation.require_choice("points", method.points, tuple(unit_cube.GENERATORS))
    for name, smallest in (("rounds", 0), ("steps", 1), ("max_proposals", 1), ("max_moves", 1)):
        if hasattr(method, name):
            validation.require_at_least(name, getattr(method, name), smallest)
            if getattr(method, name) >= MAX_DRAWS:
                raise ValueError(f"{name}={getattr(method, name)} must be below {MAX_DRAWS:,}")
