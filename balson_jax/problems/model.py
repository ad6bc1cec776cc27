"""Problems whose model is any JAX function: ``y = f(x; theta) + noise``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from .. import tables, validation
from ..labels import Labels, require_names
from . import constraints, rows
from .base import Problem, Template, read_prior, require_components
from .constraints import Constraint
from .missing import Missing
from .noise import Noise

Predict = Callable[[jax.Array, Any], jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelProblem(Problem):
    """A problem, or a batch with common inputs, whose model is a function; made by ``model_problem``.

    The fields that all problems have are described in ``Problem``.

    Attributes:
      inputs: second argument of ``predict``, a pytree that all problems share.
      target: ``(..., N)``, the axes of one problem's rows flattened.
      scale: factors of the residuals, ``(..., N)``, zero for dropped rows; or ``None``.
      cholesky: lower factor of the covariance, ``(..., N, N)``, or ``None``.
      bound: no theta has half a sum of squared residuals, in units of the rows' noise, below this, ``(...)``.
      predict: the model.
      search: whether ``bound`` is to be raised to the smallest value that an optimiser finds.
      input_ndims: how many axes each leaf of the inputs has.
    """

    inputs: Any
    target: jax.Array
    scale: jax.Array | None
    cholesky: jax.Array | None
    bound: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    total: jax.Array
    noise: Noise
    prior: jax.Array
    predict: Predict = dataclasses.field(metadata={"static": True})
    constraint: Constraint = dataclasses.field(metadata={"static": True})
    search: bool = dataclasses.field(default=False, metadata={"static": True})
    input_ndims: tuple[int, ...] = dataclasses.field(default=(), metadata={"static": True})

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        whitening = [ndim for array, ndim in ((self.scale, 1), (self.cholesky, 2)) if array is not None]
        return [*self.input_ndims, 1, *whitening, 0, 0, 0, 0, *(0 for _ in jax.tree.leaves(self.noise)), 1]

    def all_finite(self) -> jax.Array:
        """Return, per problem, whether every number of it is finite, except the inputs, which may be anything."""
        return super(ModelProblem, dataclasses.replace(self, inputs=None, input_ndims=())).all_finite()

    def residual(self, omega: jax.Array) -> jax.Array:
        """Return the residuals at one omega, ``(K,)``, of one problem, in units of the rows' noise, ``(N,)``."""
        theta = self.total * self.constraint.unlift(omega)
        residual = self.target - self.predict(theta, self.inputs).reshape(-1)
        if self.scale is not None:
            # A dropped row's prediction may be anything.
            residual = jnp.where(self.scale > 0, residual, 0)
        return rows.whiten(residual, self.scale, self.cholesky)

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sum of squared residuals at one omega, ``(K,)``, of one problem."""
        return 0.5 * jnp.square(self.residual(omega)).sum()

    def half_squares(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws ``(..., K)``, in units of the rows' noise, ``(...)``."""
        shape = jnp.broadcast_shapes(omega.shape[:-1], self.batch_shape)
        count = math.prod(shape)

        def expand(leaf, ndim):
            own, event = leaf.shape[: leaf.ndim - ndim], leaf.shape[leaf.ndim - ndim :]
            return jnp.broadcast_to(leaf, shape + event).reshape(count, *event) if own else leaf

        flat = jnp.broadcast_to(omega, (*shape, omega.shape[-1])).reshape(count, -1)
        return self.map_leaves(expand).vmap(lambda one, omega: one.half_square(omega), flat).reshape(shape)

    @property
    def certified(self) -> bool:
        """Whether the bound of the likelihood is proven: not if an optimiser searches for it."""
        return not self.search

    @property
    def has_envelope(self) -> bool:
        """False if a perfect fit would be infinitely likely, and no positive bound of half-squares is known."""
        if self.search:
            return True
        unbounded = validation.known(self.noise.is_unbounded(self.bound))
        return unbounded is None or not unbounded.any()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ModelTemplate(Template):
    """A model with its inputs and options, for any targets.

    Attributes:
      inputs: second argument of ``predict``, a pytree that all problems share.
      bound: lower bound of half-squares, ``(...)``.
      predict: the model.
      constraint: on theta.
      search: whether the bound is to be raised to the smallest value that an optimiser finds.
    """

    inputs: Any
    bound: jax.Array
    predict: Predict = dataclasses.field(metadata={"static": True})
    constraint: Constraint = dataclasses.field(metadata={"static": True})
    search: bool = dataclasses.field(metadata={"static": True})

    @property
    def input_ndims(self) -> tuple[int, ...]:
        """How many axes each leaf of the inputs has."""
        return tuple(leaf.ndim for leaf in jax.tree.leaves(self.inputs))

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        return [0, 1, *self.rows.event_ndims(), *self.input_ndims, 0]

    def factorised(self) -> Self:
        """Return the template with the covariance factorised, if it doesn't depend on the targets."""
        return dataclasses.replace(self, rows=self.rows.factorised())

    def with_targets(self, target: Any) -> ModelProblem:
        """Return the problem of fitting targets ``(..., *event)``."""
        data = self.rows.of(self.read_target(target))
        return ModelProblem(
            inputs=self.inputs,
            target=data.target,
            scale=data.scale,
            cholesky=data.cholesky,
            bound=self.bound,
            num_rows=data.count,
            log_volume=data.log_volume,
            total=self.total,
            noise=data.noise,
            prior=self.prior,
            predict=self.predict,
            constraint=self.constraint,
            search=self.search,
            input_ndims=self.input_ndims,
        ).made_by(self)


def model_problem(
    predict: Predict,
    inputs: Any,
    target: Any,
    num_params: int,
    *,
    total: Any = 1.0,
    constraint: str | Constraint = "equal",
    noise: Any = "estimate",
    prior: Any = 1.0,
    slack_prior: Any = 1.0,
    weights: Any = None,
    mask: Any = None,
    missing: Missing = "raise",
    bound: Any = 0.0,
    names: Sequence[str] | None = None,
) -> ModelProblem:
    """Return the problem of fitting ``target = predict(theta, inputs)`` under a constraint on theta.

    Args:
      predict: a JAX function of theta, ``(P,)``, and of the inputs, that returns an array: one number per observation,
        or several. It is called inside ``jit`` and ``vmap``; the same function object compiles once, so define it
        outside of loops, and pass what changes as inputs.
      inputs: an array, or any pytree of arrays, or ``None``.
      target: an array of the shape that ``predict`` returns; axes in front of those are a batch of problems with the
        same inputs. (For problems with inputs of their own, ``jax.vmap`` over ``model_problem`` and ``fit``.) If
        ``predict`` returns one axis, a table has one column per target, as for ``linear_problem``.
      num_params: the number P of parameters theta.
      total: as for ``linear_problem``; so are ``constraint``, ``noise``, ``prior``, ``slack_prior``, ``weights``,
        ``mask`` and ``missing``, with ``predict``'s axes for rows.
      constraint: see there.
      noise: see there.
      prior: see there.
      slack_prior: see there.
      weights: see there.
      mask: see there.
      missing: see there.
      bound: for rejection sampling: no theta has a sum of squared residuals (in units of the rows' own noise, if given,
        and weighted) below this number, or one per problem. The larger, the more draws are accepted; 0 is always right.
        ``"search"`` takes the smallest that an optimiser finds from several starts, which may be wrong: the posterior
        then says ``certified=False``.
      names: of the parameters, for tables to print.

    Returns:
      A ``ModelProblem``, a pytree in the dtype of the target.

    Raises:
      ValueError: naming the argument, what is wrong and where.

    >>> def decay(theta, t):
    ...     return theta[0] * jnp.exp(-t) + theta[1] * jnp.exp(-3 * t)
    >>> t = jnp.linspace(0, 2, 20)
    >>> problem = model_problem(decay, t, decay(jnp.array([0.3, 0.7]), t), 2, noise=0.1)
    >>> problem.num_params, problem.batch_shape
    (2, ())
    """
    constraint = constraints.named(constraint)
    validation.require_at_least("num_params", num_params, 1)
    require_components(constraint, num_params, f"num_params={num_params}:", "parameters")
    components = None if names is None else require_names(names, num_params)
    inputs = jax.tree.map(_as_array, inputs)
    is_table = tables.is_table(target)
    target, problems = tables.read_target("target", target, None, None)
    target = validation.float_array("target", target)
    event = _event(predict, inputs, target.dtype, num_params)
    if is_table and len(event) != 1:
        target, problems = jnp.moveaxis(target, -1, 0), None  # its columns are outputs, not targets
    _require_event(event, target)
    batch = target.shape[: target.ndim - len(event)]
    total, prior, batch = read_prior(constraint, num_params, batch, target.dtype, total, prior, slack_prior)
    rules = rows.read(event, batch, target.dtype, noise=noise, weights=weights, mask=mask, missing=missing)
    search = isinstance(bound, str)
    if search:
        validation.require_choice("bound", bound, ("search",))
    smallest = validation.float_array("bound", 0.0 if search else bound, target.dtype)
    validation.require_nonnegative("bound", smallest)
    validation.require_broadcast("bound", smallest.shape, batch)
    template = ModelTemplate(total, prior, rules, inputs, 0.5 * smallest, predict, constraint, search)
    return template.with_targets(target).labelled(Labels(components, problems=problems))


def _as_array(leaf: Any) -> jax.Array:
    try:
        return jnp.asarray(validation.any_array(leaf))
    except TypeError:
        raise ValueError(f"inputs holds {leaf!r}; pass arrays of numbers, and close over what isn't one") from None


def _event(predict: Predict, inputs: Any, dtype: Any, num_params: int) -> tuple[int, ...]:
    """Return the shape of a prediction, or raise ``ValueError`` if there is none of this dtype."""
    if not callable(predict):
        raise ValueError(f"predict is a {type(predict).__name__}; pass a function of theta and inputs")
    theta = jax.ShapeDtypeStruct((num_params,), dtype)
    try:
        found = jax.eval_shape(predict, theta, inputs)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else ""
        raise ValueError(
            f"predict can't be traced by JAX with theta of shape ({num_params},): {type(error).__name__}: {reason}; "
            "it is called as predict(theta, inputs): write it with jax.numpy, and without decisions that depend on "
            "values"
        ) from error
    if not hasattr(found, "dtype"):
        raise ValueError(f"predict returned a {type(found).__name__}; expected one array of the target's shape")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(f"predict returned dtype {found.dtype}; expected real numbers like target's {dtype}")
    if math.prod(found.shape) < 1:
        raise ValueError(f"predict returned shape {found.shape} with no numbers; pass at least one observation")
    return found.shape


def _require_event(event: tuple[int, ...], target: jax.Array) -> None:
    """Raise ``ValueError`` unless the target, or each of a batch, has the shape of a prediction."""
    if target.shape[target.ndim - len(event) :] != event or len(event) > target.ndim:
        raise ValueError(
            f"predict returned shape {event}, but target has shape {target.shape}; expected the target's shape, "
            "or its last axes if target is a batch (it is called as predict(theta, inputs))"
        )
