"""The command line's own settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = (
    "import jax; from balson_jax.cli import keep_compiled_programs; keep_compiled_programs(); "
    "print(jax.config.jax_compilation_cache_dir)"
)
UNCHANGED = "import jax; before = dict(jax.config.values); import balson_jax; assert dict(jax.config.values) == before"


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"])
def test_commands_keep_compiled_programs(tmp_path, variable):
    """In the user's cache directory, unless JAX's own variable names another."""
    where = tmp_path / "balson_jax" if variable == "XDG_CACHE_HOME" else tmp_path
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env={**own, variable: str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(where)


def test_importing_the_library_changes_no_setting():
    assert subprocess.run([sys.executable, "-c", UNCHANGED], check=False).returncode == 0
