"""The project itself: the direction of imports, the command line, the version."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tomllib

import pytest
from cases import thinned

import balson_jax

ROOT = pathlib.Path(balson_jax.__file__).parent

# Packages and modules of a layer may import those of layers before it, and each other; none after it.
LAYERS = [
    (
        "version",
        "validation",
        "status",
        "bisection",
        "elimination",
        "labels",
        "tables",
        "mapped",
        "random",
        "residuals",
    ),
    ("dirichlet",),
    ("problems",),
    ("targets",),
    ("least_squares",),
    ("proposals",),
    ("weighting",),
    ("posteriors",),
    ("samplers",),
    ("execution",),
    ("fit",),
    ("learning",),
    ("recipes", "estimator"),
    ("metrics", "reference"),
    ("interop", "plot"),
    ("commands",),
    ("experiments",),
    ("cli",),
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules():
    return [path for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]


def imports(path: pathlib.Path) -> set[str]:
    """Return the parts of the package that a module imports at run time."""
    package = path.relative_to(ROOT).parts[:-1]
    found = set()
    tree = ast.parse(path.read_text())
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found |= {(*base, *name.split("."))[0] for name in names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for other in imports(path):
        assert RANK[other] <= RANK[part], f"{part} must not import {other}"


FRESH = """
import pathlib, sys
import jax, jax.numpy as jnp
import balson_jax as balson
x = jnp.linspace(0, 1, 10)
problem = balson.linear_problem(x[:, None] ** jnp.arange(3), x**2, noise=1.0)
found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=int(sys.argv[1])))
assert bool(jnp.isfinite(found.mean).all())
print(*[name for name in sys.argv[2:] if name in sys.modules])
# The peak since exec; getrusage would count what the parent had at the fork.
status = pathlib.Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
print(*[line.split()[1] for line in lines if line.startswith("VmHWM")])
"""


@thinned("num_draws", [10_000_000], [100_000_000])
def test_a_fit_in_a_fresh_process_needs_no_extras_and_little_memory(num_draws):
    """None of the optional packages, nor SciPy's heavy parts; under 1 GiB, most of it the interpreter and XLA."""
    extras = ("matplotlib", "rich", "typer", "cvxpy", "pandas", "polars", "xarray", "arviz", "scipy.stats")
    command = [sys.executable, "-c", FRESH, str(num_draws), *extras]
    loaded, kibibytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert loaded == ""
    if kibibytes:  # the system tells
        assert int(kibibytes) < 1 << 20


def test_versions_agree():
    citation = (ROOT.parent / "CITATION.cff").read_text()
    assert f"version: {balson_jax.__version__}" in citation
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "balson_jax/version.py"
    assert (ROOT / "py.typed").exists()


def test_public_names_exist_and_are_documented():
    for name in balson_jax.__all__:
        assert getattr(balson_jax, name).__doc__, name
