"""The rounds of learning from a batch: fits, and the noise and the prior that follow from them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..execution.stream_check import narrow_factor
from ..fit import fit
from ..least_squares import least_squares
from ..posteriors.posterior import Posterior
from ..problems import constraints
from ..problems.linear import LinearTemplate, linear_template
from ..problems.noise import Correlated
from ..residuals import correction as corrections
from ..residuals import covariance as covariances
from ..residuals.correction import Correction
from ..residuals.covariance import MAX_ROWS, Covariance
from ..residuals.narrowness import NARROW
from ..samplers import TG, Auto, Sampler, chosen
from ..samplers.auto import MAX_GAUSSIAN
from ..status import ABOUT_THE_MODEL
from . import concentrations
from .learned import Learned, Round

HELD_OUT = 5
"""One problem in five judges what was learned from the others."""

FEWEST = 20
"""With fewer problems none are held out: all learn and judge."""

SAMPLED_DRAWS = 16
"""Draws of theta per problem whose residuals are taken."""

RESIDUALS = 1 << 24
"""Fewer draws are taken if their residuals would be more numbers than this."""

LEAST_EVIDENCE = 1.0
"""A correction of the design is tried if data that no theta reaches prefer it by more nats than this."""

JUDGED = 256
"""Problems, at most, by which the width of error bars is judged."""


class State(NamedTuple):
    """What has been learned.

    Attributes:
      covariance: of the residuals; ``None`` for plain noise.
      prior: concentrations of all components, ``(K,)``.
      correction: the error of the design; ``None`` if the design was kept.
    """

    covariance: Covariance | None
    prior: np.ndarray
    correction: Correction | None = None

    @property
    def matrix(self) -> np.ndarray | None:
        """The covariance of the rows, with what the correction's uncertainty adds; ``None`` if rows are independent."""
        if self.covariance is None or self.covariance.is_diagonal:
            return None
        return self.covariance.matrix + (0 if self.correction is None else self.correction.added)


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
        many = self.plain_template.prior.shape[-1] > MAX_GAUSSIAN
        default = Auto(match="kl") if many else TG(4096, match="kl")
        # Rounds are judged by evidence, which chains estimate only if they are asked to.
        self.method = _matched_by_logs(default if method == "auto" else chosen(method)).with_evidence()
        if not self.method.has_evidence:
            raise ValueError(
                f"{self.method.name!r} doesn't estimate the evidence, by which learn judges its rounds; pass "
                'method="auto"'
            )
        self._set_up()

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

    def _template(self, noise: Any, levels: np.ndarray | None = None, design: Any = None) -> LinearTemplate:
        constraint = constraints.named(self.options.get("constraint", "equal"))
        shares = self.options.get("total", 1.0), self.prior_given, self.options.get("slack_prior", 1.0)
        rest = {name: self.options.get(name) for name in ("weights", "mask")}
        rest |= {"noise": noise, "missing": self.options.get("missing", "raise")}
        if levels is not None:
            rest["weights"] = (1 if rest["weights"] is None else np.asarray(rest["weights"])) / np.square(levels)
        shape = self.targets.shape
        design = self.design if design is None else jnp.asarray(design, self.design.dtype)
        return linear_template(design, shape[1:], shape[:1], constraint, shares, rest)  # type: ignore[return-value]

    def _set_up(self) -> None:
        """Take the sample, and find its weights, its missing rows and its optima."""
        self.sampled = jnp.asarray(np.asarray(self.targets)[self.rows])
        rules = self._taken(self.plain_template).rows
        kept = rules.of(self.sampled)
        scale = np.ones(1) if kept.scale is None else np.asarray(kept.scale, np.float64)
        self.scale = np.broadcast_to(np.where(scale > 0, scale, np.nan), self.sampled.shape)
        count = len(self.rows)
        held = np.arange(count) % HELD_OUT == HELD_OUT - 1 if count >= FEWEST else np.ones(count, bool)
        self.held, self.train = held, ~held if count >= FEWEST else held
        self.wide = np.asarray(self.design, np.float64)
        self.whole = np.asarray(np.isfinite(self.scale).all(1))
        same = self.whole.any() and (self.scale[self.whole] == self.scale[self.whole][:1]).all()
        self.row_scale: np.ndarray | None = self.scale[self.whole][0] if same else None
        problem = self._taken(self.plain_template).with_targets(self.sampled)
        self.optima = np.asarray(least_squares(problem).theta, np.float64)

    def _taken(self, template: LinearTemplate) -> LinearTemplate:
        """Return a template of the sampled problems."""
        return template.map_leaves(lambda leaf, ndim: leaf[self.rows] if leaf.ndim > ndim else leaf)

    def template(self, state: State) -> LinearTemplate:
        """Return the template of all problems with what has been learned."""
        if state.covariance is None:
            own = self._template("estimate" if self.level == "estimate" else self._common_level())
        elif state.covariance.is_diagonal:
            # Levels of rows as weights: there may be too many rows for a matrix.
            own = self._template("estimate" if self.level == "estimate" else 1.0, np.sqrt(state.covariance.levels))
        else:
            matrix = jnp.asarray(_definite(state.matrix, self.design.dtype), self.design.dtype)
            noise = Correlated(matrix, scale="estimate" if self.level == "estimate" else 1.0)
            own = self._template(noise, design=self.design_of(state))
        return dataclasses.replace(own, prior=jnp.asarray(state.prior, self.design.dtype))

    def _common_level(self) -> float:
        """Return one noise level for all problems, from the data that no theta reaches."""
        residuals = self.residuals(self.optima)
        scaled = self.wide if self.row_scale is None else self.wide * self.row_scale[:, None]
        basis = self._outside(scaled)
        num_rows, free = basis.shape
        if not free:
            raise ValueError(
                f'level="common" with {num_rows} rows: a design with so many columns fits any target, so that nothing '
                'tells the noise; pass level="estimate"'
            )
        if self.row_scale is not None:
            return float(np.sqrt(np.mean(np.square(residuals[self.whole] @ basis))))
        # With gaps, residuals at the optima are larger than the part outside by what the walls add.
        seen = np.isfinite(residuals).sum()
        return float(np.sqrt(np.nansum(np.square(residuals)) / max(seen * free / num_rows, 1)))

    def design_of(self, state: State) -> np.ndarray:
        """Return the design with what has been learned about it, ``(N, P)``."""
        if state.correction is None or self.row_scale is None:
            return self.wide
        return state.correction.corrected / self.row_scale[:, None]

    def residuals(self, theta: np.ndarray, design: np.ndarray | None = None) -> np.ndarray:
        """Return residuals of the sampled problems at theta ``(..., B, P)``, in units of the rows' weights."""
        design = self.wide if design is None else design
        return (np.asarray(self.sampled, np.float64) - theta @ design.T) * self.scale

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
        """Return the state that follows from a round's posterior."""
        if number == 0:
            # The first covariance comes from data that no theta reaches. The prior is learned in later rounds, once
            # error bars are wide enough.
            learned = self._first()
            return State(learned, self._concentrations(found) if learned is None else state.prior)
        return State(self._updated(self._drawn(number, found), found, state), self._concentrations(found))

    def corrected(self, number: int, found: Posterior, state: State) -> State | None:
        """Return a state whose design is corrected, or corrected further; ``None`` if the data don't favour it."""
        correction = self._uncorrected(state) if state.correction is None else state.correction
        if correction is None or state.covariance is None or self.row_scale is None:
            return None
        draws, good = self._drawn(number, found), self._learns_from(found) & self.whole
        levels = np.ones(len(good)) if found.noise is None else np.asarray(found.noise.mean, np.float64)
        data = np.asarray(self.sampled, np.float64)[good] * self.row_scale
        seen = corrections.Seen(data, draws[:, good], 1 / np.square(levels[good]))
        correction = correction.updated(seen, state.covariance.matrix)
        if correction.evidence < LEAST_EVIDENCE:
            return None
        state = state._replace(correction=correction)
        return State(self._updated(draws, found, state), self._concentrations(found), correction)

    def apart(self, number: int, found: Posterior, state: State) -> State:
        """Return the state with a concentration for each component, from a posterior; all else stays as it was."""
        return state._replace(prior=self._concentrations(found, apart=True))

    def _uncorrected(self, state: State) -> Correction | None:
        """Return a correction of zero; ``None`` if the batch can't determine one."""
        if state.matrix is None or self.row_scale is None or (self.whole & self.train).sum() < FEWEST:
            return None
        design = self.wide * self.row_scale[:, None]
        return corrections.none_yet(design, self._outside(design), self.coordinates)

    def _outside(self, design: np.ndarray) -> np.ndarray:
        """Return an orthonormal basis of what no theta reaches."""
        return covariances.outside(np.asarray(self.plain_template.constraint.lift(jnp.asarray(design)), np.float64))

    def _first(self) -> Covariance | None:
        """Return the covariance from the data outside the span of the design; from residuals if these don't suffice."""
        if self.kind is None:
            return None
        residuals = self.residuals(self.optima)[self.train]
        rows = covariances.rows_only(residuals)
        if self.kind == "rows":
            return rows
        same_rows = bool(self.whole[self.train].all())
        design = self.wide * self.row_scale[:, None] if same_rows and self.row_scale is not None else self.wide
        start = covariances.with_components(rows, design, self.optima[self.train], self.coordinates)
        basis = self._outside(design)
        if self.row_scale is None or not same_rows or basis.shape[1] < 2:
            moment = covariances.second_moment(residuals, start)
            return start.fitted(moment, len(residuals), covariances.FIRST_STEPS)
        # Any point of the simplex serves: differences of points have no part outside the span.
        coordinates = residuals @ basis
        moment = coordinates.T @ coordinates / len(residuals)
        return start.fitted(moment, len(residuals), covariances.FIRST_STEPS, basis)

    def _drawn(self, number: int, found: Posterior) -> np.ndarray:
        """Return draws of theta, ``(L, B, P)``."""
        key = jax.random.fold_in(jax.random.fold_in(self.key, number), 1)
        several = max(1, min(SAMPLED_DRAWS, RESIDUALS // self.sampled.size))
        return np.asarray(found.sample(key, several), np.float64)

    def _learns_from(self, found: Posterior) -> np.ndarray:
        """Return which of the sampled problems are learned from, ``(B,)``."""
        good = self.train & _sampled_well(found)
        return good if good.any() else self.train

    def _updated(self, draws: np.ndarray, found: Posterior, state: State) -> Covariance | None:
        """Return the covariance after some steps towards the likeliest, given draws ``(L, B, P)``."""
        if state.covariance is None:
            return None
        residuals = self.residuals(draws, self.design_of(state))
        if found.noise is not None:
            residuals = residuals / np.asarray(found.noise.mean, np.float64)[:, None]
        good = self._learns_from(found)
        flat = residuals[:, good].reshape(-1, residuals.shape[-1])
        if state.covariance.is_diagonal:
            return covariances.rows_again(flat, good.sum(), state.covariance)
        moment = covariances.second_moment(flat, state.covariance)
        return state.covariance.fitted(moment, good.sum(), covariances.MORE_STEPS)

    def _concentrations(self, found: Posterior, apart: bool = False) -> np.ndarray:
        """Return the concentrations that make the mean of ``ln omega`` likeliest: equal ones, or one for each."""
        if not self.learns_prior:
            return self.plain.prior
        alpha = np.asarray(found.alpha, np.float64)[self._learns_from(found)]
        if apart:
            return concentrations.own(alpha, self.design.dtype)
        return concentrations.equal(concentrations.log_mean(alpha), self.plain_template.constraint.has_slack)

    def learned(self, state: State, history: list[Round], chosen: int) -> Learned:
        """Return the result."""
        problem, found = self.template(state).with_targets(self.targets), state.covariance
        matrix, design = state.matrix, self.design_of(state)
        levels = np.sqrt(found.levels) if found is not None and found.is_diagonal else None
        narrow = self._narrow(self.plain), self._narrow(state)
        if narrow[1] > NARROW:
            self.notes.append(
                f"error bars are still too narrow by a factor of {narrow[1]:.1f}: errors are of another form than "
                "those learned; treat intervals with caution"
            )
        moved = np.linalg.norm(design - self.wide) / max(np.linalg.norm(self.wide), np.finfo(float).tiny)
        notes = tuple(self.notes)
        return Learned(problem, matrix, levels, state.prior, design, history, chosen, notes, narrow, float(moved))

    def _narrow(self, state: State) -> float:
        """Return how many times too narrow error bars are with what has been learned."""
        several = np.unique(np.linspace(0, len(self.rows) - 1, min(len(self.rows), JUDGED)).astype(int))
        template = self._taken(self.template(state)).take(several, 1)
        return narrow_factor(template, np.asarray(self.sampled)[several], self.coordinates)


def _sampled_well(found: Posterior) -> np.ndarray:
    """Return for which problems the sampler can be trusted, whatever the model."""
    return (np.asarray(found.status) & ~int(ABOUT_THE_MODEL)) == 0


def _choose(key: jax.Array, count: int, sample: int) -> np.ndarray:
    """Return the numbers of the problems to learn from."""
    if count <= sample:
        return np.arange(count)
    return np.sort(np.asarray(jax.random.permutation(jax.random.fold_in(key, 1 << 20), count)[:sample]))


def _definite(matrix: np.ndarray | None, dtype: Any) -> np.ndarray:
    """Return a covariance whose smallest eigenvalue is above the rounding errors of a dtype."""
    assert matrix is not None
    rounding = float(jnp.finfo(dtype).eps) * np.trace(matrix)
    return matrix + max(rounding - np.linalg.eigvalsh(matrix)[0], 0.0) * np.eye(len(matrix))


def _matched_by_logs(method: Sampler) -> Sampler:
    """Return the method with ``match="kl"``: its concentrations carry the means of ``ln omega`` to learn from."""
    has_rule = any(field.name == "match" for field in dataclasses.fields(method))  # type: ignore[arg-type]
    return dataclasses.replace(method, match="kl") if has_rule else method  # type: ignore[call-arg]
