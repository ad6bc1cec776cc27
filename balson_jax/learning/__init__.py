"""Models and settings judged by data: comparison and tuning by evidence, noise and prior learned from a batch."""

from .batches import learn
from .checked import Check
from .checking import check
from .comparison import Comparison, compare
from .learned import Learned
from .tuning import Tuning, tune

__all__ = ["Check", "Comparison", "Learned", "Tuning", "check", "compare", "learn", "tune"]
