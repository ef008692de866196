"""The clock of the machine is set while a study runs: nothing changes."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import time

import psutil
import pytest
from inputs import QUICK_OPTIONS, table
from processes import run, server_of, started, wait_for

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

PATCHED = """
import sqlite3.dbapi2, time
from pathlib import Path

_time, _checked, _offset = time.time, -1.0, 0.0

def offset():
    global _checked, _offset
    if time.monotonic() - _checked > 0.2:
        _checked, _offset = time.monotonic(), float(Path({file!r}).read_text() or 0)
    return _offset

time.time = lambda: _time() + offset()
_connect = sqlite3.dbapi2.connect

def connect(*arguments, **options):
    connection = _connect(*arguments, **options)
    days = lambda _: 2440587.5 + time.time() / 86400.0
    connection.create_function("julianday", 1, days)
    return connection

sqlite3.connect = sqlite3.dbapi2.connect = connect

import psutil

_create_time = psutil.Process.create_time
psutil.Process.create_time = lambda self: _create_time(self) + offset()
"""
"""Python's clock, SQLite's, and when processes were started by it, in every process.

libfaketime does not bear Python's sleep.
"""


@pytest.fixture
def set_clock(tmp_path, monkeypatch):
    """Sets the clock of all processes that are started from here, while they run."""
    offset, folder = tmp_path / "offset", tmp_path / "patched"
    offset.write_text("0")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PATCHED.format(file=str(offset)))
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def set_to(seconds: float) -> None:
        aside = tmp_path / "aside"
        aside.write_text(str(seconds))
        aside.replace(offset)
        program = "import time; print(time.time())"
        there = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert abs(float(there.stdout) - time() - seconds) < 60

    return set_to


def told(home: Path, study: str) -> list[dict]:
    if not (home / "store" / "index.sqlite").exists():
        return []
    trials = Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database).trials(study)
    return [t for t in trials if t["state"] in ("complete", "failed")]


def where_it_is(home: Path, process: subprocess.Popen[str]) -> str:
    """What a study is doing, for whoever asks why it does nothing."""
    ledger = Ledger(ArtifactStore(StoreAddress(str(home / "store"))).database)
    family = psutil.Process(process.pid).children(recursive=True)
    states = Counter(t["state"] for t in ledger.trials("s"))
    doing = [(p.pid, p.status(), p.cpu_times().user, " ".join(p.cmdline())[:80]) for p in family]
    return f"trials: {dict(states)}; processes: {doing}"


@pytest.mark.slow
@pytest.mark.full
def test_a_study_continues_and_no_other_process_takes_it(tmp_path, set_clock) -> None:
    home = tmp_path / "home"
    table(3_000).to_parquet(tmp_path / "slow.parquet", index=False)
    options = (*QUICK_OPTIONS, "--target", "target", "--study", "s", "--trials", 2_000)
    command = ("run", tmp_path / "slow.parquet", *options, "--budget", "1h", "--workers", 2)
    command += ("--quiet",)  # or its lines would fill the pipe that nobody reads meanwhile
    with started(*command, home=home) as process:
        wait_for(lambda: told(home, "s"))
        server = server_of(home)
        for offset in (3_600, -3_600, 0):
            set_clock(offset)
            n_told = len(told(home, "s"))
            try:
                wait_for(lambda n=n_told: len(told(home, "s")) > n or process.poll() is not None)
            except AssertionError as error:
                error.add_note(f"the clock was set by {offset} s; {where_it_is(home, process)}")
                raise
            assert process.poll() is None, "it ended before the clock was set thrice"
            other = run(*command, home=home)
            assert other.returncode == 2, other.stderr
            assert f"process {process.pid}" in other.stderr
            assert server_of(home) == server
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 143, said
    trials = told(home, "s")
    assert {t["state"] for t in trials} == {"complete"}
    assert {t["attempts"] for t in trials} == {1}
    assert server_of(home) is None
