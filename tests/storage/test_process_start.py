import os
import subprocess
import sys
from time import sleep

import psutil
import pytest

from prefect_tune.storage.lease import Holder, _holder, process_age, process_start


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step of the clock by an hour does to what psutil says of every process."""
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + 3600)


@pytest.mark.usefixtures("moved_clock")
def test_a_live_process_is_alive_whatever_the_clock_says() -> None:
    before = Holder.from_text(Holder.this_process().to_text())
    _holder.cache_clear()
    assert not before.is_dead()
    assert Holder.this_process() == before


def test_a_process_of_the_same_id_that_began_earlier_is_another_one() -> None:
    mine = Holder.this_process()
    assert Holder(mine.host, mine.pid, mine.started - 1).is_dead()
    assert not Holder("elsewhere", mine.pid, mine.started - 1).is_dead()


def test_processes_begin_one_after_the_other_and_grow_older() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_start(child.pid) >= process_start(os.getpid())
        assert process_start(child.pid) == process_start(child.pid)
        young = process_age(child.pid)
        sleep(0.05)
        assert young < process_age(child.pid) < process_age(os.getpid())
        child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        process_start(child.pid)


def test_the_name_of_a_program_cannot_confuse_it() -> None:
    """Its line in /proc has the name in parentheses, and names have parentheses and blanks."""
    rename = "open('/proc/self/comm', 'w').write(') S 1 (x'); print(flush=True); input()"
    command = [sys.executable, "-c", rename]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        assert process_start(child.pid) == start
        child.communicate(b"\n")
