"""What ``make dist`` tests is what ``pyproject.toml`` claims."""

from __future__ import annotations

import pathlib
import re
import tomllib

from smoke.extra import EXTRAS as USED
from smoke.release import EXTRAS

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"all", "bench", "dist", "docs", "notebooks", "test"}


def test_oldest_versions_are_those_claimed():
    claimed = {tuple(re.split(r">=", entry)) for entry in PROJECT["dependencies"]}
    lines = (ROOT / "tests" / "smoke" / "oldest.txt").read_text().splitlines()
    pinned = [tuple(line.split("==")) for line in lines if not line.startswith("#")]

    def parts(version):
        return tuple(int(part) for part in version.split("."))

    assert {name for name, _ in pinned} == {name for name, _ in claimed}
    for name, version in pinned:
        least = parts(dict(claimed)[name])
        assert parts(version) == least + (0,) * (len(parts(version)) - len(least)), name


def test_every_extra_is_tested_and_explained():
    users = set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS
    assert users == set(EXTRAS) == set(USED)
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    assert all(f"`{extra}`" in page for extra in users)
