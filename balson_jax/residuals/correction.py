"""A correction of the design that all problems share: ``y_p = (A + D) theta_p + e_p``.

Errors that differ between problems belong to the covariance (see ``covariance``). An error D that all problems share
biases all thetas alike, and no covariance of independent problems describes it. Here each column is off by a factor
that changes slowly along the rows, ``D_k = a_k * sum_j c_kj f_j`` with ``f_j`` cosines and independent normal ``c_kj``,
whose variances are those of a sum of smooth kernels with weights.

Given draws of the thetas, c has a Gaussian posterior (ridge regression of residuals on theta). Inside the span of the
design theta can follow D, and a free D would drift there. Two things forbid it. The weights, and so the size of D, are
learned only from the part of the data that no theta reaches. And inside the span D moves only as far as the simplex,
the prior of theta and this size of D allow.

The information about c is that of known thetas less what their uncertainty takes away, the covariance of the score
(Louis 1982).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from . import covariance as covariances

LENGTHS = (0.06, 0.1, 0.17, 0.3, 0.6)
"""Lengths over which the factor of a column is alike, as shares of the range of the rows' coordinates."""

FREQUENCIES = 10
"""Cosines per column: half a period of the fastest is a tenth of the range."""

MOST_COEFFICIENTS = 640
"""Fewer cosines are taken if there would be more coefficients than this."""

STEPS = 40
LEAST_VARIANCE = 1e-14
FIRST_WEIGHT = 1e-4

MISSING = 0.5
"""A step subtracts this share of the information that uncertain thetas take away. With 0 steps are slow; with 1 they
may overshoot."""


class Seen(NamedTuple):
    """Draws of theta, and the data they belong to, all in units of the rows' weights.

    Attributes:
      targets: ``(B, N)``.
      draws: of theta, ``(L, B, P)``.
      weights: one over the variance of each problem, ``(B,)``.
    """

    targets: np.ndarray
    draws: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Correction:
    """The error of a design.

    Attributes:
      design: the design as it was given, ``(N, P)``.
      cosines: along the rows, ``(N, J)``.
      shapes: variances of the coefficients for weights of one, ``(J, W)``; the first is of a constant factor.
      basis: orthonormal, ``(N, n)``, of what no theta reaches.
      coefficients: ``(P, J)``.
      added: covariance of the data that the uncertainty of the coefficients adds, ``(N, N)``, at average thetas.
      evidence: by how many nats the data that no theta reaches prefer a correction of this size to none.
    """

    design: np.ndarray
    cosines: np.ndarray
    shapes: np.ndarray
    basis: np.ndarray
    coefficients: np.ndarray
    added: np.ndarray
    evidence: float = -np.inf

    @property
    def corrected(self) -> np.ndarray:
        """The design with the correction, ``(N, P)``."""
        return self.design * (1 + self.cosines @ self.coefficients.T)

    def updated(self, seen: Seen, covariance: np.ndarray) -> Correction:
        """Return the correction after a step towards the likeliest, and what its uncertainty adds.

        Args:
          seen: draws of theta under the current correction.
          covariance: of the rows, for a problem of weight one, ``(N, N)``.
        """
        moment = np.einsum("b,lbp,lbq->pq", seen.weights, seen.draws, seen.draws, optimize=True) / len(seen.draws)
        variances, evidence = self._variances(seen, covariance, moment)
        root = np.sqrt(variances)
        precision = np.linalg.inv(covariance)
        known = root[:, None] * self._information(moment, precision) * root
        scores = self._scores(seen, precision) * root
        means = scores.mean(0)
        away = (scores - means).reshape(-1, known.shape[0])
        lost = away.T @ away / max(len(scores) - 1, 1)
        current = self.coefficients.ravel()
        gradient = means.sum(0) - current / root
        step = root * (_inverse(known - MISSING * lost) @ gradient)
        spread = root[:, None] * _inverse(known - lost) * root
        new = dataclasses.replace(self, coefficients=(current + step).reshape(self.coefficients.shape))
        return dataclasses.replace(new, added=self._added(spread, moment) / len(seen.weights), evidence=evidence)

    def _variances(self, seen: Seen, covariance: np.ndarray, moment: np.ndarray) -> tuple[np.ndarray, float]:
        """Return variances of the coefficients, from data outside the span, ``(P J,)``, and their evidence."""
        inside = self.basis.T @ covariance @ self.basis
        precision = self.basis @ np.linalg.solve(inside, self.basis.T)
        means = seen.draws.mean(0)
        cross = (seen.weights[:, None] * seen.targets).T @ means - self.design @ moment
        right = np.einsum("np,nj->pj", self.design * (precision @ cross), self.cosines).ravel()
        matrix = self._information(moment, precision)
        shapes = np.tile(self.shapes, (self.design.shape[1], 1))
        weights = np.full(shapes.shape[1], FIRST_WEIGHT)
        for _ in range(STEPS):
            variances = np.maximum(shapes @ weights, LEAST_VARIANCE)
            spread = np.linalg.inv(matrix + np.diag(1 / variances))
            found = np.square((spread @ right) / variances)
            expected = (1 - np.diagonal(spread) / variances) / variances
            weights = weights * np.sqrt((shapes.T @ found) / np.maximum(shapes.T @ expected, np.finfo(float).tiny))
        variances = np.maximum(shapes @ weights, LEAST_VARIANCE)
        root = np.sqrt(variances)
        scaled = np.eye(len(root)) + root[:, None] * matrix * root
        evidence = 0.5 * (root * right) @ np.linalg.solve(scaled, root * right) - 0.5 * np.linalg.slogdet(scaled)[1]
        return variances, float(evidence)

    def _information(self, moment: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the information about the coefficients if thetas are known, ``(P J, P J)``."""
        moved = self.design.T[:, :, None] * self.cosines
        flat = np.einsum("pni,nm,qmj->piqj", moved, precision, moved, optimize=True)
        return (flat * moment[:, None, :, None]).reshape(self.coefficients.size, self.coefficients.size)

    def _scores(self, seen: Seen, precision: np.ndarray) -> np.ndarray:
        """Return gradients of each problem's log-likelihood by the coefficients, ``(L, B, P J)``."""
        left = (seen.targets - seen.draws @ self.corrected.T) @ precision * seen.weights[:, None]
        moved = self.design.T[:, :, None] * self.cosines
        scores = np.einsum("lbn,pnj->lbpj", left, moved, optimize=True) * seen.draws[..., None]
        return scores.reshape(*scores.shape[:2], -1)

    def _added(self, spread: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """Return the covariance that a spread of the coefficients adds to the data of all problems, ``(N, N)``."""
        num_params, count = self.coefficients.shape
        blocks = spread.reshape(num_params, count, num_params, count) * moment[:, None, :, None]
        moved = self.design.T[:, :, None] * self.cosines
        return np.einsum("pni,piqj,qmj->nm", moved, blocks, moved, optimize=True)


def none_yet(design: np.ndarray, basis: np.ndarray, coordinates: np.ndarray) -> Correction | None:
    """Return a correction of zero to start from; ``None`` if nothing could be learned about one.

    Args:
      design: ``(N, P)``.
      basis: orthonormal, ``(N, n)``, of what no theta reaches (see ``covariance.outside``).
      coordinates: of the rows, ``(N,)``.
    """
    num_rows, num_params = design.shape
    count = min(FREQUENCIES, num_rows // 2, MOST_COEFFICIENTS // num_params)
    if count < 1 or basis.shape[1] < 2:
        return None
    places = covariances.places(coordinates)
    frequencies = np.arange(count)
    cosines = np.where(frequencies > 0, np.sqrt(2), 1) * np.cos(np.pi * places[:, None] * frequencies)
    kernels = np.exp(-0.5 * np.square(np.pi * frequencies[:, None] * LENGTHS))
    shapes = np.column_stack([frequencies == 0, kernels / kernels.sum(0)])
    zero = np.zeros((num_params, count))
    return Correction(design, cosines, shapes, basis, zero, np.zeros((num_rows, num_rows)))


def _inverse(information: np.ndarray) -> np.ndarray:
    """Return ``(1 + I)^-1`` for an information I in units of the prior's; negative eigenvalues of I count as 0."""
    values, vectors = np.linalg.eigh(information)
    return (vectors / (1 + np.maximum(values, 0))) @ vectors.T
