"""Data larger than memory: fit targets chunk by chunk, from anything that can be sliced."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .. import validation
from ..fit import fit, named, resolve
from ..posteriors.posterior import Posterior
from ..posteriors.storage import ArrayStore, digest
from ..problems.linear import Problem, linear_problem
from ..samplers import Method
from ..version import __version__
from .ladder import METHOD_NAMES, Auto
from .parallel import shard

SAMPLED_ROWS = 64
"""Targets are recognised by this many of their rows, so as not to read them all before starting."""


def fit_stream(
    key: jax.Array,
    design: Any,
    targets: Any,
    method: str | Method | Auto = "auto",
    *,
    chunk: int,
    progress: bool | Callable[[int, int], None] = True,
    out: str | os.PathLike | None = None,
    mesh: Mesh | None = None,
    **options: Any,
) -> Posterior:
    """Fit targets that share a design, reading and computing ``chunk`` of them at a time.

    The next chunk is read while the devices compute. The result does not depend on the chunk: it is that of
    ``fit(key, linear_problem(design, targets, **options), method)``. A target with a NaN gets ``Status.NONFINITE`` and
    does not stop the others.

    Args:
      key: a PRNG key.
      design: ``(N, K)``.
      targets: anything with a ``shape`` of ``(P, ..., N)`` that can be sliced along its first axis: an array, a
        ``numpy.memmap``, an HDF5 or Zarr data set.
      method: as for ``fit``; a name means that method with ``keep=0``, as kept draws are 512 numbers per parameter.
      chunk: how many targets (along the first axis) to read and fit at a time; bounds the memory.
      progress: whether to show a progress bar, or a function called with the numbers of targets done and in total.
      out: directory for the results, one ``.npy`` file per field of the posterior, in which case the posterior's arrays
        are maps of these files. After an interruption the same call goes on where it stopped, having lost the chunk
        under way. Other arguments than before are refused; targets are recognised by some of their rows.
      mesh: devices over which to split each chunk.
      **options: ``total``, ``noise``, ``prior``, ... of ``linear_problem``, the same for all targets.

    Returns:
      The posterior, with NumPy arrays for fields.

    Raises:
      ValueError: naming the argument, what is wrong and what to do.

    >>> import jax.numpy as jnp
    >>> targets = np.random.default_rng(0).random((1000, 4), np.float32)
    >>> posterior = fit_stream(jax.random.key(0), jnp.eye(4), targets, "is", chunk=256, progress=False, noise=1.0)
    >>> posterior.mean.shape
    (1000, 4)
    """
    key = validation.typed_key(key)
    validation.require_at_least("chunk", chunk, 1)
    design = validation.float_array("design", design)
    shape = _check_targets(design, targets)
    options = {**(linear_problem.__kwdefaults__ or {}), **options}
    _check_options(design, options)
    dtype = validation.float_array("targets", np.zeros(1, targets.dtype)).dtype
    if isinstance(method, str):
        method = named(method, keep=0)
    # With values that are known, so that bad ones are named.
    method = resolve(method, linear_problem(design, np.zeros((1, *shape[1:]), dtype), **options))
    num_devices = 1 if mesh is None else mesh.size
    chunk = -(-min(chunk, max(shape[0], 1)) // num_devices) * num_devices
    numbers = {
        name: value
        for name, value in options.items()
        if not (isinstance(value, (str, type(None))) or name == "row_axes")
    }
    words = tuple((name, value) for name, value in options.items() if name not in numbers)

    def start(values: np.ndarray) -> Posterior:
        problem = _problem(design, values, numbers, words)
        return fit(key, problem if mesh is None else shard(problem, mesh, over="problems"), method)

    arguments = {
        "version of balson_jax": __version__,
        "key": digest(str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))),
        "design": digest(np.asarray(design)),
        "targets": digest(shape, str(targets.dtype), _sampled_rows(targets)),
        "method": digest(str(jax.tree.structure(method)), *map(np.asarray, jax.tree.leaves(method))),
        "chunk": str(chunk),
        **{name: _digest(value) if name in numbers else digest(value) for name, value in options.items()},
    }
    example = jax.eval_shape(start, jax.ShapeDtypeStruct((chunk, *shape[1:]), dtype))
    if isinstance(method, Auto) and mesh is None:
        example = dataclasses.replace(example, methods=METHOD_NAMES)
    fields = example.arrays()
    layout = {name: ((shape[0], *field.shape[1:]), np.dtype(field.dtype)) for name, field in fields.items()}
    pieces = {
        number: slice(first, min(first + chunk, shape[0])) for number, first in enumerate(range(0, shape[0], chunk))
    }
    store = ArrayStore(out, arguments, layout, len(pieces))

    def read(number: int) -> np.ndarray:
        return _read(targets, pieces[number], chunk, dtype)

    def finish(number: int, posterior: Posterior) -> None:
        store.write(number, pieces[number], jax.tree.map(np.asarray, posterior.arrays()))
        report(sum(pieces[done].stop - pieces[done].start for done in store.finished))

    missing = [number for number in pieces if number not in store.finished]
    with _reporter(progress, shape[0]) as report, ThreadPoolExecutor(1) as reader:
        ahead = [reader.submit(read, number) for number in missing[:1]]
        for position, number in enumerate(missing):
            values = ahead.pop().result()
            ahead = [reader.submit(read, following) for following in missing[position + 1 : position + 2]]
            finish(number, start(values))  # stored before the next is begun: an interruption loses one chunk at most
    return jax.tree.unflatten(jax.tree.structure(example), list(store.results().values()))


@functools.partial(jax.jit, static_argnames="words")
def _problem(
    design: jax.Array, values: jax.Array, numbers: dict[str, Any], words: tuple[tuple[str, Any], ...]
) -> Problem:
    noise = numbers.get("noise")
    if isinstance(noise, jax.Array) and noise.ndim == 1:  # one per row, also where there are as many targets as rows
        numbers = numbers | {"noise": noise[None]}
    # Inside a trace, so that a NaN becomes a status.
    return linear_problem(design, values, **numbers, **dict(words))


def _digest(value: Any) -> str:
    return digest(str(jax.tree.structure(value)), *map(np.asarray, jax.tree.leaves(value)))


def _check_options(design: jax.Array, options: dict[str, Any]) -> None:
    """Raise if an option differs between targets: chunks are fitted with the same options."""
    num_rows, num_components = design.shape
    rows = [(num_rows,)]
    allowed = {
        "noise": [(), (num_rows,), (num_rows, num_rows)],
        "prior": [(), (num_components,), (2 * num_components,)],
        "weights": rows,
        "mask": rows,
    }
    if options["row_axes"] != 1:
        raise ValueError(f"row_axes={options['row_axes']}; fit_stream needs targets with one axis of rows")
    for name, value in options.items():
        for shape in {np.shape(leaf) for leaf in jax.tree.leaves(value)} - set(allowed.get(name, [()])):
            raise ValueError(
                f"{name} has shape {shape}; fit_stream needs the same {name} for all targets: "
                f"pass one of shape {' or '.join(map(str, allowed.get(name, [()])))}"
            )


def _check_targets(design: jax.Array, targets: Any) -> tuple[int, ...]:
    if design.ndim != 2:
        raise ValueError(f"design has shape {design.shape}; fit_stream needs one design (N, K) for all targets")
    shape = getattr(targets, "shape", None)
    if shape is None or not hasattr(targets, "dtype") or not hasattr(targets, "__getitem__"):
        raise ValueError(f"targets is a {type(targets).__name__}; pass something with a shape, a dtype and slices")
    shape = tuple(shape)
    if len(shape) < 2 or shape[-1] != design.shape[0]:
        raise ValueError(
            f"targets has shape {shape}; it must be (problems, ..., {design.shape[0]}), as design has rows"
        )
    return shape


def _sampled_rows(targets: Any) -> np.ndarray:
    """Return some rows, evenly spaced, the first and the last among them."""
    count = targets.shape[0]
    numbers = sorted({round(i * (count - 1) / (SAMPLED_ROWS - 1)) for i in range(SAMPLED_ROWS)}) if count else []
    return np.stack([np.asarray(targets[i : i + 1]) for i in numbers]) if numbers else np.zeros(0)


def _read(targets: Any, rows: slice, chunk: int, dtype: Any) -> np.ndarray:
    """Read a chunk; the last one is filled up with copies, so that nothing is compiled for its size."""
    values = np.asarray(targets[rows]).astype(dtype, copy=False)
    missing = chunk - len(values)
    return np.concatenate([values, np.broadcast_to(values[:1], (missing, *values.shape[1:]))]) if missing else values


@contextlib.contextmanager
def _reporter(progress: bool | Callable[[int, int], None], total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many targets are done."""
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
        yield lambda done: print(f"fitted {done:,} of {total:,} targets", file=sys.stderr, flush=True)
        return
    columns = TextColumn("fitting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fitting", total=total)
        yield lambda done: bar.update(task, completed=done)
