"""Names of components, rows and problems.

They travel beside the arrays, outside of the pytree, because a program must not be compiled again for other names.
Transformations of JAX drop them silently.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

SHOWN = 5
"""Error messages list at most this many names."""


@dataclasses.dataclass(frozen=True)
class Labels:
    """Names of what a problem and its posterior are about; ``None`` where there are none.

    Attributes:
      components: of the P parameters.
      rows: of the N observations: text, numbers or dates, as the user's table has them.
      problems: of the problems of a batch with one axis; of one problem a single name.
    """

    components: tuple[str, ...] | None = None
    rows: tuple[Any, ...] | None = None
    problems: tuple[Any, ...] | None = None

    def selected(self, chosen: np.ndarray) -> Labels:
        """Return the labels of some problems of a batch with one axis, by their numbers."""
        if self.problems is None:
            return self
        return dataclasses.replace(self, problems=tuple(self.problems[i] for i in np.ravel(chosen)))

    def fitting(self, num_params: int, batch: tuple[int, ...]) -> Labels:
        """Return the labels without those that don't fit ``num_params`` parameters or a batch of this shape."""
        components, problems = self.components, self.problems
        if components is not None and len(components) != num_params:
            components = None
        if problems is not None and (len(batch) > 1 or len(problems) != math.prod(batch)):
            problems = None
        return dataclasses.replace(self, components=components, problems=problems)

    def words(self) -> dict[str, list[Any]]:
        """Return the names of components and problems as JSON knows them: what isn't text or a number becomes text."""
        found = {"components": self.components, "problems": self.problems}
        return {name: [_plain(label) for label in labels] for name, labels in found.items() if labels is not None}

    @staticmethod
    def from_words(words: dict[str, list[Any]]) -> Labels:
        """Return the labels from what ``words`` returned."""
        return Labels(**{name: tuple(labels) for name, labels in words.items()})


class Labelled:
    """Something with labels, which are not part of the pytree."""

    _labels: ClassVar[Labels | None] = None

    @property
    def labels(self) -> Labels:
        """The names of components, rows and problems, as far as there are any."""
        return self._labels or Labels()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the parameters, or ``None``."""
        return self.labels.components

    def labelled(self, labels: Labels) -> Self:
        """Return the same object, which has just been made, with those of the labels that fit its shape."""
        shaped: Any = self  # a problem or a posterior
        object.__setattr__(self, "_labels", labels.fitting(shaped.num_params, shaped.batch_shape))
        return self


def require_names(names: Any, num_params: int) -> tuple[str, ...]:
    """Return the argument ``names`` as a tuple, or raise ``ValueError`` unless it has one text per parameter."""
    if isinstance(names, str) or not np.iterable(names):
        raise ValueError(f"names={names!r}; pass {num_params} texts, one per parameter")
    found = tuple(names)
    odd = next((name for name in found if not isinstance(name, str)), None)
    if odd is not None:
        raise ValueError(f"names holds {odd!r}, a {type(odd).__name__}; pass text")
    if len(found) != num_params:
        raise ValueError(f"names has {len(found)} entries, and the problem {num_params} parameters; pass one for each")
    require_unique("names", found, "an entry")
    return found


def require_unique(argument: str, names: Sequence[Any], kind: str) -> None:
    """Raise ``ValueError`` if a name occurs twice."""
    if len(set(names)) == len(names):
        return
    seen: set[Any] = set()
    twice = [name for name in names if name in seen or seen.add(name)]
    raise ValueError(f"{argument} has {kind} twice: {listed(dict.fromkeys(twice))}; give each a name of its own")


def position(names: tuple[str, ...] | None, name: str) -> int:
    """Return where a name stands, or raise ``ValueError`` with names that resemble it."""
    if names is None:
        raise ValueError(f"{name!r}: the components have no names; pass names=(...) or a DataFrame to linear_problem")
    if name in names:
        return names.index(name)
    close = difflib.get_close_matches(name, names, SHOWN, 0.5)
    hint = f"did you mean {listed(close)}?" if close else f"the names are {listed(names)}"
    raise ValueError(f"there is no component {name!r}; {hint}")


def listed(names: Iterable[Any]) -> str:
    """Return names for an error message, at most SHOWN of them."""
    names = list(names)
    shown = ", ".join(repr(name) if isinstance(name, str) else str(name) for name in names[:SHOWN])
    return f"{shown} ... and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def _plain(label: Any) -> Any:
    label = label.item() if hasattr(label, "item") else label  # NumPy's scalars have it
    return label if isinstance(label, (str, int, float, bool)) else str(label)
