"""Data files: tables, arrays and images of other programs, read by one function, ``read``."""

from .align import aligned, by_problem, good_rows, taken
from .reading import FORMATS, read
from .table import InputError, Table

__all__ = ["FORMATS", "InputError", "Table", "aligned", "by_problem", "good_rows", "read", "taken"]
