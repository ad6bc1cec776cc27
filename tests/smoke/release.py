"""Tests what would be released: ``python tests/smoke/release.py dist [stage ...]``, after ``python -m build``.

Each stage installs the wheel into a clean virtual environment in a temporary folder, outside of the checkout:

- ``alone``: without extras it works, and what needs an extra names it; the wheel is below its limit, and importing the
  package costs little more than importing JAX;
- ``sdist``: the source distribution builds a wheel with the same files;
- ``extras``: each extra alone is enough for what it is for;
- ``oldest``: the oldest versions that ``pyproject.toml`` claims work;
- ``newest``: the newest versions on the index work, pre-releases too where there are any.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
EXTRAS = ("cli", "frames", "arviz", "files", "sklearn", "recipes")
LARGEST_WHEEL = 1_000_000
SLOWEST_IMPORT = 1.2
"""Largest ratio of processor time to import the package to that of importing JAX."""

IMPORTS = 9
CPU = "import resource; {0}; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"


class Environment:
    """A clean virtual environment, made by uv if that is installed, which is several times faster, or else by pip."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        beside = str(pathlib.Path(sys.executable).parent)
        self.uv = shutil.which("uv", path=os.pathsep.join([beside, os.environ["PATH"]]))
        if self.uv:
            subprocess.run([self.uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
            return
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.run("-m", "pip", "install", "--quiet", "--upgrade", "pip")

    def run(self, *arguments: object) -> str:
        """Run Python there, outside of the checkout; return what it printed."""
        command = [str(self.folder / "bin" / "python"), *map(str, arguments)]
        # Bytecode is written, as for users, and nothing of the checkout is on the path.
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        found = subprocess.run(command, cwd=self.folder, env=own, capture_output=True, text=True, check=False)
        if found.returncode:
            shown = " ".join(command)
            raise SystemExit(f"{shown}\nfailed with {found.returncode}:\n{found.stdout}\n{found.stderr}")
        return found.stdout.strip()

    def install(self, wheel: pathlib.Path, *more: object, extra: str = "") -> None:
        """Install the wheel."""
        what = f"balson_jax[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        if self.uv:
            python = self.folder / "bin" / "python"
            subprocess.run([self.uv, "pip", "install", "--quiet", "--python", python, what, *more], check=True)
        else:
            self.run("-m", "pip", "install", "--quiet", what, *more)


def alone(wheel: pathlib.Path, folder: pathlib.Path) -> str:
    """Use the wheel without extras; check its size, and the time of the import."""
    size = wheel.stat().st_size
    assert size <= LARGEST_WHEEL, f"{wheel.name} has {size:,} bytes, more than {LARGEST_WHEEL:,}"
    environment = Environment(folder)
    environment.install(wheel)
    told = environment.run(HERE / "plain.py")
    times: dict[str, list[float]] = {"jax": [], "balson_jax": []}
    for _ in range(IMPORTS):
        for name, own in times.items():
            own.append(float(environment.run("-c", CPU.format(f"import {name}"))))
    # Other processes slow some imports down; the fastest are the least disturbed.
    ratio = min(times["balson_jax"]) / min(times["jax"])
    assert ratio <= SLOWEST_IMPORT, f"import balson_jax takes {ratio:.2f} times as long as import jax"
    imports = f"import balson_jax / import jax = {ratio:.2f} in processor time (at most {SLOWEST_IMPORT})"
    return f"wheel {size:,} bytes (at most {LARGEST_WHEEL:,}); {imports}; {told}"


def sdist(wheel: pathlib.Path, folder: pathlib.Path) -> str:
    """Build a wheel of the source distribution, and compare its files."""
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "built"), str(unpacked)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (built,) = (folder / "built").glob("*.whl")
    names = [set(zipfile.ZipFile(path).namelist()) for path in (wheel, built)]
    assert names[0] == names[1], names[0] ^ names[1]
    assert any(name.endswith("py.typed") for name in names[0])
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in names[0])
    return f"{source.name}, {source.stat().st_size:,} bytes, builds the same {len(names[0])} files"


def extras(wheel: pathlib.Path, folder: pathlib.Path) -> str:
    """Use each extra alone."""
    told = []
    for extra in EXTRAS:
        environment = Environment(folder / extra)
        environment.install(wheel, extra=extra)
        told.append(environment.run(HERE / "extra.py", extra))
    return "; ".join(told)


def oldest(wheel: pathlib.Path, folder: pathlib.Path) -> str:
    """Use the oldest versions."""
    environment = Environment(folder)
    environment.install(wheel, "--constraint", HERE / "oldest.txt")
    return environment.run(HERE / "plain.py")


def newest(wheel: pathlib.Path, folder: pathlib.Path) -> str:
    """Use the newest versions."""
    environment = Environment(folder)
    environment.install(wheel, "--upgrade")
    return environment.run(HERE / "plain.py")


STAGES = {function.__name__: function for function in (alone, sdist, extras, oldest, newest)}
QUICK = ("alone", "sdist")


def main() -> None:
    """Run the stages, and print what each of them found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=pathlib.Path, help="folder with one wheel and one source distribution")
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; default: all")
    parser.add_argument("--quick", action="store_true", help=f"only {' and '.join(QUICK)}")
    options = parser.parse_args()
    (wheel,) = options.dist.resolve().glob("*.whl")
    for name in options.stages or (QUICK if options.quick else STAGES):
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"balson_{name}_") as folder:
            print(f"{name}: {STAGES[name](wheel, pathlib.Path(folder))} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
