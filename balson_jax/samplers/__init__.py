"""The paper's four samplers, each a frozen dataclass that runs on a block of problems."""

from .importance import IS
from .rejection import RS
from .resampling import ISIRS, RSIRS, Rounds

Method = RS | IS | RSIRS | ISIRS

METHODS: dict[str, type[Method]] = {method.name: method for method in (RS, IS, RSIRS, ISIRS)}

__all__ = ["IS", "ISIRS", "METHODS", "RS", "RSIRS", "Method", "Rounds"]
