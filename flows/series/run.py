"""A run of a series in Prefect: the event on its changed data, and its state without new data."""

from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID

from prefect import State
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Completed

from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.running.prefect_events import ChangedData, send_event
from prefect_tune.flows.series.next_study import SeriesStudy
from prefect_tune.storage.series import Changes

SKIPPED = "Skipped"
"""Name of the state of a flow run that had nothing to do."""


def send_changes(prepared: SeriesStudy) -> None:
    """Send Prefect an event if the run starts a new study on other data than the study before."""
    *earlier, run = prepared.held.read().runs
    if prepared.is_new and earlier and run.changes not in {None, Changes()}:
        send_event(
            ChangedData(
                series=prepared.held.name,
                study=run.study,
                former=earlier[-1].study,
                rows=run.rows,
                **asdict(run.changes),
            )
        )


def end_at_once(prepared: SeriesStudy) -> State[Any]:
    """Record a run that has nothing to do; return a completed state with the last study."""
    series, study = prepared.held.read(), prepared.name
    run = series.runs[-1]
    prepared.held.table.save(series, replace(run, skipped=run.skipped + 1))
    tags = dict.fromkeys([*flow_run.tags, f"series:{series.name}", f"study:{study}"])
    with suppress(Exception), get_client(sync_client=True) as client:
        # A retry of the flow run would record a second skip.
        client.update_flow_run(UUID(str(flow_run.id)), name=f"{study} (skipped)", tags=list(tags))
    message = f"series {series.name}: {prepared.nothing_to_do}"
    return Completed(
        name=SKIPPED, message=message, data=read_study(prepared.store, study).to_json()
    )
