"""The arguments of ``balson fit``, and the command that repeats the run."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import Any

from ..samplers import Sampler, named
from ..samplers.base import DEFAULT_KEEP

MOST_DRAWS_BYTES = 1 << 30
"""Kept draws of all problems take at most this much of the disk, unless ``--keep`` says otherwise."""

FEWEST_KEPT = 64


@dataclasses.dataclass(frozen=True)
class Settings:
    """The arguments of ``balson fit``; the fields are described by its help."""

    design: str
    targets: str
    out: pathlib.Path = pathlib.Path("balson_fit")
    command: str = "fit"
    targets_in_rows: bool = False
    rows: str = "match"
    header: str = "auto"
    row_names: str = "auto"
    total: float = 1.0
    constraint: str = "equal"
    noise: str = "estimate"
    prior: str = "1"
    slack_prior: float = 1.0
    weights: pathlib.Path | None = None
    nuisance: pathlib.Path | None = None
    missing: str = "raise"
    intercept: bool = False
    learn: bool = False
    unordered: bool = False
    check: bool = False
    method: str = "auto"
    draws: int | None = None
    keep: int | None = None
    threshold: float | None = None
    level: float = 0.9
    chunk: int = 2000
    seed: int = 0
    csv: bool = True
    strict: bool = False

    @property
    def least(self) -> float:
        """The threshold above which a component counts as included."""
        return 0.05 * self.total if self.threshold is None else self.threshold

    def sampler(self, num_problems: int, num_params: int) -> Sampler:
        """Return the method; by default it keeps fewer draws if all together exceed ``MOST_DRAWS_BYTES``."""
        keep = DEFAULT_KEEP if self.keep is None else self.keep
        while self.keep is None and keep > FEWEST_KEPT and 4 * keep * num_problems * num_params > MOST_DRAWS_BYTES:
            keep //= 2
        options: dict[str, Any] = {"keep": keep}
        if self.draws is None:
            return named(self.method, **options)
        try:
            return named(self.method, num_draws=self.draws, **options)
        except TypeError:
            raise ValueError(
                f"--draws {self.draws}: method {self.method} has no number of draws; leave it out"
            ) from None

    def words(self, *extra: str) -> str:
        """Return the command that repeats the run, with further options."""
        parts = ["balson", self.command, self.design, self.targets]
        for field in dataclasses.fields(self)[2:]:
            value = getattr(self, field.name)
            if field.name == "command" or (value == field.default and field.name != "out"):
                continue
            flag = "--" + field.name.replace("_", "-")
            if field.name == "check" and self.command == "check":
                continue
            if value is True or value is False:
                parts.append(flag if value else flag.replace("--", "--no-"))
            else:
                parts += [flag, str(value)]
        return shlex.join([*parts, *extra])
