"""The models that ``balson compare`` ranks: designs and values of options in all combinations."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import shlex
from typing import Any

from ..samplers import named
from .fit import require_choices
from .settings import Settings

VARIED = ("constraint", "prior", "total", "noise")
"""Options that may be given several times."""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The models that are compared, which share everything but designs and some options.

    Attributes:
      base: the settings that they share. Its design is the first one, and options in ``given`` have their defaults.
      designs: the files.
      given: the values of options that were given, by name.
    """

    base: Settings
    designs: tuple[str, ...]
    given: dict[str, tuple[Any, ...]]

    def each(self) -> dict[str, Settings]:
        """Return the settings of each model, by a name that states how it differs from the others.

        Raises:
          ValueError: if there are fewer than two models, or two of them are the same.
        """
        options = {name: values for name, values in self.given.items() if values}
        found: dict[str, Settings] = {}
        for design, *values in itertools.product(self.designs, *options.values()):
            own = dict(zip(options, values, strict=True))
            words = [_short(design, self.designs)] if len(self.designs) > 1 else []
            words += [_word(name, value) for name, value in own.items() if len(options[name]) > 1]
            name = ", ".join(words) if words else _short(design, self.designs)
            if name in found:
                raise ValueError(f"{name} was given twice; give each design and each value once")
            found[name] = dataclasses.replace(self.base, design=design, **own)
        if len(found) < 2:
            raise ValueError(
                f"{next(iter(self.designs))} is the only model; pass several designs before the targets, or an option "
                f"several times, as --constraint equal --constraint at_most "
                f"(also {', '.join(f'--{name}' for name in VARIED[1:])})"
            )
        return found

    def require(self) -> None:
        """Raise ``ValueError`` if an option of a model is not allowed."""
        if self.base.method.lower() == "auto" or not named(self.base.method).has_evidence:
            raise ValueError(
                f"--method {self.base.method}: chains don't tell the evidence; pass tg, or is where the data are weak"
            )
        for settings in self.each().values():
            require_choices(settings)

    def words(self, *extra: str) -> str:
        """Return the command that repeats the comparison, with further options."""
        parts = shlex.split(self.base.words())
        given = [word for name, values in self.given.items() for value in values for word in (f"--{name}", str(value))]
        return shlex.join([*parts[:2], *self.designs, *parts[3:], *given, *extra])

    def as_text(self) -> dict[str, Any]:
        """Return the settings for a JSON file."""
        shared = {
            name: str(value) if hasattr(value, "parts") else value  # paths have parts
            for name, value in dataclasses.asdict(self.base).items()
            if name != "design" and not self.given.get(name)
        }
        return {"designs": list(self.designs), **{n: list(v) for n, v in self.given.items() if v}, **shared}


def _short(design: str, designs: tuple[str, ...]) -> str:
    """Return a file's name without its directory, unless another has the same name."""
    name = pathlib.Path(design).name
    return name if sum(pathlib.Path(other).name == name for other in designs) == 1 else design


def _word(option: str, value: Any) -> str:
    return str(value) if option == "constraint" else f"{option} {value}"
