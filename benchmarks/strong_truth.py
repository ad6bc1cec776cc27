"""The truth of problems with strong data and many components: importance sampling, one component after the other.

Expectation propagation (Minka 2001) replaces each factor ``omega_k^(alpha_k - 1)`` of the prior, which is zero below
zero, by a Gaussian one. A draw takes each component from its conditional distribution, in which its own factor is
exact and those of later components are the Gaussian ones. The weights correct what is left. The largest component at
the optimum comes last, as one less the others. Noise of unknown level: a mixture of proposals for several levels.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import special

from .truth import Likelihood, panels

SWEEPS, DAMPING = 20, 0.6
WIDENING = 1.1
"""Conditional distributions are wider than the approximation says, so that weights are bounded."""

FAR = 12.0
"""Conditionals with a mean of so many standard deviations above or below the wall are normal, or gamma."""

LEAST_CONCENTRATION = 0.5
"""Smaller concentrations make posteriors with several peaks, some of which all replicates may miss."""

EDGES = np.concatenate([[0.0], np.geomspace(1e-4, 0.2, 24), np.arange(0.4, FAR + 7.0, 0.2)])
CENTRES = np.arange(-FAR, FAR + 0.05, 0.1)
LEVELS, KNOWN_LEVELS = np.array([0.8, 1.1, 1.6, 2.5, 5.0, 12.0]), np.array([1.0, 2.0])
"""Levels of proposals relative to the likeliest one, of an unknown noise and of a known one: wide ones for tails."""


@dataclasses.dataclass(frozen=True)
class Step:
    """The conditional distribution of one component: ``x^(alpha - 1) N(x; mean, width^2)`` for x > 0.

    Attributes:
      alpha: the concentration.
      offset: the mean is this plus the product of ``slope`` with the components drawn before.
      slope: the same.
      width: standard deviation of the normal factor.
      table: probabilities of the pieces between ``EDGES``, in units of the width, by mean, ``(means, pieces)``.
    """

    alpha: float
    offset: float
    slope: np.ndarray
    width: float
    table: np.ndarray

    def draw(self, rng: np.random.Generator, before: np.ndarray) -> np.ndarray:
        """Return draws ``(n,)`` given those of the components before, ``(n, k)``."""
        centre = (self.offset + before @ self.slope) / self.width
        count = len(centre)
        row = np.clip(np.round((centre + FAR) / 0.1), 0, len(CENTRES) - 1).astype(int)
        cumulative = np.cumsum(self.table, axis=1)
        flat = (np.arange(len(CENTRES))[:, None] + cumulative / cumulative[:, -1:]).ravel()
        place = np.searchsorted(flat, row + rng.uniform(1e-15, 1 - 1e-12, count), side="right")
        piece = np.clip(place - row * self.table.shape[1], 0, self.table.shape[1] - 1)
        low, high = EDGES[piece] ** self.alpha, EDGES[piece + 1] ** self.alpha
        with np.errstate(all="ignore"):
            x = (low + rng.uniform(size=count) * (high - low)) ** (1 / self.alpha)
        x = np.where(centre > FAR, centre + rng.normal(size=count), x)
        pressed = centre < -FAR
        x[pressed] = rng.standard_gamma(self.alpha, pressed.sum()) / -centre[pressed]
        return self.width * x

    def log_density(self, before: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Return the log-densities of draws, ``(n,)``."""
        centre = (self.offset + before @ self.slope) / self.width
        x = np.maximum(value / self.width, 1e-300)
        row = np.clip(np.round((centre + FAR) / 0.1), 0, len(CENTRES) - 1).astype(int)
        piece = np.clip(np.searchsorted(EDGES, x, side="right") - 1, 0, self.table.shape[1] - 1)
        size = EDGES[1:] ** self.alpha - EDGES[:-1] ** self.alpha
        logs = np.log(self.table)[row, piece] - np.log(size)[piece] + np.log(self.alpha) + (self.alpha - 1) * np.log(x)
        logs = np.where(x < EDGES[-1], logs, -np.inf)
        logs = np.where(centre > FAR, -0.5 * np.square(x - centre) - 0.5 * np.log(2 * np.pi), logs)
        rate = np.maximum(-centre, 1.0)
        gamma = self.alpha * np.log(rate) - special.gammaln(self.alpha) + (self.alpha - 1) * np.log(x) - rate * x
        return np.where(centre < -FAR, gamma, logs) - np.log(self.width)


def table_of(alpha: float) -> np.ndarray:
    """Return probabilities of the pieces for all means, ``(means, pieces)``."""
    with np.errstate(divide="ignore"):
        logs = np.log(EDGES[1:] ** alpha - EDGES[:-1] ** alpha)
    factor = -0.5 * np.square(EDGES[None] - CENTRES[:, None])
    logs = logs + np.logaddexp(factor[:, 1:], factor[:, :-1])
    return np.exp(logs - special.logsumexp(logs, axis=1, keepdims=True)) + 1e-300


@dataclasses.dataclass(frozen=True)
class Sequential:
    """A proposal for one noise level: steps for all components but the last, in an order.

    Attributes:
      order: the components in the order in which they are drawn, the last one included.
      steps: one less than components.
    """

    order: np.ndarray
    steps: list[Step]

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return draws of omega, ``(n, K)``; some have a negative last component, and count for nothing."""
        omega = np.zeros((count, len(self.order)))
        for number, step in enumerate(self.steps):
            component = self.order[number]
            omega[:, component] = step.draw(rng, omega[:, self.order[:number]])
        omega[:, self.order[-1]] = 1 - omega[:, self.order[:-1]].sum(1)
        return omega

    def log_density(self, omega: np.ndarray) -> np.ndarray:
        """Return log-densities with respect to all components but the last, ``(n,)``."""
        found = np.zeros(len(omega))
        for number, step in enumerate(self.steps):
            found += step.log_density(omega[:, self.order[:number]], omega[:, self.order[number]])
        return found


def sequential(likelihood: Likelihood, alpha: np.ndarray, level: float) -> Sequential:
    """Return the proposal for a noise level."""
    best = likelihood.optimum()
    last = int(np.argmax(best))
    others = np.array([k for k in range(len(alpha)) if k != last])
    # Components at the wall first: the others can make room for them.
    order = np.append(others[np.argsort(best[others], kind="stable")], last)
    differences = (likelihood.columns[:, order[:-1]] - likelihood.columns[:, [last]]) / level
    curvature = differences.T @ differences
    slope = differences.T @ (likelihood.target - likelihood.columns[:, last]) / level
    size = len(order) - 1
    rows = np.concatenate([np.eye(size), -np.ones((1, size))])
    offsets = np.append(np.zeros(size), 1.0)
    precision, shift = propagated(curvature, slope, rows, offsets, alpha[order])
    steps = []
    for k in range(size):
        later = np.arange(size + 1) > k
        weighted = rows[later] * precision[later, None]
        matrix = curvature + rows[later].T @ weighted + 1e-9 * np.eye(size) * (1 + curvature.diagonal().max())
        linear = slope + rows[later].T @ (shift[later] - precision[later] * offsets[later])
        covariance = np.linalg.pinv(matrix[k:, k:], hermitian=True)
        width = WIDENING * np.sqrt(max(covariance[0, 0], 1e-30))
        steps.append(
            Step(
                float(alpha[order[k]]),
                float(covariance[0] @ linear[k:]),
                -covariance[0] @ matrix[k:, :k],
                float(width),
                table_of(float(alpha[order[k]])),
            )
        )
    return Sequential(order, steps)


def propagated(curvature, slope, rows, offsets, alpha) -> tuple[np.ndarray, np.ndarray]:
    """Return precisions and shifts of Gaussian factors ``exp(shift x - precision x^2 / 2)`` of all components."""
    mean = alpha / alpha.sum()
    variance = mean * (1 - mean) / (alpha.sum() + 1)
    precision = 0.5 / variance
    shift = precision * mean
    for _ in range(SWEEPS):
        for k in range(len(alpha)):
            matrix = curvature + rows.T @ (rows * precision[:, None])
            linear = slope + rows.T @ (shift - precision * offsets)
            covariance = np.linalg.pinv(matrix, hermitian=True)
            own, middle = rows[k] @ covariance @ rows[k], rows[k] @ covariance @ linear + offsets[k]
            left = 1 / max(own, 1e-300) - precision[k]
            if left <= 1e-6 * precision[k]:
                continue
            centre = (middle / own - shift[k]) / left
            found = _tilted(alpha[k], centre, 1 / np.sqrt(left))
            if found is None:
                continue
            new = max(1 / found[1] - left, 1e-3 / variance[k])
            new_shift = found[0] * (new + left) - left * centre
            precision[k] += DAMPING * (new - precision[k])
            shift[k] += DAMPING * (new_shift - shift[k])
    return precision, shift


def _tilted(alpha: float, centre: float, width: float) -> tuple[float, float] | None:
    """Return mean and variance of ``x^(alpha - 1) N(x; centre, width^2)`` between zero and one."""
    log_x, _, log_weight = panels(np.clip([centre], 0, 1), np.array([alpha]), np.array([1.0]), 4)
    x = np.exp(log_x[0])
    logs = log_weight[0] - 0.5 * np.square((x - centre) / width)
    weights = np.exp(logs - logs.max())
    mean = weights @ x / weights.sum()
    variance = weights @ np.square(x - mean) / weights.sum()
    return (mean, variance) if variance > 0 and np.isfinite(mean) else None


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Proposals for several noise levels, with equal shares."""

    parts: list[Sequential]

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return draws of omega, as many from each part."""
        return np.concatenate([part.draw(rng, count // len(self.parts)) for part in self.parts])

    def log_density(self, omega: np.ndarray) -> np.ndarray:
        """Return log-densities, ``(n,)``."""
        logs = np.stack([part.log_density(omega) for part in self.parts])
        return special.logsumexp(logs, axis=0) - np.log(len(self.parts))


class Strong:
    """Importance sampling from the mixture for a problem."""

    name = "sequential draws"

    def __init__(self, likelihood: Likelihood, alpha: np.ndarray) -> None:
        self.likelihood, self.alpha, self.mixture = likelihood, alpha, proposal(likelihood, alpha)

    def weighted(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return draws and their log-weights."""
        omega = self.mixture.draw(rng, count)
        return omega, log_weights(self.likelihood, self.alpha, self.mixture, omega)


def proposal(likelihood: Likelihood, alpha: np.ndarray) -> Mixture:
    """Return the proposal for a problem."""
    if likelihood.level is not None:
        return Mixture([sequential(likelihood, alpha, level * likelihood.level) for level in KNOWN_LEVELS])
    best = 0.5 * np.square(likelihood.target - likelihood.columns @ likelihood.optimum()).sum()
    likeliest = np.sqrt((likelihood.scale + best) / (likelihood.shape + 0.5 * len(likelihood.target)))
    return Mixture([sequential(likelihood, alpha, level * likeliest) for level in LEVELS])


def log_weights(likelihood: Likelihood, alpha: np.ndarray, chosen: Mixture, omega: np.ndarray) -> np.ndarray:
    """Return the log-weights of draws; those outside the simplex have none."""
    inside = (omega > 0).all(1)
    found = np.full(len(omega), -np.inf)
    own = omega[inside]
    log_prior = special.gammaln(alpha.sum()) - special.gammaln(alpha).sum() + np.log(own) @ (alpha - 1)
    found[inside] = likelihood(own) + log_prior - chosen.log_density(own)
    return found
