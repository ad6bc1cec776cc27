"""``Sampler``: what a method needs from ``fit``, and what it returns to it."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from .. import dirichlet, validation
from ..problems.base import Problem
from ..random import points as unit_cube
from ..random.sobol import MAX_DIMS
from ..targets import Needs, Target
from ..weighting.convergence import NOISE_DRAWS
from ..weighting.estimate import Estimate

REPLICATES = 8
"""Number of independent replicates. With fewer, each has more points and errors are smaller. With more, error bars
are better."""

DEFAULT_CHUNK = 4096
DEFAULT_KEEP = 512
MAX_KEEP = 1 << 16
MAX_SOBOL_COMPONENTS = MAX_DIMS // 2 - 1
"""A Dirichlet draw takes two coordinates per component."""

MAX_DRAWS = 1 << 30
"""Draws are numbered by 32-bit integers."""

_SMALLEST = {"num_draws": 2, "chunk": 1, "rounds": 0, "steps": 1, "max_proposals": 1, "max_moves": 1}
"""Smallest values of integer settings; a field of another name can state its own as ``metadata={"min": 1}``."""


class Sampler(abc.ABC):
    """A method of ``fit``: a frozen dataclass of settings, registered as a pytree, that runs on a block of problems.

    A subclass sets ``name`` and implements ``run``. Numbers that may change without compiling again are plain fields;
    sizes, and anything that Python decides by, are static fields. The facts below are class attributes that others
    read; nobody asks for a method's type.

    A complete method, an independence Metropolis chain that proposes from the prior:

    >>> import balson_jax as balson
    >>> from balson_jax.weighting.convergence import from_chains
    >>> @jax.tree_util.register_dataclass
    ... @dataclasses.dataclass(frozen=True)
    ... class Metropolis(Sampler):
    ...     num_steps: int = dataclasses.field(default=2048, metadata={"static": True})
    ...     keep: int = dataclasses.field(default=512, metadata={"static": True})
    ...     name = "metropolis"
    ...     is_chain, has_evidence, has_derivatives = True, False, False
    ...
    ...     def run(self, key, target, axes=()):
    ...         alpha = target.full_prior
    ...
    ...         def step(state, key):
    ...             omega, log_ratio = state
    ...             draws = jax.vmap(lambda own: balson.random.dirichlet(key, own, (8,)))(alpha)  # for eight chains
    ...             proposed = jnp.swapaxes(draws, 1, 2)
    ...             values = target.log_ratio(proposed)
    ...             uniform = jax.random.uniform(jax.random.fold_in(key, 1), (8,), values.dtype)
    ...             accepted = jnp.log(uniform) < values - log_ratio
    ...             omega = jnp.where(accepted[:, None], proposed, omega)
    ...             return (omega, jnp.where(accepted, values, log_ratio)), omega
    ...
    ...         start = jnp.repeat(dirichlet.mean(alpha)[..., None], 8, -1)
    ...         keys = jax.random.split(key, self.num_steps)
    ...         draws = jax.lax.scan(step, (start, target.log_ratio(start)), keys)[1]
    ...         return from_chains(key, target, jnp.moveaxis(draws[self.num_steps // 4 :], 0, -1), self.keep)
    >>> problem = balson.linear_problem(jnp.eye(3), jnp.array([0.7, 0.2, 0.1]), noise=0.5)
    >>> posterior = balson.fit(jax.random.key(0), problem, Metropolis())
    >>> posterior.method, int(posterior.status)
    ('metropolis', 0)
    """

    name: ClassVar[str]
    """The name in ``fit(key, problem, name)`` and ``posterior.method``."""

    keep: int = DEFAULT_KEEP
    """How many draws the posterior keeps: a power of two, or 0."""

    match: dirichlet.MatchRule = "ratio"
    """Rule for the precision of the approximating Dirichlet, unless ``run`` returns ``alpha``."""

    target_ess: Any = 0.0
    """Effective draws below which a result of a ladder of methods does not serve (see ``rungs``)."""

    rungs_inside_jit: int = 1
    """How many rungs to climb inside ``jit``, where all are part of the program; with 1, ``inside_trace`` chooses."""

    has_evidence: ClassVar[bool] = True
    """Whether ``log_evidence`` is estimated; if not it is NaN."""

    is_chain: ClassVar[bool] = False
    """Whether draws are correlated; ``rhat`` then shows whether they have converged."""

    has_derivatives: ClassVar[bool] = True
    """Whether ``mean`` and ``log_evidence`` have first derivatives. If not, differentiation raises ``TypeError``."""

    draws_are_shared: ClassVar[bool] = False
    """Whether problems with the same prior share their draws, so that a block can hold more of them."""

    needs: ClassVar[Needs] = Needs()
    """What ``fit`` finds out about the problem before ``run``."""

    def __post_init__(self) -> None:
        _check_settings(self)

    def with_evidence(self) -> Self:
        """Return the method with the settings under which it estimates the evidence, if it can."""
        return self

    @property
    def is_sharpened(self) -> bool:
        """Whether the answer counts the data more than once, and is not the posterior."""
        return False

    @property
    def draws_made(self) -> float:
        """Number of weighted draws of a problem; NaN if it is not fixed, as for chains."""
        used = getattr(self, "used", None)
        return float(getattr(self, "num_draws", math.nan) if used is None else used)

    def prepare(self, problem: Problem) -> Self:
        """Return the method suited to a problem, or raise ``ValueError`` with a remedy if it can't serve it."""
        limit, count = MAX_SOBOL_COMPONENTS, problem.num_components
        if getattr(self, "points", None) == "sobol" and count > limit:
            raise ValueError(f'points="sobol" serves up to {limit} components, not {count}; pass points="pseudo"')
        return self

    def is_valid(self) -> jax.Array:
        """Return whether the settings that are arrays are in their domain; usable inside a trace."""
        return jnp.bool_(True)

    def elements(self, num_components: int) -> int:
        """Return roughly how many numbers one problem holds in memory at a time; it sets the size of blocks."""
        return DEFAULT_CHUNK * num_components

    def inside_trace(self, problem: Problem) -> Sampler:
        """Return the method to use where the problem's values are not known, as inside ``jit``."""
        return self

    def rungs(self, problem: Problem) -> list[Any]:
        """Return the ladder of methods to climb, a list of ``Rung``; empty for a method that runs by itself.

        Each problem of a batch takes the first whose result serves it (see ``Auto``).
        """
        return []

    @abc.abstractmethod
    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems.

        Args:
          key: a PRNG key, the same for all blocks: problems use the same random numbers.
          target: the log-densities.
          axes: names of mesh axes along which devices hold copies of the same problems, and may divide the draws.
        """


def num_kept(keep: int, target: Target) -> int:
    """Return how many draws to keep: the number asked for, but enough for the noise if its level is estimated."""
    return max(keep, NOISE_DRAWS) if target.noise.estimates_level else keep


def require_target_ess(value: Any) -> None:
    """Raise ``ValueError`` unless ``target_ess`` is one positive number."""
    target_ess = validation.float_array("target_ess", value)
    if target_ess.ndim:
        raise ValueError(f"target_ess has shape {target_ess.shape}; pass one number for all problems")
    validation.require_positive("target_ess", target_ess)


def _check_settings(method: Sampler) -> None:
    """Raise ``ValueError`` at a setting that is out of range."""
    settings = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    own = {field.name: field.metadata.get("min") for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    for name, smallest in (_SMALLEST | {name: least for name, least in own.items() if least is not None}).items():
        if name in settings:
            validation.require_at_least(name, settings[name], smallest)
            if settings[name] >= MAX_DRAWS and name != "chunk":
                more = "; merge several fits instead" if name == "num_draws" else ""
                raise ValueError(f"{name}={settings[name]} must be below {MAX_DRAWS:,}{more}")
            if settings[name] > MAX_DRAWS:
                raise ValueError(f"{name}={settings[name]} must be at most {MAX_DRAWS:,}")
    if "match" in settings:
        validation.require_choice("match", settings["match"], dirichlet.MATCH_RULES)
    if "diagnose_tail" in settings:
        validation.require_flag("diagnose_tail", settings["diagnose_tail"])
    if "points" in settings:
        validation.require_choice("points", settings["points"], tuple(unit_cube.GENERATORS))
    _check_keep(method.keep, settings.get("num_draws"))


def _check_keep(keep: Any, num_draws: int | None) -> None:
    validation.require_at_least("keep", keep, 0)
    if keep and (keep & (keep - 1) or not REPLICATES <= keep <= MAX_KEEP):
        raise ValueError(f"keep={keep} must be 0 or a power of two from {REPLICATES} to {MAX_KEEP:,}")
    # The default means "at most".
    if num_draws is not None and keep > max(num_draws, DEFAULT_KEEP):
        raise ValueError(f"keep={keep} exceeds num_draws={num_draws}; draw at least as many as you keep")
