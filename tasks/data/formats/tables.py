"""Tables and logs of patient events, including MEDS.

A table is a file, or a folder of Parquet files with the same columns. A log is a table or a MEDS
folder.
"""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.code_table import code_table
from prefect_tune.tasks.data.event_tables import has_event_columns, read_events
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.location import Location, shards
from prefect_tune.tasks.data.table_files import is_text, read_table


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


def _read_meds_codes(
    location: Location, codes: Iterable[str]
) -> tuple[pd.DataFrame | None, list[str]]:
    """Read `metadata/codes.parquet` of a MEDS data set; add a note if the file is unreadable."""
    file = location.below("metadata/codes.parquet")
    if not file.exists():
        return None, []
    try:
        with file.filesystem.open(file.path, "rb") as opened:
            table = pq.read_table(opened)
    except Exception as error:  # any kind: file systems come from many libraries
        return None, [f"{file.url} cannot be read, so codes have no descriptions: {error}"]
    texts = _texts(table, "code")
    if texts is None:
        return None, [f"{file.url} has no column code of texts and is ignored"]
    descriptions: dict[str, str] = {}
    for code, text in zip(texts, _texts(table, "description") or (), strict=False):
        if code is not None and text:
            descriptions.setdefault(code, text)
    parents, notes = _meds_parents(table, texts, file.url)
    return code_table(codes, descriptions, parents, file.url), notes


def _meds_parents(
    table: pa.Table, codes: Sequence[str | None], where: str
) -> tuple[dict[str, set[str]], list[str]]:
    parents: dict[str, set[str]] = {}
    if table.column_names.count("parent_codes") != 1:
        return parents, []
    column = table.column("parent_codes")
    if pa.types.is_null(column.type):
        return parents, []
    if not _is_list_of_texts(column.type):
        kind = f"of type {column.type}, not lists of texts"
        return parents, [f"parent_codes of {where} is {kind}, and is ignored"]
    for code, given in zip(codes, column.to_pylist(), strict=True):
        if code is not None and given:
            parents.setdefault(code, set()).update(filter(None, given))
    return parents, []


def _texts(table: pa.Table, name: str) -> list[str | None] | None:
    if table.column_names.count(name) != 1:
        return None
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_pylist() if is_text(column.type) else None


def _is_list_of_texts(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind)
    return bool(is_list and is_text(kind.value_type))


MEDS = Format(
    name="meds",
    description="a MEDS data set",
    kind="events",
    recognises=lambda given: given.is_folder and given.location.below("data").is_folder(),
    read=EVENTS.read,
    subfolder="data",
    folder_holds="data/*.parquet (MEDS)",
    check=_need_data,
    read_codes=_read_meds_codes,
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
