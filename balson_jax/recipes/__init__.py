"""Whole analyses in one call, from a pandas frame to a table: synthetic controls and isotope mixing models."""

from .effects import AverageEffect, SyntheticControl
from .mixing import Mixing, mixing
from .synthetic_control import synthetic_control

__all__ = ["AverageEffect", "Mixing", "SyntheticControl", "mixing", "synthetic_control"]
