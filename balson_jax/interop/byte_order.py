"""Does an image make sense only with its bytes the other way round?

There are two signs. Each must be seen in the numbers as declared, and be absent once their bytes are swapped. Floats in
the wrong order have random exponents, most of them absurd. Integers in the wrong order jump from band to band by as
much as they vary in all, while spectra are smooth.
"""

from __future__ import annotations

import numpy as np

SAMPLED = 8
"""Number of lines and of samples that are looked at, with all of their bands."""

FEWEST = 64
"""With fewer numbers the byte order is not judged."""

FEW_VALUES = 16
"""Fewer different numbers may just mark pixels without data."""

SANE = 1e-12, 1e12
"""Range of the magnitudes of measured numbers."""


def looks_swapped(cube: np.ndarray) -> bool:
    """Return whether an image ``(lines, samples, bands)`` makes sense only with swapped bytes."""
    lines, samples = (np.unique(np.linspace(0, size - 1, SAMPLED).astype(int)) for size in cube.shape[:2])
    declared = np.array(cube[np.ix_(lines, samples)])
    if cube.dtype.itemsize == 1 or declared.size < FEWEST or len(np.unique(declared)) < FEW_VALUES:
        return False
    swapped = declared.view(declared.dtype.newbyteorder())
    if declared.dtype.kind == "f":
        return _absurd(declared) > 0.4 and _absurd(swapped) < 0.01
    return declared.shape[2] > 2 and _roughness(declared) > 0.3 and _roughness(swapped) < 0.03


def _absurd(values: np.ndarray) -> float:
    """Return the share of nonzero numbers that have absurd magnitudes."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(values[values != 0].astype(np.float64))
    if not size.size:
        return 0.0
    return float(1 - ((size > SANE[0]) & (size < SANE[1])).mean())


def _roughness(values: np.ndarray) -> float:
    """Return the mean square of steps between bands over that of the numbers about their mean; 0 for a constant."""
    wide = values.astype(np.float64)
    spread = np.square(wide - wide.mean()).mean()
    return float(np.square(np.diff(wide, axis=2)).mean() / spread) if spread else 0.0
