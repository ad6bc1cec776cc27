"""What is fitted: design, target, noise, constraint and prior, checked and reduced.

The model is ``y = A theta + noise`` with ``theta = C omega`` and ``omega`` on the simplex (the paper's eq. 1, with
equality). N rows matter only through a thin QR factorisation ``A = Q R``, made once: with ``q = Q'y`` and the part
``rho = y - Q q`` of the target that no ``theta`` reaches,

    |y - C A omega|^2 = |q - C R omega|^2 - 2 C omega'(A'rho) + |rho|^2.

``A'rho`` is zero but for rounding, which it corrects. It also carries derivatives: with ``Q`` held constant the right
side has the same first derivatives in ``A`` and ``y`` as the left for designs of any rank, where a derivative
taken through the factorisation would divide by zero. (Second derivatives in ``A`` are not right.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import validation

CONSTRAINTS = ("equal",)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Problem:
    """One linear problem or a batch: a pytree whose leaves have broadcasting leading axes.

    Made by ``linear_problem``; M is ``min(N, K)``. A leaf that all problems share is stored once.

    Attributes:
      factor: R of the design's QR factorisation, ``(..., M, K)``.
      projection: ``Q'y``, ``(..., M)``.
      cross: ``A'rho``, ``(..., K)``.
      rest: ``|rho|^2 / 2``, ``(...)``.
      num_rows: the number of observations, ``(...)``, in the floating dtype.
      log_volume: the sum of the logarithms of the row weights that whitened the design, ``(...)``.
      total: the constant C, ``(...)``.
      noise: the standard deviation of the (whitened) noise, ``(...)``.
      prior: the prior's concentrations, ``(..., K)``.
      constraint: which constraint holds; ``"equal"`` means ``sum(theta) = C``.
    """

    factor: jax.Array
    projection: jax.Array
    cross: jax.Array
    rest: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    total: jax.Array
    noise: jax.Array
    prior: jax.Array
    constraint: str = dataclasses.field(default="equal", metadata={"static": True})

    @property
    def num_components(self) -> int:
        """The number K of components of theta."""
        return self.factor.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``()`` for one problem."""
        pairs = zip(self._leaves(), self._event_ndims(), strict=True)
        return np.broadcast_shapes(*(leaf.shape[: leaf.ndim - ndim] for leaf, ndim in pairs))

    @property
    def dtype(self) -> jnp.dtype:
        """The floating dtype in which the problem is solved."""
        return self.factor.dtype

    def _leaves(self) -> list[jax.Array]:
        return jax.tree.leaves(self)

    def _event_ndims(self) -> list[int]:
        return [2, 1, 1, 0, 0, 0, 0, 0, 1]

    def flatten_batch(self) -> Problem:
        """Return the problem with its batch as one leading axis, which leaves that all problems share don't have.

        Where there is nothing to share, because there is one problem, every leaf has the axis.
        """
        batch = self.batch_shape
        count = math.prod(batch)

        def flatten(leaf, ndim):
            own, event = leaf.shape[: leaf.ndim - ndim], leaf.shape[leaf.ndim - ndim :]
            if count != 1 and all(size == 1 for size in own):
                return leaf.reshape(event)
            return jnp.broadcast_to(leaf, batch + event).reshape(count, *event)

        return self.map_leaves(flatten)

    def vmap(self, function: Callable[..., Any], *arrays: jax.Array) -> Any:
        """Apply a function of one problem, and of arrays' rows, to each problem of a flattened batch."""
        axes = self.map_leaves(lambda leaf, ndim: 0 if leaf.ndim > ndim else None)
        return jax.vmap(function, in_axes=(axes, *(0 for _ in arrays)))(self, *arrays)

    def map_leaves(self, function: Callable[[jax.Array, int], Any]) -> Problem:
        """Apply a function of a leaf, and of the number of its axes that are not the batch's, to every leaf."""
        leaves = [function(leaf, ndim) for leaf, ndim in zip(self._leaves(), self._event_ndims(), strict=True)]
        return jax.tree.unflatten(jax.tree.structure(self), leaves)

    def is_valid(self) -> jax.Array:
        """Return, per problem, whether every number is finite and in its domain; usable inside a trace."""
        positive = (self.total > 0) & (self.noise > 0) & (self.prior > 0).all(-1)
        finite = jnp.bool_(True)
        for leaf, ndim in zip(self._leaves(), self._event_ndims(), strict=True):
            finite = finite & jnp.isfinite(leaf).all(tuple(range(leaf.ndim - ndim, leaf.ndim)))
        return jnp.broadcast_to(positive & finite, self.batch_shape)


def linear_problem(
    design: Any,
    target: Any,
    *,
    total: Any = 1.0,
    constraint: str = "equal",
    noise: Any = 1.0,
    prior: Any = 1.0,
    weights: Any = None,
) -> Problem:
    """Return the problem of fitting ``target = design @ theta`` with ``theta >= 0`` and ``sum(theta) = total``.

    Leading axes are a batch and broadcast, as in ``jnp.linalg``: a design ``(N, K)`` with a target ``(P, N)`` is P
    problems that share one design, which is stored and factorised once.

    Args:
      design: ``(..., N, K)``, one column per component of theta; K at least 2.
      target: ``(..., N)``.
      total: the sum of theta: a number, or one per problem.
      constraint: ``"equal"``.
      noise: standard deviation of the noise: a number, one per problem (the batch's shape), or one per row (ending in
        an axis of length N). A 1-D array that could be either is refused.
      prior: concentrations of the Dirichlet prior on ``theta / total``: a number, one per component (ending in an axis
        of length K), or one per problem (the batch's shape, where that doesn't end in K).
      weights: not supported yet; ``None``.

    Returns:
      A ``Problem``, a pytree in the dtype of design and target.

    Raises:
      ValueError: naming the argument, what is wrong and where.

    >>> import jax.numpy as jnp
    >>> x = jnp.linspace(0, 1, 100)
    >>> problem = linear_problem(jnp.stack([x**0, x, x**2], axis=-1), 0.2 + 0.8 * x**2)
    >>> problem.num_components, problem.batch_shape, problem.factor.shape
    (3, (), (3, 3))
    """
    validation.require_choice("constraint", constraint, CONSTRAINTS)
    if weights is not None:
        raise ValueError(
            f"weights={weights!r} is not supported; pass weights=None, or one noise level per row as noise"
        )
    if isinstance(noise, str):
        raise ValueError(f"noise={noise!r} is not supported; pass a positive number or array")
    design, target = _design_and_target(design, target)
    dtype, (num_rows, num_components) = design.dtype, design.shape[-2:]
    batch = _broadcast("target", target.shape[:-1], "design", design.shape[:-2])

    total = validation.float_array("total", total, dtype)
    noise = validation.float_array("noise", noise, dtype)
    prior = validation.float_array("prior", prior, dtype)
    for name, value in (("total", total), ("noise", noise), ("prior", prior)):
        validation.require_positive(name, value)
    batch = _broadcast("total", total.shape, "the problems", batch)
    prior = _per_component(prior, batch, num_components)
    noise, row_noise = _per_problem_or_row(noise, batch, num_rows)

    factor, projection, cross, rest, log_volume = _reduce(design, target, row_noise)
    return Problem(
        factor=factor,
        projection=projection,
        cross=cross,
        rest=rest,
        num_rows=jnp.asarray(num_rows, dtype),
        log_volume=log_volume,
        total=total,
        noise=noise,
        prior=prior,
        constraint=constraint,
    )


def map_blocks(
    function: Callable[..., Any], problem: Problem, block: int | None = None, arrays: tuple[jax.Array, ...] = ()
) -> Any:
    """Apply a function of a flattened batch to a batch of any shape, some problems at a time.

    Args:
      function: takes a flattened batch of B problems (see ``Problem.flatten_batch``), and rows of the arrays, and
        returns a pytree of arrays whose leading axis is B.
      problem: one problem or a batch of any shape, which may be empty.
      block: at most this many problems are computed at a time, to bound the memory; ``None`` for all.
      arrays: others that belong to the problems, with the batch's axes in front.

    Returns:
      The function's pytree, each leaf with the problem's batch axes leading.
    """
    batch = problem.batch_shape
    flat = problem.flatten_batch()
    count = math.prod(batch)
    rows = [array.reshape(count, *array.shape[len(batch) :]) for array in arrays]
    if count == 0:
        shapes = jax.eval_shape(function, _resize(flat, 1), *(_extend(array, 1) for array in rows))
        results = jax.tree.map(lambda shape: jnp.zeros((0, *shape.shape[1:]), shape.dtype), shapes)
    elif block is None or count <= block:
        results = function(flat, *rows)
    else:
        num_blocks = -(-count // block)
        size = -(-count // num_blocks)

        def stack(array):
            return array.reshape(num_blocks, size, *array.shape[1:])

        stacked = _resize(flat, num_blocks * size).map_leaves(
            lambda leaf, ndim: stack(leaf) if leaf.ndim > ndim else leaf
        )
        rows = [stack(_extend(array, num_blocks * size)) for array in rows]
        results = _map_leading_axis(function, stacked, rows)
        results = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], results)
    return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), results)


def _resize(flat: Problem, count: int) -> Problem:
    """Repeat the first problems of a flattened batch, or ones for an empty batch, up to a count."""
    return flat.map_leaves(lambda leaf, ndim: leaf if leaf.ndim == ndim else _extend(leaf, count))


def _extend(array: jax.Array, count: int) -> jax.Array:
    """Repeat the first rows of an array, or ones where there are none, up to a count."""
    missing = count - array.shape[0]
    if not missing:
        return array
    filler = array[:missing] if array.shape[0] else jnp.ones((missing, *array.shape[1:]), array.dtype)
    return jnp.concatenate([array, filler])


def _map_leading_axis(function: Callable[..., Any], stacked: Problem, rows: list[jax.Array]) -> Any:
    """Apply a function to the blocks of a problem, and of arrays, whose batched leaves have one more leading axis."""
    is_stacked = [leaf.ndim > ndim for leaf, ndim in zip(stacked._leaves(), stacked._event_ndims(), strict=True)]
    leaves, structure = jax.tree.flatten(stacked)

    def one_block(parts):
        fresh, block_rows = iter(parts[0]), parts[1]
        problem = jax.tree.unflatten(
            structure, [next(fresh) if own else leaf for leaf, own in zip(leaves, is_stacked, strict=True)]
        )
        return function(problem, *block_rows)

    return lax.map(one_block, ([leaf for leaf, own in zip(leaves, is_stacked, strict=True) if own], rows))


def _design_and_target(design: Any, target: Any) -> tuple[jax.Array, jax.Array]:
    design, target = validation.float_array("design", design), validation.float_array("target", target)
    if design.ndim < 2:
        raise ValueError(
            f"design has shape {design.shape}; it needs two axes, (rows, components), after any batch axes"
        )
    if target.ndim < 1:
        raise ValueError("target is a single number; it needs an axis of rows")
    num_rows, num_components = design.shape[-2:]
    if num_rows < 1:
        raise ValueError(f"design has shape {design.shape} with no rows; pass at least one observation")
    if num_components < 2:
        raise ValueError(
            f"design has K={num_components} component; pass at least 2 columns, as one alone is theta = total"
        )
    if target.shape[-1] != num_rows:
        raise ValueError(
            f"target has shape {target.shape} but design has {num_rows} rows; the last axis of target must match"
        )
    dtype = jnp.result_type(design, target)
    validation.require_finite("design", design, "remove or replace that entry")
    validation.require_finite("target", target, "remove or replace that row")
    return design.astype(dtype), target.astype(dtype)


def _broadcast(name: str, shape: tuple[int, ...], other: str, other_shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, other_shape)
    except ValueError:
        message = f"the batch axes {shape} of {name} don't broadcast with those of {other}, {other_shape}"
        raise ValueError(f"{message}; make them equal, or of length 1") from None


def _per_component(prior: jax.Array, batch: tuple[int, ...], num_components: int) -> jax.Array:
    if prior.ndim and prior.shape == batch and prior.shape[-1] != num_components:
        prior = prior[..., None]
    try:
        np.broadcast_shapes(prior.shape, (*batch, num_components))
        return jnp.broadcast_to(prior, (*prior.shape[:-1], num_components))
    except ValueError:
        raise ValueError(
            f"prior has shape {prior.shape}; pass a number, {num_components} concentrations, "
            f"or an array of the batch's shape {batch}"
        ) from None


def _per_problem_or_row(noise: jax.Array, batch: tuple[int, ...], num_rows: int) -> tuple[jax.Array, jax.Array | None]:
    """Tell one noise level per problem, returned first, from one per row, returned second."""
    if noise.ndim == 0:
        return noise, None
    per_problem, per_row = noise.shape == batch, noise.shape[-1] == num_rows and noise.ndim <= len(batch) + 1
    if per_problem and per_row:
        raise ValueError(
            f"noise of shape {noise.shape} could be one per problem or one per row; "
            "pass noise[..., None] for problems or noise[..., None, :] for rows"
        )
    if per_problem:
        return noise, None
    if noise.shape[-1] == 1 and num_rows != 1:
        _broadcast("noise", noise.shape[:-1], "the problems", batch)
        return noise[..., 0], None
    if per_row:
        _broadcast("noise", noise.shape[:-1], "the problems", batch)
        return jnp.ones((), noise.dtype), noise
    raise ValueError(
        f"noise has shape {noise.shape}; pass a number, the shape {batch} of the batch, or {num_rows} rows"
    )


@jax.jit
def _reduce(design: jax.Array, target: jax.Array, row_noise: jax.Array | None) -> tuple[jax.Array, ...]:
    log_volume = jnp.zeros((), design.dtype)
    if row_noise is not None:
        design, target = design / row_noise[..., None], target / row_noise
        log_volume = -jnp.log(row_noise).sum(-1)
    exact = lax.Precision.HIGHEST
    basis = lax.stop_gradient(jnp.linalg.qr(lax.stop_gradient(design))[0])
    factor = jnp.einsum("...nm,...nk->...mk", basis, design, precision=exact)
    projection = jnp.einsum("...nm,...n->...m", basis, target, precision=exact)
    outside = target - jnp.einsum("...nm,...m->...n", basis, projection, precision=exact)
    cross = jnp.einsum("...nk,...n->...k", design, outside, precision=exact)
    return factor, projection, cross, 0.5 * jnp.square(outside).sum(-1), log_volume
