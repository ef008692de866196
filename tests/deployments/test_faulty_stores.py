"""Studies whose store is away, damaged or full, and the warnings that their users see."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inputs import write_table
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect_api import client_of, flow_runs
from processes import run, run_json, started, wait_for
from user_spaces import PRELUDE

SPACE = (
    PRELUDE
    + """
FITS = Path("@FITS@")


class Slow(GaussianNB):
    def fit(self, X, y):
        with FITS.open("a") as fits:
            fits.write("x")
        sleep(0.2)
        return super().fit(X, y)


class Greedy(GaussianNB):
    def fit(self, X, y):
        opened = []
        try:
            while True:
                opened.append(open("/dev/null"))
        finally:
            for file in opened:
                file.close()


slow = models(one("slow", Slow, SMOOTHING))
greedy = models(one("greedy", Greedy, SMOOTHING))
"""
)


class Home:
    """A home with a table and a space, and the commands that are run in it."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder, self.server = folder, server
        self.home, self.fits = folder / "home", folder / "fits"
        self.space = folder / "faulty.py"
        self.space.write_text(SPACE.replace("@FITS@", str(self.fits)))
        self.data = write_table(folder)

    def command(self, study: str, space: str, *options: object) -> tuple[object, ...]:
        return (
            "run", self.data, "--target", "target", "--space", f"{self.space}:{space}",
            "--method", "random", "--seed", 3, "--workers", 1, "--study", study, *options,
        )  # fmt: skip

    def run(self, *command: object) -> Any:
        return run(*command, home=self.home, server=self.server)

    def json(self, *command: object) -> Any:
        return run_json(*command, home=self.home, server=self.server)

    def wait_for_fits(self, process: subprocess.Popen[str]) -> None:
        """Wait until the first trials of a run have fitted something."""

        def has_fits() -> bool:
            return self.fits.exists() and self.fits.stat().st_size >= 5

        wait_for(lambda: process.poll() is not None or has_fits())
        assert process.poll() is None, process.communicate()

    def notes(self, study: str, words: str, *options: object) -> list[str]:
        """Warnings in the ledger that have some words."""
        return [note for note in self.json("show", study, *options)["notes"] if words in note]

    def logged(self, study: str) -> list[str]:
        """Warnings in Prefect's log of the last flow run of a study."""
        name = f"{study} (random)"
        runs = [r for r in flow_runs(self.server) if r.name == name and r.start_time]
        last = max(runs, key=lambda run: str(run.start_time))
        only = LogFilterFlowRunId(any_=[last.id])
        with client_of(self.server) as client:
            logs = client.read_logs(LogFilter(flow_run_id=only), limit=200)
        return [log.message for log in logs if log.level >= 30]


@pytest.fixture
def place(server, tmp_path) -> Home:
    return Home(tmp_path, server)


def warnings_in(stdout: str) -> list[str]:
    """Warnings among the lines of `--json-lines`."""
    lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    return [line["warning"] for line in lines if "warning" in line]


def shown_in(stderr: str) -> list[str]:
    """Warnings among plain lines."""
    marked = [line for line in stderr.splitlines() if line.startswith("Warning: ")]
    return [line.removeprefix("Warning: ") for line in marked]


@pytest.mark.parametrize("options", [(), pytest.param(("--json-lines",), marks=pytest.mark.full)])
def test_a_store_that_was_away_costs_no_trial_and_is_warned_of(place, options) -> None:
    command = place.command("s", "slow", "--trials", 6, "--no-cache", *options)
    store, hidden, said = place.home / "store", place.home / "hidden", ""
    with started(*command, home=place.home, server=place.server) as process:
        place.wait_for_fits(process)
        store.rename(hidden)
        stream = process.stdout if options else process.stderr
        while "waiting at most" not in said:
            said += (line := stream.readline())
            assert line, said
        assert not store.exists()
        hidden.rename(store)
        said += stream.read()
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    trials = place.json("trials", "s")
    assert [(t["state"], t["attempts"]) for t in trials] == [("complete", 1)] * 6
    notes = place.notes("s", "waiting at most")
    assert notes
    warned = warnings_in(said) if options else shown_in(said)
    shown = sorted(w for w in warned if "waiting at most" in w)
    assert shown == sorted(notes)
    assert len(set(shown)) == len(shown)
    assert sorted(m for m in place.logged("s") if "waiting at most" in m) == shown


@pytest.mark.full
def test_damaged_artifacts_are_warned_of_once_in_a_study(place) -> None:
    assert place.run(*place.command("first", "slow", "--trials", 3)).returncode == 0
    for is_first in (True, False):
        for file in (place.home / "store" / "cache").rglob("*"):
            if file.is_file() and file.suffix != ".json":
                file.write_bytes((b"x" if is_first else b"y") * file.stat().st_size)
        n_trials = 3 if is_first else 5
        again = place.run(*place.command("second", "slow", "--trials", n_trials, "--json-lines"))
        assert again.returncode == 0, again.stderr
        (note,) = place.notes("second", "will be recomputed")
        assert warnings_in(again.stdout).count(note) == is_first
        assert shown_in(again.stderr) == []


@contextmanager
def small_disk(path: Path) -> Iterator[Callable[[str], None]]:
    """A file system in memory that takes only what is written, and changes its size."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4g", "none", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(path)], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def used_bytes(path: Path) -> int:
    stat = os.statvfs(path)
    return max((stat.f_blocks - stat.f_bfree) * stat.f_frsize, 4096)  # 0 would be no limit


@pytest.mark.full
def test_a_full_disk_ends_the_run_at_once_and_the_study_resumes_later(place, tmp_path) -> None:
    disk = tmp_path / "disk"
    store = ("--store", disk / "store")
    command = place.command("s", "slow", "--trials", 6, "--no-cache", *store)
    with small_disk(disk) as resize:
        with started(*command, home=place.home, server=place.server) as process:
            place.wait_for_fits(process)
            resize(str(used_bytes(disk)))
            _, err = process.communicate(timeout=240)  # less than an outage is waited for
        assert process.returncode == 1, err
        assert "--cache-budget" in err
        assert "waiting at most" not in err
        resize("4g")
        resumed = place.run(*command)
        assert resumed.returncode == 0, resumed.stderr
        trials = place.json("trials", "s", *store)
        assert [t["state"] for t in trials] == ["complete"] * 6


@pytest.mark.full
def test_files_that_an_algorithm_opens_are_its_own_trouble(place) -> None:
    done = place.run(*place.command("s", "greedy", "--trials", 3))
    trials = place.json("trials", "s")
    assert [(t["state"], t["attempts"]) for t in trials] == [("failed", 1)] * 3, done.stderr
    assert all("Too many open files" in trial["failure"]["message"] for trial in trials)
    assert place.notes("s", "waiting at most") == []
    assert "waiting at most" not in done.stderr
