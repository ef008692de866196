"""The formats of data, and the choice of one for a file or folder.

A table is a file, or a folder of Parquet files with the same columns. A log of patient events is
one table or a MEDS data set.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import pandas as pd

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.event_tables import EVENT_TEXTS, has_event_columns, read_event_tables
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.formats.omop import OMOP
from prefect_tune.tasks.data.formats.synthea import SYNTHEA
from prefect_tune.tasks.data.location import SUFFIX_NAMES, Location, shards
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


def _read(location: Location, texts: Sequence[str]) -> Iterator[pd.DataFrame]:
    for shard in shards(location):
        yield read_table(shard, texts)


TABLE = Format(
    name="table",
    description="a table",
    kind="table",
    recognises=lambda given: given.table is not None,
    read=_read,
)


_FORMATS: dict[str, Format] = {}
FORMATS: Mapping[str, Format] = MappingProxyType(_FORMATS)
"""By name, the most general first."""


def register_format(added: Format) -> None:
    """Register a format, to be asked before all that were registered earlier.

    Raises:
        ValueError: If there is one of that name.
    """
    if added.name in _FORMATS:
        raise ValueError(f"there is a format {added.name!r} already")
    _FORMATS[added.name] = added


for _format in (TABLE, EVENTS, SYNTHEA, OMOP, MEDS):
    register_format(_format)


def format_named(name: str) -> Format:
    """Return the format of that name.

    Raises:
        UnknownName: If there is none.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    return FORMATS[name]


def recognise(
    given: Given, chosen: str | None = None, kind: Literal["table", "events"] | None = None
) -> Format:
    """Find the format of a file or folder.

    Args:
        given: The data.
        chosen: The format that the user names.
        kind: The only kind of format to consider when none is chosen.

    Raises:
        BadInput: If there is nothing, or it is in no format.
        UnknownName: If the chosen format does not exist.
    """
    found = None if chosen is None else format_named(chosen)
    location = given.location
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    if found is not None:
        if found.folder_holds and not given.is_folder:
            raise BadInput(f"{location.url} is a file; {found.description} is a folder")
        if found.check is not None:
            found.check(location)
        return found
    asked = list(FORMATS.values())[::-1]
    for candidate in asked:
        if kind in (None, candidate.kind) and candidate.recognises(given):
            return candidate
    if not given.is_folder:
        raise BadInput(f"{location.url} is not a type of file that is read; use {SUFFIX_NAMES}")
    holds = ", ".join(f.folder_holds for f in asked if f.folder_holds)
    raise BadInput(
        f"{location.url} is a folder without {holds}, or Parquet files of one table; name a file, "
        "or say what it is with --format"
    )
