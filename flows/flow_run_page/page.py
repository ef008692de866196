"""Follows a study, and keeps the page of its flow run up to date, in a thread of its own.

A server that is slow or away holds up nothing but that thread; at the end it is waited for a
moment.
"""

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
from prefect_tune.flows.flow_run_page.summary import MOST_REASONS, Account, short, summary
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
"""Of the time since the start, between two updates."""
_LAST_SECONDS, _CUT_SECONDS = 10.0, 2.0
"""Longest wait for the last update, and where the flow was cut."""
_AWAY_SECONDS = 1.0
"""Longest wait for it where the update before has failed."""


@contextmanager
def shown_on_page(
    study: Study, observer: Observer, progress: Progress, outage: OutageNote
) -> Iterator["FlowRunPage"]:
    """Keep the page of the current flow run up to date in the body.

    Args:
        study: The study.
        observer: Whoever follows it besides.
        progress: Where it stands now.
        outage: Says once that the server is away.

    Yields:
        The page, which follows the study and tells `observer` all that it is told.
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
    """The content of a page; changed by the flow, read by the thread, each with the lock.

    Attributes:
        account: Of the study, but for the failures.
        table: Rows of the trials.
        failures: Failed trials by reason.
    """

    account: Account
    table: TrialsTable
    failures: FailureGroups = field(default_factory=FailureGroups)


class FlowRunPage:
    """The page of a flow run, as an observer of its study.

    Args:
        study: The study.
        observer: Whoever follows it besides.
        progress: Where it stands now.
        outage: Says once that the server is away.

    Attributes:
        state: The state that it is to show at the end; interrupted if nobody says another.
        result: The summary that it is to show at the end.
    """

    def __init__(
        self, study: Study, observer: Observer, progress: Progress, outage: OutageNote
    ) -> None:
        plan = study.plan
        account = Account(
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
        self._shown, self._lock = _Shown(account, table), Lock()
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
        """Begin to publish."""
        self._thread.start()

    def note(self, text: str) -> None:
        """Pass on a note."""
        self._observer.note(text)

    def warn(self, text: str) -> None:
        """Pass on a warning."""
        self._observer.warn(text)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Take a trial that has ended."""
        with self._lock:
            self._take(trial)
        self._see(progress)
        self._observer.ended(trial, progress)

    def tick(self, progress: Progress) -> None:
        """Take where the study stands, and say once where that cannot be shown."""
        self._see(progress)
        if self._error is not None:
            self._outage.say(self._error)
        self._observer.tick(progress)

    def end(self, seconds: float) -> None:
        """Publish for the last time, and wait for that at most so long.

        Where the server was away just now, it is hardly waited for.
        """
        if self._error is not None:
            seconds = min(seconds, _AWAY_SECONDS)
        with self._lock:
            account = self._shown.account
            last = replace(account.progress, running=(), n_running=0, seconds_left=None)
            self._shown.account = replace(
                account, progress=last, state=self.state, result=self.result
            )
        self._ended.set()
        self._thread.join(seconds)
        if self._error is not None:
            self._outage.say(self._error)

    def _take(self, trial: Trial) -> None:
        """Take a trial; one that cannot be shown is left out."""
        try:
            url = _task_run_url(self._study.task_run_ids.get(trial.number))
            self._shown.table.add(trial, url)
            self._shown.failures.add(trial.number, trial.failure)
        except Exception as error:  # a study does not depend on what Prefect shows
            self._error = error

    def _see(self, progress: Progress) -> None:
        with self._lock:
            self._shown.account = replace(self._shown.account, progress=progress)

    def _keep(self) -> None:
        """Publish now and then until the study has ended, and once more."""
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
                self._key = self._key or _base_name(self._study.name)
                publisher.publish(*self._pages())
                self._error = None
            except Exception as error:  # a study does not depend on what Prefect shows
                self._error = error

    def _pages(self) -> tuple[Page, ...]:
        with self._lock:
            rows, groups = self._shown.table.rows(), self._shown.failures.found()
            account = replace(self._shown.account, failures=tuple(groups))
        last = [group.trials[-1] for group in groups[:MOST_REASONS]]
        urls = {n: _task_run_url(self._study.task_run_ids.get(n)) for n in last}
        account = replace(account, task_run_urls=urls)
        said, n_trials = short(account), account.progress.n_trials
        listed = f"all {n_trials:,} trials, the newest first"
        if len(rows) < n_trials:
            listed = f"{len(rows):,} of {n_trials:,} trials: the newest, best and last failed ones"
        return (
            Page(artifact_key(self._key, "summary"), "markdown", summary(account), said),
            Page(artifact_key(self._key, "trials"), "table", json.dumps(rows), listed),
            Page(artifact_key(self._key, "progress"), "progress", _percent(account), said),
        )


def _task_run_url(task_run_id: str | None) -> str:
    """Return where Prefect shows a task run; empty where that is not known."""
    try:
        return (url_for("task-run", obj_id=task_run_id) if task_run_id else None) or ""
    except Exception:  # of settings that name no address; the trial is shown without a link
        return ""


def _base_name(study: str) -> str:
    """Return the name that artifacts of a study go by.

    A study that is named by its flow run is one night of a deployment, whose nights are versions of
    one thing.
    """
    is_of_night = deployment.id and study == str(flow_run.id)
    return f"{flow_run.flow_name}-{deployment.name}" if is_of_night else study


def _percent(account: Account) -> float:
    """Return how much of the search is done, by what bounds it and is nearest to its end."""
    progress = account.progress
    if account.state == "complete":
        return 100.0
    shares = [0.0]
    if progress.seconds_total:
        shares.append(progress.seconds / progress.seconds_total)
    if progress.trials_total:
        shares.append((progress.n_begun - progress.n_running) / progress.trials_total)
    return round(100 * min(max(shares), 0.99), 1)
