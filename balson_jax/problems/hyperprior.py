"""The prior of an unknown concentration that all components have in common.

The logarithm of the concentration has a uniform density between two ends. A grid stands for it: with values at even
distances of their logarithms the trapezoidal rule gives the shares of the grid.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .. import validation


@dataclasses.dataclass(frozen=True)
class CommonConcentration:
    """One unknown concentration for all components, to pass as ``prior``; ``prior="estimate"`` means the default.

    Concentrations of a slack stay as they are given. The work of a fit is multiplied by the number of values.

    Attributes:
      smallest: lower end.
      largest: upper end.
      num: number of values of the grid, at least 2.

    >>> CommonConcentration(0.25, 4.0, 3).values().tolist()
    [0.25, 1.0, 4.0]
    """

    smallest: float = 0.02
    largest: float = 4.0
    num: int = 12

    def __post_init__(self) -> None:
        validation.require_at_least("num", self.num, 2)
        for name in ("smallest", "largest"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if not 0 < self.smallest < self.largest < np.inf:
            raise ValueError(f"smallest={self.smallest} and largest={self.largest} must be positive, and in order")

    def values(self) -> np.ndarray:
        """Return the values of the grid, ``(num,)``."""
        return np.geomspace(self.smallest, self.largest, self.num)

    def shares(self) -> np.ndarray:
        """Return the prior probabilities of the values, ``(num,)``."""
        shares = np.ones(self.num)
        shares[[0, -1]] = 0.5
        return shares / shares.sum()


def _number(name: str, value: Any) -> float:
    """Return a scalar of any kind as a number of Python, which can be hashed, or raise ``ValueError``."""
    found = validation.known(validation.float_array(name, value))
    if found is None or found.ndim:
        what = "has a value that is not known inside a trace" if found is None else f"has shape {found.shape}"
        raise ValueError(f"{name} {what}; pass one number")
    return float(np.asarray(value))


def read(prior: Any) -> tuple[Any, CommonConcentration | None]:
    """Return concentrations, and how a common one is spread if it is to be estimated, or raise ``ValueError``."""
    if hasattr(prior, "lower"):  # a name
        validation.require_choice("prior", prior, ("estimate",))
        prior = CommonConcentration()
    return (1.0, prior) if type(prior) is CommonConcentration else (prior, None)
