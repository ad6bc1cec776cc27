"""Synthetic spectra, smooth and similar to each other like those of minerals and plants, and their mixtures."""

from __future__ import annotations

import numpy as np

import balson_jax as balson
from balson_jax.experiments.scenes import smooth_spectra


def mixed_problems(
    rng: np.random.Generator, count: int, num_bands: int, num_spectra: int, noise: float, prior: float
) -> balson.Problem:
    """Return mixing problems. Each has its own spectra, and abundances drawn uniformly from the simplex."""
    design = np.stack([smooth_spectra(rng, num_bands, num_spectra) for _ in range(count)])
    abundance = rng.dirichlet(np.ones(num_spectra), count)
    clean = np.einsum("pnk,pk->pn", design, abundance)
    target = clean + noise * rng.normal(size=clean.shape)
    return balson.linear_problem(design.astype(np.float32), target.astype(np.float32), noise=noise, prior=prior)


__all__ = ["mixed_problems", "smooth_spectra"]
