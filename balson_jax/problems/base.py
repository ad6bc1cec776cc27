"""What every kind of problem has: total, constraint, prior, noise; and how users' arguments for these are read."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Self, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from .. import tables, validation
from ..labels import Labelled, Labels
from .batching import Batched
from .constraints import Constraint, named
from .hyperprior import CommonConcentration
from .noise import Known, Noise
from .rows import RowRules


class Problem(Labelled, Batched):
    """One problem or a batch, as ``fit`` takes it. ``linear_problem`` and ``model_problem`` make them.

    Fields that all kinds share:

    Attributes:
      total: the constant C, ``(...)``.
      noise: the model of the (whitened) noise, fields ``(...)``.
      prior: the prior's concentrations, ``(..., K)``, of all components of omega.
      num_rows: the number of observations that count, less that of nuisance columns, ``(...)``, in the floating dtype.
      log_volume: log-determinant of the whitening, ``(...)``.
      constraint: a ``Constraint``; it equals its name.
    """

    total: jax.Array
    noise: Noise
    prior: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    constraint: Constraint

    is_linear = False
    """Whether predictions are linear in theta."""

    is_quadratic = False
    """Whether the half-square is a quadratic of theta: predictions are linear, and the design is certain."""

    hyperprior: CommonConcentration | None = None
    """How an unknown concentration of the prior is spread; ``None`` if the prior is known."""

    @property
    def certified(self) -> bool:
        """Whether the bound of the likelihood is proven."""
        return True

    # The template this problem was made from. It is not part of the pytree: transformations of JAX drop it, and so does
    # ``dataclasses.replace``.
    _template = None

    def __post_init__(self) -> None:
        # ``dataclasses.replace(problem, noise=array)`` means a known level; a constraint may be its name.
        if hasattr(self.noise, "dtype"):
            object.__setattr__(self, "noise", Known(self.noise))
        object.__setattr__(self, "constraint", named(self.constraint))

    @property
    def num_components(self) -> int:
        """The number K of components of omega."""
        return self.prior.shape[-1]

    @property
    def num_params(self) -> int:
        """The number of parameters theta: K, unless the constraint lifts them."""
        return self.constraint.num_params(self.num_components)

    @property
    def dtype(self) -> jnp.dtype:
        """The floating dtype in which the problem is solved."""
        return self.prior.dtype

    @property
    def estimates_noise(self) -> bool:
        """Whether the level of the noise is unknown."""
        return self.noise.estimates_level

    @property
    def has_envelope(self) -> bool:
        """False if it is known that likelihoods have no upper bound, which rejection sampling needs."""
        return True

    @abc.abstractmethod
    def half_squares(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws ``(..., K)``, in units of the rows' noise, ``(...)``."""

    def log_likelihood(self, omega: jax.Array) -> jax.Array:
        """Return the log-likelihood of draws ``(..., K)``, ``(...)``; with an unknown noise level integrated out."""
        return self.log_volume + self.noise.log_likelihood(self.num_rows, self.half_squares(omega))

    def is_valid(self) -> jax.Array:
        """Return, per problem, whether every number is finite and in its domain; usable inside a trace."""
        noise = self.noise.is_valid()
        return self.all_finite() & (self.total > 0) & noise & (self.prior > 0).all(-1) & (self.num_rows >= 1)

    def canonical(self) -> Self:
        """Return an equivalent problem on the host whose arrays have as few different shapes as possible."""
        return self

    def with_targets(self, target: Any) -> Problem:
        """Return the same problem with other targets: design, noise, prior, weights and constraint stay.

        Nothing is validated or factorised again but the targets. If options differ between the problems of a
        batch, the number of targets must stay. Names of components stay; tables are read as by ``linear_problem``.

        >>> import jax.numpy as jnp
        >>> from balson_jax import linear_problem
        >>> problem = linear_problem(jnp.eye(3), jnp.ones(3) / 3, noise=0.1)
        >>> problem.with_targets(jnp.ones((5, 3)) / 3).batch_shape
        (5,)
        """
        template = self.template.factorised()
        if all(validation.is_concrete(leaf) for leaf in jax.tree.leaves(template)):
            self.made_by(template)  # the factorisation serves the next targets too
        labels, problems = self.labels, None
        if len(template.rows.event) == 1:
            target, problems = tables.read_target("target", target, labels.rows, *template.rows.event)
        return template.with_targets(target).labelled(Labels(labels.components, labels.rows, problems))

    @property
    def template(self) -> Template:
        """The problem without its targets."""
        if self._template is None:
            raise ValueError(
                "this problem has passed through a JAX transformation or dataclasses.replace, which drop its design; "
                "call with_targets on the problem that linear_problem or model_problem returned"
            )
        return self._template

    def made_by(self, template: Template) -> Self:
        """Return the problem, which remembers the template it was made from."""
        object.__setattr__(self, "_template", template)
        return self


@dataclasses.dataclass(frozen=True)
class Template(Batched):
    """A problem without its targets; ``with_targets`` makes problems of it.

    Attributes:
      total: the constant C, ``(...)``.
      prior: concentrations of all components of omega, ``(..., K)``.
      rows: which rows count, and their noise.
    """

    total: jax.Array
    prior: jax.Array
    rows: RowRules

    is_quadratic = False
    """As for the problems."""

    @abc.abstractmethod
    def with_targets(self, target: Any) -> Problem:
        """Return the problem of fitting targets ``(..., *event)``."""

    def factorised(self) -> Self:
        """Return the template with all work done that doesn't depend on the targets."""
        return self

    def read_target(self, target: Any) -> jax.Array:
        """Return targets as an array, or raise ``ValueError`` if they have another shape than the template's."""
        target = validation.float_array("target", target, self.prior.dtype)
        event = self.rows.event
        if target.shape[target.ndim - len(event) :] != event or target.ndim < len(event):
            raise ValueError(f"target has shape {target.shape}; its last axes must be {event}, as before")
        validation.require_broadcast("target", target.shape[: target.ndim - len(event)], self.batch_shape)
        return target


def is_problem(value: Any) -> TypeGuard[Problem]:
    """Return whether this is a problem, of whichever kind."""
    return isinstance(value, Problem)


def require_problem(problem: Any) -> None:
    """Raise ``ValueError`` unless this is a problem."""
    if not is_problem(problem):
        raise ValueError(
            f"problem is a {type(problem).__name__}; make one with balson_jax.linear_problem(design, target)"
        )


def require_components(constraint: Constraint, num_params: int, subject: str, things: str) -> None:
    """Raise if a constraint leaves nothing to estimate: ``subject`` has that many ``things``."""
    smallest = constraint.min_params
    if num_params < smallest:
        remedy = f"pass at least {smallest} {things}"
        alone = ", as one alone is theta = total" if smallest == 2 else ""
        raise ValueError(f"{subject} K={num_params} component; {remedy}{alone}")


def read_prior(
    constraint: Constraint,
    num_params: int,
    batch: tuple[int, ...],
    dtype: Any,
    total: Any,
    prior: Any,
    slack_prior: Any,
) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Return the total, the concentrations of all components, and the batch's shape, or raise ``ValueError``."""
    total = validation.float_array("total", total, dtype)
    prior = validation.float_array("prior", prior, dtype)
    slack_prior = validation.float_array("slack_prior", slack_prior, dtype)
    for name, value in (("total", total), ("prior", prior), ("slack_prior", slack_prior)):
        validation.require_positive(name, value)
    batch = broadcast("total", total.shape, "the problems", batch)
    validation.require_broadcast("slack_prior", slack_prior.shape, batch)
    prior = _per_component(prior, batch, constraint.prior_sizes(num_params))
    return total, constraint.lift_prior(prior, slack_prior, num_params), batch


def broadcast(name: str, shape: tuple[int, ...], other: str, other_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of two batches together, or raise ``ValueError``."""
    try:
        return np.broadcast_shapes(shape, other_shape)
    except ValueError:
        message = f"the batch axes {shape} of {name} don't broadcast with those of {other}, {other_shape}"
        raise ValueError(f"{message}; make them equal, or of length 1") from None


def _per_component(prior: jax.Array, batch: tuple[int, ...], sizes: tuple[int, ...]) -> jax.Array:
    """Return concentrations ``(..., n)`` with n one of the sizes, the first unless the array has another."""
    last = prior.shape[-1] if prior.ndim else 0
    size = last if last in sizes else sizes[0]
    if prior.ndim and prior.shape == batch and last != size:
        prior = prior[..., None]
    try:
        np.broadcast_shapes(prior.shape, (*batch, size))
        return jnp.broadcast_to(prior, (*prior.shape[:-1], size))
    except ValueError:
        more = "".join(f" (or {size}, for each sign)" for size in sizes[1:])
        raise ValueError(
            f"prior has shape {prior.shape}; pass a number, {sizes[0]} concentrations{more}, "
            f"or an array of the batch's shape {batch}"
        ) from None
