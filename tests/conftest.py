"""Fixtures shared by the tests."""

import gc
import os
import pathlib

# Most of the suite's time is compilation: compiled programs are kept on disk, for the other workers and the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# XLA's threads can wait for each other for ever where as many programs as there are threads call LAPACK (see
# balson_jax.elimination), as on several virtual devices. More threads than programs prevent it.
os.environ.setdefault("NPROC", "8")
# Small matrices gain nothing from threads, which wait for each other where several workers share the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest

MAPS = pathlib.Path("/proc/self/maps")
MANY_MAPS = 30_000
"""A process may have about 65,000 maps of memory; each compiled program takes several."""


LONG_EXAMPLES = {
    "balson_jax.execution.stream.fit_stream",
    "balson_jax.learning.batches.learn",
    "balson_jax.learning.checking.check",
    "balson_jax.learning.tuning.tune",
}
"""Examples in docstrings that take long to compile; pages of ``docs`` have examples of these functions, too."""


def pytest_collection_modifyitems(items):
    """Leave long examples to the long run."""
    for item in items:
        if item.name in LONG_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Forget compiled programs after a module, if there are so many that the next might not find a place."""
    yield
    if MAPS.exists() and MAPS.read_text().count("\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def x64():
    """Run the test with float64 enabled."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", pytest.param("float64", marks=pytest.mark.slow)])
def dtype(request):
    """Run the test in both precisions."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param
