"""One session of a comparison, with one concurrent replicate per slot.

A replicate asks for trials in a thread of the flow's process while its slot waits. It keeps one
core busy, and asks count as its time. Its trials run in a sandbox under limits. Replicates
share no cached artifacts (`StudyContext.cache_area`), so none profits from another.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any
from uuid import UUID

from prefect import task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed

from prefect_tune.flows.comparison.comparison import Comparison, Replicate
from prefect_tune.flows.comparison.replicate import Interrupted, replicate_context, run_replicate
from prefect_tune.flows.interrupts import check_interrupted
from prefect_tune.flows.progress import Observer, Progress
from prefect_tune.flows.run_requests import RunRequests
from prefect_tune.flows.text import Whole
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.server_pace import (
    ServerPace,
    close_previous_flow_run,
    finish_task_runs,
)
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.tasks.prefect_tasks import SHOWN
from prefect_tune.tasks.threads import one_thread

_TICK_SECONDS = 0.5


def run_replicates(comparison: Comparison, to_do: Sequence[Replicate], observer: Observer) -> None:
    """Run replicates in the current flow run; `BadInput` if a study or the cluster is unusable."""
    flow_run_id = UUID(str(flow_run.id))
    for former in {replicate.plan.flow_run_id for replicate in to_do}:
        close_previous_flow_run(former, flow_run_id)
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run_id, name=f"{comparison.name} (compare)")
    comparison.store.sweep()
    options = comparison.options
    with (
        one_thread(),  # so that the asks of a replicate leave the cores to the others
        DaskTrials.started(
            replicate_context(to_do[0]),
            flow_run_id,
            to_do[0].plan.trial_limits(),
            n_workers=options.workers,
            scheduler=options.dask,
        ) as running,
        RunRequests.watched(flow_run_id) as requests,
    ):
        session = _Session(comparison, running, observer, requests)
        pace = _CommonPace(options.task_runs, flow_run_id, observer, count=session.n_task_runs)
        _run_in_threads(session, pace, to_do)
    finish_task_runs(pace, flow_run_id, session.n_task_runs(), observer)
    comparison.store.index.flush()


class _CommonPace(ServerPace):
    """Pace shared by all replicates: each waits if the server cannot keep up with all of them."""

    def __init__(self, *args: Any, count: Callable[[], int]) -> None:
        super().__init__(*args)
        self._lock, self._count = Lock(), count

    def may_submit(self, n_reported: int) -> bool:  # noqa: ARG002 - counts one replicate only
        """Return whether the server has almost caught up with the task runs of all replicates."""
        with self._lock:
            return super().may_submit(self._count())


@dataclass
class _Session:
    comparison: Comparison
    running: DaskTrials
    observer: Observer
    requests: RunRequests
    stop: Event = field(default_factory=Event)
    progress_by_study: dict[str, Progress] = field(default_factory=dict)
    n_ended: int = 0
    warned: set[str] = field(default_factory=set)

    def warn(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self.observer.warn(text)

    def n_task_runs(self) -> int:
        return self.n_ended + self.running.n_task_runs_of_all

    def progress(self, n_replicates: int, n_threads: int) -> Progress:
        all_progress = list(self.progress_by_study.values())
        plan = self.comparison.replicates[0].plan
        seconds, trials = plan.options.budget, plan.options.trials
        return Progress(
            study=self.comparison.name,
            metric=plan.metric,
            n_trials=sum(p.n_trials for p in all_progress),
            n_failed=sum(p.n_failed for p in all_progress),
            n_running=sum(p.n_running for p in all_progress),
            trials_total=None if trials is None else trials * n_replicates,
            seconds=sum(p.seconds for p in all_progress) / n_threads,
            seconds_total=None if seconds is None else seconds * n_replicates / n_threads,
            incumbent=None,
            cache_hits=sum(p.cache_hits for p in all_progress),
            seconds_saved=sum(p.seconds_saved for p in all_progress),
            whole=Whole(None, None),
            n_stopped=sum(p.n_stopped for p in all_progress),
            n_begun=sum(p.n_begun for p in all_progress),
            can_go_on=any(p.can_go_on for p in all_progress),
        )


class _Job:
    """Runs and observes one replicate; a plain class, so that Prefect does not inspect it."""

    def __init__(self, session: _Session, pace: ServerPace, replicate: Replicate) -> None:
        self.session, self.pace, self.replicate = session, pace, replicate
        self.label, self.repeat = replicate.entrant.label, replicate.repeat
        self.error: Exception | None = None

    def note(self, text: str) -> None:
        self.session.observer.note(f"{self.label}, repeat {self.repeat}: {text}")

    def warn(self, text: str) -> None:
        self.session.warn(text)

    def check(self) -> None:
        if self.session.stop.is_set():
            raise Interrupted

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Do nothing: single trials are too many to show."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        self.session.progress_by_study[progress.study] = progress
        self.check()

    def run(self) -> None:
        """Run the replicate as a task run."""
        search_replicate(self.label, self.repeat, self, return_state=True)

    def fail(self, error: Exception) -> None:
        self.error = error
        self.session.stop.set()


def _run_in_threads(session: _Session, pace: ServerPace, to_do: Sequence[Replicate]) -> None:
    """Run one replicate per slot; end all if one fails or the flow is interrupted."""
    n_threads = min(session.running.n_slots, len(to_do))
    n_all = len(session.comparison.replicates)
    session.observer.note(f"running {len(to_do)} of {n_all} replicates, {n_threads} at a time")
    with ThreadPoolExecutor(n_threads, thread_name_prefix="replicate") as threads:
        jobs = [_Job(session, pace, replicate) for replicate in to_do]
        under_way = [threads.submit(copy_context().run, job.run) for job in jobs]
        try:
            while wait(under_way, timeout=_TICK_SECONDS).not_done and not session.stop.is_set():
                check_interrupted()
                session.observer.tick(session.progress(len(to_do), n_threads))
        finally:
            session.stop.set()
    for job in jobs:
        if job.error is not None:
            raise job.error
    session.requests.obey()
    for ended in under_way:
        ended.result()  # raises an error of Prefect's engine


@task(name="run", task_run_name="{label}, repeat {repeat}", **SHOWN)
def search_replicate(label: str, repeat: int, job: _Job) -> State[None]:  # noqa: ARG001 - names
    """Search with one method in one repeat, then score its incumbents on the test rows."""
    session = job.session
    if session.stop.is_set() or session.requests.is_suspended or session.requests.is_ended:
        return Cancelled(message="not started")
    try:
        with session.running.sharing(replicate_context(job.replicate)) as running:
            message = run_replicate(job.replicate, running, job.pace, job, session.requests)
    except (Interrupted, KeyboardInterrupt):
        return Cancelled(message="interrupted; the comparison can be resumed")
    except Exception as error:
        job.fail(error)
        raise
    session.n_ended += 1
    return Completed(message=message) if message else Failed(message="no trial was completed")
