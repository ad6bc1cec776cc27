"""The commands ``balson fit`` and ``balson check``: from files to a table, a posterior, maps and a page."""

from __future__ import annotations

import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .. import validation
from ..problems.constraints import CONSTRAINTS
from ..samplers import METHODS
from .settings import Settings

if TYPE_CHECKING:
    from .running import Run

BAD_INPUT = 1
"""Exit code for files and options that can't be used."""

UNTRUSTED = 2
"""Exit code if fits can't be trusted and ``--strict`` was given."""

INTERRUPTED = 130
"""Exit code after an interruption by the user."""

_D = Settings("", "")
Option = typer.Option
Progress = Callable[[int, int], None]

DESIGN_HELP = "The design: rows are observations (bands, genes, times), columns are components."
TARGETS_HELP = "The targets: the same rows, one column per target; or an image, whose pixels are the targets."
Design = Annotated[str, typer.Argument(help=f"{DESIGN_HELP} CSV, TSV, Parquet, NPY, NPZ, MAT, ENVI or AnnData.")]
Targets = Annotated[str, typer.Argument(help=f"{TARGETS_HELP} FILE::NAME is one of several arrays.")]
Out = Annotated[pathlib.Path, Option(file_okay=False, help="Output directory.")]
InRows = Annotated[bool, Option("--targets-in-rows", help="Each row of TARGETS is a target.")]
RowRule = Annotated[str, Option(help="How rows are paired: match (equal names), common (names in both), or order.")]
Header = Annotated[str, Option(help="Whether text files begin with a line of names: auto, yes or no.")]
RowNames = Annotated[str, Option(help="Whether the first column names the rows: auto, yes or no.")]
Total = Annotated[float, Option(help="The sum of the components.")]
Constraint = Annotated[str, Option(help=f"On the components: {', '.join(CONSTRAINTS)}.")]
Noise = Annotated[str, Option(help="estimate, a standard deviation, or a file with one per row.")]
Prior = Annotated[str, Option(help="Concentration of the Dirichlet: a number, or one per component, as 1,1,0.5.")]
SlackPrior = Annotated[float, Option(help="Concentration of the unused part of the total.")]
Weights = Annotated[pathlib.Path | None, Option(help="File with one weight per row.")]
Nuisance = Annotated[pathlib.Path | None, Option(help="File with columns whose coefficients have no constraint.")]
Missing = Annotated[str, Option(help="Gaps of the targets: raise, or drop to leave such rows out.")]
Intercept = Annotated[bool, Option("--intercept", help="Add an unconstrained constant.")]
Learn = Annotated[bool, Option("--learn", help="Learn noise and prior from the targets first (dozens are needed).")]
Unordered = Annotated[bool, Option("--unordered", help="Rows have no order or neighbours, as genes.")]
CheckToo = Annotated[bool, Option("--check", help="Look at the residuals of up to 1,000 problems.")]
Method = Annotated[str, Option(help=f"How to sample: {', '.join(METHODS)}.")]
Draws = Annotated[int | None, Option(help="Draws per problem, for methods that have such a number.")]
Keep = Annotated[int | None, Option(help="Draws kept per problem, a power of two or 0. Default: 512; fewer of many.")]
Threshold = Annotated[float | None, Option(help="Report the probability of more than this. Default: 5 % of the total.")]
Level = Annotated[float, Option(help="Probability of the intervals.")]
Chunk = Annotated[int, Option(help="Problems read and fitted at a time; an interruption loses one chunk.")]
Seed = Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of the draws.")]
Csv = Annotated[bool, Option(help="Write posterior.csv; it is large for large images.")]
Strict = Annotated[bool, Option("--strict", help="Exit with code 2 if some fits can't be trusted.")]
Resume = Annotated[bool, Option("--resume", help="Go on with an interrupted run in the output directory.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace the results of an earlier run.")]


def fit(
    design: Design,
    targets: Targets,
    out: Out = _D.out,
    targets_in_rows: InRows = _D.targets_in_rows,
    rows: RowRule = _D.rows,
    header: Header = _D.header,
    row_names: RowNames = _D.row_names,
    total: Total = _D.total,
    constraint: Constraint = _D.constraint,
    noise: Noise = _D.noise,
    prior: Prior = _D.prior,
    slack_prior: SlackPrior = _D.slack_prior,
    weights: Weights = None,
    nuisance: Nuisance = None,
    missing: Missing = _D.missing,
    intercept: Intercept = _D.intercept,
    learn: Learn = _D.learn,
    unordered: Unordered = _D.unordered,
    check: CheckToo = _D.check,
    method: Method = _D.method,
    draws: Draws = None,
    keep: Keep = None,
    threshold: Threshold = None,
    level: Level = _D.level,
    chunk: Chunk = _D.chunk,
    seed: Seed = _D.seed,
    csv: Csv = _D.csv,
    strict: Strict = _D.strict,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Fit the targets of a file by the columns of another: shares that are not negative and have a given sum.

    Writes posterior.csv, posterior.npz, report.html, and of an image ENVI rasters. Exit codes: 0; 1 for bad input; 2 if
    fits can't be trusted and --strict was given.
    """
    given = {name: value for name, value in locals().items() if name not in ("resume", "overwrite")}
    raise typer.Exit(perform(Settings(**given), resume, overwrite))


def check(
    design: Design,
    targets: Targets,
    out: Out = pathlib.Path("balson_check"),
    targets_in_rows: InRows = _D.targets_in_rows,
    rows: RowRule = _D.rows,
    header: Header = _D.header,
    row_names: RowNames = _D.row_names,
    total: Total = _D.total,
    constraint: Constraint = _D.constraint,
    noise: Noise = _D.noise,
    prior: Prior = _D.prior,
    weights: Weights = None,
    missing: Missing = _D.missing,
    intercept: Intercept = _D.intercept,
    learn: Learn = _D.learn,
    unordered: Unordered = _D.unordered,
    method: Method = _D.method,
    draws: Draws = None,
    seed: Seed = _D.seed,
    strict: Strict = _D.strict,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Fit as balson fit does, and say whether the model describes the rows and error bars are wide enough."""
    given = {name: value for name, value in locals().items() if name not in ("resume", "overwrite")}
    raise typer.Exit(perform(Settings(**given, command="check", check=True), resume, overwrite))


def perform(settings: Settings, resume: bool, overwrite: bool) -> int:
    """Run a command, print its outcome, and return the exit code."""

    def run(progress: Progress) -> Run:
        from . import running

        return running.run(settings, resume, progress)

    work = Work(settings.out, settings.words("--resume"), lambda: require_choices(settings), run, _finish)
    return attempt(work, resume, overwrite)


class Work(NamedTuple):
    """What a command does.

    Attributes:
      out: the output directory.
      again: the command that goes on after an interruption.
      require: raises ``ValueError`` if an option is not allowed.
      run: does the work; takes a function that is called with the numbers of problems done and in total.
      finish: takes what ``run`` returned, says what was found, and returns the exit code.
    """

    out: pathlib.Path
    again: str
    require: Callable[[], None]
    run: Callable[[Progress], Any]
    finish: Callable[[Any], int]


def attempt(work: Work, resume: bool, overwrite: bool) -> int:
    """Do the work with a progress bar, print errors as messages, and return the exit code."""
    told = {"done": 0, "total": 0}
    try:
        from . import running

        work.require()
        if resume and overwrite:
            raise ValueError("--resume and --overwrite were given; pass one of them")
        if not running.claim(work.out, resume, overwrite):
            print(f"{work.out} has the results of a run that is finished; pass --overwrite to repeat it")
            return 0
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
            with running.bar() as (progress, told):
                found = work.run(progress)
            return work.finish(found)
    except KeyboardInterrupt:
        print(f"\ninterrupted; {told['done']:,} problems are stored. To go on:", file=sys.stderr)
        print(work.again, file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        print("error: memory is full; pass a smaller --chunk or --keep", file=sys.stderr)
        return BAD_INPUT
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


def _finish(found: Run) -> int:
    """Write the page, say what was found, and return the exit code."""
    from . import page, running

    settings = found.settings
    where = page.write(found)
    if found.learned is not None:
        print(found.learned)
    if found.checked is not None:
        print(found.checked)
    print(", ".join(f"{word}: {count:,}" for word, count in found.counts.words.items()))
    running.tidy(settings.out)
    print(f"All output is in {settings.out}; open {where} in a browser.")
    return UNTRUSTED if settings.strict and not found.can_be_trusted else 0


def require_choices(settings: Settings) -> None:
    """Raise ``ValueError`` if an option is none of the known words, or out of range."""
    known = {
        "rows": ("match", "common", "order"),
        "header": ("auto", "yes", "no"),
        "row_names": ("auto", "yes", "no"),
        "constraint": tuple(CONSTRAINTS),
        "missing": ("raise", "drop"),
    }
    for name, words in known.items():
        value = getattr(settings, name)
        if value not in words:
            raise ValueError(f"--{name.replace('_', '-')} {value}: choose one of {', '.join(words)}")
    validation.require_share("level", settings.level)
    validation.require_at_least("chunk", settings.chunk, 1)
    if not 0 < settings.total < float("inf"):
        raise ValueError(f"--total {settings.total:g}: must be positive")
    if not settings.least >= 0:
        raise ValueError(f"--threshold {settings.threshold}: must not be negative")
