"""The flow `compare`: each method runs as a study of its own, with one worker and an empty cache.

As many runs go on at the same time as there are workers. A run's asks happen in a thread of the
flow's process while its worker waits, so that a run keeps one core busy and its asks count as its
time; its trials happen on a worker process, where the limits of trials are kept. What a run has
cached serves no other run (`StudyContext.cache_area`), or the second method would live off the
first one's work.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Any
from uuid import UUID

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import deployment, flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from prefect_tune.flows.comparison.comparison import (
    Comparison,
    Run,
    current_comparison,
    prepare_comparison,
)
from prefect_tune.flows.comparison.curves import TEST_LOSSES, curve_of
from prefect_tune.flows.comparison.standings import FRACTIONS, state_at
from prefect_tune.flows.preparation.options import COMPARE_OPTIONS, documented
from prefect_tune.flows.progress import Observer, Progress, current_observer
from prefect_tune.flows.search import Limits, search
from prefect_tune.flows.session import bury_former_run
from prefect_tune.flows.study.study import Study, StudyFailed
from prefect_tune.flows.units import format_seconds
from prefect_tune.flows.workers.dask_trials import DaskTrials
from prefect_tune.flows.workers.reaping import reap
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.database import StoreLost
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.problem import Problem
from prefect_tune.tasks.refit import refit
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.worker.dask_runner import drain_events

__all__ = ["compare"]

_TICK_SECONDS = 0.5
_REFIT_TIMES = 3
"""How many times as long as a trial a fit on all training rows may take."""


@flow(name="compare", persist_result=False)
@partial(documented, options=COMPARE_OPTIONS)
def compare(  # noqa: PLR0917 - flat parameters make the form of a deployment
    data: str = "cohort:demo",
    target: str | None = None,
    labels: str | None = None,
    format: str | None = None,  # noqa: A002 - the option's name
    test: str | None = None,
    test_size: float | None = None,
    folds: int | None = None,
    holdout: float | None = None,
    group: str | None = None,
    drop: list[str] | None = None,
    categorical: list[str] | None = None,
    drop_missing_target: bool = False,
    methods: str | None = None,
    repeats: int | None = None,
    space: str | None = None,
    metric: str | None = None,
    positive: str | None = None,
    seed: int | None = None,
    trials: int | None = None,
    budget: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    cache_budget: str | None = None,
    eviction: str | None = None,
    no_cache: bool = False,
    task_runs: str | None = None,
    out: str | None = None,
) -> dict[str, Any]:
    """Compare methods of search on the same data, folds and seeds, at equal time or equal trials.

    Returns:
        What `prefect-tune compare --json` prints.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used, before any work starts.
        StudyFailed: If not a single trial was completed.
    """
    comparison = current_comparison()
    if comparison is None:
        default_name = str(flow_run.id) if deployment.id else None
        comparison = prepare_comparison(locals(), default_name)
        for note in comparison.notes:
            current_observer().note(note)
    to_do = [run for run in comparison.runs if not run.is_done]
    if to_do:
        _run_all(comparison, to_do)
    if open_runs := [run.prepared.study for run in to_do if not run.has_ended]:
        raise StudyFailed(
            f"{len(open_runs)} runs have not ended ({', '.join(open_runs[:3])}); the same command "
            f"with {comparison.again} goes on with them"
        )
    if comparison.curves()["incumbent"].isna().all():
        raise StudyFailed(f"comparison {comparison.name!r} ended without a completed trial")
    return comparison.outcome()


class _Interrupted(Exception):  # noqa: N818 - it says what happened
    """Another run has failed, or the flow is to end."""


class _CommonPace(ServerPace):
    """Has all runs wait when the server cannot keep up with all of them together."""

    def __init__(self, *args: Any, count: Callable[[], int]) -> None:
        super().__init__(*args)
        self._lock, self._count = Lock(), count

    def may_submit(self, n_reported: int) -> bool:  # noqa: ARG002 - of one run alone
        """Whether the server is near enough to what all runs have reported."""
        with self._lock:
            return super().may_submit(self._count())


@dataclass
class _Session:
    """What all runs of one flow run share."""

    comparison: Comparison
    running: DaskTrials
    observer: Observer
    stop: Event = field(default_factory=Event)
    standing: dict[str, Progress] = field(default_factory=dict)
    n_runs_ended: int = 0

    def n_task_runs(self) -> int:
        """Task runs that the server should have, or get."""
        return self.n_runs_ended + self.running.n_task_runs_of_all


class _RunObserver:
    """Speaks for one run, and ends it when it is told to."""

    def __init__(self, session: _Session, run: Run) -> None:
        self._session, self._run = session, run

    def note(self, text: str) -> None:
        """One line, with the run that it is about."""
        who = f"{self._run.entrant.label}, repeat {self._run.repeat}"
        self._session.observer.note(f"{who}: {text}")

    def check(self) -> None:
        """End the run if it is to end.

        Raises:
            _Interrupted: If it is.
        """
        if self._session.stop.is_set():
            raise _Interrupted

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Nothing: there are too many."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Note where the run stands.

        Raises:
            _Interrupted: If it is to end.
        """
        self._session.standing[progress.study] = progress
        self.check()


def _run_all(comparison: Comparison, to_do: Sequence[Run]) -> None:
    """Run what is left to do, as many runs at the same time as there are workers.

    Raises:
        BadInput: If another process runs one of the studies, or the cluster cannot be used.
    """
    observer, flow_run_id = current_observer(), UUID(str(flow_run.id))
    ledger = Ledger(comparison.store.database)
    studies = [ledger.study(run.prepared.study) for run in to_do]
    for former in {stored.settings.get("flow_run_id") for stored in studies if stored}:
        bury_former_run(former, flow_run_id)
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run_id, name=f"{comparison.name} (compare)")
    comparison.store.sweep()
    with (
        one_thread(),  # or the asks of one run would take the cores of the others
        DaskTrials.started(
            _context(to_do[0]),
            flow_run_id,
            to_do[0].prepared.trial_limits,
            n_workers=comparison.settings.workers,
            scheduler=comparison.settings.dask,
        ) as running,
    ):
        running.prepare_workers()
        session = _Session(comparison, running, observer)
        pace = _CommonPace(
            comparison.settings.task_runs, flow_run_id, observer, count=session.n_task_runs
        )
        _run_in_threads(session, pace, to_do)
    drain_events()
    missing = pace.wait_until_recorded(session.n_task_runs())
    if missing:
        observer.note(f"the Prefect server has not recorded {missing} task runs")
    reap(flow_run_id, Crashed(message="its process ended before it did"))
    comparison.store.index.flush()


def _run_in_threads(session: _Session, pace: ServerPace, to_do: Sequence[Run]) -> None:
    """One thread per worker; when a run cannot go on, or we are interrupted, all end."""
    n_threads = min(session.running.n_slots, len(to_do))
    n_all = len(session.comparison.runs)
    session.observer.note(f"{len(to_do)} of {n_all} runs to do, {n_threads} at the same time")
    with ThreadPoolExecutor(n_threads, thread_name_prefix="run") as threads:
        jobs = [_Job(session, pace, run) for run in to_do]
        under_way = [threads.submit(copy_context().run, _start, job) for job in jobs]
        try:
            while wait(under_way, timeout=_TICK_SECONDS).not_done and not session.stop.is_set():
                session.observer.tick(_progress(session, len(to_do), n_threads))
        finally:
            session.stop.set()
    for job in jobs:
        if job.error is not None:
            raise job.error


def _start(job: "_Job") -> None:
    """Have a run be a task run, and go on whatever its state."""
    run = job.run
    search_run(run.entrant.label, run.repeat, job, return_state=True)


class _Job:
    """A run with what it needs; a plain class, so that Prefect does not look inside."""

    __slots__ = ("context", "error", "pace", "run", "session")

    def __init__(self, session: _Session, pace: ServerPace, run: Run) -> None:
        self.session, self.pace, self.run = session, pace, run
        self.context = _context(run)
        self.error: Exception | None = None


@task(
    name="run", task_run_name="{label}, repeat {repeat}", cache_policy=NO_CACHE,
    persist_result=False,
)  # fmt: skip
def search_run(label: str, repeat: int, job: _Job) -> State[None]:  # noqa: ARG001 - they name it
    """Search with one method in one repeat, then score its incumbents on the test rows.

    Args:
        label: The method, for the name of the task run.
        repeat: Number of the repeat, likewise.
        job: The run.
    """
    if job.session.stop.is_set():
        return Cancelled(message="not started")
    try:
        message = _searched(job)
    except _Interrupted:
        return Cancelled(message="interrupted; the comparison can be continued")
    except Exception as error:
        job.error = error
        job.session.stop.set()
        raise
    job.session.n_runs_ended += 1
    return Completed(message=message) if message else Failed(message="no trial was completed")


def _searched(job: _Job) -> str:
    """Search and score; what came of it, as people say it, or nothing."""
    session, prepared = job.session, job.run.prepared
    observer = _RunObserver(session, job.run)
    with (
        Study.opened(prepared.store, prepared.study) as study,
        session.running.sharing(job.context) as running,
    ):
        settings = {**prepared.resolved, "flow_run_id": str(flow_run.id)}
        study.ledger.update_study(study.name, settings=settings, state="running")
        limits = Limits(prepared.trials, prepared.budget_seconds)
        try:
            with study.session():
                search(study, running, limits, job.pace, observer)
            study.set_result(decisions=study.optimizer.decisions)
            _score(study, running, job, observer)
        except BaseException:
            study.set_state("interrupted")
            raise
        if study.incumbent is None:
            study.set_state("failed")
            observer.note(f"no trial was completed: {study.most_frequent_failure()}")
            return ""
        study.set_state("complete")
        message = _message(study)
        observer.note(message)
        return message


def _score(study: Study, running: DaskTrials, job: _Job, observer: _RunObserver) -> None:
    """Fit the incumbents of fixed times on all training rows, and score them on the test rows.

    The last one stays the study's model. One that could not be fitted has no test loss, which
    counts as the worst; it is tried again when the comparison is continued.

    Raises:
        StoreLost: If the store cannot go on.
        _Interrupted: If the flow is to end.
    """
    stored = study.ledger.study(study.name)
    assert stored is not None  # noqa: S101 - it is ours
    curve = curve_of(study.ledger, stored, comparison="", method="", repeat=0)
    states = [state_at(curve, fraction)["incumbent"] for fraction in FRACTIONS]
    incumbents = sorted({int(number) for state in states for number in state.dropna()})
    losses = dict(study.result.get(TEST_LOSSES, {}))
    limit_seconds = _REFIT_TIMES * job.run.prepared.trial_limits.seconds
    for number in incumbents:
        if losses.get(str(number)) is not None:
            continue
        members = [{"number": number, "query": study.trials[number].query.to_json(), "weight": 1}]
        parameters = {"number": number, "members": members, "context": job.context}
        try:
            observer.check()
            refitted = running.run(
                refit, parameters, limit_seconds=limit_seconds, check=observer.check
            )
        except (StoreLost, _Interrupted):
            raise
        except Exception as error:  # as of a trial: what goes wrong is a result
            observer.note(f"trial {number} could not be fitted on all training rows: {error}")
            losses[str(number)] = None
            study.set_result(**{TEST_LOSSES: losses, "members": None, "test_loss": None})
            continue
        losses[str(number)] = refitted.test_loss
        study.set_result(
            **{TEST_LOSSES: losses},
            members=[{"trial": number, "weight": 1}],
            test_loss=refitted.test_loss,
            refit_seconds=refitted.seconds,
        )


def _message(study: Study) -> str:
    """What came of a run."""
    assert study.incumbent is not None  # noqa: S101 - no message without one
    trials = study.trials.values()
    told, failed = sum(t.is_told for t in trials), sum(t.failure is not None for t in trials)
    test = study.result.get("test_loss")
    return (
        f"{study.problem.metric} {study.incumbent.loss:.4g}"
        + (f", on the test rows {test:.4g}" if test is not None else "")
        + f"; {told} trials, {failed} failed, in {format_seconds(study.seconds)} "
        f"({format_seconds(study.ask_seconds)} of asking)"
    )


def _context(run: Run) -> StudyContext:
    """What the workers need for a run; its cached artifacts are its own."""
    prepared = run.prepared
    stored = Ledger(prepared.store.database).study(prepared.study)
    assert stored is not None  # noqa: S101 - it was prepared
    return StudyContext(
        prepared.study,
        Problem.from_json(stored.problem),
        prepared.store.address,
        use_cache=prepared.settings.use_cache,
        memory_limit_bytes=prepared.trial_limits.memory_bytes,
        cache_area=prepared.study,
    )


def _progress(session: _Session, n_runs: int, n_threads: int) -> Progress:
    """Where all runs of this session stand together."""
    standing = list(session.standing.values())
    first = session.comparison.runs[0].prepared
    share = n_runs / n_threads
    seconds, trials = first.budget_seconds, first.trials
    return Progress(
        study=session.comparison.name,
        metric=first.resolved["metric"],
        unit="",
        n_trials=sum(p.n_trials for p in standing),
        n_failed=sum(p.n_failed for p in standing),
        n_running=sum(p.n_running for p in standing),
        trials_total=None if trials is None else trials * n_runs,
        seconds=sum(p.seconds for p in standing) / n_threads,
        seconds_total=None if seconds is None else seconds * share,
        incumbent=None,
        cache_hits=sum(p.cache_hits for p in standing),
        seconds_saved=sum(p.seconds_saved for p in standing),
    )
