"""Benchmarks measure on demand only; here each of them is loaded, so that none falls behind."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from curve_tables import ON_DATA, ON_DIGITS, load_table

TESTS = Path(__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.full]
BENCHMARKS = sorted((TESTS / "benchmarks").glob("*/*.py"))


def test_every_benchmark_can_be_loaded() -> None:
    load = (
        "import runpy, sys\n"
        "for path in sys.argv[1:]:\n"
        "    sys.path[0] = path.rpartition('/')[0]\n"
        "    runpy.run_path(path, run_name='benchmark')"
    )
    done = subprocess.run(
        [sys.executable, "-c", load, *map(str, BENCHMARKS)],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS / 'benchmarks'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(BENCHMARKS) > 15


def test_its_command_finds_a_benchmark_by_room_and_name() -> None:
    command = TESTS / "benchmarks" / "run"
    done = subprocess.run(
        [command, "deployments/faults", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--only" in done.stdout


@pytest.mark.parametrize("name", [*ON_DATA, *ON_DIGITS])
def test_recorded_curves_come_with_the_code(name: str, tmp_path: Path) -> None:
    table = load_table(name, tmp_path)
    assert len(set(table.configurations)) == 400
    assert table.losses.shape == table.tests.shape == table.seconds.shape == (400, table.epochs)
    assert np.all((table.losses >= 0) & (table.losses <= 100))
    assert np.all((table.tests >= 0) & (table.tests <= 100))
    is_trained = table.seconds > 0
    assert is_trained.any(axis=1).mean() > 0.9
    assert np.all(table.losses[~is_trained] == 100)
    assert list(tmp_path.iterdir()) == []
