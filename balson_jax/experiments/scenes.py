"""Simulated scenes: mixtures of spectra with the troubles that real ones have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TROUBLES = ("none", "correlated", "variable", "gain", "bad_bands", "all")


class Scene(NamedTuple):
    """A scene.

    Attributes:
      design: spectra of the materials as a user knows them, ``(bands, materials)``.
      targets: spectra of the pixels, ``(pixels, bands)``.
      abundances: the truth, ``(pixels, materials)``.
    """

    design: np.ndarray
    targets: np.ndarray
    abundances: np.ndarray


def smooth_spectra(rng: np.random.Generator, num_bands: int, num_spectra: int) -> np.ndarray:
    """Return spectra, ``(num_bands, num_spectra)``. Each is a constant plus three broad bumps or dips."""
    band = np.linspace(0, 1, num_bands)[:, None]
    level = rng.uniform(0.3, 0.5, num_spectra)
    heights = rng.uniform(-0.3, 0.5, (3, num_spectra))
    places, widths = rng.uniform(size=(3, num_spectra)), rng.uniform(0.1, 0.4, (3, num_spectra))
    bumps = heights * np.exp(-0.5 * np.square((band[:, None] - places) / widths))
    return level + bumps.sum(1)


def smooth_noise(rng: np.random.Generator, count: int, num_bands: int, length: float) -> np.ndarray:
    """Return curves ``(count, num_bands)`` of unit variance, correlated over a ``length``."""
    place = np.arange(num_bands)
    kernel = np.exp(-0.5 * np.square((place[:, None] - place) / length))
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return rng.standard_normal((count, num_bands)) @ root.T


def simulate(
    seed: int,
    trouble: str = "all",
    *,
    num_pixels: int = 2000,
    num_bands: int = 100,
    num_materials: int = 4,
    noise: float = 0.01,
) -> Scene:
    """Return a scene in which 30 percent of the pixels are pure, and the others mixed with concentrations of 0.5.

    Args:
      seed: of the random numbers.
      trouble: ``"none"``: white noise alone. ``"correlated"``: smooth errors twice as large, and less white noise.
        ``"variable"``: in each pixel a material's brightness is off by 10 percent, and its shape by 5.
        ``"gain"``: each pixel's brightness is off by 10 percent. ``"bad_bands"``: one band in twenty has noise of 0.2.
        ``"all"`` of these, with design spectra that are themselves off by 5 percent.
      num_pixels: how many pixels.
      num_bands: how many bands.
      num_materials: how many materials.
      noise: standard deviation of the white noise.
    """
    if trouble not in TROUBLES:
        raise ValueError(f"trouble={trouble!r} is unknown; choose from {', '.join(TROUBLES)}")
    rng = np.random.default_rng(seed)
    spectra = smooth_spectra(rng, num_bands, num_materials)
    abundances = rng.dirichlet(np.full(num_materials, 0.5), num_pixels)
    pure = rng.random(num_pixels) < 0.3
    abundances[pure] = np.eye(num_materials)[rng.integers(num_materials, size=pure.sum())]
    has = {name: trouble in (name, "all") for name in TROUBLES}
    shares = abundances[:, :, None] * spectra.T
    if has["variable"]:
        shapes = smooth_noise(rng, num_pixels * num_materials, num_bands, num_bands / 5).reshape(shares.shape)
        shares *= (1 + 0.1 * rng.standard_normal((num_pixels, num_materials, 1))) * (1 + 0.05 * shapes)
    targets = shares.sum(1)
    if has["gain"]:
        targets *= 1 + 0.1 * rng.standard_normal((num_pixels, 1))
    white = 0.3 * noise if has["correlated"] else noise
    targets += white * rng.standard_normal(targets.shape)
    if has["correlated"]:
        targets += 2 * noise * smooth_noise(rng, num_pixels, num_bands, 6)
    if has["bad_bands"]:
        bad = rng.choice(num_bands, num_bands // 20, replace=False)
        targets[:, bad] += 0.2 * rng.standard_normal((num_pixels, len(bad)))
    design = spectra
    if trouble == "all":
        design = spectra * (1 + 0.05 * smooth_noise(rng, num_materials, num_bands, num_bands / 5).T)
    return Scene(design.astype(np.float32), targets.astype(np.float32), abundances.astype(np.float32))
