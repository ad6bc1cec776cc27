"""Data larger than memory: fit targets chunk by chunk, from anything that can be sliced."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems import constraints
from ..problems.base import Problem, Template, is_problem
from ..problems.linear import linear_problem, linear_template
from ..problems.uncertain_design import split
from ..residuals.narrowness import NARROW
from ..samplers import Sampler, resolve
from ..status import Status
from ..version import __version__
from . import names
from .ladder import method_names
from .mixtures import fit_any
from .parallel import shard
from .progress import reporter
from .storage import ArrayStore, digest
from .stream_check import narrow_factor

SAMPLED = 256
"""Number of targets read before the first chunk, at most. Their digest identifies the targets of a resumed run, and
their residuals are checked."""


def fit_stream(
    key: jax.Array,
    design: Any,
    targets: Any,
    method: str | Sampler = "auto",
    *,
    chunk: int,
    progress: bool | Callable[[int, int], None] = True,
    out: str | os.PathLike | None = None,
    mesh: Mesh | None = None,
    check: bool = True,
    **options: Any,
) -> Posterior:
    """Fit targets that share a design or a model, reading and computing ``chunk`` of them at a time.

    The next chunk is read while the devices compute. The design is factorised once, and all arguments but the targets
    are checked before the first chunk. The result does not depend on the chunk: it is that of
    ``fit(key, linear_problem(design, targets, **options), method)``. A target with a NaN gets ``Status.NONFINITE`` and
    does not stop the others.

    Residuals of up to 256 targets, evenly spaced over all, are checked before the first chunk. If they are correlated
    between rows, so that error bars are too narrow by more than a factor of 1.5, all problems get
    ``Status.OVERCONFIDENT``. This is for linear problems with one design, up to 1,000 rows in order, and weights of
    rows that all targets share; others are not judged. ``balson_jax.check`` reports more.

    Args:
      key: a PRNG key.
      design: ``(N, K)``; or a problem of any kind, made with one target or several by ``linear_problem`` or
        ``model_problem``, whose options are used for all targets.
      targets: anything with a ``shape`` of ``(P, ..., N)`` that can be sliced along its first axis: an array, a
        ``numpy.memmap``, an HDF5 or Zarr data set, an array of xarray (its last dimension being the rows). Or a
        DataFrame with one column per target, as for ``linear_problem``.
      method: as for ``fit``. A name means that method with ``keep=0``, as kept draws are 512 numbers per parameter.
      chunk: how many targets (along the first axis) to read and fit at a time; bounds the memory.
      progress: whether to show a progress bar, or a function called with the numbers of targets done and in total.
      out: directory for the results, one ``.npy`` file per field of the posterior, in which case the posterior's arrays
        are maps of these files. After an interruption the same call goes on where it stopped, and only the chunk in
        progress is computed again. Arguments must be the same as before; of the targets only a sample is compared.
      mesh: devices over which to split each chunk.
      check: whether to check residuals, which costs the constrained optima of the sample and a covariance of the rows.
      **options: ``total``, ``noise``, ``prior``, ``weights``, ... of ``linear_problem``, for all targets alike or with
        the targets' leading axes.

    Returns:
      The posterior, with NumPy arrays for fields, and with the names of the design's columns, if it has any.

    Raises:
      ValueError: naming the argument, what is wrong and what to do.

    >>> from balson_jax import IS
    >>> targets, method = np.random.default_rng(0).random((12, 3), np.float32), IS(num_draws=4000)
    >>> posterior = fit_stream(jax.random.key(0), np.eye(3), targets, method, chunk=5, progress=False, noise=1.0)
    >>> posterior.mean.shape
    (12, 3)
    """
    key = validation.typed_key(key)
    validation.require_at_least("chunk", chunk, 1)
    validation.require_flag("check", check)
    design, targets, options, labels = names.read(design, targets, options)
    template, arguments = _template(design, targets, options)
    shape = tuple(targets.shape)
    num_devices = 1 if mesh is None else mesh.size
    chunk = -(-min(chunk, max(shape[0], 1)) // num_devices) * num_devices
    stream = _Stream(key, template.factorised(), targets, method, chunk, mesh)
    sample = _Sample(targets, len(template.rows.event))
    arguments = {
        "version of balson_jax": __version__,
        "key": digest(str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key))),
        "targets": digest(shape, str(targets.dtype), sample.values),
        "method": digest_tree(stream.method),
        "chunk": str(chunk),
        "check": str(bool(check)),
        **arguments,
    }
    example = stream.example()
    layout = {name: ((shape[0], *field.shape[1:]), np.dtype(field.dtype)) for name, field in example.arrays().items()}
    store = ArrayStore(out, arguments, layout, len(stream.pieces))
    if check and len(store.finished) < len(stream.pieces):
        stream.flags = sample.flags(stream.template)
    _run(stream, store, progress)
    found = jax.tree.unflatten(jax.tree.structure(example), list(store.results().values()))
    return found.labelled(labels)


class _Stream:
    """Targets in pieces of ``chunk`` rows, and the fit of one piece."""

    def __init__(
        self, key: jax.Array, template: Template, targets: Any, method: Any, chunk: int, mesh: Mesh | None
    ) -> None:
        self.key, self.template, self.targets, self.chunk, self.mesh = key, template, targets, chunk, mesh
        self.flags = Status.OK  # which all problems get
        self.count = targets.shape[0]
        self.dtype = validation.float_array("targets", np.zeros(1, targets.dtype)).dtype
        starts = range(0, self.count, chunk)
        self.pieces = {number: slice(first, min(first + chunk, self.count)) for number, first in enumerate(starts)}
        # With known values, so that errors can name them; the prior is that of all problems.
        one = self._take(np.zeros(1, int)).with_targets(np.zeros((1, *targets.shape[1:]), self.dtype))
        self.problem: Problem = dataclasses.replace(one, prior=template.prior)  # type: ignore[type-var]
        self.method = resolve(method, self.problem, keep=0)

    def read(self, number: int) -> np.ndarray:
        """Return the targets of a piece; the last one is filled up with copies, so that nothing else is compiled."""
        rows = self.pieces[number]
        values = np.asarray(self.targets[rows]).astype(self.dtype, copy=False)
        missing = self.chunk - len(values)
        copies = np.broadcast_to(values[:1], (missing, *values.shape[1:]))
        return np.concatenate([values, copies]) if missing else values

    def fit(self, number: int, values: Any) -> Posterior:
        """Return the posterior of a piece."""
        rows = self.pieces[number]
        index = np.arange(rows.start, rows.start + self.chunk)
        return self._fit(self._take(np.where(index < rows.stop, index, rows.start)), values)

    def _take(self, index: np.ndarray) -> Template:
        """Return the template for some of the targets."""
        return self.template.take(index, len(self.targets.shape) - len(self.template.rows.event))

    def _fit(self, template: Template, values: Any) -> Posterior:
        # As fit makes it, unless a NaN would be refused.
        known = validation.is_concrete(values) and bool(np.isfinite(values).all())
        problem = template.with_targets(values) if known else _assemble(template, values)
        if self.mesh is not None:
            problem = shard(problem, self.mesh, over="problems")
        return fit_any(self.key, problem, self.method)

    def example(self) -> Posterior:
        """Return the shapes of a piece's posterior."""
        template = self._take(np.zeros(self.chunk, int))
        found = jax.eval_shape(
            lambda values: self._fit(template, values),
            jax.ShapeDtypeStruct((self.chunk, *self.targets.shape[1:]), self.dtype),
        )
        rungs = self.method.rungs(self.problem)
        return dataclasses.replace(found, methods=method_names(rungs)) if rungs else found


class _Sample:
    """Some targets, evenly spaced, the first and the last among them: the same whatever the chunk.

    Attributes:
      values: ``(at most SAMPLED, *event)``.
    """

    def __init__(self, targets: Any, num_event_axes: int) -> None:
        shape = tuple(targets.shape)
        self._batch = shape[: len(shape) - num_event_axes]
        count = math.prod(self._batch)
        numbers = sorted({round(i * (count - 1) / (SAMPLED - 1)) for i in range(SAMPLED)}) if count else []
        self._index = np.unravel_index(np.asarray(numbers, int), self._batch)
        rows = []
        for first in np.unique(self._index[0]):
            own = tuple(axis[self._index[0] == first] for axis in self._index[1:])
            slab = np.asarray(targets[int(first) : int(first) + 1])[0]
            rows.append(slab[own] if own else slab[None])
        self.values = np.concatenate(rows) if rows else np.zeros((0, *shape[len(self._batch) :]))

    def flags(self, template: Template) -> Status:
        """Return the flags that the residuals imply for all problems."""

        def chosen(leaf, ndim):
            own = leaf.shape[: leaf.ndim - ndim]
            if all(size == 1 for size in own):
                return leaf.reshape(leaf.shape[len(own) :])
            return np.broadcast_to(leaf, self._batch + leaf.shape[len(own) :])[self._index]

        factor = narrow_factor(template.map_leaves(chosen), self.values)
        return Status.OVERCONFIDENT if factor > NARROW else Status.OK


def _run(stream: _Stream, store: ArrayStore, progress: bool | Callable[[int, int], None]) -> None:
    """Fit the pieces that the store lacks, reading one ahead."""
    missing = [number for number in stream.pieces if number not in store.finished]
    with reporter(progress, stream.count) as report, ThreadPoolExecutor(1) as reader:
        ahead = [reader.submit(stream.read, number) for number in missing[:1]]
        for position, number in enumerate(missing):
            values = ahead.pop().result()
            ahead = [reader.submit(stream.read, following) for following in missing[position + 1 : position + 2]]
            found = stream.fit(number, values)
            # Stored before the next begins: an interruption loses one piece at most.
            arrays = jax.tree.map(np.asarray, found.arrays())
            arrays["status"] = arrays["status"] | arrays["status"].dtype.type(stream.flags)
            store.write(number, stream.pieces[number], arrays)
            report(sum(stream.pieces[done].stop - stream.pieces[done].start for done in store.finished))


@jax.jit
def _assemble(template: Template, values: jax.Array) -> Problem:
    # Inside a trace, so that a NaN becomes a status.
    return template.with_targets(values)


def _template(design: Any, targets: Any, options: dict[str, Any]) -> tuple[Template, dict[str, str]]:
    """Return everything of the problems but the targets, and a digest of it by argument."""
    if is_problem(design):
        if options:
            raise ValueError(f"{min(options)} is an option of a problem that exists already; make the problem with it")
        template = design.template
        shape = _check_targets(targets, template.rows.event)
        batch, own = shape[: len(shape) - len(template.rows.event)], template.batch_shape
        if not _fits(own, batch):
            raise ValueError(
                f"targets has shape {shape}, but the problem's options are for a batch of shape {own}; "
                "pass as many targets as there are options, or options for all targets alike"
            )
        return template, {"problem": digest_tree(template)}
    design, uncertain = split(design)
    errors = None if uncertain is None else [uncertain.std, uncertain.scale, uncertain.factors]
    design = validation.float_array("design", design)
    if design.ndim != 2:
        raise ValueError(f"design has shape {design.shape}; fit_stream needs one design (N, K) for all targets")
    shape = _check_targets(targets, design.shape[:1])
    validation.require_finite("design", design, "remove or replace that entry")
    options = {**(linear_problem.__kwdefaults__ or {}), **options}
    options.pop("names")  # they change nothing that is computed
    if options.pop("row_axes") != 1:
        raise ValueError("row_axes must be 1: fit_stream needs targets with one axis of rows")
    if np.shape(options["noise"]) == shape[:1] == shape[-1:]:
        options["noise"] = np.asarray(options["noise"])[None]  # one per row, even if there are equally many targets
    own = digest(np.asarray(design)) if errors is None else digest_tree([design, errors])
    digests = {"design": own, **{name: digest_tree(value) for name, value in options.items()}}
    constraint = constraints.named(options.pop("constraint"))
    shares = options.pop("total"), options.pop("prior"), options.pop("slack_prior")
    dtype = jax.numpy.result_type(design, validation.float_array("targets", np.zeros(1, targets.dtype)))
    design = design.astype(dtype)
    return linear_template(design, shape[-1:], shape[:-1], constraint, shares, options, uncertain), digests


def _fits(own: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    """Return whether options of one shape broadcast to a batch of another."""
    try:
        return np.broadcast_shapes(own, batch) == batch
    except ValueError:
        return False


def digest_tree(value: Any) -> str:
    """Return a short digest of a pytree of arrays, numbers and words."""
    leaves, structure = jax.tree.flatten(value)
    return digest(_without_addresses(str(structure)), *map(_digestible, leaves))


def _digestible(leaf: Any) -> Any:
    """Return an array, or for an object of a class, such as a constraint, what it prints and holds."""
    array = np.asarray(leaf)
    return _without_addresses(f"{leaf!r} {getattr(leaf, '__dict__', '')}") if array.dtype == object else array


def _without_addresses(words: str) -> str:
    """Return words without addresses, which differ between processes: functions are known by their names."""
    return re.sub(r" at 0x[0-9a-f]+", "", words)


def _check_targets(targets: Any, event: tuple[int, ...]) -> tuple[int, ...]:
    shape = getattr(targets, "shape", None)
    if shape is None or not hasattr(targets, "dtype") or not hasattr(targets, "__getitem__"):
        raise ValueError(f"targets is a {type(targets).__name__}; pass something with a shape, a dtype and slices")
    shape = tuple(shape)
    if len(shape) <= len(event) or shape[len(shape) - len(event) :] != event:
        rows = ", ".join(map(str, event))
        raise ValueError(f"targets has shape {shape}; it must be (problems, ..., {rows}), as design has rows")
    return shape
