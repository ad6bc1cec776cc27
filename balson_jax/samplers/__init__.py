"""The samplers, frozen dataclasses that run on a block of problems: the paper's four, and three for strong data."""

from .chains.hit_and_run import HitAndRun
from .gaussian import TG
from .importance import IS
from .rejection import RS
from .rounds import ISIRS, RSIRS, Rounds
from .variational import Variational

Method = RS | IS | RSIRS | ISIRS | TG | HitAndRun | Variational

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (RS, IS, RSIRS, ISIRS, TG, HitAndRun, Variational)
}

__all__ = ["IS", "ISIRS", "METHODS", "RS", "RSIRS", "TG", "HitAndRun", "Method", "Rounds", "Variational"]
