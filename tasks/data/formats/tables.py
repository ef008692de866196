"""Tables and logs of patient events, including MEDS.

A table is a file, or a folder of Parquet or CSV files with the same columns. A log is a table or a
MEDS folder.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from prefect_tune.tasks.data.code_table import code_table
from prefect_tune.tasks.data.event_tables import has_event_columns, read_events
from prefect_tune.tasks.data.files import NOTES, read_table, typed_columns
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.location import Location, shards


def _is_log(given: Given) -> bool:
    if given.table is None or given.labels is not None:
        return given.table is not None
    return given.target not in given.columns and has_event_columns(given.columns)


EVENTS = Format(
    name="events",
    description="a table of patient events",
    kind="events",
    recognizes=_is_log,
    read=lambda location, _: read_events(location),
)


_CODE_COLUMNS: Mapping[str, pa.DataType] = {
    "code": pa.string(),
    "description": pa.string(),
    "parent_codes": pa.list_(pa.string()),
}


def _read_meds_codes(
    location: Location, codes: Iterable[str]
) -> tuple[pd.DataFrame | None, list[str]]:
    """Read `metadata/codes.parquet` of a MEDS data set; return a note if the file is unreadable."""
    file = location.below("metadata/codes.parquet")
    if not file.exists():
        return None, []
    descriptions, parents = dict[str, str](), defaultdict[str, set[str]](set)
    try:
        with file.filesystem.open(file.path, "rb") as opened:
            table = pq.read_table(opened)
        names = [name for name in _CODE_COLUMNS if name in table.column_names]
        schema = pa.schema([(name, _CODE_COLUMNS[name]) for name in names])
        for row in table.select(names).cast(schema).to_pylist():
            if (code := row["code"]) is not None:
                descriptions[code] = descriptions.get(code) or row.get("description") or ""
                parents[code].update(filter(None, row.get("parent_codes") or ()))
    except Exception as error:  # any error, because file systems come from many libraries
        return None, [f"{file.url} cannot be read, so codes have no descriptions: {error!r}"]
    for code in {*codes} - (known := {*descriptions}):
        base, _, text = code.rpartition("//")  # string or unit of an event
        if base in known:
            parents[code] = {base}
            descriptions[code] = ": ".join(filter(None, (descriptions[base], text)))
    return code_table(codes, descriptions, parents, file.url), []


MEDS = Format(
    name="meds",
    description="a MEDS data set",
    kind="events",
    recognizes=lambda given: given.is_folder and given.location.below("data").is_folder(),
    read=EVENTS.read,
    subfolder="data",
    splits="metadata/subject_splits.parquet",
    folder_holds="data/*.parquet (MEDS)",
    read_codes=_read_meds_codes,
)


def _read(location: Location, texts: Sequence[str]) -> list[pd.DataFrame]:
    files, notes = location.parts() if location.is_folder() else ([], [])
    files = files or shards(location)
    frames = [read_table(file, texts, of_rows=True) for file in files]
    numbers = {str(name) for frame in frames for name in frame.select_dtypes("number")}
    texts_of = [
        frame.select_dtypes(["object", "string"]).dropna(axis=1, how="all") for frame in frames
    ]
    if mixed := numbers & {str(name) for frame in texts_of for name in frame}:
        # One string among numbers turns the whole column into strings, even across several files.
        frames = [read_table(file, [*texts, *mixed], of_rows=True) for file in files]
    if files[0].folders:
        notes.append(_add_folder_columns(location, files, frames, texts))
    for name in dict.fromkeys(name for frame in frames for name in frame):
        without = [f.url for f, frame in zip(files, frames, strict=True) if name not in frame]
        if without:
            few = f"{len(without)} of {len(files)} files, such as {without[0]}"
            notes.append(f"column {name} is missing in {few}, so its values are missing there")
    frames[0].attrs[NOTES] = [*frames[0].attrs.get(NOTES, ()), *notes]
    return frames


def _add_folder_columns(
    location: Location,
    files: Sequence[Location],
    frames: Sequence[pd.DataFrame],
    texts: Sequence[str],
) -> str:
    """Add the columns defined by folder names, typed as in a CSV file, and return a note.

    A column that also exists in the files is not replaced.
    """
    named = dict.fromkeys(name for file in files for name, _ in file.folders)
    values = []
    for name in named:
        given = [dict(file.folders).get(name, "") for file in files]
        column = [None if text in location.gaps else text for text in given]
        values.append(pa.chunked_array([column], pa.string()))
    typed = typed_columns(values, list(named), location, texts)
    for row, (file, frame) in enumerate(zip(files, frames, strict=True)):
        for name in dict(file.folders):
            if name not in frame:
                frame[name] = pd.Series(typed[name].iloc[row], frame.index, dtype=typed[name].dtype)
    example = "/".join(f"{name}={text}" for name, text in files[0].folders)
    return f"{', '.join(named)}: read from the names of folders, such as {example}"


TABLE = Format(
    name="table",
    description="a table",
    kind="table",
    recognizes=lambda given: given.table is not None,
    read=_read,
)
