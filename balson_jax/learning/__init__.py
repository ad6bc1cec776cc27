"""What data tell about models and settings: comparison and tuning by evidence, noise and prior of a batch."""

from .comparison import Comparison, compare
from .learn import learn
from .learned import Learned
from .tuning import Tuning, tune

__all__ = ["Comparison", "Learned", "Tuning", "compare", "learn", "tune"]
