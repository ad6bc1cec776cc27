"""The project itself: the direction of imports, the command line, the version."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tomllib

import pytest

import balson_jax

ROOT = pathlib.Path(balson_jax.__file__).parent

# Packages and modules of a layer may import those of layers before it, and each other; none after it.
LAYERS = [
    ("version", "validation", "status", "bisection", "random"),
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
    ("metrics", "reference"),
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


def test_the_core_needs_no_extras():
    """Importing the package and fitting loads none of the optional packages, nor SciPy's heavy parts."""
    code = (
        "import sys, jax.numpy as jnp, jax, balson_jax as b;"
        "b.fit(jax.random.key(0), b.linear_problem(jnp.eye(2), jnp.ones(2), noise=1.0), b.IS(num_draws=16));"
        "print([m for m in ('matplotlib', 'rich', 'typer', 'cvxpy', 'arviz', 'scipy.stats') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


def test_versions_agree():
    citation = (ROOT.parent / "CITATION.cff").read_text()
    assert f"version: {balson_jax.__version__}" in citation
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "balson_jax/version.py"
    assert (ROOT / "py.typed").exists()


def test_public_names_exist_and_are_documented():
    for name in balson_jax.__all__:
        assert getattr(balson_jax, name).__doc__, name
