"""``balson fit`` in processes of its own: interrupted by Ctrl-C, killed, and resumed; and its peak memory."""

from __future__ import annotations

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="sends signals")]

LINES, SAMPLES, CHUNK = 40, 100, 40
COMMAND = "balson fit design.csv scene.img --out out --noise 0.5 --method is --draws 30000 --chunk 40"
"""With its options in the order in which the message that tells how to go on has them."""


def prepare(directory):
    """Write a design, and an image of 4,000 pixels in which one line has no data."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(10, 3)) + np.arange(3.0)
    cube = rng.dirichlet(np.ones(3), (LINES, SAMPLES)) @ design.T + 0.5 * rng.normal(size=(LINES, SAMPLES, 10))
    cube[7] = -9999
    cube.astype("<f4").tofile(directory / "scene.img")
    fields = f"samples = {SAMPLES}\nlines = {LINES}\nbands = 10\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
    (directory / "scene.hdr").write_text(f"ENVI\n{fields}data ignore value = -9999\n")
    rows = "\n".join(",".join(map(repr, row)) for row in design.tolist())
    (directory / "design.csv").write_text(f"a,b,c\n{rows}\n")
    return directory


def start(command, directory):
    root = str(pathlib.Path(__file__).parents[1])
    words = [sys.executable, "-m", "balson_jax", *shlex.split(command)[1:]]
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen(words, cwd=directory, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


def stored(directory):
    path = directory / "out" / "fields" / "finished.txt"
    return len(path.read_text().split()) if path.exists() else 0


def stopped(command, directory, sent, after):
    """Start the command, send a signal once so many chunks are stored, and return the exit code and the messages."""
    process = start(command, directory)
    while process.poll() is None and stored(directory) < after:
        time.sleep(0.002)
    process.send_signal(sent)
    _, messages = process.communicate(timeout=300)
    return process.returncode, messages.decode()


def finished(command, directory):
    process = start(command, directory)
    _, messages = process.communicate(timeout=600)
    assert process.returncode == 0, messages.decode()
    return {path.name: path.read_bytes() for path in (directory / "out").iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return finished(COMMAND, prepare(tmp_path_factory.mktemp("whole")))


def test_ctrl_c_loses_one_chunk_at_most_and_tells_how_to_go_on(tmp_path, whole):
    code, messages = stopped(COMMAND, prepare(tmp_path), signal.SIGINT, 5)
    assert code == 130, messages
    assert "Traceback" not in messages
    count = stored(tmp_path)
    assert 5 <= count < LINES * SAMPLES // CHUNK
    # The signal may come between storing a chunk and telling so.
    told = [f"interrupted; {CHUNK * number:,} problems are stored. To go on:" for number in (count - 1, count)]
    assert any(words in messages for words in told), messages
    again = messages.strip().splitlines()[-1]
    assert again == f"{COMMAND} --resume"
    assert finished(again, tmp_path) == whole


def test_killed_twice_and_resumed_the_results_are_the_same_bytes(tmp_path, whole):
    prepare(tmp_path)
    assert stopped(COMMAND, tmp_path, signal.SIGKILL, 3)[0] == -signal.SIGKILL
    first = stored(tmp_path)
    assert stopped(f"{COMMAND} --resume", tmp_path, signal.SIGKILL, first + 3)[0] == -signal.SIGKILL
    assert first + 3 <= stored(tmp_path) < LINES * SAMPLES // CHUNK
    assert finished(f"{COMMAND} --resume", tmp_path) == whole


# --- memory ----------------------------------------------------------------------------------------------------------

MEASURED = """
import pathlib, sys
from balson_jax.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
status = pathlib.Path("/proc/self/status").read_text().splitlines()
print("kibibytes", *[line.split()[1] for line in status if line.startswith("VmHWM")])
"""
BANDS = 4000


def peak(directory, gibibytes):
    """Fit a memory-mapped cube of such a size, and return the peak of resident memory in GiB, maps included."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, BANDS)
    design = np.stack([np.exp(-(((x - centre) / 0.3) ** 2)) for centre in (0.2, 0.5, 0.9)], -1).astype(np.float32)
    lines = int(gibibytes * 2**30 / (4 * BANDS * 100))
    np.save(directory / "design.npy", design)
    cube = np.lib.format.open_memmap(directory / "cube.npy", "w+", np.float32, (lines, 100, BANDS))
    noise = 0.05 * rng.normal(size=(100, BANDS)).astype(np.float32)
    for line in range(lines):
        cube[line] = rng.dirichlet(np.ones(3), 100).astype(np.float32) @ design.T + np.roll(noise, 7 * line, 0)
    del cube
    options = ["--noise", "0.05", "--method", "is", "--draws", "4096", "--out", "out"]
    command = [sys.executable, "-c", MEASURED, "fit", "design.npy", "cube.npy", *options]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    (directory / "cube.npy").unlink()
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) / 2**20


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="the system doesn't tell")
def test_memory_does_not_grow_with_the_cube(tmp_path):
    """Set ``BALSON_CUBE_GIB=2`` for a cube of 2 GiB, which takes as much of the disk."""
    size = float(os.environ.get("BALSON_CUBE_GIB", "0.5"))
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    small, large = peak(tmp_path / "small", size / 16), peak(tmp_path / "large", size)
    print(f"\npeak resident memory: {small:.2f} GiB for {size / 16:g} GiB, {large:.2f} GiB for {size:g} GiB")
    assert large < 1.5
    assert large - small < 0.5 * size
