"""The command ``balson compare``: which of several models do the targets favour?"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..problems.constraints import CONSTRAINTS
from . import fit
from .candidates import Candidates
from .settings import Settings

if TYPE_CHECKING:
    from .comparing import Compared

_D = Settings("", "")
SEVERAL = "May be given several times."
METHODS_HELP = "How to sample: tg, is, or another that estimates the evidence."

Designs = Annotated[list[str], typer.Argument(help=f"Designs, each a model. {fit.DESIGN_HELP}")]
Constraint = Annotated[list[str] | None, fit.Option(help=f"Of {', '.join(CONSTRAINTS)}. {SEVERAL}")]
Prior = Annotated[list[str] | None, fit.Option(help=f"Concentration of the Dirichlet. {SEVERAL}")]
Total = Annotated[list[float] | None, fit.Option(help=f"The sum of the components. {SEVERAL}")]
Noise = Annotated[list[str] | None, fit.Option(help=f"estimate, a standard deviation, or a file. {SEVERAL}")]
Method = Annotated[str, fit.Option(help=METHODS_HELP)]


def compare(
    designs: Designs,
    targets: fit.Targets,
    out: fit.Out = pathlib.Path("balson_compare"),
    constraint: Constraint = None,
    prior: Prior = None,
    total: Total = None,
    noise: Noise = None,
    targets_in_rows: fit.InRows = _D.targets_in_rows,
    rows: fit.RowRule = _D.rows,
    header: fit.Header = _D.header,
    row_names: fit.RowNames = _D.row_names,
    slack_prior: fit.SlackPrior = _D.slack_prior,
    weights: fit.Weights = None,
    nuisance: fit.Nuisance = None,
    missing: fit.Missing = _D.missing,
    intercept: fit.Intercept = _D.intercept,
    method: Method = "tg",
    draws: fit.Draws = None,
    chunk: fit.Chunk = _D.chunk,
    seed: fit.Seed = _D.seed,
    strict: fit.Strict = _D.strict,
    resume: fit.Resume = False,
    overwrite: fit.Overwrite = False,
) -> None:
    """Rank models of the same targets by their evidence: several designs, constraints, priors, totals or noises.

    Writes comparison.csv, report.html, and of an image the rasters best and weights. Exit codes are those of
    balson fit.
    """
    varied = {"constraint": constraint, "prior": prior, "total": total, "noise": noise}
    shared: dict[str, Any] = {name: value for name, value in locals().items() if name in _SHARED}
    base = Settings(designs[0], targets, command="compare", **shared)
    given = {name: tuple(values) for name, values in varied.items() if values}
    raise typer.Exit(perform(Candidates(base, tuple(designs), given), resume, overwrite))


_SHARED = (
    "out",
    "targets_in_rows",
    "rows",
    "header",
    "row_names",
    "slack_prior",
    "weights",
    "nuisance",
    "missing",
    "intercept",
    "method",
    "draws",
    "chunk",
    "seed",
    "strict",
)


def perform(candidates: Candidates, resume: bool, overwrite: bool) -> int:
    """Run the comparison, print its outcome, and return the exit code."""
    from . import comparing

    def run(progress: fit.Progress) -> Compared:
        return comparing.run(candidates, progress)

    again = candidates.words("--resume")
    work = fit.Work(candidates.base.out, again, candidates.require, run, _finish)
    return fit.attempt(work, resume, overwrite)


def _finish(found: Compared) -> int:
    """Write the page, say what was found, and return the exit code."""
    from . import comparison_page, running

    where = comparison_page.write(found)
    print(found.comparison)
    out = found.candidates.base.out
    running.tidy(out)
    print(f"All output is in {out}; open {where} in a browser.")
    return fit.UNTRUSTED if found.candidates.base.strict and found.untrusted else 0
