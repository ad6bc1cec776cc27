"""Uses what one extra adds: ``python extra.py NAME``, run by ``release.py`` where the wheel has that extra alone."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def fitted():
    """Return a small posterior with names, its design and its target."""
    import jax

    import balson_jax as balson

    rng = np.random.default_rng(0)
    design = rng.random((12, 3)).astype(np.float32)
    target = design @ np.array([0.5, 0.3, 0.2], np.float32) + 0.05 * rng.normal(size=12).astype(np.float32)
    problem = balson.linear_problem(design, target, names=("a", "b", "c"))
    return balson.fit(jax.random.key(0), problem, balson.IS(num_draws=4096)), design, target


def cli() -> None:
    """Run the command on files, and draw."""
    import balson_jax as balson

    posterior, design, target = fitted()
    import matplotlib

    matplotlib.use("Agg")
    assert "theta" in balson.plot.forest(posterior).get_xlabel()
    balson.check(design, target, posterior).plot()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.savetxt(folder / "design.csv", design, delimiter=",", header="a,b,c", comments="")
        np.savetxt(folder / "targets.csv", target[:, None], delimiter=",", header="y", comments="")
        command = [
            pathlib.Path(sys.executable).with_name("balson"),
            "fit",
            "design.csv",
            "targets.csv",
            "--method",
            "is",
        ]
        subprocess.run([*command, "--out", "out"], cwd=folder, check=True, capture_output=True)
        assert (folder / "out" / "report.html").stat().st_size > 1000
        assert (folder / "out" / "posterior.csv").read_text().count("\n") == 4


def frames() -> None:
    """Make a frame, and read one."""
    posterior, design, target = fitted()
    import jax
    import pandas as pd

    import balson_jax as balson

    assert list(posterior.to_frame()["component"]) == ["a", "b", "c"]
    named = balson.linear_problem(pd.DataFrame(design, columns=["u", "v", "w"]), target)
    assert balson.fit(jax.random.key(0), named, balson.IS(num_draws=4096)).names == ("u", "v", "w")


def arviz() -> None:
    """Make data sets."""
    posterior, _, _ = fitted()
    assert posterior.to_xarray()["mean"].shape[-1] == 3
    assert "posterior" in posterior.to_datatree().children


def files() -> None:
    """Read one file of each kind."""
    import anndata
    import h5py
    import pyarrow as pa
    from pyarrow import parquet

    from balson_jax.interop import reading

    values = np.arange(12.0).reshape(4, 3)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        parquet.write_table(pa.table({"a": values[:, 0], "b": values[:, 1], "c": values[:, 2]}), folder / "t.parquet")
        anndata.AnnData(values.T.copy()).write_h5ad(folder / "t.h5ad")
        with h5py.File(folder / "t.mat", "w", userblock_size=512) as file:
            file["t"] = values.T
        with open(folder / "t.mat", "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
        for ending in ("parquet", "h5ad", "mat"):
            found = np.asarray(reading.read(folder / f"t.{ending}").values[:])
            assert np.array_equal(found, values), ending


def sklearn() -> None:
    """Fit the regressor."""
    from balson_jax.estimator import SimplexRegressor

    _, design, target = fitted()
    assert SimplexRegressor(random_state=0).fit(design, target).score(design, target) > 0.5


def recipes() -> None:
    """Run both recipes."""
    import matplotlib
    import pandas as pd

    import balson_jax as balson

    matplotlib.use("Agg")
    rng = np.random.default_rng(0)
    donors = np.cumsum(rng.normal(size=(16, 3)), axis=0)
    panel = pd.DataFrame(
        np.column_stack([donors @ [0.5, 0.3, 0.2] + 0.1 * rng.normal(size=16), donors]), columns=[*"tabc"]
    )
    found = balson.synthetic_control(panel, "t", 12, method="is")
    assert len(found.plot()) == 2
    columns = {"source": ["a", "b", "c"], "Meanx": [0.0, 4.0, 9.0], "SDx": 1.0, "Meany": [1.0, 8.0, 0.0], "SDy": 1.0}
    sources, consumers = pd.DataFrame(columns), pd.DataFrame({"x": [3.0], "y": [4.0]})
    assert balson.mixing(consumers, sources, method="is").table.shape == (3, 6)


EXTRAS = {function.__name__: function for function in (cli, frames, arviz, files, sklearn, recipes)}

if __name__ == "__main__":
    EXTRAS[sys.argv[1]]()
    print(f"extra {sys.argv[1]} works")
