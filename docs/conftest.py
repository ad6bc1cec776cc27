"""Which pages' examples wait for the long run, and which files of this folder are no tests."""

import pathlib

import pytest

HERE = pathlib.Path(__file__).parent

collect_ignore_glob = ["conf.py", "conftest.py", "check_site.py", "extensions/*", "figures/*", "notebooks/*"]

QUICK = {f"mathematics/{name}.md" for name in ("learning", "variational")}
"""Pages whose examples compile hardly anything."""


def pytest_collection_modifyitems(items):
    """Leave the examples of the other pages to the long run."""
    for item in items:
        if HERE in item.path.parents and item.path.relative_to(HERE).as_posix() not in QUICK:
            item.add_marker(pytest.mark.slow)
