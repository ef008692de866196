"""Logs of patient events: one table, or a MEDS data set."""

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.event_tables import EVENT_TEXTS, has_event_columns, read_event_tables
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.location import Location

__all__ = ["EVENTS", "MEDS"]


def _is_log(given: Given) -> bool:
    if given.table is None or given.labels is not None:
        return given.table is not None
    return given.target not in given.columns and has_event_columns(given.columns)


EVENTS = Format(
    name="events",
    description="a table of patient events",
    kind="events",
    recognises=_is_log,
    read=lambda location, _: read_event_tables(location, EVENT_TEXTS),
)


def _need_data(folder: Location) -> None:
    if not folder.below("data").is_folder():
        raise BadInput(
            f"{folder.url} has no folder data/, so it is not a MEDS data set; expected "
            "events in data/**/*.parquet"
        )


MEDS = Format(
    name="meds",
    description="a MEDS data set",
    kind="events",
    recognises=lambda given: given.is_folder and given.location.below("data").is_folder(),
    read=EVENTS.read,
    subfolder="data",
    folder_holds="data/*.parquet (MEDS)",
    check=_need_data,
)
