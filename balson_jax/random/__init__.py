"""Fast draws from points of the unit cube, useful alone."""

from . import points

__all__ = ["points"]
