"""Checks that tests notice a wrong line in the product.

    tests/benchmarks/run project/planted_faults RESULTS.jsonl [--jobs 2] [--again]
        [--only optimizers ...] [--with halving ...] [--record]

`planted_faults/ROOM.toml` lists, in groups, the faults of a room, a top folder of the product. A
group names the tests that must notice its faults. Each fault has a reason, the right text, the
wrong text, and, once recorded, the test that noticed the fault. A fault is found by its right text,
which occurs exactly once in the room, so code may move to another file without an edit here.
`--with` selects groups by parts of their names; nothing else depends on a name.

Faults are planted one after the other in a copy of the tree. The recorded test runs first, then the
other tests of the group that `tests/run` runs, if there are any. A test notices a fault if it fails
or exceeds five minutes; `--record` writes the name of the test into the table. Each outcome is a
line of the results, and is reused as long as the file and the tests stay the same, so a run can be
interrupted at any time. All faults must be noticed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from machine import Goals, describe
from source_tree import ROOMS, ROOT

TABLES = Path(__file__).with_suffix("")
TIMEOUT_SECONDS = 300
DID_NOT_END = "did not end"


@dataclass(frozen=True)
class Fault:
    """A right text of the product, and the wrong text that replaces it.

    Attributes:
        room: Top folder of the product.
        group: Name of the group.
        reason: The mechanism that breaks, in a few words.
        right: Text that occurs once in the room, and may have several lines.
        wrong: Text that replaces the right text.
        noticed_by: The test that noticed the fault last, as pytest names it from `tests/ROOM/`.
        tests: Files and folders of tests, relative to `tests/ROOM/`.
        chosen: Expression that selects tests in these files, as in pytest's `-k`; empty for all.
    """

    room: str
    group: str
    reason: str
    right: str
    wrong: str
    noticed_by: str = ""
    tests: tuple[str, ...] = ()
    chosen: str = ""

    @cached_property
    def file(self) -> Path:
        """The file that contains the text, relative to its room.

        Raises:
            ValueError: If the text does not occur exactly once.
        """
        texts = _sources(ROOT / self.room)
        found = [path for path, text in texts.items() for _ in range(text.count(self.right))]
        if len(found) != 1:
            raise ValueError(f"{self.room} has {self.right!r} {len(found)} times ({self.group})")
        return found[0]

    @cached_property
    def planted(self) -> str:
        """The text of the file with the fault."""
        return _sources(ROOT / self.room)[self.file].replace(self.right, self.wrong)

    @property
    def paths_of_tests(self) -> list[Path]:
        """The tests, relative to the top of the tree.

        Raises:
            FileNotFoundError: If a file or folder does not exist.
        """
        paths = [Path("tests", self.room, name) for name in self.tests]
        if missing := [str(path) for path in paths if not (ROOT / path).exists()]:
            raise FileNotFoundError(f"{missing} of group {self.group}, {self.room}.toml")
        return paths

    @cached_property
    def key(self) -> str:
        """Digest of the file with the fault and of its tests."""
        paths = [ROOT / path for path in self.paths_of_tests]
        files = [file for path in paths for file in (sorted(path.rglob("*.py")) or [path])]
        texts = [self.planted, *(file.read_text() for file in files), self.chosen]
        return sha256("".join(texts).encode()).hexdigest()


@cache
def _sources(room: Path) -> dict[Path, str]:
    return {path.relative_to(room): path.read_text() for path in sorted(room.rglob("*.py"))}


def all_faults() -> list[Fault]:
    """Return the faults of all rooms."""
    return [
        Fault(table.stem, name, *fault, tests=tuple(group["tests"]), chosen=group.get("chosen", ""))
        for table in sorted(TABLES.glob("*.toml"))
        for name, group in tomllib.loads(table.read_text()).items()
        for fault in group["faults"]
    ]


@contextmanager
def copies(n: int) -> Iterator[Queue[Path]]:
    """Make n copies of the tree, each with the package under its import name."""
    skipped = shutil.ignore_patterns("__pycache__", "*.parquet")
    free: Queue[Path] = Queue()
    with TemporaryDirectory() as folder:
        for number in range(n):
            copy = Path(folder, str(number))
            shutil.copytree(ROOT / "deployments" / "package", copy / "prefect_tune")
            for room in ROOMS:
                shutil.copytree(ROOT / room, copy / "prefect_tune" / room, ignore=skipped)
                (copy / room).symlink_to(copy / "prefect_tune" / room)  # where tests read sources
            shutil.copytree(ROOT / "tests", copy / "tests", ignore=skipped)
            shutil.copy(ROOT / "pyproject.toml", copy)
            free.put(copy)
        yield free


def failing_test(copy: Path, fault: Fault) -> str:
    """Run the tests of a planted fault, and return the first failing test; empty if all pass.

    The test that noticed the fault last runs first and alone.
    """
    if fault.noticed_by:
        known = Path("tests", fault.room, fault.noticed_by.partition("::")[0])
        name = f"{known}::{fault.noticed_by.partition('::')[2]}"
        if known.exists() and (failed := first_failure(copy, [name], may_be_gone=True)):
            return failed
    options = ("-k", fault.chosen) if fault.chosen else ()
    return first_failure(copy, [*options, *map(str, fault.paths_of_tests)])


def first_failure(
    copy: Path, arguments: list[str], seconds: float = TIMEOUT_SECONDS, *, may_be_gone: bool = False
) -> str:
    """Run tests in a copy, and return the first failing test; empty if all pass.

    Tests that exceed the seconds fail.

    Raises:
        RuntimeError: If no test ran, unless `may_be_gone` is set.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {
        **os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "", "NO_COLOR": "1",
        "PYTEST_DEBUG_TEMPROOT": str(copy),  # other runs clear away what is in the common folder
    }  # fmt: skip
    try:
        for tier in (("-m", "not full"), ()):  # where all are `full`, these
            done = subprocess.run(
                [*command, *tier], cwd=copy, env=environment, capture_output=True, text=True,
                timeout=seconds, check=False,
            )  # fmt: skip
            if done.returncode != pytest.ExitCode.NO_TESTS_COLLECTED:
                break
    except subprocess.TimeoutExpired:
        return DID_NOT_END
    if done.returncode == 0:
        return ""
    ends = [x for x in done.stdout.splitlines() if x.startswith(("FAILED tests", "ERROR tests"))]
    if ends:
        name = ends[0].split(" - ")[0].split(" ", 1)[1]
        return name if "::" in name else ""  # a file that cannot be imported looks at nothing
    if may_be_gone:
        return ""
    raise RuntimeError(f"no test of {arguments} ran:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def plant(fault: Fault, free: "Queue[Path]") -> dict[str, Any]:
    """Plant a fault in a free copy, and return the outcome."""
    copy = free.get()
    place = copy / "prefect_tune" / fault.room / fault.file
    right, written = place.read_text(), place.stat().st_mtime_ns
    try:
        place.write_text(fault.planted)
        noticed_by = failing_test(copy, fault)
    finally:
        place.write_text(right)
        os.utime(place, ns=(written, written))  # the bytecode of the fault has another time
        free.put(copy)
    return {"key": fault.key, "noticed_by": noticed_by}


def check_without_faults(faults: list[Fault], free: "Queue[Path]") -> None:
    """Exit if a test that must notice a fault fails before any fault is planted."""
    alike: dict[tuple[str, str], dict[str, None]] = {}
    for fault in faults:
        paths = dict.fromkeys(map(str, fault.paths_of_tests))
        alike.setdefault((fault.room, fault.chosen), {}).update(paths)
    copy = free.get()
    for (_, chosen), paths in alike.items():
        options = ("-k", chosen) if chosen else ()
        if failed := first_failure(copy, [*options, *paths], 3600):
            sys.exit(f"{failed} fails without a fault; fix it first")
    free.put(copy)


def record(faults: list[Fault], known: dict[str, str]) -> None:
    """Write into the TOML files which test noticed each fault."""
    for table in sorted(TABLES.glob("*.toml")):
        text = table.read_text()
        for fault in faults:
            if fault.room == table.stem and "::" in known[fault.key]:
                file, _, name = known[fault.key].partition("::")
                test = f"{os.path.relpath(file, Path('tests', fault.room))}::{name}"
                text = recorded(text, fault, test)
        table.write_text(text)


def recorded(text: str, fault: Fault, name: str) -> str:
    """Return the text of a TOML file (with basic strings), updated with the test of a fault."""
    parts = [json.dumps(p, ensure_ascii=False) for p in (fault.right, fault.wrong, name)]
    stands = rf"{re.escape(parts[0])},\s*{re.escape(parts[1])}" + r'(?:,\s*"[^"\n]*")?\s*,?\s*\]'
    (found,) = re.finditer(stands, text)
    return f"{text[: found.start()]}{', '.join(parts)}]{text[found.end() :]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", default=ROOMS, choices=ROOMS, help="rooms")
    parser.add_argument("--with", nargs="+", default=[""], dest="parts", help="parts of groups")
    parser.add_argument("--again", action="store_true", help="repeat those that went unnoticed")
    parser.add_argument("--record", action="store_true", help="write who noticed into the tables")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    faults = [
        fault
        for fault in all_faults()
        if fault.room in chosen.only and any(part in fault.group for part in chosen.parts)
    ]
    if not faults:
        parser.error("no group matches --only and --with")
    for fault in faults:
        assert fault.key, fault  # read now: the files may change meanwhile
    lines = chosen.results.read_text().splitlines() if chosen.results.exists() else ()
    outcomes = [json.loads(line) for line in lines]
    known = {o["key"]: o["noticed_by"] for o in outcomes if o["noticed_by"] or not chosen.again}
    left = [fault for fault in faults if fault.key not in known]
    with copies(chosen.jobs) as free, ThreadPoolExecutor(chosen.jobs) as pool:
        check_without_faults(left, free)
        for fault, outcome in zip(left, pool.map(lambda f: plant(f, free), left), strict=True):
            known[fault.key] = outcome["noticed_by"]
            with chosen.results.open("a") as results:
                results.write(json.dumps(outcome) + "\n")
            print(".", end="", flush=True)
    print()
    if chosen.record:
        record(faults, known)
    for fault in faults:
        by = known[fault.key]
        found = f"{fault.room}/{fault.file}: {fault.reason}"
        print(f"{found} ({by})" if by else f"UNNOTICED: {found}")
    goals = Goals()
    goals.at_least("noticed", sum(bool(known[f.key]) for f in faults), len(faults))
    goals.end()


if __name__ == "__main__":
    main()
