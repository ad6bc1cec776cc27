"""Linear problems: ``y = A theta + noise`` (the paper's eq. 1), checked and reduced to K rows (see ``reduction``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import tables, validation
from ..labels import Labels, require_names
from . import constraints, reduction, rows
from . import hyperprior as hyperpriors
from . import nuisance as nuisance_columns
from .base import Problem, Template, broadcast, read_prior, require_components
from .constraints import Constraint
from .hyperprior import CommonConcentration
from .missing import Missing
from .noise import Noise
from .nuisance import Coefficients
from .uncertain import UncertainTemplate, uncertain_template
from .uncertain_design import UncertainDesign, split


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
      nuisance: coefficients of nuisance columns given theta, or ``None`` if there are none.
      hyperprior: how an unknown concentration is spread, if ``prior="estimate"``; ``prior`` then has ones.
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
    constraint: Constraint = dataclasses.field(metadata={"static": True})
    nuisance: Coefficients | None = None
    hyperprior: CommonConcentration | None = dataclasses.field(default=None, metadata={"static": True})

    is_linear = True
    is_quadratic = True

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        noise = [0 for _ in jax.tree.leaves(self.noise)]
        return [2, 1, 1, 0, 0, 0, 0, *noise, 1, *([] if self.nuisance is None else Coefficients.event_ndims)]

    def canonical(self) -> Self:
        """Return the problem with rows of zeros added: to K rows, or to a power of two if that is fewer.

        The shapes then depend on K alone, except for problems with fewer rows than components.
        """
        num_rows = self.factor.shape[-2]
        missing = min(self.num_components, 1 << (num_rows - 1).bit_length()) - num_rows
        if missing <= 0:
            return self
        factor, projection = (
            np.pad(part, [(0, 0)] * (part.ndim - ndim) + [(0, missing)] + [(0, 0)] * (ndim - 1))
            for part, ndim in ((self.factor, 2), (self.projection, 1))
        )
        return dataclasses.replace(self, factor=factor, projection=projection)

    def half_squares(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws ``(..., K)``, in units of the rows' noise, ``(...)``."""
        theta = omega * self.total[..., None]
        fitted = jnp.einsum("...mk,...k->...m", self.factor, theta, precision=lax.Precision.HIGHEST)
        half_square = 0.5 * jnp.square(self.projection - fitted).sum(-1)
        return half_square + self.rest - (self.cross * theta).sum(-1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LinearTemplate(Template):
    """A design with its options, for any targets.

    Attributes:
      design: ``(..., N, P)``, rows flattened.
      basis: Q of the whitened design, ``(..., N, M)``, if it is known and doesn't depend on the targets.
      constraint: on theta.
      nuisance: columns whose coefficients have no constraint, ``(..., N, q)``, or ``None``.
      intercept: whether the first of them is an intercept.
      hyperprior: how an unknown concentration is spread, or ``None``.
    """

    design: jax.Array
    basis: jax.Array | None
    constraint: Constraint = dataclasses.field(metadata={"static": True})
    nuisance: jax.Array | None = None
    intercept: bool = dataclasses.field(default=False, metadata={"static": True})
    hyperprior: CommonConcentration | None = dataclasses.field(default=None, metadata={"static": True})

    is_quadratic = True

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        matrices = [2 for matrix in (self.basis, self.nuisance) if matrix is not None]
        return [0, 1, *self.rows.event_ndims(), 2, *matrices]

    def factorised(self) -> Self:
        """Return the template with the design's factorisation, if that doesn't depend on the targets."""
        if self.basis is not None or self.rows.missing == "drop":
            return self
        rules = self.rows.factorised()
        none = rules.of(jnp.zeros(rules.event, self.design.dtype))
        arrays = self.design, none.scale, none.cholesky, self.nuisance
        if not reduction.shares_whitening(*arrays):
            return dataclasses.replace(self, rows=rules)
        basis = reduction.whitened_basis(*arrays)
        return dataclasses.replace(self, rows=rules, basis=basis)

    def with_targets(self, target: Any) -> LinearProblem:
        """Return the problem of fitting targets ``(..., *event)``."""
        data = self.rows.of(self.read_target(target))
        arrays = self.design, data.target, data.scale, data.cholesky, self.basis, self.nuisance
        factor, projection, cross, rest, *more = reduction.reduce(*arrays)
        count, log_volume, nuisance = data.count, data.log_volume, None
        if more:
            offset, slope, root, size = more
            nuisance = Coefficients(offset, self.constraint.lift(slope), root, self.intercept)
            count, log_volume = count - root.shape[-1], log_volume - size
        return LinearProblem(
            factor=self.constraint.lift(factor),
            projection=projection,
            cross=self.constraint.lift(cross),
            rest=rest,
            num_rows=count,
            log_volume=log_volume,
            total=self.total,
            noise=data.noise,
            prior=self.prior,
            constraint=self.constraint,
            nuisance=nuisance,
            hyperprior=self.hyperprior,
        ).made_by(self)


def linear_problem(
    design: Any,
    target: Any,
    *,
    total: Any = 1.0,
    constraint: str | Constraint = "equal",
    noise: Any = "estimate",
    prior: Any = 1.0,
    slack_prior: Any = 1.0,
    weights: Any = None,
    mask: Any = None,
    missing: Missing = "raise",
    nuisance: Any = None,
    intercept: bool = False,
    row_axes: int = 1,
    names: Sequence[str] | None = None,
) -> LinearProblem:
    """Return the problem of fitting ``target = design @ theta`` under a constraint on theta.

    Leading axes are a batch and broadcast, as in ``jnp.linalg``: a design ``(N, P)`` with a target ``(B, N)`` is B
    problems that share one design, which is stored and factorised once.

    Tables of pandas, polars and xarray are read by their names. Columns of a design are the names of parameters. A
    target has the same rows, and one column per target: a DataFrame ``(N, B)`` is B problems. If both have row names
    (in pandas an index that doesn't just count), the target's rows are put into the design's order. So are options
    that are tables; arrays must have the design's order.

    Args:
      design: ``(..., N, P)``, one column per parameter theta; or a table; or an ``UncertainDesign``, if the
        columns have errors.
      target: ``(..., N)``; or a table.
      total: the constant C of the constraint: a number, or one per problem.
      constraint: ``"equal"`` (theta >= 0 of sum C), ``"at_most"`` (theta >= 0, a sum of at most C), ``"signed"``
        (``sum(|theta|) <= C``, as theta is the difference of two nonnegative parts that together sum to C),
        ``"signed_at_most"`` (the parts sum to at most C), or a ``Constraint``. See ``problems.constraints``.
      noise: ``"estimate"`` integrates an unknown level out under the scale-invariant prior. An ``InverseGamma`` is
        another prior for the level. Or the standard deviation: a number, one per problem (the batch's shape), or one
        per row (ending in an axis of length N; a 1-D array that could be either is refused). Or ``Correlated``, with a
        covariance. Or a ``Noise`` of your own.
      prior: concentrations of the Dirichlet prior on omega, which is theta / total (and more, if signed or with a
        slack; see ``problems.constraints``). 1 is flat, less favours few large components, more favours equal ones. A
        number, one per parameter (ending in an axis of length P; with a signed constraint for both signs alike, or 2 P
        of them), or one per problem (the batch's shape, where that doesn't end in P). ``"estimate"`` integrates
        out one concentration that all components have in common: for many columns of which few may matter. It takes a
        dozen times the work. ``posterior.concentration`` is its posterior. A ``CommonConcentration`` states the range.
      slack_prior: concentration of the slack, where the constraint has one: a number, or one per problem.
      weights: of the rows, nonnegative, ``(..., N)``: an observation of weight w has the noise's variance divided by w,
        and counts as one; of weight zero it does not count.
      mask: booleans ``(..., N)``, ``True`` for rows that count.
      missing: ``"drop"`` drops rows whose target is NaN; ``"raise"`` refuses them.
      nuisance: more columns, ``(..., N, q)``, whose coefficients have no constraint: baselines, trends. They are
        integrated out under a flat prior, exactly; ``posterior.nuisance`` has them. The evidence then has an
        arbitrary constant, and compares only with that of problems that have the same nuisance columns.
      intercept: whether to add an unconstrained constant, as a nuisance column of ones.
      row_axes: how many axes of the target are rows: 2 for vector outputs, with a design ``(..., N, M, P)``, a target
        ``(..., N, M)``, and noise that may be one per output, ``(M,)``. With 2 or more, names in tables are not read.
      names: of the parameters, for tables to read and print, in place of a design's column names.

    Returns:
      A ``LinearProblem``, or an ``UncertainProblem`` if the design is uncertain: a pytree in the dtype of design and
      target. Weights, masks and missing values may differ between targets that share a design; each problem then has a
      reduced design of its own.

    Raises:
      ValueError: naming the argument, what is wrong and where.

    >>> import jax.numpy as jnp
    >>> x = jnp.linspace(0, 1, 100)
    >>> problem = linear_problem(jnp.stack([x**0, x, x**2], axis=-1), 0.2 + 0.8 * x**2, noise=0.1)
    >>> problem.num_params, problem.batch_shape, problem.factor.shape
    (3, (), (3, 3))
    """
    constraint = constraints.named(constraint)
    validation.require_at_least("row_axes", row_axes, 1)
    design, uncertain = split(design)
    options = {"noise": noise, "weights": weights, "mask": mask, "missing": missing}
    options |= {"nuisance": nuisance, "intercept": intercept}
    options |= {"total": total, "prior": prior, "slack_prior": slack_prior}
    labels = Labels()
    if row_axes == 1:
        design, target, options, labels = tables.read(design, target, options)
    design, target = design_and_target(design, target, row_axes)
    if names is not None:
        labels = dataclasses.replace(labels, components=require_names(names, design.shape[-1]))
    event = design.shape[-1 - row_axes : -1]
    batch = broadcast("target", target.shape[:-row_axes], "design", design.shape[: -1 - row_axes])
    shares = options.pop("total"), options.pop("prior"), options.pop("slack_prior")
    template = linear_template(design, event, batch, constraint, shares, options, uncertain)
    return template.with_targets(target).labelled(labels)  # type: ignore[return-value]


def linear_template(
    design: jax.Array,
    event: tuple[int, ...],
    batch: tuple[int, ...],
    constraint: Constraint,
    shares: tuple[Any, Any, Any],
    options: dict[str, Any],
    uncertain: UncertainDesign | None = None,
) -> LinearTemplate | UncertainTemplate:
    """Return the template of linear problems, or raise ``ValueError`` naming the argument that is wrong.

    Args:
      design: ``(..., *event, P)``.
      event: the shape of one problem's target.
      batch: the shape of the batch.
      constraint: on theta.
      shares: the arguments ``total``, ``prior`` and ``slack_prior`` of ``linear_problem``.
      options: its arguments ``noise``, ``weights``, ``mask`` and ``missing``, and perhaps ``nuisance`` and
        ``intercept``.
      uncertain: the errors of the design, or ``None`` if it has none.
    """
    options = dict(options)
    nuisance, intercept = options.pop("nuisance", None), options.pop("intercept", False)
    num_params = design.shape[-1]
    require_components(constraint, num_params, "design has", "columns")
    total, prior, slack_prior = shares
    prior, hyperprior = hyperpriors.read(prior)
    total, prior, batch = read_prior(constraint, num_params, batch, design.dtype, total, prior, slack_prior)
    rules = rows.read(event, batch, design.dtype, **options)
    flat = design.reshape(*design.shape[: design.ndim - 1 - len(event)], math.prod(event), num_params)
    plain = LinearTemplate(total, prior, rules, flat, None, constraint, hyperprior=hyperprior)
    own = None if uncertain is None else uncertain_template(uncertain, plain, event, batch)
    if own is not None:
        if nuisance is not None or intercept:
            raise ValueError("nuisance columns don't go with an UncertainDesign; take their part out of the rows")
        if hyperprior is not None:
            raise ValueError('prior="estimate" doesn\'t go with an UncertainDesign; choose a concentration with tune')
        return own
    columns = nuisance_columns.read(nuisance, intercept, constraint.lift(flat), event, batch)
    return plain if columns is None else dataclasses.replace(plain, nuisance=columns, intercept=bool(intercept))


def design_and_target(design: Any, target: Any, row_axes: int) -> tuple[jax.Array, jax.Array]:
    """Return both in one dtype, or raise ``ValueError`` saying what is wrong with their shapes or the design."""
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
        elif row_axes == 1 and target.ndim == 2 and target.shape[0] == event[0]:
            remedy += ": pass target.T?"
        raise ValueError(f"target has shape {target.shape} but design has {count} rows; {remedy}")
    dtype = jnp.result_type(design, target)
    validation.require_finite("design", design, "remove or replace that entry")
    return design.astype(dtype), target.astype(dtype)
