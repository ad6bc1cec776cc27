"""Placebos of a synthetic control: all regions in one batch, against NUTS region by region; compilation included.

Each contender runs in a process of its own, without a cache of compiled programs. CPU time is compared, because that of
the wall depends on what else the machine does. NUTS is compiled once and fits some regions, evenly spaced; the time of
all is extrapolated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .fresh import in_a_process

if TYPE_CHECKING:
    from .report import Result

REGIONS, BEFORE, AFTER = 39, 19, 12
"""As many regions, years before and years after as in the panel of California's tobacco programme."""

WARM_UP, DRAWS, CHAINS = 1000, 1000, 4
"""What CausalPy and PyMC do unless told otherwise."""

FITTED = {True: 2, False: 4}
"""How many regions NUTS fits, in quick runs and others."""

PRIORS = {"flat": 1.0, "sparse": 3 / (REGIONS - 1)}
"""Concentrations on the weights: CausalPy's, and the default of ``synthetic_control``."""

COLUMNS = [
    "",
    "prior",
    "regions",
    "CPU s, first with compiling",
    "CPU s, each other",
    "CPU s, all",
    "s, all",
    "effective draws",
]


def panel(seed: int = 0) -> np.ndarray:
    """Return outcomes ``(times, regions)``: three trends that regions share, in parts of their own, and noise."""
    rng = np.random.default_rng(seed)
    times = BEFORE + AFTER
    trends = rng.normal(size=(times, 3)).cumsum(0) + np.arange(times)[:, None] * [-1.0, -0.5, 0.3]
    return 100 + trends @ rng.dirichlet(np.ones(3), REGIONS).T + rng.normal(size=(times, REGIONS))


def _balson(prior: str) -> dict:
    """Fit the treated region and all placebos by ``synthetic_control``."""
    import pandas

    from balson_jax.recipes import synthetic_control

    frame = pandas.DataFrame(panel(), columns=[f"r{k}" for k in range(REGIONS)])
    began, cpu = time.perf_counter(), time.process_time()
    found = synthetic_control(frame, "r0", BEFORE, prior=PRIORS[prior])
    spent = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    posterior = found.placebo_posterior
    assert posterior is not None
    trusted = float((np.asarray(posterior.status) == 0).mean())
    ess = float(np.median(posterior.ess))
    return {**spent, "regions": REGIONS, "ess": ess, "trusted": trusted, "mean": np.asarray(posterior.mean).tolist()}


def _nuts(prior: str, count: str) -> dict:
    """Fit some placebos one by one by NumPyro's NUTS, compiled once."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    donors = REGIONS - 2  # the treated region is in no pool
    concentration = jnp.full(donors, PRIORS[prior])

    def model(design: jax.Array, target: jax.Array) -> None:
        weights = numpyro.sample("weights", distributions.Dirichlet(concentration))
        level = jnp.exp(numpyro.sample("level", distributions.Uniform(-10, 10)))
        numpyro.sample("target", distributions.Normal(design @ weights, level), obs=target)

    outcomes = panel()[:BEFORE, 1:]
    outcomes = outcomes - outcomes.mean(1, keepdims=True)
    sampler = MCMC(
        NUTS(model), num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    regions = np.linspace(0, REGIONS - 2, int(count)).astype(int)
    cpu, wall, ess, means = [], [], [], []
    for region in regions:
        pool = jnp.asarray(np.delete(outcomes, region, 1), jnp.float32)
        began, start = time.perf_counter(), time.process_time()
        sampler.run(jax.random.key(int(region)), pool, jnp.asarray(outcomes[:, region], jnp.float32))
        draws = np.asarray(sampler.get_samples(group_by_chain=True)["weights"])
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - start)
        ess.append(float(effective_sample_size(draws).min()))
        means.append(draws.mean((0, 1)).tolist())
    return {"cpu": cpu, "wall": wall, "ess": float(np.median(ess)), "regions": regions.tolist(), "mean": means}


def run(quick: bool) -> Result:
    from .report import Result, Table, Target

    rows, notes, targets, placebos = [], [], [], REGIONS - 1
    for prior in ("flat",) if quick else PRIORS:
        ours, nuts = in_a_process("placebos", "balson", prior), in_a_process("placebos", "nuts", prior, FITTED[quick])
        all_cpu, all_wall = (nuts[kind][0] + (placebos - 1) * np.mean(nuts[kind][1:]) for kind in ("cpu", "wall"))
        each = float(np.mean(nuts["cpu"][1:]))
        rows += [
            ["balson, one batch", prior, REGIONS, ours["cpu"], float("nan"), ours["cpu"], ours["wall"], ours["ess"]],
            ["NUTS", prior, placebos, nuts["cpu"][0], each, float(all_cpu), float(all_wall), nuts["ess"]],
        ]
        apart = _difference(ours, nuts)
        notes.append(f"{prior}: balson trusts {ours['trusted']:.0%}; means of weights differ by {apart:.3f} at most.")
        name = f"placebos, {prior} prior: CPU time of NUTS one by one / balson"
        targets.append(Target(name, float(all_cpu) / ours["cpu"], 20))
    table = Table(
        f"{placebos} placebos and the treated region, {REGIONS - 2} donors, {BEFORE} times; a fresh process each",
        COLUMNS,
        rows,
        f"NUTS: {CHAINS} chains, {FITTED[quick]} placebos fitted, all extrapolated. " + " ".join(notes),
    )
    return Result([table], targets)


def _difference(ours: dict, nuts: dict) -> float:
    """Return the largest difference of posterior means between both, over the regions that NUTS fitted."""
    pairs = zip(nuts["regions"], nuts["mean"], strict=True)
    return max(float(np.abs(np.asarray(ours["mean"][region]) - mean).max()) for region, mean in pairs)


CONTENDERS: dict[str, Callable[..., dict]] = {"balson": _balson, "nuts": _nuts}


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    names = [f"{row[0]}, {row[1]} prior" for row in table.rows]
    bars = axes.barh(names, table.column("CPU s, all"))
    axes.bar_label(bars, [f"{value:,.0f} s" for value in table.column("CPU s, all")], padding=3)
    axes.set(xscale="log", xlabel="CPU seconds for all placebos, compilation included")
    axes.invert_yaxis()


if __name__ == "__main__":
    print(json.dumps(CONTENDERS[sys.argv[1]](*sys.argv[2:])))
