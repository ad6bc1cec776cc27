"""Write the table of Sobol direction numbers.

The numbers are those of Joe and Kuo (2008), "Constructing Sobol sequences with better two-dimensional projections",
taken from SciPy, and stored bit-reversed in the order in which they act on the index of a point: with ``V_b`` the
direction number of bit b, point i in SciPy's (Gray code) order is the XOR of ``V_b ^ V_(b-1)`` over the bits b of i.
Run ``python -m balson_jax.random.tabulate_sobol`` to write it anew.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from .sobol import MAX_DIMS, TABLE, WIDTH


def tabulate() -> np.ndarray:
    """Return the direction numbers, ``(MAX_DIMS, 32)``."""
    directions = np.asarray(qmc.Sobol(MAX_DIMS, scramble=False, bits=WIDTH)._sv, np.uint32)
    directions[:, 1:] ^= directions[:, :-1].copy()
    return reverse_bits(directions)


def reverse_bits(values: np.ndarray) -> np.ndarray:
    """Return 32-bit integers with their bits in the opposite order."""
    result = np.zeros_like(values)
    for bit in range(WIDTH):
        result |= ((values >> np.uint32(bit)) & np.uint32(1)) << np.uint32(WIDTH - 1 - bit)
    return result


if __name__ == "__main__":
    np.savez_compressed(TABLE, allow_pickle=False, directions=tabulate())
    print(f"wrote {TABLE.name}")
