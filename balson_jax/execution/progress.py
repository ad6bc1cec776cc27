"""Progress of long work, reported from the host."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def reporter(
    progress: bool | Callable[[int, int], None], total: int, doing: str = "fitted", things: str = "targets"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many things are done."""
    if callable(progress):
        yield lambda done: progress(done, total)
        return
    if not progress:
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda done: print(f"{doing} {done:,} of {total:,} {things}", file=sys.stderr, flush=True)
        return
    columns = TextColumn(f"{doing} {things}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fitting", total=total)
        yield lambda done: bar.update(task, completed=done)
