"""Throughput of draws and of batched fits, as ratios measured side by side in one run.

Run ``python benchmarks/throughput.py`` (a minute), or with ``--quick``. Compile time is reported apart from run time,
which is the best of several runs with the result waited for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import balson_jax as balson
from balson_jax.paper import data
from balson_jax.random.points import pseudo
from balson_jax.random.simplex import dims, log_dirichlet
from balson_jax.random.sobol import sobol


def measure(function: Callable, *arguments, repeats: int = 5) -> tuple[float, float]:
    """Return the seconds that the first call takes beyond the best of the later ones, and that best."""
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    first = time.perf_counter() - start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return max(first - min(times), 0.0), min(times)


def draws(count: int) -> None:
    print(f"\nDirichlet draws, {5 * count:,} numbers a call: run time against ours with Sobol points (compile s)")
    print(f"{'alpha':>6}{'K':>4}{'ours, Sobol':>18}{'ours, threefry':>20}{'jax.random':>20}{'NumPy':>10}")
    for alpha in (0.1, 0.5, 1.0, 3.0, 100.0):
        for num_components in (5, 50):
            draws_row(alpha, num_components, 1 << (5 * count // num_components).bit_length() - 1)


def draws_row(alpha: float, num_components: int, size: int) -> None:
    key, rng = jax.random.key(0), np.random.default_rng(0)
    concentration = jnp.full(num_components, alpha)

    def ours(generate):
        return jax.jit(lambda key: jnp.exp(log_dirichlet(generate(key, dims(num_components), size), concentration)))

    theirs = jax.jit(lambda key: jax.random.dirichlet(key, concentration, (size,)))
    rows = [measure(ours(sobol), key), measure(ours(pseudo), key), measure(theirs, key, repeats=2)]
    numpy_time = measure(lambda: rng.dirichlet(np.full(num_components, alpha), size), repeats=2)[1]
    best = rows[0][1]
    cells = [f"{1e3 * best:.1f} ms ({rows[0][0]:.1f})"]
    cells += [f"{run / best:.1f}x ({compile_:.1f})" for compile_, run in rows[1:]]
    print(f"{alpha:>6}{num_components:>4}{cells[0]:>18}{cells[1]:>20}{cells[2]:>20}{numpy_time / best:>9.1f}x")


def fits(num_problems: int, num_draws: int) -> None:
    print(f"\nFits of {num_problems:,} problems that share a design, {num_draws:,} draws each, K = 5")
    design = data.polynomial_design(data.inputs())
    problem = balson.linear_problem(design, data.targets(jax.random.key(1), num_problems), noise=data.NOISE)
    pairs = jnp.asarray(np.random.default_rng(0).normal(size=(num_problems, num_draws)), jnp.float32)
    _, exponential = measure(jax.jit(jnp.exp), pairs)
    compile_, run = measure(lambda: balson.fit(jax.random.key(0), problem, balson.IS(num_draws=num_draws)))
    posterior = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=num_draws))
    print(f"  exp alone over as many numbers     {exponential:.3f} s")
    print(f"  full posterior with diagnostics    {run:.3f} s = {run / exponential:.1f}x, compiled in {compile_:.1f} s")
    print(f"  {num_problems / run:,.0f} posteriors, {float(posterior.ess.sum()) / run:,.0f} effective draws a second")
    _, point = measure(lambda: balson.least_squares(problem))
    print(f"  constrained optimum alone          {point:.3f} s: {num_problems / point:,.0f} a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under half a minute")
    quick = parser.parse_args().quick
    draws(1 << 17 if quick else 1 << 20)
    fits(1024 if quick else 8192, 16_384)


if __name__ == "__main__":
    main()
