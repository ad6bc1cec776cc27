"""Dirichlet draws from pseudo-random and from Sobol points, against ``jax.random``, NumPy and others."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from balson_jax import random
from balson_jax.random.points import coordinates
from balson_jax.random.simplex import log_dirichlet
from balson_jax.random.sobol import sobol

from .report import Result, Table, Target
from .timing import race

ALPHAS = (0.1, 0.5, 1.0, 3.0, 100.0)
PEERS = ("jax.random", "NumPy", "TFP", "torch")


def run(quick: bool) -> Result:
    numbers = 5 << (16 if quick else 20)
    cases = [(5, 0.5), (5, 3.0)] if quick else [(size, alpha) for size in (5, 50) for alpha in ALPHAS]
    rows = [row(alpha, num_components, numbers // num_components) for num_components, alpha in cases]
    columns = ["K", "alpha", "ours, ms", "Sobol, ms", "compile, s", *(f"{peer} / ours" for peer in PEERS)]
    columns += [f"{peer} / Sobol" for peer in PEERS]
    table = Table(
        f"Dirichlet draws, {numbers:,} numbers per call",
        columns,
        rows,
        "ours: random.dirichlet with a threefry key, sample axis first; Sobol: draws as in fit, sample axis last",
    )
    keep = [column for column in columns if not all(_missing(value) for value in table.column(column))]
    table = Table(table.title, keep, [[row[columns.index(c)] for c in keep] for row in rows], table.note)
    return Result([table], targets(table))


def _missing(value) -> bool:
    return isinstance(value, float) and np.isnan(value)


def row(alpha: float, num_components: int, size: int) -> list:
    key, rng = jax.random.key(0), np.random.default_rng(0)
    concentration = jnp.full(num_components, alpha)
    whole = 1 << (size - 1).bit_length()  # Sobol points come in powers of two

    @jax.jit
    def by_sobol(key, alpha):
        return jnp.exp(log_dirichlet(coordinates(sobol, key, whole, start=0, dtype=jnp.float32), alpha))

    contenders: dict[str, tuple[Callable, ...]] = {
        "ours": (jax.jit(lambda key, alpha: random.dirichlet(key, alpha, (size,))), key, concentration),
        "Sobol": (by_sobol, key, concentration),
        "jax.random": (jax.jit(lambda key, alpha: jax.random.dirichlet(key, alpha, (size,))), key, concentration),
        "NumPy": (rng.dirichlet, np.full(num_components, alpha), size),
        **_others(alpha, num_components, size),
    }
    times = race(contenders, seconds=0.3)
    ours, quasi = times["ours"].run, times["Sobol"].run * size / whole
    runs = [times[peer].run if peer in times else float("nan") for peer in PEERS]
    milliseconds = [1e3 * ours, 1e3 * quasi, times["ours"].compile]
    return [num_components, alpha, *milliseconds, *(r / ours for r in runs), *(r / quasi for r in runs)]


def _others(alpha: float, num_components: int, size: int) -> dict[str, tuple[Callable, ...]]:
    contenders = {}
    if importlib.util.find_spec("torch"):
        import torch

        distribution = torch.distributions.Dirichlet(torch.full((num_components,), alpha))
        contenders["torch"] = (lambda: distribution.sample((size,)).numpy(),)
    if importlib.util.find_spec("tensorflow_probability"):
        from tensorflow_probability.substrates import jax as tfp

        draw = jax.jit(lambda key: tfp.distributions.Dirichlet(jnp.full(num_components, alpha)).sample(size, seed=key))
        contenders["TFP"] = (draw, jax.random.key(0))
    return contenders


def targets(table: Table) -> list[Target]:
    found = []
    bounds = {(5, "ours"): (20, 1.2), (50, "ours"): (15, 1.0), (5, "Sobol"): (60, 3.0)}
    for num_components, ours in bounds:
        for peer, bound in zip(("jax.random", "NumPy"), bounds[num_components, ours], strict=True):
            for row in table.rows:
                if row[0] == num_components and row[1] in (0.5, 3.0):
                    value = row[table.columns.index(f"{peer} / {ours}")]
                    found.append(Target(f"{peer} / {ours}, K = {num_components}, alpha = {row[1]}", value, bound))
    return found


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    sizes = sorted(set(table.column("K")))
    for axes, num_components in zip(figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True):
        rows = [row for row in table.rows if row[0] == num_components]
        for index, column in enumerate(table.columns[5:], start=5):
            marker = "o-" if column.endswith("ours") else "s--"
            axes.plot([row[1] for row in rows], [row[index] for row in rows], marker, label=column)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="α", title=f"K = {num_components}")
    figure.axes[0].set_ylabel("time / ours")
    figure.axes[-1].legend(fontsize=8)
    figure.suptitle("Dirichlet draws: time of others relative to ours")
