"""Random small problems of every kind: what ``fuzz`` fits and integrates. NumPy only."""

from __future__ import annotations

import dataclasses

import numpy as np

import balson_jax as balson

CONSTRAINTS = ("equal", "at_most", "signed", "signed_at_most")
SIZES = (2, 3, 4, 5, 6, 7, 8)
KINDS = ("known", "estimated")
DESIGNS = ("normal", "positive", "collinear", "duplicated")
PLACES = ("inside", "face", "corner", "outside")
NOISES, CONCENTRATIONS, ROWS = (1e-4, 1e4), (0.05, 20.0), (1, 30)
PRIORS = 4
"""Problems of a batch share this many priors, so that one sample of a prior serves several of them."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Problems of equal shape, in float32: what the library sees, and what the truth is computed from.

    Attributes:
      seed: numbers that reproduce the batch, as ``batch(*seed)``.
      constraint: its name.
      design: ``(B, N, P)``.
      target: ``(B, N)``, NaN in rows that a problem doesn't have: one program serves all numbers of rows.
      prior: concentrations of omega, slack included, ``(B, K)``.
      total: ``(B,)``.
      level: known standard deviations, ``(B,)``, or ``None``.
      shape: of the prior of an unknown variance, ``(B,)``; 0 for the scale-invariant one.
      scale: the same.
      labels: kind of design and place of the target of each problem.
    """

    seed: tuple[int, str, str, int, int]
    constraint: str
    design: np.ndarray
    target: np.ndarray
    prior: np.ndarray
    total: np.ndarray
    level: np.ndarray | None
    shape: np.ndarray
    scale: np.ndarray
    labels: list[str]

    def __len__(self) -> int:
        return len(self.target)

    @property
    def num_components(self) -> int:
        """Number of components of omega."""
        return self.prior.shape[-1]

    def problem(self) -> balson.Problem:
        """Return the problems as the library takes them."""
        prior, options = self.prior, {}
        if self.constraint.endswith("at_most"):
            prior, options = prior[:, :-1], {"slack_prior": prior[:, -1]}
        noise = balson.InverseGamma(self.shape, self.scale) if self.level is None else self.level
        return balson.linear_problem(
            self.design,
            self.target,
            constraint=self.constraint,
            total=self.total,
            prior=prior,
            noise=noise,
            missing="drop",
            **options,
        )

    def lifted(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of omega, ``(N, K)``, times the total, and the map from omega to theta, ``(P, K)``."""
        count = self.design.shape[-1]
        maps = np.eye(count)
        if self.constraint.startswith("signed"):
            maps = np.concatenate([maps, -maps], axis=1)
        if self.constraint.endswith("at_most"):
            maps = np.concatenate([maps, np.zeros((count, 1))], axis=1)
        maps = maps * float(self.total[index])
        return self.design[index].astype(float) @ maps, maps

    def described(self, index: int) -> str:
        """Return what one problem is, and how to make it again."""
        noise = f"shape {self.shape[index]:.3g}, scale {self.scale[index]:.3g}"
        if self.level is not None:
            noise = f"level {self.level[index]:.3g}"
        prior = np.array2string(self.prior[index], precision=3, max_line_width=1000)
        rows = np.isfinite(self.target[index]).sum()
        return f"batch{self.seed}[{index}]: {self.labels[index]}, {rows} rows, {noise}, prior {prior}"


def batch(size: int, constraint: str, kind: str, number: int, count: int = 32) -> Batch:
    """Return a batch of problems with ``size`` parameters; equal arguments give equal problems."""
    place = (CONSTRAINTS.index(constraint), KINDS.index(kind))
    rng = np.random.default_rng([size, *place, number, count])
    num_rows = np.round(np.exp(rng.uniform(*np.log(ROWS), count))).astype(int)
    priors = [_prior(rng, size, constraint) for _ in range(PRIORS)]
    prior = np.stack([priors[index % PRIORS] for index in range(count)])
    total = np.where(rng.uniform(size=count) < 0.5, 1.0, np.exp(rng.uniform(-1, 1, count)))
    level = np.exp(rng.uniform(*np.log(NOISES), count))
    pairs = [(str(rng.choice(DESIGNS)), str(rng.choice(PLACES))) for _ in range(count)]
    design = np.stack([_design(rng, ROWS[1], size, kind) for kind, _ in pairs])
    lifted = Batch((size, constraint, kind, number, count), constraint, design, design[:, :, 0], prior, total, *_NONE)
    fitted = np.stack([_fitted(rng, lifted.lifted(index)[0], place) for index, (_, place) in enumerate(pairs)])
    # Half of the targets have the noise that is stated, the others never more than of order one.
    noise = np.where(rng.uniform(size=count) < 0.5, level, np.minimum(level, 1.0))
    target = fitted + noise[:, None] * rng.normal(size=fitted.shape)
    target[np.arange(ROWS[1]) >= num_rows[:, None]] = np.nan
    # Few rows can be fitted perfectly; then the level needs a proper prior.
    proper = (num_rows <= prior.shape[-1] + 1) | (rng.uniform(size=count) < 0.5)
    shape = np.where(proper, np.exp(rng.uniform(np.log(0.5), np.log(5.0), count)), 0.0)
    single = np.float32
    return dataclasses.replace(
        lifted,
        design=design.astype(single),
        target=target.astype(single),
        prior=prior.astype(single),
        total=total.astype(single),
        level=level.astype(single) if kind == "known" else None,
        shape=shape.astype(single),
        scale=(shape * np.square(level) * np.exp(rng.normal(size=count))).astype(single),
        labels=[f"{kind} design, target {place}" for kind, place in pairs],
    )


_NONE = (None, np.zeros(0), np.zeros(0), [])


def _prior(rng: np.random.Generator, size: int, constraint: str) -> np.ndarray:
    """Return concentrations of all components of omega: one for all, or one for each."""
    count = size * (2 if constraint.startswith("signed") else 1) + constraint.endswith("at_most")
    draws = np.exp(rng.uniform(*np.log(CONCENTRATIONS), count))
    same = rng.uniform() < 0.5
    return np.full(count, 1.0 if rng.uniform() < 0.2 else draws[0]) if same else draws


def _design(rng: np.random.Generator, num_rows: int, size: int, kind: str) -> np.ndarray:
    design = rng.normal(size=(num_rows, size))
    if kind == "positive":
        return np.abs(design) + rng.uniform(0, 2)
    if kind == "collinear":
        return design[:, :1] + 10 ** rng.uniform(-3, -0.5) * design
    if kind == "duplicated":
        design[:, int(rng.integers(1, size))] = design[:, 0]
    return design


def _fitted(rng: np.random.Generator, columns: np.ndarray, place: str) -> np.ndarray:
    """Return a target without noise."""
    num_rows, count = columns.shape
    if place == "outside":
        return np.abs(columns).max() * 10 ** rng.uniform(-0.5, 0.7) * rng.normal(size=num_rows)
    omega = rng.dirichlet(np.ones(count))
    if place == "corner":
        omega = np.eye(count)[rng.integers(count)]
    if place == "face":
        omega = omega * (rng.uniform(size=count) < 0.5)
        omega = omega / max(omega.sum(), 1e-3)
    return columns @ omega
