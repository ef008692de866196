"""Starts of local workers: pauses, causes, remedies, and when to give up, by a clock of tests."""

import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context

import pytest

from prefect_tune.flows.workers import worker_starts
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.worker_starts import WorkerStarts
from prefect_tune.tasks.worker.start_log import log_path

ONE, OTHER = "tcp://one", "tcp://other"
MEMORY = "the system reports that it killed a process as memory ran out"


class Clock:
    """A clock that stands until a test advances it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
    with pytest.raises(NoWorkers, match="no worker could be started for 41 s: the last one exited"):
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


def test_a_worker_has_time_to_start_again_where_others_have_gone_on_without_it(
    starts, clock
) -> None:
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
        (-9, "was killed by signal 9 (SIGKILL)"),
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
    assert told.startswith("exited with code 3 as it started, after it printed: cannot reach")
    assert "secret" not in told
    assert starts.explain(3) == "exited with code 3"


def test_a_death_soon_after_memory_ran_out_is_told_as_such(starts, clock, kills) -> None:
    assert starts.explain(-9) == "was killed by signal 9 (SIGKILL)"
    kills[0] += 1
    for _ in range(2):  # several workers
        assert starts.explain(-9) == f"was killed by signal 9 (SIGKILL) ({MEMORY})"
    clock.now += 5
    assert starts.explain(-9) == "was killed by signal 9 (SIGKILL)"


def raise_as_dask_does(error: BaseException) -> None:
    """Dask stumbles over what a failed start has left behind."""
    followed = AssertionError("no process")
    followed.__context__ = error
    raise followed


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError("reset")])
def test_a_start_whose_fork_server_had_ended_is_told_as_such(starts, printed, error) -> None:
    printed("")
    seen = raised(lambda: raise_as_dask_does(error))
    expected = "was not forked, as the process that workers are forked from had ended"
    assert starts.explain_error(seen, 0) == expected


def test_the_first_error_of_the_system_is_told_not_those_that_followed(starts, printed) -> None:
    printed("")
    error = raised(lambda: raise_as_dask_does(OSError(24, "Too many open files")))
    told = starts.explain_error(error, 0)
    assert told == "could not be started: OSError: [Errno 24] Too many open files"
    assert starts.explain_error(ValueError("x"), 0) == "could not be started: ValueError: x"


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
    assert "Make /dev/shm writable, then run the same command" in str(starts.no_workers())


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (f"was killed by signal 9 ({signal.Signals(9).name}) ({MEMORY})", "Use fewer --workers or"),
        ("was killed by signal 9 (SIGKILL)", "Find what kills the workers"),
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
    assert message.startswith(f"no worker could be started for 41 s: the last one {cause}. ")
    assert remedy in message
    assert message.endswith(", then run the same command to continue")
