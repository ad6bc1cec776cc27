"""Run benchmarks. Print tables of ratios, write JSON and plots."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pathlib
import sys
import time

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from rich.console import Console

from .report import Result, show, write

GROUPS = (
    "draws",
    "weights",
    "fits",
    "waiting",
    "scaling",
    "accuracy",
    "placebos",
    "coverage",
    "sparse",
    "strong",
    "fuzz",
)
RIVALS = ("blackjax", "numpyro", "qpax", "cvxpy")
ON_DEMAND = {"placebos", "coverage", "sparse", "strong", "fuzz"}  # take minutes, or up to an hour or two


def main() -> None:
    parser = argparse.ArgumentParser(prog="balson bench", description=__doc__)
    parser.add_argument(
        "groups",
        nargs="*",
        metavar="group",
        help=f"groups to run, of {', '.join(GROUPS)}; default: all but the last four",
    )
    parser.add_argument("--quick", action="store_true", help="use small sizes and skip scaling; takes about a minute")
    parser.add_argument("--check", action="store_true", help="exit with an error if a target is missed")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench_results"), help="output directory")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown group {', '.join(sorted(unknown))}; choose from {', '.join(GROUPS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    console, results = Console(), {}
    absent = [name for name in RIVALS if not importlib.util.find_spec(name)]
    if absent:
        console.print(f"Skipped because not installed: {', '.join(absent)} (pip install '.[bench]')", markup=False)
    skipped = ON_DEMAND | ({"scaling"} if options.quick else set())
    for name in options.groups or [name for name in GROUPS if name not in skipped]:
        group = importlib.import_module(f".{name}", __package__)
        start = time.perf_counter()
        with console.status(f"{name} …"):
            result: Result = group.run(options.quick)
        results[name] = result
        console.rule(f"{name} ({time.perf_counter() - start:.0f} s)")
        show(console, result)
        figure = Figure(figsize=(9, 4.5), layout="constrained")
        group.plot(result, figure)
        figure.savefig(options.out / f"{name}.png", dpi=120)
    write(options.out / "results.json", results, options.quick)
    console.print(f"Plots, and the tables as JSON, are in {options.out}.")
    missed = [target.name for result in results.values() for target in result.targets if not target.met]
    if options.quick:
        console.print("The targets apply to the full sizes. Results of --quick are only indicative.")
    if options.check and missed:
        sys.exit(f"targets missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
