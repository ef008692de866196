"""Trials under way: a real Prefect server, real worker processes that die and come back."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import distributed
import pytest
from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect_api import states, task_runs
from processes import is_alive, kill, runs_trial, wait_for
from studies import context_of, draw, with_space
from user_spaces import SLEEPING

from prefect_tune.flows.workers import under_way as under_way_module
from prefect_tune.flows.workers.clusters import started_pool, workers_started_early
from prefect_tune.flows.workers.dask_trials import DaskTrials, Ended
from prefect_tune.flows.workers.jobs import Job
from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.flows.workers.under_way import TasksUnderWay
from prefect_tune.optimizers import Query, Trial
from prefect_tune.tasks.problem import StudyContext, TrialLimits

LIMITS = TrialLimits(seconds=120)


@pytest.fixture(scope="module")
def quick(workers, tmp_path_factory: pytest.TempPathFactory) -> StudyContext:  # noqa: ARG001
    return context_of(tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="module")
def slow(quick: StudyContext) -> StudyContext:
    """A study whose trials take very long."""
    return with_space(quick, SLEEPING.format(seconds=1000))


def in_flow(
    context: StudyContext, body: Callable[[DaskTrials], Any], limits: TrialLimits = LIMITS
) -> tuple[Any, UUID]:
    """What a body with trials returns, called inside of a flow run, and the id of that."""

    @flow(persist_result=False)
    def study() -> tuple[Any, UUID]:
        flow_run_id = UUID(str(flow_run.id))
        with DaskTrials.started(context, flow_run_id, limits) as trials:
            wait_for(lambda: len(addresses(trials)) == 2)
            return body(trials), flow_run_id

    returned: tuple[Any, UUID] = study()
    return returned


def addresses(trials: DaskTrials) -> dict[str, int]:
    """The processes of the workers."""
    found: dict[str, int] = trials._pool._runner.client.run(os.getpid, on_error="ignore")
    return found


def busy(trials: DaskTrials) -> int | None:
    """The process of a worker that has noted where its trial is."""
    return next((pid for pid in addresses(trials).values() if runs_trial(pid)), None)


def start(trials: DaskTrials, context: StudyContext, *numbers: int) -> None:
    for number in numbers:
        wait_for(trials.has_room)
        trials.submit(Trial(number, draw(context, number)).started(), "trial")


def collected(trials: DaskTrials, n: int) -> list[Ended]:
    ended: list[Ended] = []
    wait_for(lambda: ended.extend(trials.collect(0.2)) or len(ended) == n)
    return ended


def test_trials_come_back_with_their_outcomes_and_are_counted(quick) -> None:
    def body(trials: DaskTrials) -> None:
        assert trials.n_slots == 2
        start(trials, quick, 0, 1)
        assert (trials.n_running, trials.has_room()) == (2, False)
        ended = collected(trials, 2)
        assert {e.trial.number for e in ended} == {0, 1}
        for end in ended:
            assert end.failure is None
            assert end.outcome is not None
            assert end.outcome.evaluation is not None
        assert (trials.n_running, trials.n_task_runs) == (0, 2)
        assert trials.collect(0.01) == []
        trials.submit(Trial(2, draw(quick, 2)).started(), "steps")
        collected(trials, 1)
        assert trials.n_task_runs == 2 + 7  # it and its six steps

    in_flow(quick, body)


@pytest.mark.full
def test_the_worker_that_ran_a_configuration_resumes_it(quick) -> None:
    def body(trials: DaskTrials) -> None:
        queries = {n: replace(draw(quick, n), folds=1) for n in (10, 11)}

        def run(*queries: Query) -> dict[str, str]:
            """Which worker ran which model's configuration."""
            for number, query in enumerate(queries):
                trials.submit(Trial(number, query).started(), "trial")
            ended = collected(trials, len(queries))
            assert all(e.outcome and e.outcome.evaluation for e in ended)
            return {str(e.trial.query.configuration): e.outcome.worker for e in ended if e.outcome}

        first = run(*queries.values())
        assert set(first.values()) == set(addresses(trials))
        for folds in (2, None):
            for query in reversed(queries.values()):
                went_on = run(replace(query, folds=folds))
                assert went_on.items() <= first.items()

    in_flow(quick, body)


def test_the_trial_of_a_killed_worker_is_lost_and_no_other(slow) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 0, 1)
        pid = wait_for(lambda: busy(trials))
        kill(pid)
        (lost,) = collected(trials, 1)
        assert lost.outcome is None
        assert lost.failure is not None
        assert lost.failure.kind == "crashed"
        assert "SIGKILL" in lost.failure.message
        assert lost.failure.cost_seconds > 0
        assert trials.n_running == 1
        wait_for(trials.has_room)
        assert pid not in addresses(trials).values()

    _, flow_run_id = in_flow(slow, body)
    of_trials = [r for r in task_runs(flow_run_id) if r.name.startswith("trial")]
    assert states(of_trials) == {"Crashed": 1, "Cancelled": 1}  # the other one with the flow


def test_where_a_trial_stands_is_known_while_it_runs(slow) -> None:
    def body(trials: DaskTrials) -> None:
        start(trials, slow, 7)
        (before,) = trials.running_trials
        assert (before.number, before.limit_seconds, before.step) == (7, LIMITS.seconds, "")
        assert before.path == draw(slow, 7).configuration.path
        at = wait_for(lambda: trials.running_trials[0].step and trials.running_trials[0])
        assert at.step in [step.name for step in slow.problem.find_space().steps]
        assert at.fold in (0, 1, 2)
        assert before.seconds <= at.seconds < LIMITS.seconds
        trials.cut("it is known")
        assert trials.running_trials == ()

    in_flow(slow, body)


def test_a_trial_over_its_time_is_ended_with_the_reason(slow) -> None:
    def body(trials: DaskTrials) -> str:
        start(trials, slow, 0)
        (ended,) = collected(trials, 1)
        assert ended.failure is not None
        assert ended.failure.kind == "timeout"
        wait_for(trials.has_room)
        return ended.task_run_id

    task_run_id, flow_run_id = in_flow(slow, body, TrialLimits(seconds=0.5))
    (run,) = [r for r in task_runs(flow_run_id) if r.name == "trial 0"]
    assert run.state_name == "TimedOut"
    assert "0.5 s" in run.state.message
    assert run.state.message.endswith("show test --trial 0")
    assert str(run.id) == task_run_id


def test_trials_that_are_cut_are_handed_back_and_their_workers_come_back(slow) -> None:
    def body(trials: DaskTrials) -> None:
        before = addresses(trials)
        start(trials, slow, 0, 1)
        wait_for(lambda: busy(trials))
        cut = trials.cut("enough")
        assert {t.number for t in cut} == {0, 1}
        assert (trials.n_running, trials.n_task_runs) == (0, 0)
        wait_for(lambda: trials._pool.count_slots() == 2)
        assert not set(before.values()) & set(addresses(trials).values())
        assert trials.collect(0.01) == []
        assert trials.cut("nothing is under way") == []

    _, flow_run_id = in_flow(slow, body)
    cancelled = [r for r in task_runs(flow_run_id) if r.name.startswith("trial")]
    assert [(r.state_name, r.state.message) for r in cancelled] == [("Cancelled", "enough")] * 2


@pytest.mark.full
def test_a_study_that_shares_the_workers_does_not_notice_the_death_of_anothers(quick, slow) -> None:
    def body(trials: DaskTrials) -> None:
        trials.prepare_workers()
        with trials.sharing(quick) as one, trials.sharing(slow) as other:
            assert (one.n_slots, other.n_slots) == (1, 1)
            start(other, slow, 0)
            kill(wait_for(lambda: busy(trials)))
            start(one, quick, 0)
            (lost,), (done,) = collected(other, 1), collected(one, 1)
            assert lost.failure is not None
            assert done.outcome is not None
            assert done.outcome.evaluation is not None
            assert one.has_room()
            wait_for(other.has_room)
            start(other, slow, 1)
            assert trials.n_task_runs_of_all == one.n_task_runs + other.n_task_runs == 2
        assert other.n_running == 0

    in_flow(quick, body)


class OwnFuture(Future):
    def release(self) -> None:
        """As Dask's."""


class Pool:
    """Where each task waits until a test ends it."""

    is_short, look_seconds = False, 0.0

    def __init__(self) -> None:
        self.futures: dict[str, Any] = {}
        self.looked_at: list[Any] = []

    def check(self) -> None: ...

    def end(self, futures: Any) -> None: ...

    def submit(self, task: str, *_: Any) -> Any:
        future = SimpleNamespace(task_run_id=uuid4(), wrapped_future=OwnFuture())
        return self.futures.setdefault(task, future)

    def cancel_stranded(self, future: Any) -> None:
        self.looked_at.append(future)

    def finish(self, task: str) -> None:
        self.futures[task].wrapped_future.set_result(Completed(data=task))


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def unsettled(monkeypatch) -> None:
    """No server hears of task runs that are cut."""
    for settle in ("end_task_run", "close_open_runs"):
        monkeypatch.setattr(under_way_module, settle, lambda *_, **__: None)


@pytest.fixture
def tasks(pool, unsettled) -> TasksUnderWay[str]:  # noqa: ARG001
    tasks: TasksUnderWay[str] = TasksUnderWay(pool, uuid4(), NannyReports())
    for name in "ab":
        tasks.submit(name, name, {}, name)
    return tasks


def test_tasks_that_ended_are_collected_once_and_the_others_stay(tasks, pool) -> None:
    pool.finish("b")
    assert [ended.task.subject for ended in tasks.collect(0.0)] == ["b"]
    assert [task.subject for task in tasks] == ["a"]
    assert list(tasks.collect(0.0)) == []


def test_while_none_ends_tasks_whose_worker_is_gone_are_looked_for(tasks, pool) -> None:
    assert list(tasks.collect(0.0)) == []
    assert pool.looked_at == list(pool.futures.values())


def test_a_task_that_ended_before_it_was_cut_is_not_collected(tasks, pool) -> None:
    pool.finish("a")
    assert tasks.cut("enough") == ["a", "b"]
    tasks.submit("c", "c", {}, "c")
    pool.finish("c")
    assert [ended.task.subject for ended in tasks.collect(0.0)] == ["c"]


def test_a_task_cut_between_two_that_are_collected_is_not_collected(tasks, pool) -> None:
    pool.finish("a")
    pool.finish("b")
    collected = tasks.collect(0.0)
    assert next(collected).task.subject == "a"
    assert tasks.cut("the first has failed") == ["b"]
    assert list(collected) == []


class ManySlots(Pool):
    """Slots without workers, which note the threads of what is submitted."""

    n_server_deaths = 0

    def __init__(self, n_slots: int) -> None:
        super().__init__()
        self.n_slots = n_slots
        self.n_threads: list[int] = []

    def count_slots(self) -> int:
        return self.n_slots

    def wait_for_worker(self, check: Any) -> None: ...

    def submit(self, task: Any, parameters: Any, *_: Any) -> Any:  # noqa: ARG002
        self.n_threads.append(parameters["context"].most_threads)
        future = SimpleNamespace(task_run_id=uuid4(), wrapped_future=OwnFuture())
        future.wrapped_future.set_result(Completed(data="done"))
        return future

    @contextmanager
    def reserved(self) -> Iterator[Any]:
        alone = ManySlots(1)
        alone.n_threads = self.n_threads
        yield alone


def trials_on(n_slots: int, cores: int, context: StudyContext) -> tuple[DaskTrials, list[int]]:
    pool = ManySlots(n_slots)
    trials = DaskTrials(cast("Any", pool), context, uuid4(), NannyReports(), cores=cores)
    return trials, pool.n_threads


@pytest.mark.usefixtures("unsettled")
@pytest.mark.parametrize(
    ("n_slots", "cores", "n_threads"),
    [(1, 8, 8), (2, 8, 4), (3, 8, 2), (8, 8, 1), (12, 8, 1), (2, 0, 1)],
)
def test_workers_times_threads_are_at_most_the_cores(n_slots, cores, n_threads, tmp_path) -> None:
    context = context_of(tmp_path)
    trials, submitted = trials_on(n_slots, cores, context)
    trials.submit(Trial(0, draw(context, 0)), "trial")
    with trials.sharing(context) as other:
        other.submit(Trial(1, draw(context, 1)), "trial")
        other.run(SimpleNamespace(name="job"), {"context": context})
    assert submitted == [n_threads] * 3


@pytest.mark.parametrize(("n_jobs", "n_threads"), [(1, 8), (2, 4), (3, 2), (9, 2)])
def test_jobs_share_the_cores_of_all_trials(n_jobs, n_threads, tmp_path) -> None:
    context = context_of(tmp_path)
    trials, submitted = trials_on(4, 8, context)
    trials.run_all([Job(SimpleNamespace(name="job"), {"context": context})] * n_jobs)
    assert submitted == [n_threads] * n_jobs


@pytest.mark.usefixtures("server")
def test_a_flow_takes_the_workers_that_were_started_early_and_leaves_them_up(tmp_path) -> None:
    context = context_of(tmp_path)

    @flow
    def study() -> tuple[list[str], int]:
        with started_pool(context, LIMITS, None, None) as pool:
            return list(pool.client.scheduler_info(n_workers=-1)["workers"]), pool.n_slots

    with workers_started_early(1, None):
        first, second = study(), study()
        assert first == second
        assert first[1] == 1
    with pytest.raises((OSError, TimeoutError)):
        distributed.Client(first[0][0], security=distributed.Security.temporary(), timeout=1)


@pytest.mark.usefixtures("server")
def test_workers_for_one_flow_close_while_it_ends(tmp_path) -> None:
    context = context_of(tmp_path)

    @flow
    def study() -> list[int]:
        with started_pool(context, LIMITS, None, None) as pool:
            pids = list(pool.client.run(os.getpid).values())
        wait_for(lambda: not any(map(is_alive, pids)))
        return pids

    with workers_started_early(1, None, once=True):
        assert len(study()) == 1


def test_nothing_is_started_early_where_a_scheduler_is_named(monkeypatch) -> None:
    monkeypatch.setattr("prefect_tune.flows.workers.clusters.local_cluster", None)
    with workers_started_early(1, "tcp://127.0.0.1:9"):
        pass
