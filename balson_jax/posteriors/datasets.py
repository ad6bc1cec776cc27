"""A posterior as an ``xarray.Dataset``: estimates and diagnostics with named dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..status import Status
from ..version import __version__
from .columns import drawn, problem_columns

if TYPE_CHECKING:
    from .posterior import Posterior

PER_PROBLEM = ("total", "num_rows", "residual", "least_residual", "dirichlet_misfit")
"""Fields of a posterior, beside its diagnostics, with one number per problem."""


def xarray_for(name: str) -> Any:
    """Return the package xarray, or raise ``ImportError`` naming the method that needs it, and how to get it."""
    try:
        import xarray
    except ImportError:
        raise ImportError(f"{name} needs xarray; install it with: pip install 'balson_jax[arviz]'") from None
    return xarray


def to_xarray(posterior: Posterior, level: float) -> Any:
    """Return the data set; NaN for intervals and inclusion where they are not known."""
    xarray = xarray_for("to_xarray")
    problem, component = problem_dims(posterior), (*problem_dims(posterior), "component")
    low, high, inclusion = drawn(posterior, level)
    found: dict[str, tuple[tuple[str, ...], Any]] = {
        "mean": (component, posterior.mean),
        "std": (component, posterior.std),
        "mean_stderr": (component, posterior.mean_stderr),
        "std_stderr": (component, posterior.std_stderr),
        "hdi_low": (component, low),
        "hdi_high": (component, high),
        "inclusion": (component, inclusion),
        "sparse_mode": (component, posterior.theta),
    }
    found |= {name: (problem, value) for name, value in posterior.diagnostics().items()}
    found |= {name: (problem, getattr(posterior, name)) for name in PER_PROBLEM}
    method = np.asarray(posterior.method, str)
    found["method"] = problem, np.broadcast_to(method, posterior.batch_shape)
    for name in ("slack", "noise"):
        own = getattr(posterior, name)
        if own is not None:
            found |= {f"{name}_mean": (problem, own.mean), f"{name}_std": (problem, own.std)}
    if posterior.nuisance is not None:
        dims = (*problem, "nuisance")
        found |= {"nuisance_mean": (dims, posterior.nuisance.mean), "nuisance_std": (dims, posterior.nuisance.std)}
    arrays = {name: (dims, np.asarray(value)) for name, (dims, value) in found.items() if value is not None}
    dataset = xarray.Dataset(arrays, coordinates(posterior), attributes(posterior, level))
    flags = [flag for flag in Status if flag]
    # As the CF conventions describe flags.
    dataset["status"].attrs = {
        "flag_masks": np.asarray([flag.value for flag in flags], dataset["status"].dtype),
        "flag_meanings": " ".join(flag.name or "" for flag in flags),
    }
    return dataset


def problem_dims(posterior: Posterior) -> tuple[str, ...]:
    """Return the names of the batch's dimensions."""
    return tuple(problem_columns(posterior)) if posterior.batch_shape else ()


def coordinates(posterior: Posterior) -> dict[str, Any]:
    """Return the coordinates of components and problems: names, or numbers."""
    names, dims = posterior.names, problem_dims(posterior)
    found: dict[str, Any] = {"component": np.arange(posterior.num_params) if names is None else coordinate(names)}
    for dim, size in zip(dims, posterior.batch_shape, strict=True):
        found[dim] = np.arange(size)
    if posterior.labels.problems is not None:
        labels = coordinate(posterior.labels.problems)
        found["problem"] = labels if dims else labels[0]  # of one problem a coordinate without a dimension
    if posterior.nuisance is not None:
        found["nuisance"] = coordinate(tuple(posterior.nuisance.names))
    return found


def coordinate(labels: tuple[Any, ...]) -> np.ndarray:
    """Return labels as an array that files can hold: numbers, dates or text."""
    array = np.asarray(labels)
    if array.ndim == 1 and array.dtype.kind in "biufMU":
        return array
    try:
        return np.asarray([np.datetime64(label, "ns") for label in labels])
    except (TypeError, ValueError):
        return np.asarray([str(label) for label in labels])


def attributes(posterior: Posterior, level: float) -> dict[str, Any]:
    """Return what is the same for all problems."""
    return {
        "inference_library": "balson_jax",
        "inference_library_version": __version__,
        "constraint": posterior.constraint.name,
        "hdi_level": float(level),
        "sharpened": int(posterior.sharpened),  # netCDF has no booleans
    }
