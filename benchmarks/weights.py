"""Fits of a batch with shared draws, relative to one ``exp`` per pair of problem and draw."""

from __future__ import annotations

import pathlib
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

import balson_jax as balson
from balson_jax.experiments.paper import data

from .report import Result, Table, Target
from .timing import race

NUM_DRAWS = 16_384
MOMENTS = "fit without Pareto k and kept draws"


def problems(count: int, num_rows: int = data.NUM_TRAIN) -> balson.Problem:
    """Return noisy copies of the paper's problem that share a design of ``num_rows`` rows."""
    design = data.polynomial_design(data.inputs(num_rows))
    noise = data.NOISE * (num_rows / data.NUM_TRAIN) ** 0.5  # keeps the information independent of num_rows
    draws = noise * jax.random.normal(jax.random.key(1), (count, num_rows))
    return balson.linear_problem(design, design @ jnp.asarray(data.TRUE_THETA) + draws, noise=noise)


def fit_with(**options):
    method = balson.IS(num_draws=NUM_DRAWS, **options)
    return lambda problem: balson.fit(jax.random.key(0), problem, method)


def run(quick: bool) -> Result:
    count = 1024 if quick else 8192
    batch = problems(count)
    pairs = jnp.asarray(np.random.default_rng(0).normal(size=(count, NUM_DRAWS)), jnp.float32)
    contenders = {
        "exp alone": (jax.jit(jnp.exp), pairs),
        MOMENTS: (fit_with(diagnose_tail=False, keep=0), batch),
    }
    if not quick:
        contenders["fit"] = fit_with(), batch
        contenders["least squares alone"] = balson.least_squares, batch
    times = race(contenders, seconds=0.2 if quick else 3)
    base = times["exp alone"].run
    rows = [[name, t.run, t.run / base, count * NUM_DRAWS / t.run / 1e6, t.compile] for name, t in times.items()]
    table = Table(
        f"{count:,} problems that share a design, {NUM_DRAWS:,} draws each, K = 5",
        ["", "s", "/ exp", "million pairs / s", "compile, s"],
        rows,
    )
    targets = [
        Target(f"{MOMENTS} / exp", times[MOMENTS].run / base, 3, at_least=False),
    ]
    gaps_table, ratio = gaps(1000 if quick else 10_000)
    targets.append(Target("targets with gaps / without", ratio, 3, at_least=False))
    if quick:
        return Result([table, gaps_table], targets)
    targets.append(Target("fit / exp", times["fit"].run / base, 6, at_least=False))
    lengths = {f"N = {n:,}": (fit_with(), problems(1000, n)) for n in (100, 100_000)}
    by_rows = race(lengths, seconds=1)
    short, long = (timing.run for timing in by_rows.values())
    rows_table = Table("Number of rows, reduction not timed", ["", "s"], [[n, t.run] for n, t in by_rows.items()])
    targets += [
        Target("fit with N = 100,000 / N = 100", long / short, 1.2, at_least=False),
        Target("peak memory of a process that only fits, GiB", peak_memory(count), 1.0, at_least=False),
    ]
    return Result([table, rows_table, gaps_table], targets)


def gaps(count: int) -> tuple[Table, float]:
    """Return a table of times for targets with and without missing values, and the ratio of the two."""
    design = np.asarray(data.polynomial_design(data.inputs()))
    rng = np.random.default_rng(0)
    whole = design @ np.asarray(data.TRUE_THETA) + data.NOISE * rng.normal(size=(count, len(design)))
    gappy = np.where(rng.uniform(size=whole.shape) < 0.2, np.nan, whole)

    def fit(targets, missing):
        problem = balson.linear_problem(design, targets, noise=data.NOISE, missing=missing)
        return balson.fit(jax.random.key(0), problem, balson.IS(num_draws=NUM_DRAWS))

    times = race({"whole": (fit, whole, "raise"), "a fifth missing at random": (fit, gappy, "drop")}, seconds=1)
    title = f"{count:,} targets that share a design, {NUM_DRAWS:,} draws each, from the data to the posterior"
    rows = [[name, t.run, t.run / times["whole"].run, t.compile] for name, t in times.items()]
    return Table(title, ["", "s", "/ whole", "compile, s"], rows), rows[1][2]


def peak_memory(count: int) -> float:
    """Return the peak memory in GiB of a process that creates and fits a batch."""
    root = pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "benchmarks.weights", str(count)]
    return float(subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout)


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    axes.barh(table.column(""), table.column("/ exp"))
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xlabel="time / exp alone", title=table.title)


if __name__ == "__main__":
    jax.block_until_ready(fit_with()(problems(int(sys.argv[1]))))
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # Linux; unlike ru_maxrss it does not include the parent's memory
        print(int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**20)
    else:
        unit = 2**30 if sys.platform == "darwin" else 2**20
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
