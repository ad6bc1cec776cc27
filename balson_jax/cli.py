"""The command line: ``balson demo``, ``balson paper``, ``balson bench``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

try:
    import matplotlib
    import typer
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    sys.exit(f"the balson command needs the package {error.name}; install it with: pip install 'balson_jax[cli]'")

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Bayesian least squares on the simplex.")


@app.callback()
def _root() -> None:
    """Bayesian least squares on the simplex."""


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the data and of the draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("balson_demo.png"),
) -> None:
    """Fit the paper's polynomial with the four samplers; print a table and draw the curves."""
    from .paper import demo as paper_demo

    matplotlib.use("Agg")
    console = Console()
    with console.status("compiling and fitting with four samplers …"):
        target, posteriors = paper_demo.run(seed)
    console.print(paper_demo.table(posteriors))
    console.print(paper_demo.diagnostics(posteriors))
    console.print(
        "Unit noise says little of single coefficients; it is the curve that is recovered (MSE is the mode's)."
    )
    console.print("RS weighs all draws alike, so its weights have no tail (Pareto k of -inf).")
    console.print("RSIRS and ISIRS count the data again in every round: sharper and sparser than the posterior.")
    paper_demo.figure(target, posteriors).savefig(out, dpi=120)
    console.print(f"The curves with their 90 % bands are in {out}.")


@app.command()
def paper(
    datasets: Annotated[int, typer.Option(min=2, help="How many noisy data sets.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the data and of the draws.")] = 0,
    alpha: Annotated[float, typer.Option(help="Concentration of the prior.")] = 0.5,
    match: Annotated[str, typer.Option(help="Rule for the precision: ratio, geometric, mean or kl.")] = "ratio",
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of RSIRS and ISIRS.")] = 3,
    draws: Annotated[int, typer.Option(min=2, help="Draws of each sampler and round.")] = 4096,
    out: Annotated[Path, typer.Option(help="Where to write tables, figures and the page.")] = Path("balson_paper"),
) -> None:
    """Run the paper's experiment with seven methods; print our figures beside the paper's, write a page."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from .paper import experiment, published, report, tables

    matplotlib.use("Agg")
    console = Console()
    settings = experiment.Settings(datasets, seed, alpha, match, rounds, draws)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=len(published.METHODS) + 1)

        def show(name: str) -> None:
            bar.update(task, advance=1, description=name)

        results = experiment.run(settings, show)
    for table in tables.tables(results):
        rich_table = Table(title=table.title, caption=table.note or None, box=SIMPLE)
        rich_table.title_justify = rich_table.caption_justify = "left"
        for column in table.columns:
            rich_table.add_column(column, justify="right")
        for row in table.rows:
            rich_table.add_row(*row)
        console.print(rich_table)
    page = report.write(results, out)
    console.print(f"Everything is in {out}; open {page} in a browser.")


@app.command()
def bench(
    groups: Annotated[list[str] | None, typer.Argument(help="Some groups of benchmarks; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, in about a minute.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with an error if a target is missed.")] = False,
    out: Annotated[Path, typer.Option(help="Where to write the JSON and the plots.")] = Path("bench_results"),
) -> None:
    """Measure speed and accuracy beside other libraries; print tables, write JSON, draw plots."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "benchmarks" / "__main__.py").exists():
        sys.exit("the benchmarks are not part of the installed package; run this in a clone of the repository")
    command = [sys.executable, "-m", "benchmarks", *(groups or []), "--out", str(out.resolve())]
    command += ["--quick"] * quick + ["--check"] * check
    sys.exit(subprocess.run(command, cwd=root, check=False).returncode)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
