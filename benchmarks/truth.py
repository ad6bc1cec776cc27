"""Moments and evidence of small problems in float64, with errors: quadrature and importance sampling from the prior.

Nothing here comes from the library. A problem is given by the columns of omega, ``(N, K)``, the target, and the noise
(see ``Likelihood``); the truth is that of ``theta = maps @ omega``.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize, special

NODES = 250_000
"""Largest number of nodes of a product rule."""


NEGLIGIBLE = 50.0
"""Nodes that are so many nats below the highest are left out."""


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The Gaussian likelihood of N rows, of a known level, or integrated over an inverse-gamma prior of the variance.

    Attributes:
      columns: ``(N, K)``.
      target: ``(N,)``.
      level: known standard deviation, or ``None``.
      shape: of the inverse-gamma prior.
      scale: the same.
    """

    columns: np.ndarray
    target: np.ndarray
    level: float | None = None
    shape: float = 0.0
    scale: float = 0.0

    def of_half_squares(self, half_square: np.ndarray) -> np.ndarray:
        """Return log-likelihoods from half the sums of squared residuals."""
        rows = len(self.target)
        constant = -0.5 * rows * np.log(2 * np.pi)
        if self.level is not None:
            return constant - rows * np.log(self.level) - half_square / self.level**2
        if self.shape > 0 and self.scale > 0:
            constant += self.shape * np.log(self.scale) - special.gammaln(self.shape)
        power = self.shape + 0.5 * rows
        return constant + special.gammaln(power) - power * np.log(self.scale + half_square)

    def __call__(self, omega: np.ndarray) -> np.ndarray:
        """Return log-likelihoods of draws ``(n, K)``."""
        factor, projection, rest = self._reduced
        half_square = np.full(len(omega), rest)
        for row, value in zip(factor, projection, strict=True):
            half_square += 0.5 * np.square(value - omega @ row)
        return self.of_half_squares(half_square)

    @property
    def _reduced(self) -> tuple[np.ndarray, np.ndarray, float]:
        if len(self.target) <= self.columns.shape[1]:
            return self.columns, self.target, 0.0
        basis, factor = np.linalg.qr(self.columns)
        projection = basis.T @ self.target
        return factor, projection, 0.5 * float(np.square(self.target - basis @ projection).sum())

    def optimum(self) -> np.ndarray:
        """Return the constrained least-squares solution, ``(K,)``, by nonnegative least squares and a polish."""
        count = self.columns.shape[1]
        heavy = 1e3 * max(np.abs(self.columns).max(), 1e-3)
        stacked = np.concatenate([self.columns, np.full((1, count), heavy)])
        found = optimize.nnls(stacked, np.append(self.target, heavy), maxiter=100 * count)[0]
        used = np.flatnonzero(found > 1e-9)
        last = used[np.argmax(found[used])]
        others = used[used != last]
        polished = np.zeros(count)
        differences = self.columns[:, others] - self.columns[:, [last]]
        polished[others] = np.linalg.lstsq(differences, self.target - self.columns[:, last], rcond=None)[0]
        polished[last] = 1 - polished[others].sum()
        return polished if (polished >= 0).all() else found / found.sum()


@dataclasses.dataclass(frozen=True)
class Truth:
    """Posterior moments of theta, ``(P,)``, and the log-evidence, each with its standard error or error bound."""

    mean: np.ndarray
    std: np.ndarray
    log_evidence: float
    mean_error: np.ndarray
    std_error: np.ndarray
    log_evidence_error: float
    method: str


# --- two and three components: panels that follow the likelihood ------------------------------------------------------


def quadrature(likelihood: Likelihood, alpha: np.ndarray, maps: np.ndarray) -> Truth:
    """Return the truth of two or three components. The error is the difference of two rules."""
    fine, coarse = (_integrated(likelihood, alpha, maps, order) for order in (8, 6))
    return Truth(*fine, *(np.abs(a - b) for a, b in zip(fine, coarse, strict=True)), "quadrature")


def _integrated(likelihood: Likelihood, alpha: np.ndarray, maps: np.ndarray, order: int):
    """Return mean, standard deviation and log-evidence by iterated rules along sticks: omega = u, (1 - u) v, ..."""
    columns, target = likelihood.columns, likelihood.target
    best = likelihood.optimum()
    if len(alpha) == 2:
        log_u, log_rest, log_weight = panels(best[:1], alpha[:1], alpha[1:], order)
        log_omega = np.stack([log_u[0], log_rest[0]], -1)
        log_weight = log_weight[0]
    else:
        log_u, log_rest, outer = (part[0] for part in panels(best[:1], alpha[:1], alpha[1:].sum(keepdims=True), order))
        u, rest = np.exp(log_u), np.exp(log_rest)
        residual = target - np.outer(u, columns[:, 0]) - np.outer(rest, columns[:, 2])
        slope = np.outer(rest, columns[:, 1] - columns[:, 2])
        square = np.square(slope).sum(-1)
        # Outer nodes whose best inner point has a negligible density are left out.
        centre = np.clip((slope * residual).sum(-1) / np.where(square > 0, square, 1), 0, 1)
        centre = np.where(square > 0, centre, 0.5)
        best_square = 0.5 * np.square(residual - slope * centre[:, None]).sum(-1)
        height = likelihood.of_half_squares(best_square) + outer
        some = height > height.max() - NEGLIGIBLE
        log_u, log_rest, outer = (part[some] for part in (log_u, log_rest, outer))
        log_v, log_other, inner = panels(centre[some], alpha[1:2], alpha[2:], order)
        logs = np.broadcast_to(log_u[:, None], log_v.shape), log_rest[:, None] + log_v, log_rest[:, None] + log_other
        log_omega = np.stack(logs, -1).reshape(-1, 3)
        log_weight = (outer[:, None] + inner).ravel()
    omega = np.exp(log_omega)
    return weighted(likelihood(omega) + log_weight, omega @ maps.T)


def weighted(log_weights: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean, standard deviation and log of the sum of weights."""
    peak = log_weights.max()
    weights = np.exp(log_weights - peak)
    mass = weights.sum()
    mean = weights @ theta / mass
    # Once more about the mean: the posterior may be narrower than the rounding of a sum.
    mean = mean + weights @ (theta - mean) / mass
    return mean, np.sqrt(weights @ np.square(theta - mean) / mass), peak + np.log(mass)


def panels(centre: np.ndarray, a: np.ndarray, b: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``ln u``, ``ln (1 - u)`` and log-weights of rules for integrals over Beta(a, b), ``(n, nodes)``.

    Gauss-Legendre panels in ``t = logit(u)``, where poles of the density at the ends become slow exponential tails.
    Panels shrink geometrically towards the centres, ``(n,)``, so that a likelihood of any width is resolved.
    """
    a, b = float(np.squeeze(a)), float(np.squeeze(b))
    low, high = (14 + np.geomspace(1, 45 / min(power, 1), 14) for power in (a, b))
    grid = np.concatenate([-low[::-1], np.arange(-14.0, 14.5, 1.0), high])
    steps = np.geomspace(1e-11, 0.5, 28)
    near = centre[:, None] + np.concatenate([-steps, [0.0], steps])
    near = np.where((near > 1e-14) & (near < 1 - 1e-14), near, np.nan)
    with np.errstate(invalid="ignore"):
        near = np.nan_to_num(special.logit(near), nan=0.0)
    edges = np.sort(np.concatenate([np.broadcast_to(grid, (len(centre), len(grid))), near], 1), 1)
    nodes, weights = np.polynomial.legendre.leggauss(order)
    half = 0.5 * np.diff(edges, axis=1)[..., None]
    t = (edges[:, :-1, None] + half * (1 + nodes)).reshape(len(centre), -1)
    with np.errstate(divide="ignore"):
        log_weight = np.log(half * weights).reshape(len(centre), -1)
    log_u, log_rest = -np.logaddexp(0, -t), -np.logaddexp(0, t)
    return log_u, log_rest, log_weight + a * log_u + b * log_rest - special.betaln(a, b)


# --- any number of components, weak data ------------------------------------------------------------------------------


def product_rule(likelihood: Likelihood, alpha: np.ndarray, maps: np.ndarray) -> Truth:
    """Return the truth by products of Gauss-Jacobi rules, exact for polynomials; the error is that of a lower order."""
    dims = len(alpha) - 1
    order = min(int(NODES ** (1 / dims) + 1e-9), 60)
    results = []
    for points in (order, order - 1):
        omega, log_weight = np.zeros((1, 0)), np.zeros(1)
        left = np.ones(1)
        for k in range(dims):
            nodes, weights = special.roots_jacobi(points, alpha[k + 1 :].sum() - 1, alpha[k] - 1)
            shares = (1 + nodes) / 2
            omega = np.concatenate([np.repeat(omega, points, 0), np.outer(left, shares).reshape(-1, 1)], 1)
            log_weight = np.add.outer(log_weight, np.log(weights / weights.sum())).ravel()
            left = np.outer(left, 1 - shares).ravel()
        omega = np.concatenate([omega, left[:, None]], 1)
        results.append(weighted(likelihood(omega) + log_weight, omega @ maps.T))
    fine, coarse = results
    return Truth(*fine, *(np.abs(x - y) for x, y in zip(fine, coarse, strict=True)), "product rule")


# --- any number of components, importance sampling --------------------------------------------------------------------


@dataclasses.dataclass
class Sums:
    """Sums over weighted draws of replicates, relative to the largest log-weight so far and about a pivot."""

    pivot: np.ndarray
    peak: float = -np.inf
    rows: list[np.ndarray] = dataclasses.field(default_factory=list)
    count: int = 0

    def add(self, log_weights: np.ndarray, theta: np.ndarray) -> None:
        """Add one replicate: draws ``(n, P)`` with their log-weights."""
        peak = max(self.peak, float(log_weights.max()))
        self.rows = [row * np.exp(self.peak - peak) for row in self.rows]
        self.peak = peak
        weights = np.exp(log_weights - peak)
        away = theta - self.pivot
        self.rows.append(np.concatenate([[weights.sum()], weights @ away, weights @ np.square(away)]))
        self.count += len(log_weights)

    def truth(self, method: str) -> Truth:
        """Return the truth with standard errors from the spread of replicates."""
        rows = np.array(self.rows)
        number, size = len(rows), len(self.pivot)
        total = rows.sum(0)
        share = rows[:, 0] / total[0]
        first, second = total[1 : 1 + size] / total[0], total[1 + size :] / total[0]
        variance = second - np.square(first)
        away_first = rows[:, 1 : 1 + size] / total[0] - share[:, None] * first
        away_square = rows[:, 1 + size :] / total[0] - 2 * first * rows[:, 1 : 1 + size] / total[0]
        away_square = away_square + share[:, None] * (np.square(first) - variance)
        correction = np.sqrt(number / (number - 1))
        std = np.sqrt(np.maximum(variance, 0))
        return Truth(
            self.pivot + first,
            std,
            self.peak + np.log(total[0] / self.count),
            correction * np.sqrt(np.square(away_first).sum(0)),
            correction * np.sqrt(np.square(away_square).sum(0)) / (2 * np.where(std > 0, std, np.inf)),
            correction * float(np.sqrt(np.square(share - 1 / number).sum())),
            method,
        )


def prior_draws(rng: np.random.Generator, alpha: np.ndarray, count: int) -> np.ndarray:
    """Return draws of the prior, ``(n, K)``; small concentrations by ``Gamma(a) = Gamma(a + 1) U^(1/a)``."""
    logs = np.log(rng.standard_gamma(alpha + 1, (count, len(alpha))))
    logs -= rng.standard_exponential((count, len(alpha))) / alpha
    logs -= logs.max(1, keepdims=True)
    omega = np.exp(logs)
    return omega / omega.sum(1, keepdims=True)
