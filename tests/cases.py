"""What several tests use: thinning, small fits that share compiled programs, problems that quadrature integrates."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import balson_jax as balson
from balson_jax.execution import programs


def thinned(name: str, short: list, long: list) -> pytest.MarkDecorator:
    """Parametrise a test with some values in every run, and with the others in the long run only.

    Several names, with commas between them, take tuples of values.
    """
    several = "," in name
    late = (pytest.param(*(value if several else (value,)), marks=pytest.mark.slow) for value in long)
    return pytest.mark.parametrize(name, [*short, *late])


# --- small fits ------------------------------------------------------------------------------------------------------
#
# Nearly all of the suite's time is compilation, and a program serves all fits of equal shape by the same method. Tests
# that need some fit use these methods and shapes: three components, ten rows, one problem or five with one design.

FAST = {
    "is": balson.IS(num_draws=4000),  # not a power of two, so that replicates are filled up
    "rs": balson.RS(num_draws=500, max_proposals=1 << 18),
}
TOGETHER = 5
_RNG = np.random.default_rng(0)
DESIGN = _RNG.normal(size=(10, 3)) + np.arange(3.0)
TARGETS = DESIGN @ [0.2, 0.7, 0.1] + 0.5 * _RNG.normal(size=(TOGETHER, 10))
DESIGN.setflags(write=False)
TARGETS.setflags(write=False)

PROGRAMS = (programs._prepare, programs._fit_many, programs._fit_plain)
"""The programs that serve batches."""


def num_programs() -> int:
    """Return how many programs for batches have been compiled."""
    return sum(program._cache_size() for program in PROGRAMS)


def forget_programs() -> None:
    for program in PROGRAMS:
        program.clear_cache()


# --- problems for quadrature -----------------------------------------------------------------------------------------

PRIORS = {
    2: ((0.3, 0.8), (1.0, 1.0), (0.5, 2.0), (4.0, 1.5)),
    3: ((0.3, 0.7, 1.2), (1.0, 1.0, 1.0), (0.5, 2.0, 1.0), (4.0, 1.5, 8.0)),
}
NOISES = (0.3, 1.0, 5.0)
NUM_ROWS = 6


@dataclasses.dataclass
class Batch:
    """Problems of equal shape, as arrays with a leading axis."""

    design: np.ndarray
    target: np.ndarray
    noise: np.ndarray
    prior: np.ndarray
    total: np.ndarray

    def __len__(self) -> int:
        return len(self.target)

    def problem(self) -> balson.Problem:
        return balson.linear_problem(self.design, self.target, noise=self.noise, prior=self.prior, total=self.total)

    def single(self, index: int) -> balson.Problem:
        return balson.linear_problem(
            self.design[index],
            self.target[index],
            noise=self.noise[index],
            prior=self.prior[index],
            total=self.total[index],
        )

    def truths(self, integrate) -> list:
        rows = zip(self.design, self.target, self.prior, self.noise, self.total, strict=True)
        return [integrate(a, y, alpha, noise=noise, total=total) for a, y, alpha, noise, total in rows]


def batch(num_components: int) -> Batch:
    """Return twelve problems: every prior with every noise level, a skewed truth and different totals."""
    rng = np.random.default_rng(num_components)
    grid = [(prior, noise) for prior in PRIORS[num_components] for noise in NOISES]
    design = rng.normal(size=(len(grid), NUM_ROWS, num_components)) + np.arange(num_components)
    noise = np.array([noise for _, noise in grid])
    total = rng.uniform(0.5, 2.0, len(grid))
    omega = rng.dirichlet(0.5 + np.arange(num_components), len(grid))
    clean = np.einsum("pnk,pk->pn", design, omega * total[:, None])
    target = clean + noise[:, None] * rng.normal(size=clean.shape)
    return Batch(design, target, noise, np.array([prior for prior, _ in grid]), total)


def spectra(rng: np.random.Generator, num_rows: int, num_components: int) -> np.ndarray:
    """Return smooth columns that are much alike."""
    x = np.linspace(0, 1, num_rows)[:, None, None]
    places, widths = rng.uniform(size=(3, num_components)), rng.uniform(0.1, 0.4, (3, num_components))
    bumps = rng.uniform(-0.3, 0.5, (3, num_components)) * np.exp(-0.5 * np.square((x - places) / widths))
    return rng.uniform(0.3, 0.5, num_components) + bumps.sum(1)


def pixels(seed, count, num_rows, num_components, noise, **options):
    """Return problems that share a design, and the abundances behind them."""
    rng = np.random.default_rng(seed)
    design = spectra(rng, num_rows, num_components)
    theta = rng.dirichlet(np.ones(num_components), count)
    target = theta @ design.T + noise * rng.normal(size=(count, num_rows))
    return balson.linear_problem(design, target, noise=options.pop("level", noise), **options), theta
