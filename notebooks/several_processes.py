"""Fit one batch with several processes: on one machine to try it out, or one process per machine of a cluster.

    python notebooks/several_processes.py

starts two processes that talk over loopback. On a cluster, start on machine i of n

    python notebooks/several_processes.py --coordinator HOST:PORT --processes n --process i
"""

from __future__ import annotations

import argparse
import os
import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

import balson_jax as balson
from balson_jax.experiments.paper import data

PROBLEMS = 64


def work(coordinator: str, processes: int, process: int, out: pathlib.Path | None) -> None:
    """Do this process's part."""
    jax.distributed.initialize(coordinator, num_processes=processes, process_id=process)
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))

    # Each process needs only its own rows of the targets. (Here they are simulated, so all are at hand.)
    targets = np.asarray(data.targets(jax.random.key(1), PROBLEMS))
    sharding = NamedSharding(mesh, PartitionSpec("devices"))
    targets = jax.make_array_from_callback(targets.shape, sharding, lambda index: targets[index])

    design = np.asarray(data.polynomial_design(data.inputs()))
    problem = balson.parallel.shard(balson.linear_problem(design, targets, noise=data.NOISE), mesh)
    posterior = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384))
    mine = sum(shard.data.shape[0] for shard in posterior.mean.addressable_shards)
    print(f"process {process}: {mine} of {PROBLEMS} problems on {jax.local_device_count()} devices", flush=True)

    # One problem, its draws divided over all devices of all processes.
    single = balson.linear_problem(design, np.asarray(data.targets(jax.random.key(1), 1))[0], noise=data.NOISE)
    one = balson.fit(jax.random.key(0), balson.parallel.shard(single, mesh), balson.IS(num_draws=65_536))

    everything = multihost_utils.process_allgather(posterior.mean, tiled=True)
    if process == 0:
        print("mean of the first problem:", np.round(everything[0], 4))
        if out is not None:
            np.savez(out, batch=everything, single=np.asarray(one.mean.addressable_data(0)))


def launch(processes: int, devices: int, out: pathlib.Path | None) -> None:
    """Start the processes on this machine, with virtual CPU devices."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, __file__, "--coordinator", coordinator, "--processes", str(processes)]
    if out is not None:
        command += ["--out", str(out)]
    started = [subprocess.Popen([*command, "--process", str(i)], env=environment) for i in range(processes)]
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"exit codes of the processes: {codes}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinator", help="host:port of process 0; without it, all processes are started here")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--process", type=int, default=0, help="number of this process")
    parser.add_argument("--devices", type=int, default=2, help="virtual CPU devices of each process started here")
    parser.add_argument("--out", type=pathlib.Path, help="where process 0 writes the means, as NPZ")
    options = parser.parse_args()
    if options.coordinator is None:
        launch(options.processes, options.devices, options.out)
    else:
        work(options.coordinator, options.processes, options.process, options.out)


if __name__ == "__main__":
    main()
