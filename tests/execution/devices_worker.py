"""Fits on meshes of 1, 2, 3 and 8 virtual devices; writes the posteriors' arrays for ``test_parallel.py``."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import balson_jax as balson
from balson_jax import parallel, random
from balson_jax.experiments.paper import data

KEY = jax.random.key(0)
DESIGN = data.polynomial_design(data.inputs(), 3)
TARGETS = data.targets(jax.random.key(1), 16)
PRIOR = jnp.linspace(0.4, 2.0, 3)
METHODS = {
    "auto": balson.Auto(),
    "climb": balson.Auto(target_ess=1000.0, rungs_inside_jit=2),  # 2048 draws don't serve
    "is": balson.IS(num_draws=4096),
    "isirs": balson.ISIRS(num_draws=2048, rounds=2),
    "rs": balson.RS(num_draws=1000),
    "rsirs": balson.RSIRS(num_draws=2048, rounds=1),
}


def mesh_of(count: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:count]), ("devices",))


def results() -> dict[str, balson.Posterior]:
    batch = balson.linear_problem(DESIGN, TARGETS, noise=1.0, prior=PRIOR)
    single = balson.linear_problem(DESIGN, TARGETS[0], noise=1.0)
    found = {}
    for name, count in (("is", 1), ("isirs", 8), ("rs", 8)):
        found[f"{name}-problems-{count}"] = balson.fit(KEY, parallel.shard(batch, mesh_of(count)), METHODS[name])
    found["single-draws-3"] = balson.fit(KEY, parallel.shard(single, mesh_of(3)), METHODS["is"])
    found["isirs-draws-8"] = balson.fit(KEY, parallel.shard(batch, mesh_of(8), over="draws"), METHODS["isirs"])
    found["rsirs-problems-2"] = balson.fit(KEY, parallel.shard(batch, mesh_of(2)), METHODS["rsirs"])
    found["auto-problems-8"] = balson.fit(KEY, parallel.shard(batch, mesh_of(8)), METHODS["auto"])
    assert found["auto-problems-8"].mean.sharding.spec[0] == "devices"
    found["climb-problems-8"] = balson.fit(KEY, parallel.shard(batch, mesh_of(8)), METHODS["climb"])
    found["climb-draws-2"] = balson.fit(KEY, parallel.shard(batch, mesh_of(2), over="draws"), METHODS["climb"])
    found["is-problems-8"] = balson.fit(KEY, parallel.shard(batch, mesh_of(8)), METHODS["is"])
    # Two axes, problems over one and draws over the other; inputs that the user sharded, on a mesh of explicit type.
    meshes = {
        "explicit": jax.make_mesh((2, 4), ("problems", "draws")),
        "grid": Mesh(np.array(jax.devices()).reshape(2, 4), ("problems", "draws")),
    }
    for name, mesh in meshes.items():
        targets = jax.device_put(TARGETS, NamedSharding(mesh, PartitionSpec("problems")))
        problem = balson.linear_problem(DESIGN, targets, noise=1.0, prior=PRIOR)
        posterior = balson.fit(KEY, problem, METHODS["is"])
        assert posterior.mean.sharding.spec[0] == "problems", posterior.mean.sharding
        assert posterior.mean.addressable_shards[0].data.shape[0] == 8
        found[f"is-{name}-8"] = posterior
    return found


def check_stream() -> None:
    arguments = KEY, DESIGN, np.asarray(TARGETS), METHODS["is"]
    one = balson.fit_stream(*arguments, chunk=7, progress=False, noise=1.0)
    eight = balson.fit_stream(*arguments, chunk=7, progress=False, noise=1.0, mesh=mesh_of(8))
    np.testing.assert_allclose(eight.mean, one.mean, rtol=1e-5)
    arguments = KEY, DESIGN, np.asarray(TARGETS)
    one, eight = (balson.fit_stream(*arguments, chunk=8, progress=False, mesh=mesh) for mesh in (None, mesh_of(8)))
    np.testing.assert_array_equal(eight.method, one.method)
    np.testing.assert_allclose(eight.mean, one.mean, rtol=1e-4)


def check_draws() -> None:
    sharding = NamedSharding(mesh_of(8), PartitionSpec("devices"))
    alpha = jnp.array([0.2, 1.0, 4.0])
    draw = jax.jit(lambda key: random.dirichlet(key, alpha, (1024,)), out_shardings=sharding)
    np.testing.assert_allclose(draw(KEY), random.dirichlet(KEY, alpha, (1024,)), rtol=1e-4, atol=1e-6)
    own = jax.device_put(jnp.broadcast_to(alpha, (64, 3)), sharding)
    np.testing.assert_allclose(
        jax.jit(random.dirichlet)(KEY, own), random.dirichlet(KEY, jnp.broadcast_to(alpha, (64, 3))), rtol=1e-4
    )


if __name__ == "__main__":
    assert jax.device_count() == 8
    check_draws()
    check_stream()
    fields = ("mean", "std", "alpha", "theta", "log_evidence", "ess", "pareto_k", "status")
    arrays = {
        f"{name}/{field}": np.asarray(getattr(posterior, field))
        for name, posterior in results().items()
        for field in fields
    }
    np.savez(sys.argv[1], allow_pickle=False, **arrays)
