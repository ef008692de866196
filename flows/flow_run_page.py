"""A study in Prefect: artifacts on the page of its flow run, and events for automations."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from hashlib import sha256
from threading import Thread
from time import monotonic
from typing import Any, Literal
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.events import emit_event
from prefect.runtime import deployment, flow_run
from prefect.settings import get_current_settings

from prefect_tune.flows.reading.study_lines import next_commands, study_lines
from prefect_tune.flows.reading.study_view import StudyView, read_study
from prefect_tune.flows.study.progress import Observer, Progress
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.wording.text import block, bracketed, escaped
from prefect_tune.flows.workers.server_pace import OutageNote
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked_values

_LEAST_SECONDS = 5.0
"""Shortest interval between updates of the page."""
_SHARE = 0.01
"""Largest share of the time that updates may take, because each update reads the study."""
_LAST_SECONDS, _CUT_SECONDS = 10.0, 2.0
"""Maximum wait for the last update, at a normal end and after an interrupt."""
_DIGEST = 6
_LONGEST = 2_000
"""Maximum number of characters of a text in an event."""
_LOGGER = logging.getLogger(__name__)


def artifact_key(name: str, part: str) -> str:
    """Return the Prefect artifact key for a part of the page that shows the study `name`.

    >>> artifact_key("responders", "summary"), artifact_key("A.b", "summary")
    ('responders-summary', 'a-b-4ff54a-summary')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if plain != name:  # keeps `a.b` and `a_b` from sharing an artifact
        plain = f"{plain}-{sha256(name.encode()).hexdigest()[:_DIGEST]}".lstrip("-")
    return f"{plain}-{part}"


@dataclass
class RunArtifact:
    """A Prefect artifact of a flow run; `kind` is `markdown` or `progress`."""

    key: str
    kind: str
    _artifact_id: UUID | None = None

    def publish(self, data: str | float, description: str) -> None:
        """Create or update the artifact; `description` is plain text."""
        line = escaped(description)
        with get_client(sync_client=True) as client:
            if self._artifact_id is not None:
                update = ArtifactUpdate(data=data, description=line)
                client.update_artifact(self._artifact_id, update)
                return
            made = ArtifactCreate(
                key=self.key,
                type=self.kind,
                data=data,
                description=line,
                flow_run_id=UUID(str(flow_run.id)),
            )
            self._artifact_id = client.create_artifact(made).id


@contextmanager
def shown_on_page(
    study: Study, observer: Observer, progress: Progress, outage: OutageNote
) -> Iterator["FlowRunPage"]:
    """Yield an observer that publishes the current flow run's page during the `with` block."""
    page = FlowRunPage(study, observer, progress, outage)
    page.update()
    try:
        yield page
    except BaseException:
        page.update(wait_seconds=_CUT_SECONDS)
        raise
    page.update(wait_seconds=_LAST_SECONDS)


class FlowRunPage(Observer):
    """Observer that keeps the page of a flow run up to date and passes calls to `observer`.

    Runs of the same series or deployment share artifact keys, so Prefect shows their artifacts as
    versions of one artifact. `outage` reports an unreachable server.
    """

    def __init__(
        self, study: Study, observer: Observer, progress: Progress, outage: OutageNote
    ) -> None:
        self._study, self._observer, self._outage = study, observer, outage
        self._progress = progress
        series, name = study.plan.options.series, study.name
        if series is None and deployment.id and not flow_run.parameters.get("study"):
            name = f"{flow_run.flow_name}-{deployment.name}"
        key = series or name
        self._summary = RunArtifact(artifact_key(key, "summary"), "markdown")
        self._share = RunArtifact(artifact_key(key, "progress"), "progress")
        self._thread: Thread | None = None
        self._next_update = 0.0
        self._error: Exception | None = None

    def note(self, text: str) -> None:
        """Pass a note to `observer`."""
        self._observer.note(text)

    def warn(self, text: str) -> None:
        """Pass a warning to `observer`."""
        self._observer.warn(text)

    def tick(self, progress: Progress) -> None:
        """Pass the progress to `observer`; report once if the page cannot be published."""
        self._progress = progress
        if self._error is not None:
            self._outage.say(self._error)
        self._observer.tick(progress)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Pass the trial to `observer`, and update the page unless it was updated a moment ago."""
        self._progress = progress
        if monotonic() >= self._next_update:
            self.update()
        self._observer.ended(trial, progress)

    def update(self, *, wait_seconds: float = 0.0) -> None:
        """Update the page in a thread, because servers may be slow; wait a few seconds at most."""
        if self._thread is not None:
            self._thread.join(wait_seconds)
            if self._thread.is_alive():
                return
        self._thread = Thread(target=copy_context().run, args=(self._publish,), daemon=True)
        self._thread.start()
        self._thread.join(wait_seconds)
        if wait_seconds and self._error is not None:
            self._outage.say(self._error)

    def _publish(self) -> None:
        since = monotonic()
        try:
            view = read_study(self._study.store, self._study.name)
            line = self._progress.status_line()
            self._summary.publish(summary(view), line)
            progress, shares = self._progress, [0.0]
            if progress.seconds_total:
                shares.append(progress.seconds / progress.seconds_total)
            if progress.trials_total:
                shares.append((progress.n_begun - len(progress.running)) / progress.trials_total)
            done = round(100 * min(max(shares), 0.99), 1)  # relative to the nearest bound
            self._share.publish(100.0 if view.state == "complete" else done, line)
            self._error = None
        except Exception as error:  # a study does not depend on Prefect's display
            self._error = error
        now = monotonic()
        self._next_update = now + max(_LEAST_SECONDS, (now - since) / _SHARE)


def summary(view: StudyView) -> str:
    """Return the output of `show` as Markdown, with the user's strings escaped."""
    title, best = "No trial leads yet", view.incumbent
    if best is not None:
        part = bracketed(escaped(best.fidelity))
        title = f"Best {escaped(view.losses.name)}: {view.losses.of(best.loss)}{part}"
    commands = next_commands(view)
    lines = [escaped(f"{view.study} ({view.method} in {view.space}, {view.state})"), ""]
    lines += [f"{'  ' * line.depth}- {escaped(line.text)}" for line in study_lines(view)]
    return "\n".join([f"## {title}", "", *lines, "", "### Next", "", *block(commands, "sh")])


def send_event(kind: Literal["study", "series"], name: str, event: str, **payload: Any) -> None:
    """Send an event about a study or series. Without a server, or on an error, do nothing.

    Events are sent in the background and are lost if the server is down. Prefect adds the flow run,
    its deployment and its tags as related resources.
    """
    if get_current_settings().api.url is None:  # Prefect would start a server for the event
        return
    resource = {
        "prefect.resource.id": f"prefect-tune.{kind}.{name}",
        "prefect.resource.name": name,
    }
    shown = {
        field: value[:_LONGEST] if isinstance(value, str) else value
        for field, value in masked_values({kind: name, **payload}).items()
    }
    try:
        emit_event(f"prefect-tune.{event}", resource, payload=shown)
    except Exception as error:  # a study does not depend on Prefect's display
        _LOGGER.warning(f"event prefect-tune.{event} was not sent: {error}")
