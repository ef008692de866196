"""The page of a flow run in Prefect, updated in its own thread because servers may be slow."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from threading import Event, Lock, Thread
from time import monotonic
from uuid import UUID

from prefect.runtime import deployment, flow_run
from prefect.utilities.urls import url_for

from prefect_tune.flows.flow_run_page.publishing import Page, Publisher, artifact_key
from prefect_tune.flows.flow_run_page.summary import MOST_REASONS, PageState, one_line, summary
from prefect_tune.flows.flow_run_page.trials_table import TrialsTable
from prefect_tune.flows.progress import Observer, Progress
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.text import FailureGroups
from prefect_tune.flows.workers.server_pace import OutageNote
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_SECONDS, _MOST_SECONDS = 5.0, 30.0
_SHARE = 0.01
"""Interval between updates as a share of the time since the start."""
_LAST_SECONDS, _CUT_SECONDS = 10.0, 2.0
"""Longest wait for the last update: at a regular end, and if the flow was interrupted."""
_AWAY_SECONDS = 1.0
"""Longest wait for the last update if the previous update failed."""


@contextmanager
def shown_on_page(
    study: Study, observer: Observer, progress: Progress, outage: OutageNote
) -> Iterator["FlowRunPage"]:
    """Yield the page of the current flow run, an observer, and keep it up to date during the body.

    The page passes everything on to `observer`; `outage` reports an unreachable server.
    """
    page = FlowRunPage(study, observer, progress, outage)
    page.start()
    try:
        yield page
    except BaseException:
        page.end(_CUT_SECONDS)
        raise
    page.end(_LAST_SECONDS)


@dataclass
class _Shown:
    """Content of a page; the flow writes it and the thread reads it, each holding the lock."""

    page_state: PageState
    table: TrialsTable
    failures: FailureGroups = field(default_factory=FailureGroups)


class FlowRunPage:
    """The page of a flow run, as an observer of its study."""

    def __init__(
        self, study: Study, observer: Observer, progress: Progress, outage: OutageNote
    ) -> None:
        plan = study.plan
        page_state = PageState(
            progress=progress,
            method=plan.method,
            space=plan.space,
            data=plan.data_name,
            chance_loss=plan.chance_loss,
            store_options=store_options(study.store.address),
        )
        self.state = "interrupted"
        self.result: StudyView | None = None
        self._study, self._observer, self._outage = study, observer, outage
        table = TrialsTable(plan.whole, [bound.constraint for bound in plan.options.bounds])
        self._shown, self._lock = _Shown(page_state, table), Lock()
        self._key = ""
        self._error: Exception | None = None
        self._ended = Event()
        self._thread = Thread(
            target=copy_context().run, args=(self._keep,), daemon=True, name="flow run page"
        )
        for trial in study.trials.values():
            if trial.is_told:
                self._take(trial)

    def start(self) -> None:
        """Start publishing."""
        self._thread.start()

    def note(self, text: str) -> None:
        """Pass on a note."""
        self._observer.note(text)

    def warn(self, text: str) -> None:
        """Pass on a warning."""
        self._observer.warn(text)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Add a trial that has ended."""
        with self._lock:
            self._take(trial)
        self._see(progress)
        self._observer.ended(trial, progress)

    def tick(self, progress: Progress) -> None:
        """Update the progress; report once if the page cannot be published."""
        self._see(progress)
        if self._error is not None:
            self._outage.say(self._error)
        self._observer.tick(progress)

    def end(self, seconds: float) -> None:
        """Publish for the last time; wait at most `seconds`, or less without a server."""
        if self._error is not None:
            seconds = min(seconds, _AWAY_SECONDS)
        with self._lock:
            page_state = self._shown.page_state
            last = replace(page_state.progress, running=(), n_running=0, seconds_left=None)
            self._shown.page_state = replace(
                page_state, progress=last, state=self.state, result=self.result
            )
        self._ended.set()
        self._thread.join(seconds)
        if self._error is not None:
            self._outage.say(self._error)

    def _take(self, trial: Trial) -> None:
        try:
            url = _task_run_url(self._study.task_run_ids.get(trial.number))
            self._shown.table.add(trial, url)
            self._shown.failures.add(trial.number, trial.failure)
        except Exception as error:  # a study does not depend on what Prefect shows
            self._error = error

    def _see(self, progress: Progress) -> None:
        with self._lock:
            self._shown.page_state = replace(self._shown.page_state, progress=progress)

    def _keep(self) -> None:
        """Publish periodically until the study has ended, then once more."""
        try:
            with closing(Publisher(UUID(str(flow_run.id)))) as publisher:
                self._publish(publisher)
        except Exception as error:  # a study does not depend on what Prefect shows
            self._error = error

    def _publish(self, publisher: Publisher) -> None:
        since, is_last = monotonic(), False
        while not is_last:
            waits = min(max(_SHARE * (monotonic() - since), _LEAST_SECONDS), _MOST_SECONDS)
            is_last = self._ended.wait(waits)
            try:
                self._key = self._key or _base_name(self._study)
                publisher.publish(*self._pages())
                self._error = None
            except Exception as error:  # a study does not depend on what Prefect shows
                self._error = error

    def _pages(self) -> tuple[Page, ...]:
        with self._lock:
            rows, groups = self._shown.table.rows(), self._shown.failures.found()
            page_state = replace(self._shown.page_state, failures=tuple(groups))
        last = [group.trials[-1] for group in groups[:MOST_REASONS]]
        urls = {n: _task_run_url(self._study.task_run_ids.get(n)) for n in last}
        page_state = replace(page_state, task_run_urls=urls)
        line, n_trials = one_line(page_state), page_state.progress.n_trials
        listed = f"all {n_trials:,} trials, newest first"
        if len(rows) < n_trials:
            listed = f"{len(rows):,} of {n_trials:,} trials: newest, best and latest failures"
        return (
            Page(artifact_key(self._key, "summary"), "markdown", summary(page_state), line),
            Page(artifact_key(self._key, "trials"), "table", json.dumps(rows), listed),
            Page(artifact_key(self._key, "progress"), "progress", _percent(page_state), line),
        )


def _task_run_url(task_run_id: str | None) -> str:
    try:
        return (url_for("task-run", obj_id=task_run_id) if task_run_id else None) or ""
    except Exception:  # settings without an address; the trial is shown without a link
        return ""


def _base_name(study: Study) -> str:
    """Return the base of artifact keys, which runs of a series or of a deployment share.

    Prefect then shows their artifacts as versions of one artifact.
    """
    if study.plan.options.series is not None:
        return study.plan.options.series
    is_of_night = deployment.id and not flow_run.parameters.get("study")
    return f"{flow_run.flow_name}-{deployment.name}" if is_of_night else study.name


def _percent(page_state: PageState) -> float:
    """Return the finished share of the search, measured by its closest bound."""
    progress = page_state.progress
    if page_state.state == "complete":
        return 100.0
    shares = [0.0]
    if progress.seconds_total:
        shares.append(progress.seconds / progress.seconds_total)
    if progress.trials_total:
        shares.append((progress.n_begun - progress.n_running) / progress.trials_total)
    return round(100 * min(max(shares), 0.99), 1)
