"""Counts of processes killed for lack of memory, read from files like those of Linux."""

from pathlib import Path

import pytest

from prefect_tune.flows.workers import worker_starts as oom_kills
from prefect_tune.flows.workers.worker_starts import count_oom_kills


@pytest.fixture
def system(tmp_path, monkeypatch) -> Path:
    """A folder in place of the files of Linux; without any file at first."""
    monkeypatch.setattr(oom_kills, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(oom_kills, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(oom_kills, "_MACHINE", tmp_path / "vmstat")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_system_that_counts_nothing_has_none(system) -> None:
    assert count_oom_kills() == 0
    write(system / "vmstat", "nr_free_pages 12\n")
    assert count_oom_kills() == 0


def test_those_of_the_machine_count(system) -> None:
    write(system / "vmstat", "nr_free_pages 12\noom_kill 3\nnuma_hit 7\n")
    assert count_oom_kills() == 3


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/job/4\n", "cgroup/job/4/memory.events"),
        ("5:cpu:/x\n4:memory:/job/4\n", "cgroup/memory/job/4/memory.oom_control"),
        ("0::/hidden\n", "cgroup/memory.events"),
        ("4:memory:/hidden\n", "cgroup/memory/memory.oom_control"),
    ],
)
def test_those_of_the_control_group_count_in_both_versions(system, own, file) -> None:
    write(system / "own", own)
    write(system / file, "oom 9\noom_kill_disable 0\noom_kill 2\n")
    assert count_oom_kills() == 2


def test_a_kill_that_machine_and_group_count_is_counted_once(system) -> None:
    write(system / "own", "0::/job\n")
    write(system / "vmstat", "oom_kill 3\n")
    write(system / "cgroup/job/memory.events", "oom_kill 2\n")
    assert count_oom_kills() == 3


def test_a_damaged_file_counts_nothing(system) -> None:
    write(system / "own", "no group\n")
    write(system / "vmstat", "oom_kill many\n")
    write(system / "cgroup/memory.events", "oom_kill 1\n")
    assert count_oom_kills() == 1
