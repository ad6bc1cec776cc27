"""Optional packages of the recipes, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any


def load(package: str, user: str) -> Any:
    """Return a package, or raise ``ImportError`` that says how to install what the user, a function's name, needs."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        message = f"{user} needs {name}; install it with: pip install 'balson_jax[recipes]'"
        raise ImportError(message) from error
