"""What a user waits for: the first result in a fresh process, the second, another key, another batch, a real scene.

Each contender runs in a process of its own, without a cache of compiled programs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

STARTED = time.perf_counter()
"""Near the start of the interpreter: nothing but the standard library has been imported."""

import numpy as np

from .fresh import in_a_process

if TYPE_CHECKING:
    from .report import Result

WEAK, STRONG = 0.5, 0.02
ROWS, PARAMS = 100, 4
PIXELS = 10_000
ENOUGH = 400
"""Effective draws that a user wants."""

COLUMNS = ["", "step", "s", "of it compiling", "programs", "result"]


class Clock:
    """Times steps, and counts what JAX compiles meanwhile."""

    def __init__(self) -> None:
        import jax

        self.steps: list[list] = []
        self.compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, seconds: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            self.compiled.append(seconds)

    def __call__(self, step: str, function: Callable[[], str], started: float | None = None) -> None:
        """Time a step, which returns a word about its result."""
        self.compiled.clear()
        start = time.perf_counter() if started is None else started
        word = function()
        spent = time.perf_counter() - start
        self.steps.append([step, spent, sum(self.compiled), len(self.compiled), word])


def _one(noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = rng.random((ROWS, PARAMS)).astype(np.float32)
    target = design @ rng.dirichlet(np.ones(PARAMS)) + noise * rng.normal(size=ROWS)
    return design, target.astype(np.float32)


def _balson_one(noise: float, started: float) -> list[list]:
    import jax

    import balson_jax as balson

    clock = Clock()
    design, target = _one(noise)

    def fit(key: int) -> str:
        posterior = balson.fit(jax.random.key(key), balson.linear_problem(design, target))
        return f"{posterior.method}, {float(posterior.ess):,.0f} effective draws"

    clock("first result, import included", lambda: fit(0), started)
    clock("second, another key", lambda: fit(1))
    return clock.steps


def _balson_batches(started: float) -> list[list]:
    import jax

    import balson_jax as balson

    clock = Clock()
    rng = np.random.default_rng(1)
    design = _one(STRONG)[0]

    def fit(key: int, count: int, noise: float) -> str:
        targets = rng.dirichlet(np.ones(PARAMS), count) @ design.T + noise * rng.normal(size=(count, ROWS))
        problem = balson.linear_problem(design, targets.astype(np.float32))
        posterior = jax.block_until_ready(balson.fit(jax.random.key(key), problem))
        return _statuses(posterior)

    clock("1,000 problems, import included", lambda: fit(0, 1000, STRONG), started)
    clock("another key", lambda: fit(1, 1000, STRONG))
    for key, (count, noise) in enumerate(((37, STRONG), (300, STRONG / 4), (2000, 2 * STRONG)), start=2):
        clock(f"{count:,} others", lambda key=key, count=count, noise=noise: fit(key, count, noise))
    return clock.steps


def _balson_scene(num_pixels: int, started: float) -> list[list]:
    import jax

    import balson_jax as balson

    from . import scene

    clock = Clock()
    path = os.environ.get("BALSON_SCENE")
    pixels = scene.loaded(path) if path else scene.simulated(0, num_pixels)

    def fit(key: int) -> str:
        problem = balson.linear_problem(pixels.design, pixels.targets[:num_pixels])
        return _statuses(jax.block_until_ready(balson.fit(jax.random.key(key), problem)))

    clock(f"scene of {num_pixels:,} pixels, import included", lambda: fit(0), started)
    clock("another key", lambda: fit(1))
    return clock.steps


def _statuses(posterior) -> str:
    names, counts = np.unique(posterior.method, return_counts=True)
    methods = ", ".join(f"{count:,} {name}" for name, count in zip(names, counts, strict=True))
    return f"{methods}; {np.mean(np.asarray(posterior.status) == 0):.1%} trusted"


def _numpyro(noise: float, started: float) -> list[list]:
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    clock = Clock()
    design, target = _one(noise)

    def model():
        omega = numpyro.sample("omega", distributions.Dirichlet(jnp.ones(PARAMS)))
        level = jnp.exp(numpyro.sample("level", distributions.Uniform(-10, 10)))
        numpyro.sample("target", distributions.Normal(design @ omega, level), obs=target)

    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=ENOUGH, progress_bar=False)

    def fit(key: int) -> str:
        mcmc.run(jax.random.key(key))
        draws = np.asarray(mcmc.get_samples()["omega"])[None]
        return f"{effective_sample_size(draws).min():,.0f} effective draws"

    clock("first result, import included", lambda: fit(0), started)
    clock("second, another key", lambda: fit(1))
    return clock.steps


def _blackjax(noise: float, started: float) -> list[list]:
    from . import nuts

    clock = Clock()
    design, target = _one(noise)

    def fit() -> str:
        walked = nuts.walk(design, target[None], noise, warm_up=500, steps=ENOUGH)
        return f"{float(walked.ess().min()):,.0f} effective draws; noise known"

    clock("first result, import included", fit, started)
    return clock.steps


def _least_squares(started: float) -> list[list]:
    from scipy.optimize import nnls

    design, target = _one(STRONG)
    row = 1e3 * np.abs(design).max()
    nnls(np.vstack([design, np.full(PARAMS, row)]), np.append(target, row))
    return [["first result, import included", time.perf_counter() - started, 0.0, 0, "a point, no posterior"]]


CONTENDERS: dict[str, Callable[[float], list[list]]] = {
    "balson, weak data": lambda started: _balson_one(WEAK, started),
    "balson, strong data": lambda started: _balson_one(STRONG, started),
    "NumPyro NUTS, strong data": lambda started: _numpyro(STRONG, started),
    "BlackJAX NUTS, strong data": lambda started: _blackjax(STRONG, started),
    "SciPy nnls": _least_squares,
    "balson, batches": _balson_batches,
    "balson, scene": lambda started: _balson_scene(PIXELS, started),
    "balson, small scene": lambda started: _balson_scene(1000, started),
}


def run(quick: bool) -> Result:
    from .report import Result, Table, Target

    left_out = "balson, scene" if quick else "balson, small scene"
    names = [name for name in CONTENDERS if name != left_out]
    rows = [[name, *step] for name in names for step in in_a_process("waiting", name)]
    table = Table(
        f"One problem has {ROWS} rows and K = {PARAMS}, its noise is unknown; each contender in a fresh process",
        COLUMNS,
        rows,
        "Set BALSON_SCENE to an .npz file with endmembers, spectra and abundances to use a scene of your own.",
    )
    seconds = {(row[0], row[1]): row[2] for row in rows}
    first = "first result, import included"
    ours = seconds["balson, strong data", first]
    rivals = [seconds[name, first] for name in names if "NUTS" in name]
    later = [row for row in rows if row[0] == "balson, batches"][1:]
    return Result(
        [table],
        [
            Target("strong data, first result: fastest NUTS / balson", min(rivals) / ours, 3),
            Target("other batches: seconds of compiling", sum(row[3] for row in later), 0.5, at_least=False),
        ],
    )


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    labels = [f"{row[0]}: {row[1]}" for row in table.rows]
    whole, compiling = np.array(table.column("s")), np.array(table.column("of it compiling"))
    axes.barh(labels, np.minimum(compiling, whole), label="compiling")
    axes.barh(labels, np.maximum(whole - compiling, 0), left=np.minimum(compiling, whole), label="all else")
    axes.set(xlabel="seconds")
    axes.legend()
    axes.invert_yaxis()


if __name__ == "__main__":
    print(json.dumps(CONTENDERS[sys.argv[1]](STARTED)))
