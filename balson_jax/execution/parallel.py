"""Many devices: place a problem on a mesh, and ``fit`` computes it there.

A batch is split over the devices, each of which fits its problems; a single problem is copied to all of them, and they
divide its draws. The result is that of one device, to rounding, for the same method. ``Auto`` chooses for each problem
of a batch as on one device: each process for those on its devices. Where devices hold copies its choice is fixed.

Several processes work as in all of JAX: after ``jax.distributed.initialize`` a mesh spans the devices of all of them
(``notebooks/several_processes.py`` shows it).
"""

from __future__ import annotations

from typing import Any, Literal

from jax.sharding import Mesh

from .. import validation
from ..problems.base import Problem, require_problem
from .placement import on_mesh


def shard(problem: Problem, mesh: Mesh, over: Literal["problems", "draws"] | None = None) -> Problem:
    """Place a problem on the devices of a mesh, where ``fit`` will compute it.

    Args:
      problem: one problem or a batch.
      mesh: the devices, ``jax.make_mesh((8,), ("devices",))``.
      over: ``"problems"`` splits the first axis of the batch over all devices, which must divide it. ``"draws"``
        copies the problem to all devices, which divide the 8 replicates of the draws among them (rejection sampling
        can't be divided, and is done by each). ``None`` chooses the former for a batch and the latter for one problem.

    Returns:
      The problem on the mesh.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from balson_jax import linear_problem
    >>> mesh = jax.make_mesh((1,), ("devices",))
    >>> problem = linear_problem(jnp.eye(3), jnp.ones((4, 3)) / 3, noise=1.0)
    >>> shard(problem, mesh).batch_shape
    (4,)
    """
    require_problem(problem)
    if not hasattr(mesh, "axis_names"):
        raise ValueError(f'mesh is a {type(mesh).__name__}; make one with jax.make_mesh((2,), ("devices",))')
    if over is None:
        over = "problems" if problem.batch_shape else "draws"
    validation.require_choice("over", over, ("problems", "draws"))
    batch = problem.batch_shape
    split: list[Any] = [None] * len(batch)
    if over == "problems":
        if not batch:
            raise ValueError('over="problems" needs a batch; this is one problem, for which pass over="draws"')
        if batch[0] % mesh.size:
            raise ValueError(
                f"a batch of {batch[0]} problems can't be split over the mesh's {mesh.size} devices; "
                f"pad it to a multiple of {mesh.size}, or use fit_stream, which does"
            )
        split[0] = tuple(mesh.axis_names)
    return on_mesh(mesh, tuple(split)).place(problem).labelled(problem.labels)
