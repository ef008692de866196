"""Tables in CSV, Parquet and ARFF files."""

import csv
import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import arff
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.location import CSV, SUFFIX_NAMES, Location

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that are gaps, in any kind of file."""

_PIECE_ROWS = 1_000_000
_NULLABLE: Mapping[pa.DataType, Any] = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
"""Types that a gap must not turn into floats: whole numbers beyond 2^53 would lose digits."""


def read_table(
    location: Location, texts: Collection[str] = (), only: Collection[str] | None = None
) -> pd.DataFrame:
    """Return the table in a file. Gaps turn no whole number into a float; texts in `GAPS` are gaps.

    Args:
        location: The file.
        texts: Columns to read as texts where the file does not say what they are.
        only: Columns to read, in lower case; all by default. Missing ones are passed over.

    Raises:
        BadInput: If it cannot be read, or two columns have the same name.
    """
    if not location.is_table():
        raise BadInput(f"{location.url} is not a type of file that is read; use {SUFFIX_NAMES}")
    try:
        if location.is_parquet():
            frame = _read_parquet(location, only)
        elif location.has_suffix(CSV):
            frame = _read_csv(location, texts, only)
        else:
            frame = _read_arff(location)
    except pd.errors.ParserWarning as error:
        raise BadInput(
            f"{location.url} has rows with more fields than its first line has names; give each "
            "column one"
        ) from error
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    frame.columns = frame.columns.astype(str)
    doubled = frame.columns[frame.columns.duplicated()]
    if len(doubled):
        raise BadInput(f"{location.url} has two columns called {doubled[0]!r}; rename one")
    return frame


def parquet_schema(location: Location) -> pa.Schema:
    """Return the types of the columns of a Parquet file.

    Raises:
        BadInput: If it cannot be read.
    """
    try:
        with location.filesystem.open(location.path, "rb") as file:
            return pq.read_schema(file)
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error


def read_pieces(
    location: Location, names: Collection[str], category: str | None = None
) -> Iterator[pd.DataFrame]:
    """Yield the table in a CSV or Parquet file piece by piece, for tables larger than the memory.

    A first line with a tab means that tabs separate the columns, as in vocabularies of OMOP.

    Args:
        location: The file.
        names: Columns to read, in any case; missing ones are passed over.
        category: A column of texts of a Parquet file to read as categories, without `GAPS`.

    Raises:
        BadInput: If it cannot be read.
    """
    names = {name.lower() for name in names}
    try:
        if location.is_parquet():
            yield from _parquet_pieces(location, names, category)
            return
        with location.filesystem.open(location.path, "rb", compression="infer") as file:
            first = file.readline()
        with location.filesystem.open(location.path, "rb", compression="infer") as file:
            yield from pd.read_csv(
                file,
                sep="\t" if b"\t" in first else ",",
                quoting=csv.QUOTE_NONE if b"\t" in first else csv.QUOTE_MINIMAL,
                chunksize=_PIECE_ROWS,
                usecols=lambda name: name.lower() in names,
                dtype_backend="numpy_nullable",
                keep_default_na=False,
                na_values=[""],
            )
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error


def _parquet_pieces(
    location: Location, names: Collection[str], category: str | None
) -> Iterator[pd.DataFrame]:
    with location.filesystem.open(location.path, "rb") as file:
        source = pq.ParquetFile(file, read_dictionary=[category] if category else None)
        columns = [n for n in source.schema_arrow.names if n.lower() in names]
        for batch in source.iter_batches(_PIECE_ROWS, columns=columns):
            frame = batch.to_pandas(types_mapper=_NULLABLE.get)
            if category is not None:
                column = frame[category].astype("category")
                gaps = column.cat.categories.intersection(list(GAPS))
                frame[category] = column.cat.remove_categories(gaps)
            yield frame


def column_names(location: Location) -> list[str]:
    """Return names of the columns of a file, without reading its rows where that is possible."""
    try:
        if location.is_parquet():
            with location.filesystem.open(location.path, "rb") as file:
                return [str(name) for name in pq.read_schema(file).names]
        if location.has_suffix(CSV):
            with location.filesystem.open(location.path, "rb", compression="infer") as file:
                return list(pd.read_csv(file, nrows=0).columns.astype(str))
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    return []


def columns_called(location: Location, names: Collection[str]) -> list[str]:
    """Return the columns of a file whose names in lower case are among these."""
    return [name for name in column_names(location) if name.lower() in names]


def _read_parquet(location: Location, only: Collection[str] | None) -> pd.DataFrame:
    with location.filesystem.open(location.path, "rb") as file:
        source = pq.ParquetFile(file)
        names = source.schema_arrow.names
        columns = None if only is None else [n for n in names if n.lower() in only]
        table = _with_gaps(source.read(columns=columns))
    frame: pd.DataFrame = table.to_pandas(types_mapper=_NULLABLE.get)
    for field in table.schema:
        if pa.types.is_decimal(field.type):
            frame[field.name] = frame[field.name].astype(np.float64)
    return frame


def _with_gaps(table: pa.Table) -> pa.Table:
    """Return the table with gaps for the texts that are gaps."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_dictionary(field.type) and is_text(field.type.value_type):
            column = column.cast(field.type.value_type)
        elif not is_text(field.type):
            continue
        is_gap = pc.is_in(column, pa.array(GAPS, column.type))
        if pc.any(is_gap).as_py():
            kept = pc.if_else(is_gap, pa.scalar(None, column.type), column)
            table = table.set_column(position, field.name, kept)
    return table


def is_text(kind: pa.DataType) -> bool:
    """Return whether columns of a type hold texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _read_csv(
    location: Location, texts: Collection[str], only: Collection[str] | None
) -> pd.DataFrame:
    content = location.content()
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            io.BytesIO(content),
            index_col=False,
            low_memory=False,
            dtype=dict.fromkeys(texts, str),
            dtype_backend="numpy_nullable",
            keep_default_na=False,
            na_values=list(GAPS),
            usecols=None if only is None else lambda name: name.lower() in only,
        )
    if only is None:  # pandas renames columns of equal names; their own names tell
        names = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str).iloc[0]
        frame.columns = names.fillna(pd.Series(frame.columns))
    return frame


def _read_arff(location: Location) -> pd.DataFrame:
    text = location.content().decode()
    try:
        document = arff.loads(text)
        rows = document["data"]
    except arff.BadLayout:  # the rows are sparse: what they leave out is zero or the first category
        document = arff.loads(text, return_type=arff.LOD)
        rows = [_dense(row, document["attributes"]) for row in document["data"]]
    columns: dict[str, pd.Series] = {}
    for position, (name, kind) in enumerate(document["attributes"]):
        values = [row[position] for row in rows]
        if isinstance(kind, list) or kind == "STRING":
            texts = pd.Series(values, dtype=object)
            columns[name] = texts.where(~texts.isin(GAPS), None)
        else:
            columns[name] = pd.Series(values, dtype=np.float64)
    return pd.DataFrame(columns)


def _dense(row: Mapping[int, Any], attributes: Sequence[tuple[str, Any]]) -> list[Any]:
    return [
        row.get(position, kind[0] if isinstance(kind, list) else 0)
        for position, (_, kind) in enumerate(attributes)
    ]
