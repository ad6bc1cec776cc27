"""Fixtures shared by the tests."""

import jax
import pytest


@pytest.fixture
def x64():
    """Run the test with float64 enabled."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run the test in both precisions."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param
