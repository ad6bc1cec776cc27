"""The command line: ``balson fit``, ``check``, ``compare``, ``paper``, ``sensitivity``, ``sensing`` and ``bench``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

try:
    import matplotlib  # noqa: F401
    import typer
    from rich import box, progress
    from rich.console import Console
    from rich.table import Table
    from typer.core import TyperGroup
except ImportError as error:
    remedy = "pip install 'balson_jax[cli]', or in a clone: pip install '.[cli]'"
    sys.exit(f"the balson command needs the package {error.name}; install it with: {remedy}")

from .commands import compare as comparing
from .commands import fit as fitting
from .dirichlet import MATCH_RULES, MatchRule
from .experiments.paper.experiment import Settings

if TYPE_CHECKING:
    from .experiments.page import Table as Sheet

USAGE_ERROR = cast(type[Exception], typer.BadParameter.__mro__[1])
"""What the parser raises for options and arguments that it can't read. (Typer has no public name for it.)"""


class Commands(TyperGroup):
    """Commands whose usage errors exit with 1, as bad files do: 2 means that fits can't be trusted."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the arguments before the command's name."""
        with _usage_errors_are_bad_input():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's arguments, and run it."""
        with _usage_errors_are_bad_input():
            return super().invoke(ctx)


@contextlib.contextmanager
def _usage_errors_are_bad_input() -> Iterator[None]:
    try:
        yield
    except USAGE_ERROR as error:
        error.exit_code = fitting.BAD_INPUT  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=Commands, add_completion=False, no_args_is_help=True, help="Bayesian least squares on the simplex."
)

app.command("fit")(fitting.fit)
app.command("check")(fitting.check)
app.command("compare")(comparing.compare)

DEFAULT = Settings()
Datasets = Annotated[int, typer.Option(min=2, help="Number of noisy data sets.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the data and of the draws.")]
Out = Annotated[Path, typer.Option(file_okay=False, help="Output directory for tables, figures and the page.")]


@app.callback()
def _root() -> None:
    """Bayesian least squares on the simplex."""
    keep_compiled_programs()


def keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache directory, unless ``JAX_COMPILATION_CACHE_DIR`` names another."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(home / "balson_jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@app.command()
def paper(
    datasets: Datasets = DEFAULT.datasets,
    seed: Seed = DEFAULT.seed,
    alpha: Annotated[float, typer.Option(help="Concentration of the prior, positive.")] = DEFAULT.alpha,
    match: Annotated[str, typer.Option(help=f"Rule for the precision: {', '.join(MATCH_RULES)}.")] = DEFAULT.match,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of RSIRS and ISIRS.")] = DEFAULT.rounds,
    draws: Annotated[int, typer.Option(min=2, help="Draws per sampler and round.")] = DEFAULT.num_draws,
    out: Out = Path("balson_paper"),
) -> None:
    """Run the paper's experiment with seven methods. Print our numbers beside the paper's, and write an HTML page."""
    from .experiments.paper import experiment, published, report, tables

    if not 1e-6 <= alpha <= 1e6:
        raise typer.BadParameter(f"{alpha:g} must lie between 1e-6 and 1e6", param_hint="--alpha")
    if match not in MATCH_RULES:
        raise typer.BadParameter(f"{match!r} is none of {', '.join(MATCH_RULES)}", param_hint="--match")
    _make(out)
    settings = Settings(datasets, seed, "paper", alpha, cast(MatchRule, match), rounds, draws)
    with _progress(len(published.METHODS) + len(experiment.EXTRAS)) as report_progress:
        results = experiment.run(settings, report_progress)
    Console().print(report.LEAD)
    _print(tables.tables(results))
    _say_where(report.write(results, out))


@app.command()
def sensitivity(
    datasets: Datasets = DEFAULT.datasets, seed: Seed = DEFAULT.seed, out: Out = Path("balson_sensitivity")
) -> None:
    """Show how the experiment depends on the settings that the paper does not give, and on the true coefficients."""
    from .experiments.paper import data, report, tables
    from .experiments.paper import sensitivity as study

    _make(out)
    settings = Settings(datasets, seed)
    with _progress(len(study.parts(settings)) + 2 * len(data.TRUTHS)) as report_progress:
        scores = study.scan(settings, report_progress)
        found = study.other_truths(settings, report_progress)
    _print(tables.truths(found))
    good = study.reproduces(scores)
    tried = sum(score.rounds > 0 for score in scores)
    Console().print(f"{len(good)} of {tried} settings of IS and ISIRS match or beat the paper's best in every cell.")
    _say_where(report.write_sensitivity(scores, found, settings, out))


@app.command()
def sensing(
    seed: Seed = 0,
    trials: Annotated[int | None, typer.Option(min=2, help="Number of problems of each cell of the grid.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use a small grid; takes about a minute.")] = False,
    out: Out = Path("balson_sensing"),
) -> None:
    """Find few of many shares from fewer rows than shares, beside LASSO and least squares. Write an HTML page."""
    from .experiments.sensing import experiment, report, tables

    _make(out)
    base = experiment.QUICK if quick else experiment.Settings()
    settings = dataclasses.replace(base, seed=seed, trials=trials or base.trials)
    with _progress(len(settings.cases) * len(settings.shares_of_rows)) as report_progress:
        results = experiment.run(settings, report_progress)
    _print(tables.tables(results))
    Console().print(tables.finding(results))
    _say_where(report.write(results, out))


@app.command()
def bench(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            help="Groups of benchmarks. Default: all but placebos, coverage, sparse, strong and fuzz, which take long."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use small sizes; takes about a minute.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with an error if a target is missed.")] = False,
    out: Annotated[Path, typer.Option(help="Output directory for the JSON and the plots.")] = Path("bench_results"),
) -> None:
    """Measure speed and accuracy against other libraries. Print tables, write JSON and plots."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "benchmarks" / "__main__.py").exists():
        sys.exit("the benchmarks are not part of the installed package; run this in a clone of the repository")
    command = [sys.executable, "-m", "benchmarks", *(groups or []), "--out", str(out.resolve())]
    command += ["--quick"] * quick + ["--check"] * check
    sys.exit(subprocess.run(command, cwd=root, check=False).returncode)


def _make(directory: Path) -> None:
    """Create the output directory before the work begins, or report why it can't be created."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"can't create {directory}: {error.strerror}", param_hint="--out") from None


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on standard error. Yield a function to call with a description as each part begins."""
    columns = (
        progress.SpinnerColumn(),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}"),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total)
        begun = -1

        def begin(name: str) -> None:
            nonlocal begun
            begun += 1
            bar.update(task, completed=begun, description=name)

        yield begin


def _print(every_table: list[Sheet]) -> None:
    console = Console()
    for table in every_table:
        shown = Table(title=table.title, caption=table.note or None, box=box.SIMPLE, padding=(0, 1, 0, 0))
        shown.title_justify = shown.caption_justify = "left"
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if index else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        console.print()


def _say_where(page: Path) -> None:
    Console().print(f"All output is in {page.parent}; open {page} in a browser.", soft_wrap=True)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
