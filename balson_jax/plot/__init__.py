"""Pictures of a posterior, drawn with Matplotlib.

Each function takes a posterior and returns the axes that it drew, to change or to save:
``forest(posterior).figure.savefig("forest.png")``. All can be read in grey: lightness, markers or lines
show what colours show. ``names`` are the components' names; by default those of the posterior, or ``theta[0]``,
``theta[1]``.
"""

from .batches import ladder, maps
from .components import forest, pairs, ternary
from .rows import predictive, residuals

__all__ = ["forest", "ladder", "maps", "pairs", "predictive", "residuals", "ternary"]
