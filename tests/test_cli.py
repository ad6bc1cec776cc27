"""The command line's own settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = "import jax; from balson_jax.cli import keep_compiled_programs as keep; keep(); print({0})"


@pytest.mark.parametrize(
    ("variable", "expected"), [("XDG_CACHE_HOME", "balson_jax"), ("JAX_COMPILATION_CACHE_DIR", "")]
)
def test_commands_keep_compiled_programs(tmp_path, variable, expected):
    """In the user's cache directory, unless JAX's own variable names another; importing the library changes nothing."""
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", SCRIPT.format("jax.config.jax_compilation_cache_dir")]
    done = subprocess.run(command, env={**own, variable: str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(expected)


def test_importing_the_library_changes_no_setting():
    command = [
        sys.executable,
        "-c",
        "import jax; before = dict(jax.config.values); import balson_jax; assert dict(jax.config.values) == before",
    ]
    assert subprocess.run(command, check=False).returncode == 0
