"""Contenders of a benchmark in fresh processes, so that compiling and imports count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def in_a_process(module: str, name: str, *arguments: str | int) -> Any:
    """Run one contender of a module here, without compiled programs on disk; return the JSON that it prints."""
    own = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", f"benchmarks.{module}", name, *map(str, arguments)]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
