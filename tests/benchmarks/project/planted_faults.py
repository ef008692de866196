"""Whether the tests of a file of `optimizers/` notice when a single line of it is wrong.

    tests/benchmarks/run optimizers/planted_faults RESULTS.jsonl [--jobs 2] [--again]
        [--only methods/smac ...]

Each fault of `planted_faults.toml` stands for a mechanism, such as "pending queries count". One
after the other they are planted in a copy of the tree, and the tests that carry the name of the
file, or of the method that it is a part of, run there, slow ones aside: a test that fails, or does
not end in five minutes, has noticed. Each outcome is a line of the results and is not sought again
while the file and its tests are the same, so it can be stopped at any time. 60 faults or more are
planted, and nine of ten must be noticed. On two cores all of them take half an hour.

A table and no mutation tool: cosmic-ray 8.7 finds ten thousand mutants in this room, which take a
day, and mutmut 3.8 takes a module's name from its path, where `optimizers/` is
`prefect_tune.optimizers`. Neither asks whether the tests of the file itself notice.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

from machine import Goals, describe

ROOT = Path(__file__).parents[3]
TABLE = Path(__file__).with_suffix(".toml")
ROOMS = ("optimizers", "storage", "tasks", "flows", "deployments")
LEAST = 60
NOTICED = 0.9
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Fault:
    """A line of a file, and what stands there instead.

    Attributes:
        path: The file, inside `optimizers/`.
        mechanism: What it breaks, in a few words.
        right: A part of one line, found once in the file.
        wrong: What replaces it.
        tests: The tests of the file, inside `tests/optimizers/`.
    """

    path: str
    mechanism: str
    right: str
    wrong: str
    tests: str

    @cached_property
    def planted(self) -> str:
        """The text of the file with the fault.

        Raises:
            ValueError: If the line is not there, or is there twice: the table has fallen behind.
        """
        text = (ROOT / "optimizers" / self.path).read_text()
        if text.count(self.right) != 1:
            raise ValueError(
                f"{self.path} has {self.right!r} {text.count(self.right)} times; "
                f"name a part of a line that it has once in {TABLE.name}"
            )
        return text.replace(self.right, self.wrong)

    @cached_property
    def key(self) -> str:
        """Digest of the file with the fault and of its tests, which may be a folder of them."""
        tests = ROOT / "tests" / "optimizers" / self.tests
        files = sorted(tests.rglob("*.py")) if tests.is_dir() else [tests]
        texts = [self.planted, *(file.read_text() for file in files)]
        return sha256("".join(texts).encode()).hexdigest()


def table() -> list[Fault]:
    """Return all faults.

    Raises:
        ValueError: If one cannot be planted.
        FileNotFoundError: If a file has no tests of its own.
    """
    faults = []
    for path, of_file in tomllib.loads(TABLE.read_text()).items():
        folder, _, name = path.rpartition("/")
        tests = of_file.get("tests", str(Path(folder, f"test_{name}")))
        faults += [Fault(path, *fault, tests) for fault in of_file["faults"]]
    for fault in faults:
        assert fault.key, fault  # read now: the files may change meanwhile
    return faults


@contextmanager
def copies(n: int) -> Iterator[Queue[Path]]:
    """Make n copies of the tree, each a folder that holds the package by its import name."""
    skipped = shutil.ignore_patterns("__pycache__", "benchmarks")
    free: Queue[Path] = Queue()
    with TemporaryDirectory() as folder:
        for number in range(n):
            copy = Path(folder, str(number))
            shutil.copytree(ROOT / "deployments" / "package", copy / "prefect_tune")
            for room in ROOMS:
                shutil.copytree(ROOT / room, copy / "prefect_tune" / room, ignore=skipped)
            shutil.copytree(ROOT / "tests", copy / "tests", ignore=skipped)
            shutil.copy(ROOT / "pyproject.toml", copy)
            free.put(copy)
        yield free


def failing_test(copy: Path, tests: list[str]) -> str:
    """Run tests in a copy, and return the first one that fails; empty if all pass.

    Raises:
        RuntimeError: If no test ran, or another package than the copy's.
    """
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"),
        *(str(Path("tests", "optimizers", path)) for path in tests),
    ]
    environment = {
        **os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"
    }  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "did not end"
    if done.returncode == 0:
        return ""
    failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED ", "ERROR "))]
    if not failed:
        raise RuntimeError(f"no test of {tests} ran:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[0].split(" - ")[0].rpartition("::")[2]


def plant(fault: Fault, free: "Queue[Path]") -> dict[str, Any]:
    """Return the outcome of a fault in a free copy."""
    copy = free.get()
    place = copy / "prefect_tune" / "optimizers" / fault.path
    right = place.read_text()
    try:
        place.write_text(fault.planted)
        noticed_by = failing_test(copy, [fault.tests])
    finally:
        place.write_text(right)
        free.put(copy)
    return {"key": fault.key, "noticed_by": noticed_by}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", default=[""], help="files whose path begins so")
    parser.add_argument("--again", action="store_true", help="seek what went unnoticed again")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    faults = [fault for fault in table() if fault.path.startswith(tuple(chosen.only))]
    lines = chosen.results.read_text().splitlines() if chosen.results.exists() else ()
    outcomes = [json.loads(line) for line in lines]
    known = {o["key"]: o["noticed_by"] for o in outcomes if o["noticed_by"] or not chosen.again}
    left = [fault for fault in faults if fault.key not in known]
    with copies(chosen.jobs) as free, ThreadPoolExecutor(chosen.jobs) as pool:
        if left:
            copy = free.get()
            failed = failing_test(copy, sorted({fault.tests for fault in left}))
            free.put(copy)
            if failed:
                sys.exit(f"{failed} fails without a fault; mend it first")
        for fault, outcome in zip(left, pool.map(lambda f: plant(f, free), left), strict=True):
            known[fault.key] = outcome["noticed_by"]
            with chosen.results.open("a") as results:
                results.write(json.dumps(outcome) + "\n")
            print(".", end="", flush=True)
    print()
    for fault in faults:
        by = known[fault.key]
        print(
            f"{'' if by else 'UNNOTICED: '}{fault.path}: {fault.mechanism}" + f" ({by})" * bool(by)
        )
    goals = Goals()
    if chosen.only == [""]:
        goals.at_least("faults", len(faults), LEAST)
    goals.at_least("noticed", sum(bool(known[f.key]) for f in faults), NOTICED * len(faults))
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
