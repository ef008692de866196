"""Starts of local workers by a clock of tests: pauses, causes, suspects, and when to give up."""

import asyncio
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from distributed.core import Status

from prefect_tune.flows.workers import dask_trials as isolation
from prefect_tune.flows.workers import worker_pool, worker_starts
from prefect_tune.flows.workers import worker_starts as oom_kills
from prefect_tune.flows.workers.dask_trials import Isolation
from prefect_tune.flows.workers.local_nanny import LocalNanny
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.flows.workers.worker_starts import WorkerStarts, count_oom_kills
from prefect_tune.tasks.worker.start_log import log_path

ONE, OTHER = "tcp://one", "tcp://other"
KILLED = "was killed by signal 9 (SIGKILL)"


class Clock:
    """A clock that stands until a test or a pause advances it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.n_sleeps = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.n_sleeps += 1
        assert self.now < 2000, "waits for ever"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kills(monkeypatch) -> list[int]:
    """The number of processes killed as memory ran out; tests set it."""
    counted = [7]
    monkeypatch.setattr(worker_starts, "count_oom_kills", lambda: counted[0])
    return counted


@pytest.fixture
def starts(clock, kills) -> WorkerStarts:
    return WorkerStarts(clock, _n_oom_kills=kills[0])


@pytest.fixture
def printed(tmp_path, monkeypatch) -> Iterator[Callable[[str], None]]:
    """Writes to the log of starts."""
    monkeypatch.setattr(worker_starts, "scratch_folder", lambda: tmp_path)
    return lambda text: log_path(tmp_path).write_text(text)


def fail(starts: WorkerStarts, clock: Clock, nanny: str = ONE, seconds: float = 0.0) -> float:
    """A start that fails after some seconds; returns the pause until the next one."""
    since = clock.now
    clock.now += seconds
    return starts.note_failure(nanny, "exited with code 3", since)


def raised(raises: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any
        raises()
    return caught.value


def test_pauses_double_up_to_a_limit_for_each_nanny_alone(starts, clock) -> None:
    assert [fail(starts, clock) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert fail(starts, clock, OTHER) == 0.1


def test_pauses_begin_anew_once_a_worker_has_lived(starts, clock) -> None:
    for _ in range(4):
        fail(starts, clock)
    starts.note_up(ONE)
    clock.now += 5
    assert not starts.note_death(ONE, had_trial=False)
    assert fail(starts, clock) == 0.1


def test_a_death_soon_after_the_start_is_a_failed_start_unless_a_trial_had_begun(
    starts, clock
) -> None:
    fail(starts, clock)
    for had_trial, pause in ((False, 0.2), (True, 0.1)):
        starts.note_up(ONE)
        clock.now += 4.9
        assert starts.note_death(ONE, had_trial=had_trial) is not had_trial
        assert fail(starts, clock) == pause


def test_there_is_hope_before_any_start_and_until_starts_have_failed_for_long(
    starts, clock
) -> None:
    assert not starts.is_hopeless()
    clock.now += 100
    assert not starts.is_hopeless()
    fail(starts, clock)
    clock.now += 40
    assert not starts.is_hopeless()
    starts.check()
    fail(starts, clock, seconds=1)
    assert starts.is_hopeless()
    with pytest.raises(NoWorkers, match="41 s"):
        starts.check()


def test_workers_that_come_up_and_die_at_once_are_no_hope(starts, clock) -> None:
    while clock.now < 1041:
        starts.note_up(ONE)
        clock.now += 1
        assert starts.note_death(ONE, had_trial=False)
        starts.note_failure(ONE, "ended", clock.now)
    clock.now += 1
    assert starts.is_hopeless()


def test_a_worker_that_is_up_is_hope_for_the_run_but_not_for_another_nanny(starts, clock) -> None:
    fail(starts, clock)
    fail(starts, clock, OTHER)
    starts.note_up(OTHER)
    clock.now += 41
    assert not starts.is_hopeless()
    assert not starts.is_hopeless(OTHER)
    assert starts.is_hopeless(ONE)
    starts.check(OTHER)
    with pytest.raises(NoWorkers):
        starts.check(ONE)


def test_a_nanny_that_is_about_to_start_its_worker_is_hope(starts, clock) -> None:
    fail(starts, clock)
    clock.now += 41
    starts.note_up(OTHER)
    starts.note_death(OTHER, had_trial=True)
    assert not starts.is_hopeless()
    fail(starts, clock, OTHER, seconds=41)
    assert starts.is_hopeless()


def test_a_start_that_hangs_ends_within_a_minute_and_is_no_hope(starts, clock) -> None:
    assert starts.start_seconds(ONE) < 60
    fail(starts, clock, seconds=starts.start_seconds(ONE))
    assert starts.is_hopeless()


@pytest.mark.parametrize("has_started", [True, False])
def test_a_start_that_hangs_after_others_that_failed_ends_within_a_minute_of_the_first(
    starts, clock, has_started
) -> None:
    if has_started:
        starts.note_up(OTHER)
    first = clock.now
    fail(starts, clock, seconds=39)
    fail(starts, clock, seconds=starts.start_seconds(ONE))
    assert clock.now - first < 60
    assert starts.is_hopeless(ONE)


def test_a_worker_has_time_to_restart_while_others_continue(starts, clock) -> None:
    starts.note_up(OTHER)
    usual = starts.start_seconds(ONE)
    fail(starts, clock, seconds=100)
    assert starts.start_seconds(ONE) == usual


def test_the_first_start_may_take_longer(starts) -> None:
    before = starts.start_seconds(ONE)
    starts.note_up(OTHER)
    assert starts.start_seconds(ONE) < before


def test_a_fork_server_dies_once_though_several_nannies_report_it(starts) -> None:
    for pid, n in ((1, 1), (1, 1), (2, 2)):
        starts.note_server_death(pid)
        assert starts.n_server_deaths == n


@pytest.mark.parametrize(
    ("exit_code", "how"),
    [
        (-9, KILLED),
        (-200, "was killed by signal 200 (unknown)"),
        (3, "exited with code 3"),
        (0, "exited with code 0"),
        (255, "ended"),
        (None, "ended"),
    ],
)
def test_how_a_worker_ended_is_told_by_its_exit_code(starts, printed, exit_code, how) -> None:
    printed("")
    assert starts.explain(exit_code) == how
    assert starts.explain(exit_code, log_since=0) == f"{how} as it started"


def test_the_text_that_a_start_printed_is_told_with_passwords_masked(starts, printed) -> None:
    printed("before\ncannot reach postgresql://me:secret@host/db\n")
    told = starts.explain(3, log_since=len("before\n"))
    assert told.startswith("exited with code 3 ")
    assert "cannot reach" in told
    assert not any(part in told for part in ("before", "secret"))
    assert starts.explain(3) == "exited with code 3"


def test_a_death_soon_after_memory_ran_out_is_told_as_such(starts, clock, kills) -> None:
    assert starts.explain(-9) == KILLED
    kills[0] += 1
    for _ in range(2):  # several workers
        assert starts.explain(-9) == f"{KILLED} ({worker_starts._OUT_OF_MEMORY})"
    clock.now += 5
    assert starts.explain(-9) == KILLED


def raise_as_dask_does(error: BaseException) -> None:
    """Dask stumbles over what a failed start has left behind."""
    followed = AssertionError("no process")
    followed.__context__ = error
    raise followed


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError("reset")])
def test_a_start_whose_fork_server_had_ended_is_told_as_such(starts, printed, error) -> None:
    printed("")
    seen = raised(lambda: raise_as_dask_does(error))
    assert "not forked" in starts.explain_error(seen, 0)


def test_the_first_error_of_the_system_is_told_not_those_that_followed(starts, printed) -> None:
    printed("")
    error = raised(lambda: raise_as_dask_does(OSError(24, "Too many open files")))
    told = starts.explain_error(error, 0)
    assert told.endswith(": OSError: [Errno 24] Too many open files")
    assert starts.explain_error(ValueError("x"), 0) == "could not be started: ValueError: x"


class AloneNanny(LocalNanny):
    """A nanny without a cluster."""

    address, status = ONE, Status.init

    def __init__(self, starts: WorkerStarts) -> None:
        self._starts, self._is_closing = starts, False


def test_a_nanny_tells_the_error_of_a_failed_start(starts, printed, monkeypatch) -> None:
    async def refuse(_: object) -> None:
        raise OSError(24, "Too many open files")

    printed("")
    monkeypatch.setattr(distributed.Nanny, "instantiate", refuse)
    told = asyncio.run(AloneNanny(starts)._start_once(0))
    assert told is not None
    assert told.endswith(": OSError: [Errno 24] Too many open files")


def test_semaphores_that_cannot_be_made_are_told_with_the_folder_that_they_need(
    starts, printed, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    printed("")
    monkeypatch.setattr("_multiprocessing.SemLock", refuse)
    told = starts.explain_error(raised(get_context("forkserver").Lock), 0)
    assert told.endswith("Permission denied (semaphores need /dev/shm)")
    starts.note_failure(ONE, told, 0.0)
    assert "Make /dev/shm writable" in str(starts.no_workers())


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (f"{KILLED} ({worker_starts._OUT_OF_MEMORY})", "Use fewer --workers or"),
        (KILLED, "Find what kills the workers"),
        ("could not be started: OSError: [Errno 24] Too many open files", "raise `ulimit -n`"),
        ("could not be started: OSError: Resource temporarily unavailable", "raise `ulimit -u`"),
        ("could not be started: OSError: No space left on device", "or set TMPDIR"),
        ("was not up after 55 s", "Find what delays the workers"),
        ("exited with code 3", "Remove the cause"),
    ],
)
def test_the_error_ends_with_the_remedy_of_its_cause(starts, clock, cause, remedy) -> None:
    starts.note_failure(ONE, cause, clock.now - 41)
    message = str(starts.no_workers())
    assert all(part in message for part in ("41 s", cause, remedy))


NANNY, OTHER_NANNY = "tcp://nanny-1", "tcp://nanny-2"


@pytest.fixture
def pool_starts(clock, monkeypatch) -> WorkerStarts:
    """Starts by which pools wait on the clock."""
    monkeypatch.setattr(worker_pool, "monotonic", clock)
    monkeypatch.setattr(worker_pool, "sleep", clock.sleep)
    return WorkerStarts(clock)


def pool_of(pool_starts: WorkerStarts, *nannies: str, **options: Any) -> WorkerPool:
    """A pool whose scheduler lists a worker for each of some nannies."""
    workers = {f"{nanny}-worker": {"nanny": nanny} for nanny in nannies}
    client = SimpleNamespace(scheduler_info=lambda **_: {"workers": workers})
    return WorkerPool(SimpleNamespace(client=client), 2, starts=pool_starts, **options)  # type: ignore[arg-type]


def test_a_pool_without_workers_waits_until_there_is_no_hope(pool_starts, clock) -> None:
    pool = pool_of(pool_starts)
    pool.note_death()
    assert pool.count_slots() == 0
    pool_starts.note_failure(NANNY, "exited with code 3", clock.now)
    assert pool.count_slots() == 0
    with pytest.raises(NoWorkers, match="with code 3"):
        pool.wait_for_all(10)
    with pytest.raises(NoWorkers, match="exited with code 3"):
        pool.count_slots()
    with pytest.raises(NoWorkers, match="exited with code 3"):
        pool.check()
    assert clock.now < 1000 + 60


def test_the_longer_a_pool_waits_the_less_often_it_looks(pool_starts, clock) -> None:
    pool = pool_of(pool_starts)
    pool_starts.note_failure(NANNY, "exited with code 3", clock.now)
    with pytest.raises(NoWorkers):
        pool.wait_for_all(10)
    assert clock.now > 1000 + 40
    assert clock.n_sleeps < 200


def test_a_pool_looks_often_again_once_its_workers_are_back(pool_starts, clock) -> None:
    pool = pool_of(pool_starts, NANNY, OTHER_NANNY)
    pool.note_death()
    at_first = pool.look_seconds
    clock.now += 10
    assert pool.look_seconds > at_first
    assert pool.count_slots() == 2
    assert pool.look_seconds == at_first
    pool.note_death()
    assert pool.look_seconds == at_first


def test_a_pool_continues_with_the_workers_that_are_up(pool_starts, clock) -> None:
    pool = pool_of(pool_starts, NANNY)
    pool_starts.note_up(NANNY)
    pool_starts.note_failure(OTHER_NANNY, "exited with code 3", clock.now)
    clock.now += 100
    pool.check()
    pool.wait_for_all(10)
    assert pool.count_slots() == 1


def test_a_reserved_pool_gives_its_worker_up_if_only_that_cannot_start(pool_starts, clock) -> None:
    benched: set[str] = set()
    pool_starts.note_up(NANNY)
    pool_starts.note_failure(OTHER_NANNY, "exited with code 3", clock.now)
    one, other = (
        pool_of(pool_starts, NANNY, nanny=n, benched=benched) for n in (NANNY, OTHER_NANNY)
    )
    assert (one.count_slots(), other.count_slots()) == (1, 0)
    clock.now += 41
    assert one.count_slots() == 1
    with pytest.raises(NoWorkers, match="exited with code 3"):
        other.count_slots()
    assert benched == {OTHER_NANNY}


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time of the isolation's clock; tests set it."""
    time = [1000.0]
    monkeypatch.setattr(isolation, "monotonic", lambda: time[0])
    return time


def suspects(*trials: tuple[int, int]) -> Isolation:
    """An isolation with suspects, none of them under way."""
    isolated = Isolation()
    for search, number in trials:
        assert not isolated.start(search, number)
    for search, number in trials:
        isolated.end(search, number, is_suspect=True)
    return isolated


def test_trials_run_side_by_side_without_a_common_death() -> None:
    isolated = Isolation()
    assert isolated.admits(1)
    assert not isolated.start(1, 0)
    assert isolated.admits(1)
    assert isolated.admits(2)
    assert not isolated.start(2, 0)
    isolated.end(1, 0)
    assert isolated.admits(1)


def test_a_suspect_waits_until_no_trial_runs_and_then_runs_alone() -> None:
    isolated = Isolation()
    isolated.start(1, 0)
    isolated.start(1, 1)
    isolated.end(1, 0, is_suspect=True)
    assert not isolated.admits(1)  # trial 1 still runs
    isolated.end(1, 1)
    assert isolated.admits(1)
    assert isolated.start(1, 0)
    assert not isolated.admits(1)


def test_suspects_run_one_by_one_until_each_has_ended() -> None:
    isolated = suspects((1, 0), (1, 1))
    for number in (0, 1):
        assert isolated.admits(1)
        assert isolated.start(1, number)
        assert not isolated.admits(1)
        isolated.end(1, number)
    assert isolated.admits(1)
    assert not isolated.start(1, 2)
    assert isolated.admits(1)


def test_one_search_at_a_time_may_start_a_suspect(now) -> None:
    isolated = suspects((1, 0), (2, 0))
    assert isolated.admits(1)
    assert not isolated.admits(2)
    assert isolated.admits(1)  # it still has its turn
    now[0] += isolation._TURN_SECONDS
    assert isolated.admits(2)
    assert not isolated.admits(1)


def test_a_search_that_starts_no_more_trials_holds_up_no_other() -> None:
    isolated = suspects((1, 0))
    isolated.start(1, 0)
    isolated.forget(1)
    assert isolated.admits(2)
    assert not isolated.start(2, 0)
    assert isolated.admits(2)
    isolated.start(3, 0)
    isolated.end(2, 0, is_suspect=True)
    isolated.forget(3)
    assert isolated.admits(2)


def test_forgetting_a_search_keeps_the_trials_of_others() -> None:
    isolated = suspects((1, 0), (2, 0))
    isolated.start(2, 0)
    isolated.forget(1)
    assert not isolated.admits(3)
    isolated.end(2, 0, is_suspect=True)
    assert isolated.admits(3)
    assert isolated.start(3, 0)


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


@pytest.mark.parametrize(
    ("counted", "n"),
    [
        ({}, 0),
        ({"vmstat": "nr_free_pages 12\n"}, 0),
        ({"vmstat": "nr_free_pages 12\noom_kill 3\nnuma_hit 7\n"}, 3),
        ({"own": "0::/\n", "vmstat": "oom_kill 3\n", "cgroup/memory.events": "oom_kill 2\n"}, 3),
        ({"own": "none\n", "vmstat": "oom_kill many\n", "cgroup/memory.events": "oom_kill 1\n"}, 1),
    ],
    ids=["no file", "no count", "of the machine", "once though both count it", "damaged"],
)
def test_kills_of_the_machine_and_of_the_control_group_are_counted_once(system, counted, n) -> None:
    for file, text in counted.items():
        write(system / file, text)
    assert count_oom_kills() == n


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/job/4\n", "cgroup/job/4/memory.events"),
        ("5:cpu:/x\n4:memory:/job/4\n", "cgroup/memory/job/4/memory.oom_control"),
        ("0::/hidden\n", "cgroup/memory.events"),
        ("4:memory:/hidden\n", "cgroup/memory/memory.oom_control"),
    ],
)
def test_kills_in_the_control_group_count_in_both_versions(system, own, file) -> None:
    write(system / "own", own)
    write(system / file, "oom 9\noom_kill_disable 0\noom_kill 2\n")
    assert count_oom_kills() == 2
