"""Runs the studies of a comparison, several at a time, each in its own flow run.

Each study has one worker. Methods propose trials in threads of the flow's process, and the time for
proposals counts as study time. Studies share no cached step results, so no study benefits from
another study.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from threading import Event
from uuid import UUID

from dask.system import CPU_COUNT
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from prefect_tune.flows.comparison.comparison import Comparison, Replicate
from prefect_tune.flows.running.interrupts import INTERRUPTED, check_interrupted
from prefect_tune.flows.running.run_requests import RunRequests
from prefect_tune.flows.starting.prepare import HANDOVER
from prefect_tune.flows.study.progress import (
    LoggingObserver,
    Progress,
    current_observer,
    observed_by,
)
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tune import tune
from prefect_tune.flows.wording.text import LossWords, format_seconds
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.tasks.sandbox.dask_runner import end_sandboxes
from prefect_tune.tasks.threads import one_thread

_TICK_SECONDS = 0.5


def run_replicates(comparison: Comparison, to_do: Sequence[Replicate]) -> None:
    """Run replicates from the current flow run; after an error, end all replicates.

    A replicate that ends without a model only causes a note. Raises the first error, and `Pause` or
    `Abort` if the flow run was suspended or cancelled.
    """
    flow_run_id = UUID(str(flow_run.id))
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run_id, name=f"{comparison.name} (compare)")
    n_at_once = min(comparison.options.workers or CPU_COUNT, len(to_do))
    common, n_all = _CommonObserver(), len(comparison.replicates)
    common.observer.note(f"running {len(to_do)} of {n_all} studies, {n_at_once} at a time")
    try:
        with (
            one_thread(),  # proposals of a method leave the cores to other studies
            RunRequests.watched(flow_run_id) as requests,
            ThreadPoolExecutor(n_at_once, thread_name_prefix="replicate") as threads,
        ):
            stop = Event()
            running = [
                threads.submit(copy_context().run, _run, replicate, common, requests, stop)
                for replicate in to_do
            ]
            try:
                while wait(running, timeout=_TICK_SECONDS).not_done and not _errors(running):
                    check_interrupted()
                    if requests.is_ended or requests.is_suspended:
                        break
            finally:
                stop.set()
    finally:
        asyncio.run(end_sandboxes())
    for error in _errors(running):
        raise error
    requests.obey()


def _run(
    replicate: Replicate, common: "_CommonObserver", requests: RunRequests, stop: Event
) -> None:
    INTERRUPTED.set(stop)  # affects only the study of this thread
    check_interrupted()
    requests.obey()
    prepared = replace(replicate.prepared, has_shown_notes=True)
    parameters = dict(replicate.parameters)
    with observed_by(common), HANDOVER.offered(parameters, prepared):
        try:
            found = tune(**parameters)
        except StudyFailed as failed:
            text = str(failed)
        else:
            losses, seconds = LossWords(found["metric"]), format_seconds(found["seconds"]["total"])
            tested = losses.named(found["test_loss"])
            text = f"{tested} on the test rows, {found['n_trials']} trials in {seconds}"
    common.end(prepared.name, f"{replicate.entrant.label}, repeat {replicate.repeat}: {text}")


def _errors(running: Sequence[Future[None]]) -> list[Exception]:
    """Return the errors so far, without interrupts and requests from Prefect."""
    ended = (future.exception() for future in running if future.done())
    return [error for error in ended if isinstance(error, Exception)]


class _CommonObserver(LoggingObserver):
    """Observer of all studies in a comparison.

    Notes go to the log of each study's flow run. Warnings, and the progress of one study at a time,
    go to the observer of the comparison.
    """

    def __init__(self) -> None:
        self.observer = current_observer()
        self.shown = ""
        self._warned: set[str] = set()

    def warn(self, text: str) -> None:
        """Show a warning only once for all studies."""
        if text not in self._warned:
            self._warned.add(text)
            self.observer.warn(text)

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Show only the progress, because a comparison has too many trials to show."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Show the progress of one study at a time."""
        self.shown = self.shown or progress.study
        if self.shown == progress.study:
            self.observer.tick(progress)

    def end(self, study: str, text: str) -> None:
        """Show the result of a study that has ended."""
        self.observer.note(text)
        if self.shown == study:
            self.shown = ""
