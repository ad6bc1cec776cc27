"""What is done with a batch in each round of learning: fits, and what they tell of its noise and prior."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import dirichlet
from ..execution.stream_check import narrow_factor
from ..fit import fit
from ..least_squares import least_squares
from ..posteriors.posterior import Posterior
from ..problems import constraints
from ..problems.linear import LinearTemplate, linear_template
from ..problems.noise import Correlated
from ..residuals import covariance as covariances
from ..residuals.covariance import MAX_ROWS, Covariance
from ..residuals.narrowness import NARROW
from ..samplers import TG, Auto
from ..samplers.auto import MAX_GAUSSIAN
from ..status import ABOUT_THE_MODEL
from .learned import Learned, Round

HELD_OUT = 5
"""One problem in five judges what was learned from the others."""

FEWEST = 20
"""With fewer problems all learn and judge."""

SAMPLED_DRAWS = 16
"""Draws of theta per problem whose residuals are taken."""

RESIDUALS = 1 << 24
"""Fewer draws are taken if their residuals would be more numbers than this."""

CONCENTRATIONS = 0.02, 1e3
"""Limits of learned concentrations."""

JUDGED = 256
"""Problems, at most, by which the width of error bars is judged."""


_from_log_mean = jax.jit(dirichlet.from_log_mean)


class State(NamedTuple):
    """What has been learned: a covariance, or ``None`` for plain noise, and concentrations of all components."""

    covariance: Covariance | None
    prior: np.ndarray


class Work:
    """The batch, and what is done with it in each round."""

    def __init__(self, key, design, targets, noise, prior, level, coordinates, sample, method, options) -> None:
        unknown = set(options) - {"total", "constraint", "weights", "mask", "missing", "slack_prior"}
        if unknown:
            raise ValueError(f"{min(unknown)}={options[min(unknown)]!r}: learn has no such option")
        self.key, self.level, self.kind, self.options = key, level, noise, options
        self.learns_prior = str(prior) == "learn"
        self.prior_given = 1.0 if self.learns_prior else prior
        self.design, self.targets = design, targets
        self.notes: list[str] = []
        self._check(coordinates)
        self.rows = _choose(key, len(self.targets), sample)
        self.plain_template = self._template("estimate")
        self.plain = State(None, np.asarray(self.plain_template.prior, np.float64))
        if self.plain.prior.ndim > 1:
            raise ValueError(f"prior has shape {self.plain.prior.shape}; learn takes one prior for all problems")
        self._set_up()
        many = self.plain_template.prior.shape[-1] > MAX_GAUSSIAN
        self.method = (Auto(match="kl") if many else TG(4096, match="kl")) if method == "auto" else method

    def _check(self, coordinates: Any) -> None:
        """Read the coordinates of the rows, and note what the batch is too small for."""
        count, num_rows = self.targets.shape
        if self.kind == "covariance" and num_rows > MAX_ROWS:
            raise ValueError(f'noise="covariance" of {num_rows} rows; pass noise="rows", or at most {MAX_ROWS:,} rows')
        coordinates = np.arange(num_rows) if coordinates is None else np.asarray(coordinates, np.float64)
        if coordinates.shape != (num_rows,) or not np.isfinite(coordinates).all():
            raise ValueError(f"coordinates has shape {coordinates.shape}; pass {num_rows} finite numbers, one per row")
        self.coordinates = coordinates
        if self.kind and count < num_rows:
            self.notes.append(
                f"{count:,} problems are fewer than the {num_rows:,} rows: levels of rows are drawn towards their mean"
            )
        if count < FEWEST:
            self.notes.append(f"{count:,} problems are too few to hold some out: all learned and judged")

    def _template(self, noise: Any, levels: np.ndarray | None = None) -> LinearTemplate:
        constraint = constraints.named(self.options.get("constraint", "equal"))
        shares = self.options.get("total", 1.0), self.prior_given, self.options.get("slack_prior", 1.0)
        rest = {name: self.options.get(name) for name in ("weights", "mask")}
        rest |= {"noise": noise, "missing": self.options.get("missing", "raise")}
        if levels is not None:
            rest["weights"] = (1 if rest["weights"] is None else np.asarray(rest["weights"])) / np.square(levels)
        shape = self.targets.shape
        return linear_template(self.design, shape[1:], shape[:1], constraint, shares, rest)  # type: ignore[return-value]

    def _set_up(self) -> None:
        """Take the sample, and tell its weights, missing rows, and optima."""
        self.sampled = jnp.asarray(np.asarray(self.targets)[self.rows])
        rules = self._taken(self.plain_template).rows
        kept = rules.of(self.sampled)
        scale = np.ones(1) if kept.scale is None else np.asarray(kept.scale, np.float64)
        self.scale = np.broadcast_to(np.where(scale > 0, scale, np.nan), self.sampled.shape)
        count = len(self.rows)
        held = np.arange(count) % HELD_OUT == HELD_OUT - 1 if count >= FEWEST else np.ones(count, bool)
        self.held, self.train = held, ~held if count >= FEWEST else held
        self.wide = np.asarray(self.design, np.float64)
        problem = self._taken(self.plain_template).with_targets(self.sampled)
        self.optima = np.asarray(least_squares(problem).theta, np.float64)

    def _taken(self, template: LinearTemplate) -> LinearTemplate:
        """Return a template of the sampled problems."""
        return template.map_leaves(lambda leaf, ndim: leaf[self.rows] if leaf.ndim > ndim else leaf)

    def template(self, state: State) -> LinearTemplate:
        """Return the template of all problems with what has been learned."""
        if state.covariance is None:
            common = float(np.sqrt(np.nanmean(np.square(self.residuals(self.optima)))))
            own = self._template("estimate" if self.level == "estimate" else common)
        elif state.covariance.is_diagonal:
            # Levels of rows as weights: there may be too many rows for a matrix.
            own = self._template("estimate" if self.level == "estimate" else 1.0, np.sqrt(state.covariance.levels))
        else:
            matrix = jnp.asarray(state.covariance.matrix, self.design.dtype)
            own = self._template(Correlated(matrix, scale="estimate" if self.level == "estimate" else 1.0))
        return dataclasses.replace(own, prior=jnp.asarray(state.prior, self.design.dtype))

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """Return residuals of the sampled problems at theta ``(..., B, P)``, in units of the rows' weights."""
        return (np.asarray(self.sampled, np.float64) - theta @ self.wide.T) * self.scale

    def fit(self, number: int, state: State) -> Posterior:
        """Return the posterior of the sampled problems."""
        problem = self._taken(self.template(state)).with_targets(self.sampled)
        return fit(jax.random.fold_in(self.key, number), problem, self.method)

    def judged(self, found: Posterior, state: State) -> Round:
        """Return the record of a round."""
        evidence = np.asarray(found.log_evidence, np.float64)[self.held]
        shares = {} if state.covariance is None else state.covariance.shares()
        trusted = float(_sampled_well(found).mean())
        known = evidence[np.isfinite(evidence)]
        return Round(float(known.mean()) if len(known) else -np.inf, state.prior, shares, trusted)

    def next(self, number: int, found: Posterior, state: State) -> State:
        """Return what a round's posterior tells."""
        if number == 0:
            # From the part of the data that no theta reaches; the prior can wait until error bars are wide enough.
            learned = self._first()
            return State(learned, self._concentrations(found) if learned is None else state.prior)
        return State(self._updated(number, found, state.covariance), self._concentrations(found))

    def apart(self, found: Posterior, state: State) -> State:
        """Return the concentrations of all components apart that a posterior tells, with the covariance as it was."""
        return State(state.covariance, self._concentrations(found, apart=True))

    def _first(self) -> Covariance | None:
        """Return the covariance that the data outside the span of the design tell, or that residuals tell."""
        if self.kind is None:
            return None
        residuals = self.residuals(self.optima)[self.train]
        rows = covariances.rows_only(residuals)
        if self.kind == "rows":
            return rows
        scale = self.scale[self.train]
        same_rows = bool(np.isfinite(scale).all() and (scale == scale[:1]).all())
        design = self.wide * scale[0][:, None] if same_rows else self.wide
        start = covariances.with_components(rows, design, self.optima[self.train], self.coordinates)
        constraint = self.plain_template.constraint
        basis = covariances.outside(np.asarray(constraint.lift(jnp.asarray(design)), np.float64))
        if not same_rows or basis.shape[1] < 2:
            moment = covariances.second_moment(residuals, start)
            return start.fitted(moment, len(residuals), covariances.FIRST_STEPS)
        # Any point of the simplex serves: differences of points have no part outside the span.
        coordinates = residuals @ basis
        moment = coordinates.T @ coordinates / len(residuals)
        return start.fitted(moment, len(residuals), covariances.FIRST_STEPS, basis)

    def _updated(self, number: int, found: Posterior, covariance: Covariance | None) -> Covariance | None:
        if covariance is None:
            return None
        key = jax.random.fold_in(jax.random.fold_in(self.key, number), 1)
        several = max(1, min(SAMPLED_DRAWS, RESIDUALS // self.sampled.size))
        draws = np.asarray(found.sample(key, several), np.float64)
        residuals = self.residuals(draws)
        if found.noise is not None:
            levels = np.asarray(found.noise.mean, np.float64)
            residuals = residuals / levels[:, None]
        good = self.train & _sampled_well(found)
        good = good if good.any() else self.train
        flat = residuals[:, good].reshape(-1, residuals.shape[-1])
        if covariance.is_diagonal:
            return covariances.rows_again(flat, good.sum(), covariance)
        moment = covariances.second_moment(flat, covariance)
        return covariance.fitted(moment, good.sum(), covariances.MORE_STEPS)

    def _concentrations(self, found: Posterior, apart: bool = False) -> np.ndarray:
        """Return the concentrations that make the mean of ``ln omega`` likeliest: equal ones, or apart."""
        from scipy import special  # slow to import

        if not self.learns_prior:
            return self.plain.prior
        good = self.train & _sampled_well(found)
        alpha = np.asarray(found.alpha, np.float64)[good if good.any() else self.train]
        # On the host: the number of problems that count differs from round to round.
        logs = (special.digamma(alpha) - special.digamma(alpha.sum(-1, keepdims=True))).mean(0)
        if not apart:
            return equal_concentrations(logs, self.plain_template.constraint.has_slack)
        likeliest = _from_log_mean(jnp.asarray(logs, self.design.dtype))
        return np.clip(np.asarray(likeliest, np.float64), *CONCENTRATIONS)

    def learned(self, state: State, history: list[Round], chosen: int) -> Learned:
        """Return the result."""
        problem, found = self.template(state).with_targets(self.targets), state.covariance
        matrix = None if found is None or found.is_diagonal else found.matrix
        levels = np.sqrt(found.levels) if found is not None and found.is_diagonal else None
        narrow = self._narrow(self.plain), self._narrow(state)
        if narrow[1] > NARROW:
            self.notes.append(
                f"error bars are still too narrow by a factor of {narrow[1]:.1f}: errors are of another form than "
                "those learned; treat intervals with caution"
            )
        return Learned(problem, matrix, levels, state.prior, history, chosen, tuple(self.notes), narrow)

    def _narrow(self, state: State) -> float:
        """Return how many times too narrow error bars are with what has been learned."""
        several = np.unique(np.linspace(0, len(self.rows) - 1, min(len(self.rows), JUDGED)).astype(int))
        template = self._taken(self.template(state)).take(several, 1)
        return narrow_factor(template, np.asarray(self.sampled)[several], self.coordinates)


def equal_concentrations(logs: np.ndarray, has_slack: bool) -> np.ndarray:
    """Return the likeliest concentrations, ``(K,)``, that are equal, except that of a slack, the last component.

    Args:
      logs: means of ``ln omega``, ``(K,)``.
      has_slack: whether there is a slack.
    """
    from scipy import optimize, special  # slow to import

    group = np.zeros(len(logs), int)
    group[-1] = int(has_slack)
    counts, sums = np.bincount(group), np.bincount(group, logs)

    def loss(log_alpha):
        alpha = np.exp(log_alpha)
        total = counts @ alpha
        value = counts @ special.gammaln(alpha) - special.gammaln(total) - sums @ alpha
        return value, alpha * (counts * (special.digamma(alpha) - special.digamma(total)) - sums)

    limits = [tuple(np.log(CONCENTRATIONS))] * len(counts)
    found = optimize.minimize(loss, np.zeros(len(counts)), jac=True, bounds=limits)
    return np.exp(found.x)[group]


def _sampled_well(found: Posterior) -> np.ndarray:
    """Return for which problems the sampler can be trusted, whatever the model."""
    return (np.asarray(found.status) & ~int(ABOUT_THE_MODEL)) == 0


def _choose(key: jax.Array, count: int, sample: int) -> np.ndarray:
    """Return the numbers of the problems to learn from."""
    if count <= sample:
        return np.arange(count)
    return np.sort(np.asarray(jax.random.permutation(jax.random.fold_in(key, 1 << 20), count)[:sample]))
