"""A scene like a real one: pure and mixed pixels, endmembers that vary, correlated residuals."""

from __future__ import annotations

import pathlib

import numpy as np

from balson_jax.experiments.scenes import Scene, smooth_spectra


def simulated(seed: int, num_pixels: int, num_bands: int = 198, num_materials: int = 4) -> Scene:
    """Return a scene in which a third of the pixels are pure, and residuals are correlated between bands.

    Materials vary in brightness by 5 percent between pixels. Smooth residuals have a standard deviation of 0.01, white
    ones of 0.003.
    """
    rng = np.random.default_rng(seed)
    design = smooth_spectra(rng, num_bands, num_materials)
    abundances = rng.dirichlet(np.full(num_materials, 0.5), num_pixels)
    pure = rng.random(num_pixels) < 1 / 3
    abundances[pure] = np.eye(num_materials)[rng.integers(num_materials, size=pure.sum())]
    clean = (abundances * rng.normal(1, 0.05, abundances.shape)) @ design.T
    smooth = rng.normal(size=(num_pixels, num_bands + 30))
    kernel = np.exp(-0.5 * np.square(np.arange(-15, 16) / 6))
    smooth = np.stack([np.convolve(row, kernel / np.linalg.norm(kernel), "valid") for row in smooth])
    targets = clean + 0.01 * smooth + 0.003 * rng.normal(size=clean.shape)
    return Scene(design.astype(np.float32), targets.astype(np.float32), abundances.astype(np.float32))


def loaded(path: str | pathlib.Path) -> Scene:
    """Return a scene from an ``.npz`` file with arrays ``endmembers``, ``spectra`` and ``abundances``."""
    with np.load(path, allow_pickle=False) as file:
        names = ("endmembers", "spectra", "abundances")
        return Scene(*(np.asarray(file[name], np.float32) for name in names))
