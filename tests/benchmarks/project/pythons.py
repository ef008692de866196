"""Which versions of Python the wheel works on: those that are found here.

    tests/benchmarks/run project/pythons                    # installs, a study, the quick tests
    tests/benchmarks/run project/pythons --without-tests
    tests/benchmarks/run project/pythons --python /opt/python3.14/bin/python3

The wheel is built of a copy of the tree. Each interpreter gets an environment with the wheel and
the newest versions of what it asks for, and then with the tools of the tests. Types, lint and
contracts are left out: they are of the tree, not of a version.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from machine import describe
from source_tree import ROOT, listed_files

UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
OLDEST = (3, 11)
STUDY = ("sklearn:iris", "--space", "small", "--method", "random", "--trials", "2")
TESTS = ("-q", "-p", "no:cacheprovider", "-m", "not slow and not full", "--ignore", "tests/project")


@dataclass(frozen=True)
class Tried:
    """What an interpreter came to: each check by its name, and the last line that it printed."""

    version: str
    checks: dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="an interpreter instead of those found")
    parser.add_argument("--without-tests", action="store_true")
    arguments = parser.parse_args()
    print(describe())
    with TemporaryDirectory() as folder:
        wheel = built(Path(folder))
        for version, python in found(arguments.python or installed()).items():
            tried = try_out(version, python, wheel, tests=not arguments.without_tests)
            for check, came in tried.checks.items():
                print(f"Python {tried.version:<9}{check:<10}{came}", flush=True)


def built(folder: Path) -> Path:
    """Build the wheel of a copy of the tree."""
    for path in listed_files():
        if path.parts[0] != "tests":
            (folder / "tree" / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / "tree" / path)
    subprocess.run([UV, "build", "-q", "--wheel", "-o", folder, folder / "tree"], check=True)
    return next(folder.glob("*.whl"))


def installed() -> Iterator[str]:
    """Interpreters that uv knows, and those of pyenv."""
    listing = (UV, "python", "list", "--only-installed", "--output-format", "json")
    done = subprocess.run(listing, capture_output=True, text=True, check=True)
    yield from (row["path"] for row in json.loads(done.stdout) if row["path"])
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    yield from map(str, sorted(versions.glob("*/bin/python")))


def found(pythons: Iterator[str] | list[str]) -> dict[str, str]:
    """One interpreter of each minor version that is new enough, the newest of it."""
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:3])"
    newest: dict[tuple[int, ...], tuple[tuple[int, ...], str]] = {}
    for python in pythons:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        name, *numbers = done.stdout.split() or [""]
        version = tuple(map(int, numbers))
        if name == "cpython" and version >= OLDEST:
            newest[version[:2]] = max(newest.get(version[:2], ((), "")), (version, python))
    return {".".join(map(str, v)): python for v, python in sorted(newest.values())}


def try_out(version: str, python: str, wheel: Path, *, tests: bool) -> Tried:
    """Install the wheel for an interpreter, use it and test it."""
    with TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        bin_ = venv / "bin"
        install = (UV, "pip", "install", "-q", "--python", bin_ / "python")
        steps: dict[str, tuple[object, ...]] = {
            "venv": (UV, "venv", "-q", "--python", python, venv),
            "install": (*install, f"{wheel}[boosting,cluster]"),
            "version": (bin_ / "prefect-tune", "--version"),
            "methods": (bin_ / "prefect-tune", "methods"),
            "study": (bin_ / "prefect-tune", "run", *STUDY),
        }
        if tests:
            steps["tools"] = (*install, "--group", "dev")
            steps["tests"] = (bin_ / "python", "-m", "pytest", *TESTS, "tests")
        checks: dict[str, str] = {}
        for check, command in steps.items():
            checks[check] = step(command, Path(folder))
            if checks[check].startswith("FAILED") and check != "tests":
                break
        return Tried(version, checks)


def step(command: tuple[object, ...], home: Path) -> str:
    """The last line that a command printed, and its seconds."""
    ours = ("PREFECT_", "PYTHONPATH", "VIRTUAL_ENV")
    here = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    since = monotonic()
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env=here | {"PREFECT_TUNE_HOME": str(home / "home"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (done.stdout or done.stderr).strip().splitlines() or [""]
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
    outcome = "" if done.returncode == 0 else "FAILED "
    return f"{outcome}{lines[-1][:90]} ({monotonic() - since:.0f} s)"


if __name__ == "__main__":
    main()
