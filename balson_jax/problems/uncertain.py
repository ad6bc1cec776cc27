"""Linear problems whose design has errors: ``y = (A + E) theta + noise``, with E random.

Each column of A has an error of its own, independent of the others', with covariance S_k. Integrated over these errors
the likelihood is that of

    y ~ N(A theta, s^2 + V(theta)),    V(theta) = sum_k theta_k^2 S_k,

whose covariance depends on theta, and with it the determinant. It is evaluated exactly for every draw. S_k is a
diagonal plus a few directions. With a diagonal a draw costs as much as N rows. Without one the rows are reduced to the
number of columns and directions, and a draw costs as much as these.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from .. import validation
from . import level_integral, reduction, rows
from .base import Problem, Template
from .constraints import Constraint
from .level_integral import Levels
from .noise import Noise
from .uncertain_design import UncertainDesign

EXACT = lax.Precision.HIGHEST


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UncertainProblem(Problem):
    """A problem, or a batch, with an uncertain design; made by ``linear_problem``.

    It has n rows in whitened units: those of the data if entries vary on their own, else one for each dimension that
    columns and directions span. The fields that all problems have are described in ``Problem``.

    Attributes:
      design: ``(..., n, P)``.
      target: ``(..., n)``.
      rest: half the squares of the target outside these rows, ``(...)``.
      added: variance that the errors of the design add to a row at equal shares, on average, ``(...)``.
      std: of entries, ``(..., n, P)``, or ``None``.
      directions: in which columns vary, ``(..., n, P, F)``, or ``None``.
    """

    design: jax.Array
    target: jax.Array
    rest: jax.Array
    added: jax.Array
    num_rows: jax.Array
    log_volume: jax.Array
    total: jax.Array
    noise: Noise
    prior: jax.Array
    std: jax.Array | None
    directions: jax.Array | None
    constraint: Constraint = dataclasses.field(metadata={"static": True})

    is_linear = True

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        spread = [ndim for array, ndim in ((self.std, 2), (self.directions, 3)) if array is not None]
        return [2, 1, 0, 0, 0, 0, 0, *(0 for _ in jax.tree.leaves(self.noise)), 1, *spread]

    @property
    def certified(self) -> bool:
        """False: the largest likelihood is the largest that was found."""
        return False

    def half_squares(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws ``(..., K)``, in units of the rows' noise, ``(...)``."""
        return self._of_draws(lambda one, omega: one.half_square(omega), omega)

    def log_likelihood(self, omega: jax.Array) -> jax.Array:
        """Return the log-likelihood of draws ``(..., K)``, ``(...)``."""
        return self._of_draws(lambda one, omega: one.levels(omega).log_integral, omega)

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sum of squared residuals at one omega, ``(K,)``, of one problem."""
        return 0.5 * jnp.square(self._residual(self._theta(omega))).sum() + self.rest

    def levels(self, omega: jax.Array) -> Levels:
        """Return the log-likelihood at one omega, ``(K,)``, of one problem, and the posterior of the variance.

        The mean of the variance given omega is ``variances @ shares``. A known one has a single point.
        """
        theta = self._theta(omega)
        residual, own, directions = self._residual(theta), self._own(theta), self._moved(theta)
        prior = self.noise.variance_prior()
        if prior is None:
            variance = jnp.square(self.noise.likeliest_level(self.num_rows, self.rest))
            value = self._given(variance, residual, own, directions)
            return Levels(value, variance[None], jnp.ones_like(variance)[None])

        def log_density(variance):
            return prior.log_density(variance, self.added) + self._given(variance, residual, own, directions)

        half_square = 0.5 * jnp.square(residual).sum() + self.rest
        most = jnp.asarray(own).max() + (0 if directions is None else jnp.square(directions).sum(-1).max())
        return level_integral.over_variance(log_density, *prior.plausible(self.num_rows, half_square, most))

    def whitened(self, omega: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return design and target, of one problem, in units in which the covariance at omega is one."""
        theta = self._theta(omega)
        own, directions = self._own(theta), self._moved(theta)
        sides = jnp.concatenate([self.design, self.target[:, None]], -1)
        if directions is None:
            sides = sides * lax.rsqrt(variance + own)[:, None]
        else:
            lower = jnp.linalg.cholesky(_covariance(variance + own, directions))
            sides = solve_triangular(lower, sides, lower=True)
        return sides[:, :-1], sides[:, -1]

    def log_determinant_root(self, omega: jax.Array, variance: jax.Array) -> jax.Array:
        """Return rows, ``(n, P)``, whose squares are the information in the determinant; of entries' errors only.

        The information of ``ln |D| / 2`` about theta is ``tr(D^-1 D_j D^-1 D_k) / 2``, with D diagonal and D_j its
        derivative, ``2 theta_j std_j^2``.
        """
        if self.std is None:
            return jnp.zeros((0, self.design.shape[-1]), self.design.dtype)
        theta = self._theta(omega)
        return np.sqrt(2) * theta * jnp.square(self.std) / (variance + self._own(theta))[:, None]

    def _of_draws(self, function: Any, omega: jax.Array) -> jax.Array:
        shape = jnp.broadcast_shapes(omega.shape[:-1], self.batch_shape)
        expanded = self.map_leaves(lambda leaf, ndim: jnp.broadcast_to(leaf, (*shape, *leaf.shape[leaf.ndim - ndim :])))
        flat = expanded.flatten_batch()
        draws = jnp.broadcast_to(omega, (*shape, omega.shape[-1])).reshape(-1, omega.shape[-1])
        return flat.vmap(function, draws).reshape(shape)

    def _theta(self, omega: jax.Array) -> jax.Array:
        return self.total * self.constraint.unlift(omega)

    def _residual(self, theta: jax.Array) -> jax.Array:
        return self.target - jnp.matmul(self.design, theta, precision=EXACT)

    def _own(self, theta: jax.Array) -> jax.Array:
        """Return the variances that errors of entries add to the rows, ``(n,)``."""
        if self.std is None:
            return jnp.zeros_like(self.target)
        return jnp.matmul(jnp.square(self.std), jnp.square(theta), precision=EXACT)

    def _moved(self, theta: jax.Array) -> jax.Array | None:
        """Return the directions times theta, ``(n, P F)``."""
        if self.directions is None:
            return None
        moved = self.directions * theta[:, None]
        return moved.reshape(len(moved), -1)

    def _given(
        self, variance: jax.Array, residual: jax.Array, own: jax.Array, directions: jax.Array | None
    ) -> jax.Array:
        """Return the log-likelihood given the variance of the noise.

        By Woodbury's formula. The quadratic form is the least of ``|D^-1/2 (r - U x)|^2 + |x|^2``, which has no
        differences of large numbers.
        """
        count, diagonal = residual.shape[0], variance + own
        # Rows that were dropped, or reduced away, see the plain noise alone.
        log_size = jnp.log(diagonal).sum() + (self.num_rows - count) * jnp.log(variance)
        if directions is None:
            square = (jnp.square(residual) / diagonal).sum()
        elif directions.shape[1] >= count:
            lower = jnp.linalg.cholesky(_covariance(diagonal, directions))
            square = jnp.square(solve_triangular(lower, residual, lower=True)).sum()
            log_size = log_size + _log_determinant(lower) - jnp.log(diagonal).sum()
        else:
            scaled, seen = directions / jnp.sqrt(diagonal)[:, None], residual / jnp.sqrt(diagonal)
            matrix = _covariance(jnp.ones_like(scaled[0]), scaled.T)
            lower = jnp.linalg.cholesky(matrix)
            x = cho_solve((lower, True), jnp.matmul(seen, scaled, precision=EXACT))
            left = seen - jnp.matmul(scaled, x, precision=EXACT)
            square = jnp.square(left).sum() + jnp.square(x).sum()
            log_size = log_size + _log_determinant(lower)
        constant = self.log_volume - 0.5 * np.log(2 * np.pi) * self.num_rows
        return constant - 0.5 * (log_size + square + 2 * self.rest / variance)


def _covariance(diagonal: jax.Array, directions: jax.Array) -> jax.Array:
    return jnp.diag(diagonal) + jnp.matmul(directions, directions.T, precision=EXACT)


def _log_determinant(lower: jax.Array) -> jax.Array:
    return 2 * jnp.log(jnp.diagonal(lower)).sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UncertainTemplate(Template):
    """An uncertain design with its options, for any targets.

    Attributes:
      design: ``(..., N, P)``, rows flattened.
      std: of entries, ``(..., N, P)``, or ``None``.
      directions: ``(..., N, P, F)``, or ``None``.
      constraint: on theta.
    """

    design: jax.Array
    std: jax.Array | None
    directions: jax.Array | None
    constraint: Constraint = dataclasses.field(metadata={"static": True})

    def event_ndims(self) -> list[int]:
        """Return, for each leaf, how many of its last axes belong to one problem."""
        spread = [ndim for array, ndim in ((self.std, 2), (self.directions, 3)) if array is not None]
        return [0, 1, *self.rows.event_ndims(), 2, *spread]

    def factorised(self) -> Self:
        """Return the template with the covariance factorised, if it doesn't depend on the targets."""
        return dataclasses.replace(self, rows=self.rows.factorised())

    def with_targets(self, target: Any) -> UncertainProblem:
        """Return the problem of fitting targets ``(..., *event)``."""
        data = self.rows.of(self.read_target(target))
        parts = _reduced if self.std is None else _whitened
        design, own, rest, std, directions = parts(self, data)
        num_params = self.design.shape[-1]
        spread = jnp.zeros((), self.design.dtype)
        for part, ndim in ((std, 2), (directions, 3)):
            if part is not None:
                spread = spread + jnp.square(part).sum(tuple(range(-ndim, 0)))
        added = jnp.square(self.total / num_params) * spread / jnp.maximum(data.count, 1)
        return UncertainProblem(
            design=design,
            target=own,
            rest=rest,
            added=added,
            num_rows=data.count,
            log_volume=data.log_volume,
            total=self.total,
            noise=data.noise,
            prior=self.prior,
            std=std,
            directions=directions,
            constraint=self.constraint,
        ).made_by(self)


def _reduced(template: UncertainTemplate, data: rows.Rows) -> tuple[Any, ...]:
    """Return design, target, rest and directions of the rows that columns and directions span."""
    design, directions = template.design, template.directions
    assert directions is not None
    num_params, count = design.shape[-1], directions.shape[-1]
    batch = np.broadcast_shapes(design.shape[:-2], directions.shape[:-3])
    flat = directions.reshape(*directions.shape[:-2], num_params * count)
    both = [jnp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (design, flat)]
    factor, projection, _, rest = reduction.reduce(jnp.concatenate(both, -1), data.target, data.scale, data.cholesky)
    moved = factor[..., num_params:]
    return factor[..., :num_params], projection, rest, None, moved.reshape(*moved.shape[:-1], num_params, count)


def _whitened(template: UncertainTemplate, data: rows.Rows) -> tuple[Any, ...]:
    """Return design, target and errors of all rows, in whitened units."""
    design, std, directions = template.design, template.std, template.directions
    assert std is not None
    zero = jnp.zeros((), data.target.dtype)
    if data.scale is None:
        return design, data.target, zero, std, directions
    scale = data.scale[..., None]
    moved = None if directions is None else directions * scale[..., None]
    return design * scale, data.target * data.scale, zero, std * scale, moved


def uncertain_template(
    uncertain: UncertainDesign, plain: Any, event: tuple[int, ...], batch: tuple[int, ...]
) -> UncertainTemplate | None:
    """Return the template with the errors of a design; ``None`` if there are none, so that the plain one serves.

    Args:
      uncertain: the design.
      plain: the ``LinearTemplate`` of its mean.
      event: the shape of one problem's target.
      batch: the shape of the batch.
    """
    std, directions = uncertain.errors(plain.design, event, batch)
    known = [validation.known(part) for part in (std, directions) if part is not None]
    if all(part is not None and not part.any() for part in known):
        return None
    if std is not None and (plain.rows.covariance is not None or plain.rows.cholesky is not None):
        raise ValueError("std: entries that vary on their own don't go with correlated noise; pass factors instead")
    noise = plain.rows.noise
    if not noise.has_fixed_level and noise.variance_prior() is None:
        raise ValueError(f"noise={noise!r}: an UncertainDesign needs a known level, or an InverseGamma")
    return UncertainTemplate(plain.total, plain.prior, plain.rows, plain.design, std, directions, plain.constraint)
