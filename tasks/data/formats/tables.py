"""Tables and logs of patient events, MEDS among them.

A table is a file, or a folder of Parquet files with the same columns. A log of patient events is
one table or a MEDS data set.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.code_table import read_meds_codes
from prefect_tune.tasks.data.event_tables import has_event_columns, read_events
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.table_files import read_table


def _is_log(given: Given) -> bool:
    if given.table is None or given.labels is not None:
        return given.table is not None
    return given.target not in given.columns and has_event_columns(given.columns)


EVENTS = Format(
    name="events",
    description="a table of patient events",
    kind="events",
    recognises=_is_log,
    read=lambda location, _: read_events(location),
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
    read_codes=read_meds_codes,
)


def _read(location: Location, texts: Sequence[str]) -> Iterator[pd.DataFrame]:
    for shard in shards(location):
        yield read_table(shard, texts, of_rows=True)


TABLE = Format(
    name="table",
    description="a table",
    kind="table",
    recognises=lambda given: given.table is not None,
    read=_read,
)
