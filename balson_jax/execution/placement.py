"""Placement of a problem on a device mesh: which mesh axes split the batch, and along which it is replicated."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .. import validation
from ..problems.base import Problem

AxisNames = str | tuple[str, ...] | None


class Placement(NamedTuple):
    """The placement of a problem on a mesh.

    Attributes:
      mesh: the device mesh.
      batch: for each batch axis, the mesh axes that split it, or ``None``.
      copies: the mesh axes along which the problem is replicated. Draws are divided over them.
    """

    mesh: Mesh
    batch: tuple[AxisNames, ...]
    copies: tuple[str, ...]

    def specs(self, problem: Problem) -> Problem:
        """Return the partition spec of each leaf: split along the batch axes that it has, otherwise replicated."""

        def spec(leaf, event_ndim):
            own = leaf.shape[: leaf.ndim - event_ndim]
            aligned = self.batch[len(self.batch) - len(own) :]
            return PartitionSpec(*(axes if size > 1 else None for size, axes in zip(own, aligned, strict=True)))

        return problem.map_leaves(spec)

    def place(self, problem: Problem) -> Problem:
        """Return the problem with its leaves on their devices."""

        def put(leaf, spec):
            sharding = NamedSharding(self.mesh, spec)
            if validation.is_local(leaf) and not sharding.is_fully_addressable:
                return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])
            return jax.device_put(leaf, sharding)

        specs = jax.tree.leaves(self.specs(problem), is_leaf=lambda leaf: isinstance(leaf, PartitionSpec))
        leaves, structure = jax.tree.flatten(problem)
        return jax.tree.unflatten(structure, [put(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)])

    @property
    def splits_problems(self) -> bool:
        """Whether the first axis of the batch, and nothing else, is split over all devices."""
        return not self.copies and len(self.batch) > 0 and not any(self.batch[1:])

    @property
    def own_mesh(self) -> Mesh:
        """The devices that belong to this process, along one axis."""
        own = [device for device in self.mesh.devices.flat if device.process_index == jax.process_index()]
        return Mesh(np.array(own), ("devices",))

    def own_problems(self, problem: Problem) -> Problem:
        """Return the problems that lie on this process's devices, with NumPy arrays."""

        def own(leaf, event_ndim):
            if leaf.ndim - event_ndim < len(self.batch) or leaf.shape[0] == 1:
                return np.asarray(leaf.addressable_data(0))
            parts = {shard.index[0].start or 0: shard.data for shard in leaf.addressable_shards}
            return np.concatenate([np.asarray(parts[first]) for first in sorted(parts)])

        return self.place(problem).map_leaves(own)

    def spread(self, own: Any) -> Any:
        """Return arrays of this process's problems as parts of arrays of all, where the problems lie."""
        sharding = NamedSharding(self.mesh, PartitionSpec(*self.batch))
        return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, leaf), own)


def placement_of(problem: Problem) -> Placement | None:
    """Return a problem's placement on a mesh of several devices; ``None`` on one device or inside a trace."""
    leaves = jax.tree.leaves(problem)
    if not all(isinstance(leaf, jax.Array) and validation.is_concrete(leaf) for leaf in leaves):
        return None
    meshes = [getattr(leaf.sharding, "mesh", None) for leaf in leaves]  # only named shardings have one
    meshes = [mesh for mesh in meshes if isinstance(mesh, Mesh) and mesh.size > 1]
    if not meshes:
        return None
    batch: list[AxisNames] = [None] * len(problem.batch_shape)

    def note(leaf, event_ndim):
        own_ndim = leaf.ndim - event_ndim
        spec = getattr(leaf.sharding, "spec", ())  # only named shardings have one
        for axis, names in enumerate(spec[:own_ndim], start=len(batch) - own_ndim):
            batch[axis] = batch[axis] or names
        return leaf

    problem.map_leaves(note)
    return on_mesh(meshes[0], tuple(batch))


def on_mesh(mesh: Mesh, batch: tuple[AxisNames, ...]) -> Placement:
    """Return a placement. The problem is replicated along mesh axes of length above one that do not split the batch."""
    used = {name for axes in batch if axes for name in ((axes,) if isinstance(axes, str) else axes)}
    copies = tuple(name for name in mesh.axis_names if name not in used and mesh.shape[name] > 1)
    # Make all mesh axes automatic, whatever their type in the user's mesh, so that results are ordinary arrays.
    return Placement(Mesh(mesh.devices, mesh.axis_names), batch, copies)
