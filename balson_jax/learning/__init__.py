"""What data tell about models and settings: comparison and tuning by evidence."""

from .comparison import Comparison, compare
from .tuning import Tuning, tune

__all__ = ["Comparison", "Tuning", "compare", "tune"]
