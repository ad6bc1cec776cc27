"""Synthetic spectra, smooth and similar to each other like those of minerals and plants, and their mixtures."""

from __future__ import annotations

import numpy as np

import balson_jax as balson


def smooth_spectra(rng: np.random.Generator, num_bands: int, num_spectra: int) -> np.ndarray:
    """Return spectra, ``(num_bands, num_spectra)``. Each is a constant plus three broad bumps or dips."""
    band = np.linspace(0, 1, num_bands)[:, None]
    level = rng.uniform(0.3, 0.5, num_spectra)
    heights = rng.uniform(-0.3, 0.5, (3, num_spectra))
    places, widths = rng.uniform(size=(3, num_spectra)), rng.uniform(0.1, 0.4, (3, num_spectra))
    bumps = heights * np.exp(-0.5 * np.square((band[:, None] - places) / widths))
    return level + bumps.sum(1)


def mixed_problems(
    rng: np.random.Generator, count: int, num_bands: int, num_spectra: int, noise: float, prior: float
) -> balson.Problem:
    """Return mixing problems. Each has its own spectra, and abundances drawn uniformly from the simplex."""
    design = np.stack([smooth_spectra(rng, num_bands, num_spectra) for _ in range(count)])
    abundance = rng.dirichlet(np.ones(num_spectra), count)
    clean = np.einsum("pnk,pk->pn", design, abundance)
    target = clean + noise * rng.normal(size=clean.shape)
    return balson.linear_problem(design.astype(np.float32), target.astype(np.float32), noise=noise, prior=prior)
