"""The first command of README, from a fresh clone without developer tools."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from processes import environment, stop_server
from source_tree import ROOT, copy_tree

pytestmark = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of the repository, without anything installed."""
    return copy_tree(tmp_path / "clone")


def shown_by(command: Path, home: Path) -> str:
    """Return the standard output of a command of the clone with few trials."""
    done = subprocess.run(
        [command, "--trials", "3"],
        cwd=home,
        env={**environment(home), "PATH": f"{os.environ['PATH']}:{ROOT / '.uv' / 'bin'}"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Prefect shows the run at http://127.0.0.1:" in done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_demo_command_runs(clone, tmp_path) -> None:
    printed = shown_by(clone / "deployments" / "demo", tmp_path)
    assert re.search(r"best(: trial| single trial) \d", printed)  # alone or with others


@pytest.mark.timeout(900)
def test_three_runs_of_a_series_promote_a_model(clone, tmp_path) -> None:
    """The model of the second run, with 25 times as many patients, replaces the first model."""
    try:
        printed = shown_by(clone / "deployments" / "nights", tmp_path)
    finally:
        stop_server(tmp_path)
    assert re.search(r"-2 .*\bchampion\b", printed[printed.rindex("3 runs)") :])
