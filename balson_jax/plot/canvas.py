"""What all pictures share: axes, names of components, the choice of one problem."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..posteriors.posterior import Posterior

DARK = "#1f2a44"
"""The darkest of three shades of one hue, which differ in grey too."""

MIDDLE = "#5b7bb4"
"""The middle shade."""

LIGHT = "#c9d4e8"
"""The lightest shade."""

MARKERS = "osD^vPX*"
"""Problems or methods differ by marker, not only by colour."""


def need(module: str) -> Any:
    """Return a module of Matplotlib, or raise ``ImportError`` that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError("balson_jax.plot needs matplotlib; install it with: pip install 'balson_jax[cli]'") from None


def new_axes(ax: Any, size: tuple[float, float]) -> Any:
    """Return the axes that were given, or those of a new figure."""
    if ax is not None:
        return ax
    return need("matplotlib.pyplot").subplots(figsize=size, layout="constrained")[1]


def new_figure(figure: Any, size: tuple[float, float]) -> Any:
    """Return the figure that was given, or a new one."""
    return need("matplotlib.pyplot").figure(figsize=size, layout="constrained") if figure is None else figure


def labels(posterior: Posterior, names: Sequence[str] | None) -> list[str]:
    """Return the names of the components."""
    own = posterior.names if names is None else names
    if own is None:
        return [f"theta[{k}]" for k in range(posterior.num_params)]
    if len(own) != posterior.num_params:
        raise ValueError(f"names has {len(own)} entries; pass one for each of the {posterior.num_params} components")
    return [literal(name) for name in own]


def literal(name: Any) -> str:
    """Return a name that Matplotlib shows as it is: text between two dollar signs would be read as a formula."""
    return str(name).replace("$", r"\$")


def one(posterior: Posterior, problem: Any, name: str) -> Posterior:
    """Return the posterior of one problem, or raise ``ValueError`` if none of a batch was chosen."""
    if posterior.batch_shape and problem is not None:
        posterior = posterior[problem]
    elif problem is not None:
        raise ValueError(f"problem={problem!r}: this is the posterior of one problem; leave problem out")
    if posterior.batch_shape:
        raise ValueError(f"posterior is a batch of shape {posterior.batch_shape}; pass {name}(..., problem=0)")
    return posterior


def ends(posterior: Posterior, level: float) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the ends of intervals, and their kind: shortest if draws were kept, else central."""
    shortest = bool(posterior.draws.shape[-2])
    lower, upper = posterior.hdi(level) if shortest else posterior.interval(level)
    kind = f"{100 * level:g} % {'hdi' if shortest else 'interval'}"
    return np.asarray(lower), np.asarray(upper), kind


def chosen_components(posterior: Posterior, most: int) -> np.ndarray:
    """Return the numbers of the components to show: all, or those of the largest means, in their order."""
    size = np.abs(np.asarray(posterior.mean)).reshape(-1, posterior.num_params)
    total = np.where(np.isfinite(size), size, 0).sum(0)
    return np.sort(np.argsort(-total, kind="stable")[:most])
