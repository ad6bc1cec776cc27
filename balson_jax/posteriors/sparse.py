"""A sparse point estimate: the fewest components that predict what the posterior mean predicts, up to its spread.

The mean is dense, and the sparse mode of a Dirichlet describes a correlated posterior poorly. So the posterior is
summarised by a decision instead (Hahn and Carvalho 2015): with R the root of the likelihood, a sparse ``theta_S``
may stand for the posterior if it changes the prediction by no more than a draw of the posterior does,

    |R (theta_S - mean)|^2  <=  tolerance E |R (theta - mean)|^2,

and the set S is as small as we find. It begins with as many of the largest components as are needed, and loses one at a
time, as long as the rest, refitted under the constraint, satisfies this. The noise level cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..problems.linear import LinearProblem, linear_problem
from ..targets.optimum import simplex_optima

if TYPE_CHECKING:
    from .posterior import Posterior

MAX_SUPPORT = 64
"""The largest number of components in a sparse estimate; more are not sparse, and the mean is returned."""

ABSENT = 1e-6
"""Smaller shares than this are rounding errors of a refit."""

BLOCK_ELEMENTS = 1 << 22
"""Problems are refitted together as long as their matrices hold no more numbers than this."""


class _Fits(NamedTuple):
    """B refits: weights of the columns, ``(B, P)``, and squared changes of the prediction, ``(B,)``."""

    theta: np.ndarray
    loss: np.ndarray


def sparsest(posterior: Posterior, problem: LinearProblem, tolerance: float) -> np.ndarray:
    """Return sparse estimates of a posterior's problems, ``(..., P)``; the mean where none is sparse enough.

    Problems without an answer keep their mean, which is NaN.
    """
    num_params, batch = posterior.num_params, posterior.batch_shape
    mean, draws, weights, total = (
        np.asarray(jnp.broadcast_to(leaf, batch + leaf.shape[len(batch) :])).reshape(-1, *leaf.shape[len(batch) :])
        for leaf in (posterior.mean, posterior.draws, posterior.draw_weights, posterior.total)
    )
    # The first columns are those of theta, whatever more the constraint adds.
    columns = np.asarray(problem.factor)[..., :num_params]
    columns = np.broadcast_to(columns, (*batch, *columns.shape[-2:])).reshape(len(mean), *columns.shape[-2:])
    found, answered = np.array(mean), np.flatnonzero(np.isfinite(mean).all(-1))
    size = max(1, BLOCK_ELEMENTS // max(columns.shape[1] * num_params * min(num_params, MAX_SUPPORT), 1))
    for first in range(0, len(answered), size):
        own = answered[first : first + size]
        signs = np.where(mean[own] < 0, -1, 1).astype(mean.dtype)
        may_be_less = bool(posterior.constraint.sum_may_be_less)
        search = _Search(columns[own] * signs[:, None], np.abs(mean[own]), total[own], may_be_less)
        spread = _spread(columns[own], draws[own] - mean[own, None], weights[own])
        found[own] = signs * search.smallest(tolerance * spread)
    return found.reshape(posterior.mean.shape)


@jax.jit
def _spread(columns: jax.Array, away: jax.Array, weights: jax.Array) -> jax.Array:
    """Return mean squared changes of the prediction by draws, ``(B,)``."""
    change = jnp.einsum("bmp,bdp->bdm", columns, away, precision=lax.Precision.HIGHEST)
    return jnp.einsum("bd,bdm->b", weights, jnp.square(change), precision=lax.Precision.HIGHEST)


class _Search:
    """Search for small sets of components.

    Attributes:
      columns: of the reduced design, with signs such that the mean is nonnegative, ``(B, M, P)``.
      mean: the posterior mean, nonnegative, ``(B, P)``.
      total: ``(B,)``.
      may_be_less: whether the sum may be below the total.
    """

    def __init__(self, columns: np.ndarray, mean: np.ndarray, total: np.ndarray, may_be_less: bool) -> None:
        self.columns, self.mean, self.total, self.may_be_less = columns, mean, total, may_be_less
        self.goal = np.einsum("bmp,bp->bm", columns, mean)
        self.width = min(mean.shape[-1], MAX_SUPPORT)

    def smallest(self, allowed: np.ndarray) -> np.ndarray:
        """Return weights of small sets of columns that change the prediction by no more than allowed, ``(B, P)``."""
        order = np.argsort(-self.mean, axis=-1, kind="stable")
        rank = np.argsort(order, axis=-1, kind="stable")
        nested = rank[:, None] < np.arange(1, self.width + 1)[:, None]  # (B, width, P)
        fits = self._refit(nested)
        enough = np.less_equal(fits.loss, allowed[:, None])
        first = enough.argmax(-1)
        best = fits.theta[np.arange(len(first)), first]
        chosen = best > 0
        serves = np.asarray(enough[np.arange(len(first)), first])
        active = serves
        while active.any():
            fits = self._refit(self._without_one(chosen))
            least = fits.loss.argmin(-1)
            rows = np.arange(len(least))
            active = np.logical_and(active, fits.loss[rows, least] <= allowed)
            best = np.where(active[:, None], fits.theta[rows, least], best)
            chosen = np.where(active[:, None], best > 0, chosen)
            active = np.logical_and(active, chosen.sum(-1) > 1)
        return np.where(serves[:, None], best, self.mean)

    def _without_one(self, chosen: np.ndarray) -> np.ndarray:
        """Return the sets that lack one of the chosen components each, ``(B, width, P)``; empty ones for the rest."""
        order = np.argsort(~chosen, axis=-1, kind="stable")[:, : self.width]
        left_out = order[..., None] == np.arange(chosen.shape[-1])
        smaller = chosen[:, None] & ~left_out
        return smaller & np.take_along_axis(chosen, order, -1)[..., None]

    def _refit(self, sets: np.ndarray) -> _Fits:
        """Return constrained least-squares fits to the goals by sets of columns, ``(B, n, P)``; infinite loss if empty.

        A column outside the set becomes a copy of one inside: its weight then counts for that one.
        """
        one = sets.argmax(-1)
        stand_in = np.take_along_axis(self.columns[:, None], one[..., None, None], -1)
        columns = np.where(sets[:, :, None], self.columns[:, None], stand_in)
        if self.may_be_less:
            columns = np.concatenate([columns, np.zeros_like(columns[..., :1])], -1)
        problem = linear_problem(columns, self.goal[:, None], total=self.total[:, None], noise=1.0)
        theta = np.asarray(simplex_optima(problem))[..., : sets.shape[-1]] * self.total[:, None, None]
        outside = np.where(sets, 0, theta).sum(-1)
        theta = np.where(sets, theta, 0)
        np.put_along_axis(theta, one[..., None], np.take_along_axis(theta, one[..., None], -1) + outside[..., None], -1)
        # Components of the size of rounding errors are absent.
        theta = np.where(theta > ABSENT * self.total[:, None, None], theta, 0)
        if not self.may_be_less:
            theta = theta * (self.total[:, None] / np.maximum(theta.sum(-1), ABSENT))[..., None]
        change = np.einsum("bmp,bnp->bnm", self.columns, theta - self.mean[:, None])
        return _Fits(theta, np.where(sets.any(-1), np.square(change).sum(-1), np.inf))
