"""Covariances of residuals with few parameters: levels of rows, and variance components with weights.

An unrestricted covariance of a batch's residuals is not safe to learn. Inside the span of the design residuals don't
distinguish noise from theta, so the covariance may grow there without contradiction. The components here have a fixed
form each, and only their weights are learned. The data outside the span determine the weights, which hold inside it
too:

- ``smooth``: errors of any kind that are alike in neighbouring rows,
- ``columns``: each column of the design is off by a factor of its own, constant or slowly changing along the rows,
- ``gain``: the whole of a prediction is off by a factor, likewise.

Weights maximise the Gaussian likelihood by multiplicative steps, none of which lowers it (the minorisation of Zhou, Hu,
Zhou and Lange 2019): ``w_j *= sqrt(tr(P S P V_j) / tr(P V_j))``, with S the second moment of the residuals and P the
inverse of the covariance. Levels take such steps too, and are then averaged with a typical level. Both start from the
part of the data that no theta reaches (restricted maximum likelihood): P is then the inverse within that part.
"""

from __future__ import annotations

import dataclasses

import numpy as np

LENGTHS = (0.015, 0.03, 0.06, 0.1, 0.17, 0.3)
"""Lengths over which slowly changing errors are alike, as shares of the range of the rows' coordinates."""

FIRST_STEPS, MORE_STEPS = 150, 200
MAX_ROWS = 1000
"""Most rows that a covariance is learned for; a step takes the cube of their number."""

LEAST_LEVEL = 1e-6
"""Smallest variance of a row, as a share of the typical one."""

PRIOR_ROWS = 5
"""A row's own variance is averaged with the typical one, which counts as this many problems."""


@dataclasses.dataclass(frozen=True)
class Covariance:
    """A covariance of N rows: ``diag(levels) + sum_j weights_j parts_j``; all in float64.

    Attributes:
      levels: variances of the rows' own noise, ``(N,)``.
      weights: of the components, ``(J,)``.
      parts: the components, ``(J, N, N)``.
      names: of the components.
    """

    levels: np.ndarray
    weights: np.ndarray
    parts: np.ndarray
    names: tuple[str, ...]

    @property
    def is_diagonal(self) -> bool:
        """Whether there are only levels of rows."""
        return not len(self.parts)

    @property
    def matrix(self) -> np.ndarray:
        """The covariance, ``(N, N)``, if it has components."""
        return np.diag(self.levels) + np.tensordot(self.weights, self.parts, 1)

    def shares(self) -> dict[str, float]:
        """Return which share of the variance each kind of error has."""
        variances = {"rows": self.levels.sum()}
        for name, weight, part in zip(self.names, self.weights, self.parts, strict=True):
            variances[name] = variances.get(name, 0.0) + weight * np.trace(part)
        total = sum(variances.values())
        return {name: float(variance / total) for name, variance in variances.items()}

    def fitted(
        self,
        second_moment: np.ndarray,
        count: float,
        steps: int,
        basis: np.ndarray | None = None,
        penalty: np.ndarray | float = 0.0,
    ) -> Covariance:
        """Return the covariance after some steps towards the likeliest.

        Args:
          second_moment: of the residuals, ``(N, N)``, or of their coordinates in the basis, ``(n, n)``.
          count: number of problems that it is a mean of.
          steps: how many.
          basis: orthonormal, ``(N, n)``, of the part of the data that counts; ``None`` for all.
          penalty: the log-likelihood of all problems is reduced by ``weights @ penalty / 2``, ``(J,)``.
        """
        levels, weights, size = self.levels, self.weights, second_moment.size
        parts = self.parts if basis is None or self.is_diagonal else basis.T @ self.parts @ basis
        flat = parts.reshape(len(parts), size)
        for _ in range(steps):
            rows = np.diag(levels) if basis is None else (basis.T * levels) @ basis
            precision = np.linalg.inv(rows + (weights @ flat).reshape(rows.shape))
            seen = precision @ second_moment @ precision
            expected = flat @ precision.reshape(size) + penalty / count
            weights = weights * np.sqrt(_ratio(flat @ seen.reshape(size), expected))
            typical = np.exp(np.log(levels).mean())
            own = count * _diagonal(seen, basis) + PRIOR_ROWS * typical / np.square(levels)
            levels = levels * np.sqrt(_ratio(own, count * _diagonal(precision, basis) + PRIOR_ROWS / levels))
            levels = np.maximum(levels, LEAST_LEVEL * typical)
        return dataclasses.replace(self, levels=levels, weights=weights)


def _diagonal(matrix: np.ndarray, basis: np.ndarray | None) -> np.ndarray:
    """Return the diagonal of a matrix whose coordinates in the basis are given."""
    return np.diagonal(matrix) if basis is None else np.einsum("ni,ni->n", basis @ matrix, basis)


def _ratio(seen: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.maximum(seen, 0) / np.where(expected > 0, expected, 1)


def rows_only(residuals: np.ndarray) -> Covariance:
    """Return levels of rows alone, from residuals ``(B, N)``, NaN where a row is missing."""
    levels = np.nanmean(np.square(residuals), 0)
    typical = max(np.nanmean(levels), np.finfo(float).tiny)
    levels = np.where(np.isfinite(levels), np.maximum(levels, LEAST_LEVEL * typical), typical)
    return Covariance(levels, np.zeros(0), np.zeros((0, 0, 0)), ())


def rows_again(residuals: np.ndarray, count: float, rows: Covariance) -> Covariance:
    """Return levels of rows from residuals ``(..., N)`` of a number of problems, averaged with the typical one."""
    typical = np.exp(np.log(rows.levels).mean())
    own = rows_only(residuals).levels
    levels = (count * own + PRIOR_ROWS * typical) / (count + PRIOR_ROWS)
    return dataclasses.replace(rows, levels=np.maximum(levels, LEAST_LEVEL * typical))


def with_components(rows: Covariance, design: np.ndarray, theta: np.ndarray, coordinates: np.ndarray) -> Covariance:
    """Return a covariance to start from, with all components, in small amounts.

    Args:
      rows: the levels of rows.
      design: ``(N, P)``.
      theta: estimates, ``(B, P)``.
      coordinates: of the rows, ``(N,)``.
    """
    along, spacing = places(coordinates), 1 / max(len(coordinates) - 1, 1)
    moment = theta.T @ theta / len(theta)
    columns, gain = design @ (np.diagonal(moment)[:, None] * design.T), design @ moment @ design.T
    level = np.trace(gain) / len(design)
    parts, names = [columns, gain], ["columns", "gain"]
    for length in LENGTHS:
        if length > 1.5 * spacing:
            kernel = np.exp(-0.5 * np.square((along[:, None] - along) / length))
            parts += [level * kernel, columns * kernel, gain * kernel]
            names += ["smooth", "columns", "gain"]
    weight = 0.01 * rows.levels.mean() / max(level, np.finfo(float).tiny)
    return Covariance(0.5 * rows.levels, np.full(len(parts), weight), np.stack(parts), tuple(names))


def places(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates of rows scaled to the range from 0 to 1."""
    return (coordinates - coordinates.min()) / max(np.ptp(coordinates), np.finfo(float).tiny)


def outside(design: np.ndarray, nuisance: np.ndarray | None = None) -> np.ndarray:
    """Return an orthonormal basis, ``(N, n)``, of what no theta of a fixed sum reaches; n may be 0.

    Args:
      design: lifted to the components of omega, ``(N, K)``.
      nuisance: an orthonormal basis of what nuisance columns reach, ``(N, q)``, or ``None``.
    """
    differences = design[:, 1:] - design[:, :1]
    if nuisance is not None:
        differences = np.hstack([differences, max(np.linalg.norm(differences, 2), 1.0) * nuisance])
    basis, size, _ = np.linalg.svd(differences, full_matrices=True)
    rank = int((size > 1e-6 * max(size.max(initial=0), np.finfo(float).tiny)).sum())
    return basis[:, rank:]


def second_moment(residuals: np.ndarray, covariance: Covariance) -> np.ndarray:
    """Return the expected second moment of residuals ``(B, N)`` given those observed, ``(N, N)``.

    Residuals are NaN where a row is missing; there the current covariance gives their expectation.
    """
    missing = np.isnan(residuals)
    whole = ~missing.any(1)
    total = residuals[whole].T @ residuals[whole]
    if whole.all():
        return total / len(residuals)
    matrix = covariance.matrix
    for pattern in np.unique(missing[~whole], axis=0):
        own, known = residuals[(missing == pattern).all(1)], ~pattern
        gain = np.linalg.solve(matrix[np.ix_(known, known)], matrix[np.ix_(known, pattern)])
        filled = np.where(known, own, 0)
        filled[:, pattern] = own[:, known] @ gain
        total += filled.T @ filled
        rest = matrix[np.ix_(pattern, pattern)] - matrix[np.ix_(pattern, known)] @ gain
        total[np.ix_(pattern, pattern)] += len(own) * rest
    return total / len(residuals)
