"""Problems of compressive sensing: random rows, few components present, with and without noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Design = Literal["gaussian", "fourier"]


class Case(NamedTuple):
    """A kind of problem.

    Attributes:
      design: rows of independent normal numbers, or cosines and sines of random frequencies.
      constraint: ``"equal"``, theta on the simplex, or ``"signed"``, theta on the surface of the L1 ball; total 1.
      noise: standard deviation of the noise, as a share of the root mean square of the noiseless rows.
    """

    design: Design
    constraint: Literal["equal", "signed"]
    noise: float

    @property
    def signed(self) -> bool:
        """Whether theta has signs."""
        return self.constraint == "signed"

    @property
    def name(self) -> str:
        """The case in words."""
        noise = f"noise {100 * self.noise:g} %" if self.noise else "no noise"
        return f"{'signs' if self.signed else 'simplex'}, {self.design} rows, {noise}"


class Cell(NamedTuple):
    """A place in the phase diagram: the numbers N of rows and s of components that are present."""

    num_rows: int
    num_present: int


class Problems(NamedTuple):
    """Problems of equal shape.

    Attributes:
      design: ``(problems, N, K)``, in units of the root mean square of the noiseless rows.
      target: ``(problems, N)``.
      theta: the truth, ``(problems, K)``.
    """

    design: np.ndarray
    target: np.ndarray
    theta: np.ndarray

    def padded(self, num_rows: int) -> Problems:
        """Return the problems with rows of zeros added, which change nothing: one program then serves all."""
        missing = num_rows - self.target.shape[1]
        design = np.pad(self.design, [(0, 0), (0, missing), (0, 0)])
        return Problems(design, np.pad(self.target, [(0, 0), (0, missing)]), self.theta)


def joined(parts: Sequence[Problems]) -> Problems:
    """Return problems of equal shape together."""
    return Problems(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def make(rng: np.random.Generator, case: Case, cell: Cell, num_components: int, trials: int) -> Problems:
    """Return problems with a design and a truth of their own each, in float64."""
    rows = {"gaussian": gaussian_rows, "fourier": fourier_rows}[case.design]
    design = np.stack([rows(rng, cell.num_rows, num_components) for _ in range(trials)])
    theta = np.stack([sparse_shares(rng, num_components, cell.num_present, case.signed) for _ in range(trials)])
    clean = np.einsum("pnk,pk->pn", design, theta)
    scale = np.sqrt(np.square(clean).mean(-1, keepdims=True))
    target = clean / scale + case.noise * rng.normal(size=clean.shape)
    return Problems(design / scale[..., None], target, theta)


def gaussian_rows(rng: np.random.Generator, num_rows: int, num_components: int) -> np.ndarray:
    """Return rows of independent standard normal numbers, ``(N, K)``."""
    return rng.normal(size=(num_rows, num_components))


def fourier_rows(rng: np.random.Generator, num_rows: int, num_components: int) -> np.ndarray:
    """Return random rows of the real Fourier basis without its constant, whose product with theta is known, ``(N, K)``.

    Rows are orthogonal, and of squared length K.
    """
    place = np.arange(num_components)
    basis = []
    for frequency in range(1, num_components // 2 + 1):
        angle = 2 * np.pi * frequency * place / num_components
        if 2 * frequency == num_components:
            basis.append(np.cos(angle))
        else:
            basis += [np.sqrt(2) * np.cos(angle), np.sqrt(2) * np.sin(angle)]
    if num_rows > len(basis):
        raise ValueError(f"num_rows={num_rows} must be less than num_components={num_components}")
    return np.asarray(basis)[rng.choice(len(basis), num_rows, replace=False)]


def sparse_shares(rng: np.random.Generator, num_components: int, num_present: int, signed: bool) -> np.ndarray:
    """Return a theta whose present components are a uniform draw from their simplex, with random signs if signed."""
    theta = np.zeros(num_components)
    present = rng.choice(num_components, num_present, replace=False)
    theta[present] = rng.dirichlet(np.ones(num_present))
    if signed:
        theta[present] *= rng.choice([-1.0, 1.0], num_present)
    return theta
