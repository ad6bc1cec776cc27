"""Uses the installed package without any extra: run by ``release.py`` in a clean environment, outside of the checkout.

What it checks is what a user does first. Every function that needs an extra must say so, by name.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable

ABSENT = ("matplotlib", "pandas", "xarray", "sklearn", "typer", "rich", "pyarrow", "h5py", "anndata")


def fits() -> None:
    """Fit one problem and a batch, and look at the results."""
    import jax
    import jax.numpy as jnp

    import balson_jax as balson

    x = jnp.linspace(0, 1, 50)
    design = jnp.stack([x**0, x, x**2], axis=-1)
    target = 0.3 + 0.7 * x**2 + 0.1 * jax.random.normal(jax.random.key(1), (50,))
    posterior = balson.fit(jax.random.key(0), balson.linear_problem(design, target))
    posterior.raise_for_status()
    assert abs(float(posterior.mean.sum()) - 1) < 1e-5
    assert "status OK" in repr(posterior)
    many = balson.fit(jax.random.key(0), balson.linear_problem(design, target + jnp.zeros((3, 1))), "is")
    assert many.mean.shape == (3, 3)
    assert bool((abs(many.mean - posterior.mean) < 0.02).all())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior.npz"
        posterior.save(path)
        assert balson.Posterior.load(path).mean.shape == (3,)
        posterior.to_csv(pathlib.Path(folder) / "posterior.csv")
    checked = balson.check(design, target, posterior)
    assert checked.ok, checked
    messages(posterior, checked)


def messages(posterior, checked) -> None:
    """Check that what needs an extra names it."""
    import balson_jax as balson
    from balson_jax.interop import reading

    def read(name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.write_bytes(b"MATLAB 7.3 MAT-file" + bytes(110) + b"\x00\x02IM" + bytes(400))
            reading.read(path)

    def estimator() -> None:
        importlib.import_module("balson_jax.estimator")

    tried: dict[str, list[Callable[[], object]]] = {
        "cli": [lambda: balson.plot.forest(posterior), checked.plot],
        "frames": [posterior.to_frame],
        "arviz": [posterior.to_xarray, posterior.to_datatree],
        "files": [lambda: read("a.parquet"), lambda: read("a.h5ad"), lambda: read("a.mat")],
        "sklearn": [estimator],
        "recipes": [
            lambda: balson.synthetic_control(None, "a", 1),
            lambda: balson.mixing(None, None),
        ],
    }
    for extra, calls in tried.items():
        for number, call in enumerate(calls):
            told = message_of(call)
            assert f"balson_jax[{extra}]" in told, f"{extra}, call {number}: {told}"
    assert "balson_jax[cli]" in message_of(lambda: runpy.run_module("balson_jax", run_name="__main__"))


def message_of(call: Callable[[], object]) -> str:
    """Return what a call that lacks a package says."""
    try:
        call()
    except (ImportError, SystemExit) as error:
        return str(error)
    return "nothing was raised"


def main() -> None:
    """Check where the package comes from, then use it."""
    import balson_jax

    where = pathlib.Path(balson_jax.__file__).resolve()
    assert "site-packages" in where.parts, where
    assert importlib.metadata.version("balson_jax") == balson_jax.__version__
    assert (where.parent / "py.typed").exists()
    loaded = [name for name in ABSENT if importlib.util.find_spec(name)]
    assert not loaded, f"the environment isn't clean: {loaded}"
    fits()
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax", "scipy")}
    script = pathlib.Path(sys.executable).with_name("balson")
    told = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "balson_jax[cli]" in told.stderr
    print("python", sys.version.split()[0], *(f"{name} {version}" for name, version in versions.items()))


if __name__ == "__main__":
    main()
