"""The main job as a new user meets it, and the same configurations again with the cache warm.

    tests/benchmarks/run deployments/main_job

Runs `prefect-tune run cohort:demo` in a new home and notes when the first trial is seen; then, in
another home, twice with `--method random`, whose configurations do not depend on what they cost.
Prints all of it, and how long the package takes to import and the command to show its help.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic

from machine import Goals, describe, seconds_of
from processes import COMMAND, environment


def run(home: Path, *options: str) -> tuple[float, float, str]:
    """Seconds to the first trial and to the end, and what was said at the end."""
    started, first = monotonic(), 0.0
    with subprocess.Popen(
        [*COMMAND, "run", "cohort:demo", *options],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr:
            if line.startswith("trial ") and not first:
                first = monotonic() - started
        said = process.stdout.read()
    assert process.returncode == 0, said
    return first, monotonic() - started, said


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    imports, bare, helps = (
        [seconds_of(subprocess.run, command, check=True, capture_output=True) for _ in range(5)]
        for command in (
            (sys.executable, "-c", "import prefect_tune"),
            (sys.executable, "-c", "pass"),
            (*COMMAND, "--help"),
        )
    )
    print(describe())
    alone = median(imports) - median(bare)
    goals = Goals()
    goals.at_most("import prefect_tune, s", alone, 0.1)
    goals.at_most("prefect-tune --help, s", median(helps), 0.5)
    with tempfile.TemporaryDirectory() as home:
        seen, total, said = run(Path(home))
        print(f"first trial seen after {seen:.1f} s, finished after {total:.1f} s; it says\n{said}")
        goals.at_most("first trial seen, s", seen, 10)
        goals.at_most("finished, s", total, 180)
    with tempfile.TemporaryDirectory() as home:
        evaluating = []
        for study in ("cold", "warm"):
            *_, said = run(Path(home), "--method", "random", "--study", study)
            found = re.search(r"trials, \d+ failed, in (\S+) \((\S+) of evaluating", said)
            evaluating.append(_seconds(found[2]))
            print(f"{study} cache: search {found[1]}, evaluating {found[2]}")
    goals.at_least("times faster with the cache warm", evaluating[0] / evaluating[1], 3)
    goals.end()


def _seconds(text: str) -> float:
    minutes, _, seconds = text.rpartition("m")
    return 60 * float(minutes or 0) + float(seconds.removesuffix("s"))


if __name__ == "__main__":
    main()
