"""Write the table of Sobol direction numbers.

The direction numbers are those of Joe and Kuo (2008), "Constructing Sobol sequences with better two-dimensional
projections", taken from SciPy. They are stored bit-reversed, and combined so that the bits of a point's index select
them directly. With ``V_b`` the direction number of bit b, point i in SciPy's (Gray code) order is the XOR of
``V_b ^ V_(b-1)`` over the set bits b of i. Run ``python -m balson_jax.random.tabulate_sobol`` to write the table again.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from .sobol import MAX_DIMS, TABLE, WIDTH


def tabulate() -> np.ndarray:
    """Return the combined, bit-reversed direction numbers, ``(MAX_DIMS, 32)``."""
    directions = np.asarray(qmc.Sobol(MAX_DIMS, scramble=False, bits=WIDTH)._sv, np.uint32)
    directions[:, 1:] ^= directions[:, :-1].copy()
    return reverse_bits(directions)


def reverse_bits(values: np.ndarray) -> np.ndarray:
    """Return 32-bit integers with their bits reversed."""
    result = np.zeros_like(values)
    for bit in range(WIDTH):
        result |= ((values >> np.uint32(bit)) & np.uint32(1)) << np.uint32(WIDTH - 1 - bit)
    return result


if __name__ == "__main__":
    np.savez_compressed(TABLE, allow_pickle=False, directions=tabulate())
    print(f"wrote {TABLE.name}")
