"""What is fitted: design, target, noise, constraint and prior, checked and reduced.

The model is ``y = A theta + noise`` with theta on a simplex or a cut of one (see ``constraints``), the paper's eq. 1.
N rows matter only through a thin QR factorisation ``A = Q R``, made once: with ``q = Q'y`` and the part
``rho = y - Q q`` of the target that no ``theta`` reaches,

    |y - A theta|^2 = |q - R theta|^2 - 2 theta'(A'rho) + |rho|^2 + 2 q'(Q'rho).

``A'rho`` and ``Q'rho`` are zero but for rounding, which they correct: in float32 that of a strong signal can exceed the
noise. They also carry derivatives: with ``Q`` held constant the right side has the same first derivatives in ``A`` and
``y`` as the left for designs of any rank, where a derivative taken through the factorisation would divide by zero.
(Second derivatives in ``A`` are not right.)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import validation
from . import constraints, rows
from .batching import Batched, map_blocks
from .constraints import CONSTRAINTS, Constraint
from .noise import InverseGamma, Noise

REDUCED_ELEMENTS = 1 << 22
"""Problems whose rows differ are reduced together as long as their designs hold no more numbers than this."""


class Problem(Batched):
    """What every kind of problem has: a constraint, a prior, a level of noise; ``fit`` takes any of them.

    ``linear_problem`` makes one from a design, ``model_problem`` from a function. Fields all kinds share:

    Attributes:
      total: the constant C, ``(...)``.
      noise: the standard deviation of the (whitened) noise, ``(...)``, or the prior of its square.
      prior: the prior's concentrations, ``(..., K)``, of all components of omega.
      num_rows: the number of observations that count, ``(...)``, in the floating dtype.
      log_volume: log-determinant of the whitening, ``(...)``.
      constraint: one of ``constraints.CONSTRAINTS``.
    """

    total: jax.Array
    noise: Noise
    prior: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    constraint: Constraint

    @property
    def num_components(self) -> int:
        """The number K of components of omega."""
        return self.prior.shape[-1]

    @property
    def num_params(self) -> int:
        """The number of parameters theta: K, unless the constraint lifts them."""
        return constraints.num_params(self.constraint, self.num_components)

    @property
    def dtype(self) -> jnp.dtype:
        """The floating dtype in which the problem is solved."""
        return self.prior.dtype

    @property
    def estimates_noise(self) -> bool:
        """Whether the level of the noise is unknown."""
        return isinstance(self.noise, InverseGamma)

    def is_valid(self) -> jax.Array:
        """Return, per problem, whether every number is finite and in its domain; usable inside a trace."""
        if isinstance(self.noise, InverseGamma):
            noise = (self.noise.shape >= 0) & (self.noise.scale >= 0)
        else:
            noise = self.noise > 0
        return self.all_finite() & (self.total > 0) & noise & (self.prior > 0).all(-1) & (self.num_rows >= 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LinearProblem(Problem):
    """One linear problem or a batch: a pytree whose leaves have broadcasting leading axes.

    Made by ``linear_problem``; M is ``min(N, P)`` for N rows and P parameters. A leaf that all problems share is stored
    once. The fields that all problems have are described in ``Problem``.

    Attributes:
      factor: R of the design's QR factorisation, lifted to omega's components, ``(..., M, K)``.
      projection: ``Q'y``, ``(..., M)``.
      cross: ``A'rho``, lifted, ``(..., K)``.
      rest: ``|rho|^2 / 2 + q'(Q'rho)``, ``(...)``.
    """

    factor: jax.Array
    projection: jax.Array
    cross: jax.Array
    rest: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    total: jax.Array
    noise: Noise
    prior: jax.Array
    constraint: Constraint = dataclasses.field(default="equal", metadata={"static": True})

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        return [2, 1, 1, 0, 0, 0, 0, *(0 for _ in jax.tree.leaves(self.noise)), 1]


def linear_problem(
    design: Any,
    target: Any,
    *,
    total: Any = 1.0,
    constraint: Constraint = "equal",
    noise: Any = "estimate",
    prior: Any = 1.0,
    slack_prior: Any = 1.0,
    weights: Any = None,
    mask: Any = None,
    missing: rows.Missing = "raise",
    row_axes: int = 1,
) -> LinearProblem:
    """Return the problem of fitting ``target = design @ theta`` under a constraint on theta.

    Leading axes are a batch and broadcast, as in ``jnp.linalg``: a design ``(N, P)`` with a target ``(B, N)`` is B
    problems that share one design, which is stored and factorised once.

    Args:
      design: ``(..., N, P)``, one column per parameter theta.
      target: ``(..., N)``.
      total: the constant C of the constraint: a number, or one per problem.
      constraint: ``"equal"`` (theta >= 0 of sum C), ``"at_most"`` (theta >= 0, a sum of at most C), ``"signed"``
        (``sum(|theta|) <= C``, as theta is the difference of two nonnegative parts that together sum to C), or
        ``"signed_at_most"`` (the parts sum to at most C). See ``constraints``.
      noise: ``"estimate"`` integrates an unknown level out under the scale-invariant prior, an ``InverseGamma`` under
        that one. Or the standard deviation: a number, one per problem (the batch's shape), or one per row (ending in an
        axis of length N; a 1-D array that could be either is refused). Or ``Correlated``, with a covariance.
      prior: concentrations of the Dirichlet prior on omega, which is theta / total (and more, if signed or with a
        slack; see ``constraints``). 1 is flat, less favours few large components, more favours equal ones. A number,
        one per parameter (ending in an axis of length P;
        with a signed constraint for both signs alike, or 2 P of them), or one per problem (the batch's shape, where
        that doesn't end in P).
      slack_prior: concentration of the slack, where the constraint has one: a number, or one per problem.
      weights: of the rows, nonnegative, ``(..., N)``: an observation of weight w has the noise's variance divided by w,
        and counts as one; of weight zero it does not count.
      mask: booleans ``(..., N)``, ``True`` for rows that count.
      missing: ``"drop"`` drops rows whose target is NaN; ``"raise"`` refuses them.
      row_axes: how many axes of the target are rows: 2 for vector outputs, with a design ``(..., N, M, P)``, a target
        ``(..., N, M)``, and noise that may be one per output, ``(M,)``.

    Returns:
      A ``LinearProblem``, a pytree in the dtype of design and target. Weights, masks and missing values may differ
      between targets that share a design; each problem then has a reduced design of its own.

    Raises:
      ValueError: naming the argument, what is wrong and where.

    >>> import jax.numpy as jnp
    >>> x = jnp.linspace(0, 1, 100)
    >>> problem = linear_problem(jnp.stack([x**0, x, x**2], axis=-1), 0.2 + 0.8 * x**2, noise=0.1)
    >>> problem.num_params, problem.batch_shape, problem.factor.shape
    (3, (), (3, 3))
    """
    validation.require_choice("constraint", constraint, CONSTRAINTS)
    validation.require_at_least("row_axes", row_axes, 1)
    design, target = _design_and_target(design, target, row_axes)
    event, num_params = design.shape[-1 - row_axes : -1], design.shape[-1]
    require_components(constraint, num_params, "design has", "columns")
    batch = _broadcast("target", target.shape[:-row_axes], "design", design.shape[: -1 - row_axes])
    total, prior, batch = read_constraint(constraint, num_params, batch, design.dtype, total, prior, slack_prior)
    data = rows.read(target, event, batch, noise=noise, weights=weights, mask=mask, missing=missing)
    design = design.reshape(*design.shape[: -1 - row_axes], math.prod(event), num_params)
    factor, projection, cross, rest = _reduce(design, data.target, data.scale, data.cholesky)
    return LinearProblem(
        factor=constraints.lift(constraint, factor),
        projection=projection,
        cross=constraints.lift(constraint, cross),
        rest=rest,
        num_rows=data.count,
        log_volume=data.log_volume,
        total=total,
        noise=data.noise,
        prior=prior,
        constraint=constraint,
    )


def require_components(constraint: Constraint, num_params: int, subject: str, things: str) -> None:
    """Raise if a constraint leaves fewer than two components: ``subject`` has that many ``things``."""
    smallest = 1 if constraint != "equal" else 2
    if num_params < smallest:
        remedy = f"pass at least {smallest} {things}"
        alone = ", as one alone is theta = total" if smallest == 2 else ""
        raise ValueError(f"{subject} K={num_params} component; {remedy}{alone}")


def read_constraint(
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
    batch = _broadcast("total", total.shape, "the problems", batch)
    validation.require_broadcast("slack_prior", slack_prior.shape, batch)
    prior = _per_component(prior, batch, num_params, constraints.is_signed(constraint))
    return total, constraints.lift_prior(constraint, prior, slack_prior, num_params), batch


def _design_and_target(design: Any, target: Any, row_axes: int) -> tuple[jax.Array, jax.Array]:
    design, target = validation.float_array("design", design), validation.float_array("target", target)
    if design.ndim < 1 + row_axes:
        wanted = "two axes, (rows, components)" if row_axes == 1 else f"{row_axes} axes of rows and one of components"
        raise ValueError(f"design has shape {design.shape}; it needs {wanted}, after any batch axes")
    if target.ndim < row_axes:
        shape = "is a single number" if target.ndim == 0 else f"has shape {target.shape}"
        needs = "an axis of rows" if row_axes == 1 else f"{row_axes} axes of rows"
        raise ValueError(f"target {shape}; it needs {needs}")
    event = design.shape[-1 - row_axes : -1]
    if math.prod(event) < 1:
        raise ValueError(f"design has shape {design.shape} with no rows; pass at least one observation")
    if target.shape[-row_axes:] != event:
        count = event[0] if row_axes == 1 else event
        last = "the last axis of target" if row_axes == 1 else f"the last {row_axes} axes of target"
        remedy = f"{last} must match"
        if row_axes == 1 and target.shape[-1] == design.shape[-1]:
            remedy += ": pass design.T?"
        elif row_axes == 1 and target.shape == (*event, 1):
            remedy += ": pass target[:, 0]"
        raise ValueError(f"target has shape {target.shape} but design has {count} rows; {remedy}")
    dtype = jnp.result_type(design, target)
    validation.require_finite("design", design, "remove or replace that entry")
    return design.astype(dtype), target.astype(dtype)


def _broadcast(name: str, shape: tuple[int, ...], other: str, other_shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, other_shape)
    except ValueError:
        message = f"the batch axes {shape} of {name} don't broadcast with those of {other}, {other_shape}"
        raise ValueError(f"{message}; make them equal, or of length 1") from None


def _per_component(prior: jax.Array, batch: tuple[int, ...], num_params: int, signed: bool) -> jax.Array:
    size = 2 * num_params if signed and prior.ndim and prior.shape[-1] == 2 * num_params else num_params
    if prior.ndim and prior.shape == batch and prior.shape[-1] != size:
        prior = prior[..., None]
    try:
        np.broadcast_shapes(prior.shape, (*batch, size))
        return jnp.broadcast_to(prior, (*prior.shape[:-1], size))
    except ValueError:
        both = f" (or {2 * num_params}, for each sign)" if signed else ""
        raise ValueError(
            f"prior has shape {prior.shape}; pass a number, {num_params} concentrations{both}, "
            f"or an array of the batch's shape {batch}"
        ) from None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Raw(Batched):
    """Data before reduction: design, target, and how rows are whitened."""

    design: jax.Array
    target: jax.Array
    scale: jax.Array | None
    cholesky: jax.Array | None

    def event_ndims(self) -> list[int]:
        ndims = {"design": 2, "target": 1, "scale": 1, "cholesky": 2}
        return [ndim for name, ndim in ndims.items() if getattr(self, name) is not None]

    def whitened(self) -> tuple[jax.Array, jax.Array]:
        columns = rows.whiten(jnp.moveaxis(self.design, -1, 0), self.scale, self.cholesky)
        return jnp.moveaxis(columns, 0, -1), rows.whiten(self.target, self.scale, self.cholesky)


@jax.jit
def _reduce(
    design: jax.Array, target: jax.Array, scale: jax.Array | None, cholesky: jax.Array | None
) -> tuple[jax.Array, ...]:
    """Return factor, projection, cross and rest of the rows in whitened units."""
    raw = _Raw(design, target, scale, cholesky)
    own = [array.shape[:-1] for array in (scale,) if array is not None]
    own += [array.shape[:-2] for array in (cholesky,) if array is not None]
    if np.broadcast_shapes(design.shape[:-2], *own) == design.shape[:-2]:
        return _factorize(*raw.whitened())  # the weights have no axes that the design lacks
    block = max(1, REDUCED_ELEMENTS // math.prod(design.shape[-2:]))
    return map_blocks(lambda flat: flat.vmap(lambda one: _factorize(*one.whitened())), raw, block)


def _factorize(design: jax.Array, target: jax.Array) -> tuple[jax.Array, ...]:
    exact = lax.Precision.HIGHEST
    basis = lax.stop_gradient(jnp.linalg.qr(lax.stop_gradient(design))[0])
    factor = jnp.einsum("...nm,...nk->...mk", basis, design, precision=exact)
    projection = jnp.einsum("...nm,...n->...m", basis, target, precision=exact)
    outside = target - jnp.einsum("...nm,...m->...n", basis, projection, precision=exact)
    # What columns have in common apart from what they differ in: it would drown that.
    column = design.mean(-1)
    cross = jnp.einsum("...nk,...n->...k", design - column[..., None], outside, precision=exact)
    cross = cross + jnp.einsum("...n,...n->...", column, outside, precision=exact)[..., None]
    leak = jnp.einsum("...nm,...n->...m", basis, outside, precision=exact)
    return factor, projection, cross, 0.5 * jnp.square(outside).sum(-1) + (projection * leak).sum(-1)
