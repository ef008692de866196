"""A run of a series inside a flow run: the study, and its records in the log of the series."""

from contextlib import suppress
from dataclasses import fields
from typing import Any
from uuid import UUID

from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Completed

from prefect_tune.flows.flow_run_page import RunArtifact, artifact_key
from prefect_tune.flows.prefect_events import ChangedData, send_event
from prefect_tune.flows.preparation.in_series import NextStudy
from prefect_tune.flows.preparation.prepare import PreparedStudy
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_view import StudyView, read_study
from prefect_tune.flows.series.series import Changes, Names
from prefect_tune.flows.session import run_study
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger

SKIPPED = "Skipped"
"""Name of the state of a flow run that had nothing to do."""


def run_in_series(prepared: PreparedStudy, night: NextStudy) -> dict[str, Any] | State[Any]:
    """Run the study of a series, or end at once if nothing has changed; release the series.

    Returns the summary of the study, for a skipped run in a completed state named `Skipped`.
    """
    try:
        if night.action != "resume":
            _catch_up(prepared.store, night)
        if night.action == "skip":
            return _skipped(prepared, night)
        _send_changes(night)
        try:
            summary = run_study(prepared)
        except BaseException:
            with suppress(Exception):  # the error of the study matters more
                _record_end(prepared, night)
            raise
        _record_end(prepared, night)
        return summary
    finally:
        prepared.release()


def _send_changes(night: NextStudy) -> None:
    """Send Prefect an event if a new study has other data than the last one."""
    changes = night.changes
    runs = () if night.series is None else night.series.runs
    # A killed process may have recorded this study before.
    last = next((run for run in reversed(runs) if run.study != night.study), None)
    if changes is None or last is None or changes == Changes():
        return
    names = {one.name: getattr(changes, one.name) for one in fields(changes)}
    first = {name: value.first for name, value in names.items() if isinstance(value, Names)}
    send_event(
        ChangedData(
            series=night.held.name,
            study=night.study,
            former=last.study,
            rows=0 if night.data is None else len(night.data),
            rows_added=changes.rows_added,
            rows_removed=changes.rows_removed,
            targets_changed=changes.targets_changed,
            **first,
        )
    )


def _record_end(prepared: PreparedStudy, night: NextStudy) -> None:
    """Record the result of a session in the series."""
    night.held.append_ended(prepared.name, _end(read_study(prepared.store, prepared.name)))


def _catch_up(store: ArtifactStore, night: NextStudy) -> None:
    """Record the result of the last study, if its process was killed before, or it was resumed."""
    last = None if night.series is None else night.series.last
    if last is None or Ledger(store.database).study(last.study) is None:
        return
    end = _end(read_study(store, last.study))
    if any(end[name] != getattr(last, name) for name in ("state", "loss", "test_loss")):
        night.held.append_ended(last.study, end)


def _end(view: StudyView) -> dict[str, Any]:
    prior = view.decisions.get("prior") or {}
    return {
        "state": view.state,
        "loss": None if view.incumbent is None else view.incumbent.loss,
        "test_loss": view.test_loss,
        "prior_weight": prior.get("weight"),
    }


def _skipped(prepared: PreparedStudy, night: NextStudy) -> State[Any]:
    """Record a run with nothing to do, and show in Prefect why it has ended."""
    reason = night.note.reason if night.note else ""
    night.held.append_skipped(prepared.name, reason)
    view = read_study(prepared.store, prepared.name)
    flow_run_id, series = UUID(str(flow_run.id)), night.held.name
    tags = dict.fromkeys([*flow_run.tags, f"series:{series}", f"study:{prepared.name}"])
    artifact = RunArtifact(artifact_key(series, "summary"), "markdown")
    with suppress(Exception):  # a retry of the flow run would record a second skip
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run_id, name=f"{prepared.name} (skipped)", tags=list(tags))
        artifact.publish(_page(view, series, reason), reason)
    return Completed(name=SKIPPED, message=f"series {series}: {reason}", data=view.to_json())


def _page(view: StudyView, series: str, reason: str) -> str:
    commands = next_commands(
        view.study, view.store_options, has_model=view.has_model, series=series
    )
    listed = "\n".join(f"    {command}" for command in commands)
    return f"# Series {series}: nothing to do\n\n{reason}.\n\nThe last study:\n\n{listed}\n"
