"""Tables in CSV, Parquet and ARFF files."""

import ast
import csv
import io
import json
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import arff
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.csv_dialect import (
    HEAD_BYTES,
    Dialect,
    as_utf8,
    footer,
    has_padded_codes,
    has_points,
)
from prefect_tune.tasks.data.location import CSV, SUFFIX_NAMES, TSV, Location
from prefect_tune.tasks.data.notation import (
    DECIMAL,
    WrittenNumbers,
    as_numbers,
    decimal_mark,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import joined_name
from prefect_tune.tasks.data.source import GAPS

NOTES, INDEX = "notes", "index of a DataFrame"
"""Keys of `DataFrame.attrs`: notes for the user on how a table was read, and its columns that were
an index, which are features only if an option names them."""

_GROUPS = r"[-+]?[1-9]\d{0,2}\.\d{3}"
"""Pattern of numbers whose point may separate thousands."""
POSTGRES_NULL = r"\N"
"""Text that PostgreSQL's COPY writes for a gap; it counts as missing by default."""
_PIECE_ROWS, _PIECE_BYTES = 1_000_000, 2**28
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
"""Types that stay whole despite gaps, because floats lose digits beyond 2^53."""


def read_table(
    location: Location,
    texts: Collection[str] = (),
    only: Collection[str] | None = None,
    *,
    of_rows: bool = False,
) -> pd.DataFrame:
    """Return the table in a file. Whole numbers stay whole, even in columns with gaps.

    A CSV column has texts if all its values are digits and one is padded with zeros, as in `007`.
    Column names of two levels are joined. Notes for the user are in `attrs`, under `NOTES`.

    Args:
        location: The file, with the texts that are gaps in it.
        texts: Columns to read as texts if the file does not type them.
        only: Columns to read, in lower case; all by default. Missing ones are skipped.
        of_rows: Whether the table has a row per case. If so, dates of a Parquet file become times
            at midnight, and `attrs` name the columns that were the index of a DataFrame.

    Raises:
        BadInput: If the file cannot be read, or two columns have the same name.
    """
    if not location.is_table():
        raise BadInput(f"{location.url} has an unsupported file type; use {SUFFIX_NAMES}")
    try:
        if location.is_parquet():
            frame = _read_parquet(location, only, of_rows=of_rows)
        elif location.has_suffix(CSV):
            frame = _read_csv(location, location.content(), texts, only)
            frame = frame if of_rows else _with_numbers(frame, texts)
        else:
            frame = _read_arff(location)
    except pd.errors.ParserWarning as error:
        raise BadInput(
            f"{location.url} has rows with more fields than its first line has names",
            remedy="give each column a name, and delete lines above the line of names",
        ) from error
    except pd.errors.ParserError as error:
        raise BadInput(f"{location.url} cannot be read: {_parser_reason(error)}") from error
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    return _without_numbers(with_flat_names(frame, location.url), location.gaps)


def with_flat_names(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Turn the column names of a new frame into texts, with a note on names of two levels.

    Raises:
        BadInput: If two columns have the same name.
    """
    given = list(frame.columns)
    names = [flat_name(name) for name in given]
    seen: dict[str, Any] = {}
    for name, former in zip(names, given, strict=True):
        if name in seen:
            both = f" ({seen[name]} and {former})" if str(former) != str(seen[name]) else ""
            raise BadInput(f"{where} has two columns called {name!r}{both}; rename one")
        seen[name] = former
    changed = [name for name in names if name != str(seen[name])]
    frame.columns = pd.Index(names).astype(str)
    if changed:
        note = f"{where} has column names of two levels, joined by _: {seen[changed[0]]}"
        frame.attrs[NOTES] = [*frame.attrs.get(NOTES, ()), f"{note} is {changed[0]}"]
    return frame


def flat_name(name: object) -> str:
    """Return the name of a column as a text, with its levels joined.

    >>> flat_name(("B", "y")), flat_name("('B', 'y')"), flat_name("f(x)"), flat_name(3)
    ('B_y', 'B_y', 'f(x)', '3')
    """
    levels = name
    if isinstance(name, str) and name.startswith("(") and name.endswith(")"):
        try:
            levels = ast.literal_eval(name)
        except (ValueError, SyntaxError):
            return name
    has_levels = isinstance(levels, tuple) and len(levels) > 1
    return joined_name(levels) if has_levels else str(name)


def joined(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all parts of a table, and their notes.

    A part with only gaps in a column does not affect the type of the column.
    """
    parts = [*frames]
    notes = [note for part in parts for note in part.attrs.get(NOTES, ())]
    names = list(dict.fromkeys(name for part in parts for name in part))
    if len(parts) > 1:
        empty = [set(part.columns[part.isna().all()]) for part in parts]
        filled = {n for part, gone in zip(parts, empty, strict=True) for n in part if n not in gone}
        parts = [
            part.drop(columns=list(gone & filled)) for part, gone in zip(parts, empty, strict=True)
        ]
    frame = pd.concat(parts, ignore_index=True)[names]
    decimals = {part.attrs[DECIMAL] for part in parts if DECIMAL in part.attrs} - {""}
    frame.attrs[NOTES] = list(dict.fromkeys(notes))
    frame.attrs[INDEX] = [name for part in parts[:1] for name in part.attrs.get(INDEX, ())]
    frame.attrs.pop(DECIMAL, None)
    if decimals:
        frame.attrs[DECIMAL] = decimals.pop() if len(decimals) == 1 else ""
    return frame


def need_scalars(column: pd.Series, where: str) -> None:
    """Raise `BadInput` if a column to predict has lists, structs or bytes."""
    values = column.dropna()
    if len(values) and isinstance(values.iloc[0], list | tuple | dict | set | np.ndarray | bytes):
        kind = type(values.iloc[0]).__name__
        raise BadInput(
            f"target {column.name!r} of {where} holds values of type {kind}, which cannot be "
            "predicted; make each a number or a text"
        )


def parquet_schema(location: Location) -> pa.Schema:
    """Return the types of the columns of a Parquet file; raises BadInput if it cannot be read."""
    try:
        with location.filesystem.open(location.path, "rb") as file:
            return pq.read_schema(file)
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error


def read_pieces(
    location: Location, names: Collection[str], categories: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield the table in a CSV or Parquet file piece by piece, so that it may exceed memory.

    In a file with tabs, such as OMOP vocabularies, quotes have no special meaning.

    Args:
        location: The file.
        names: Columns to read, in upper or lower case; missing ones are skipped.
        categories: Columns of texts to read as categories from a Parquet file.

    Raises:
        BadInput: If the file cannot be read.
    """
    names = {name.lower() for name in names}
    try:
        if location.is_parquet():
            yield from _parquet_pieces(location, names, categories)
            return
        head = as_utf8(location.head(HEAD_BYTES))[0]
        dialect = Dialect.of(head)
        is_unquoted = dialect.separator == "\t" and not head.startswith(b'"')
        with location.opened() as file:
            yield from pd.read_csv(
                file,
                sep=dialect.separator,
                quoting=csv.QUOTE_NONE if is_unquoted else csv.QUOTE_MINIMAL,
                skiprows=dialect.skipped or None,
                chunksize=_PIECE_ROWS,
                usecols=lambda name: name.lower() in names,
                dtype_backend="numpy_nullable",
                keep_default_na=False,
                na_values=["", POSTGRES_NULL],
            )
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error


def _parquet_pieces(
    location: Location, names: Collection[str], categories: Sequence[str]
) -> Iterator[pd.DataFrame]:
    with location.filesystem.open(location.path, "rb") as file:
        source = pq.ParquetFile(file, read_dictionary=categories)
        columns = [n for n in source.schema_arrow.names if n.lower() in names]
        about = source.metadata
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        n_rows = min(_PIECE_ROWS, max(1, _PIECE_BYTES * about.num_rows // max(size, 1)))
        for batch in source.iter_batches(n_rows, columns=columns):
            frame = batch.to_pandas(types_mapper=_NULLABLE.get)
            for name in categories:
                column = frame[name].astype("category")
                gaps = column.cat.categories.intersection(list(location.gaps))
                frame[name] = column.cat.remove_categories(gaps)
            yield _without_numbers(frame, location.gaps)


def column_names(location: Location) -> list[str]:
    """Return a file's column names, if possible without reading rows; raises BadInput."""
    try:
        if location.is_parquet():
            schema = parquet_schema(location)
            unnamed = set(filter(_is_unnamed, _index_levels(schema)))
            return [flat_name(name) for name in schema.names if name not in unnamed]
        if location.has_suffix(CSV):
            head, _ = as_utf8(location.head(HEAD_BYTES))
            return [flat_name(name) for name in Dialect.of(head).names]
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    return []


def columns_called(location: Location, names: Collection[str]) -> list[str]:
    """Return the columns of a file whose names in lower case are among these."""
    return [name for name in column_names(location) if name.lower() in names]


def _index_levels(schema: pa.Schema) -> list[str]:
    """Return the columns with the index of the DataFrame that was saved as the table."""
    return [level for level in _index_of(schema) if isinstance(level, str)]


def _index_of(schema: pa.Schema) -> list[Any]:
    """Return the levels of the saved index: names of columns, and descriptions of ranges."""
    about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return list(about.get("index_columns", ()))


def _is_unnamed(level: str) -> bool:
    return level.startswith("__index_level_")


def _read_parquet(
    location: Location, only: Collection[str] | None, *, of_rows: bool
) -> pd.DataFrame:
    with location.filesystem.open(location.path, "rb") as file:
        source = pq.ParquetFile(file)
        names = source.schema_arrow.names
        columns = None if only is None else [n for n in names if n.lower() in only]
        table = source.read(columns=columns)
    levels = [name for name in _index_levels(table.schema) if name in table.schema.names]
    gone = [*filter(_is_unnamed, levels)]
    frame = _as_pandas(table.drop_columns(gone), location.gaps, as_times=of_rows)
    frame.attrs[INDEX] = [flat_name(name) for name in levels if of_rows and name not in gone]
    for level in _index_of(table.schema):
        if of_rows and isinstance(level, dict) and level["name"] and level["name"] not in frame:
            rows = range(level["start"], level["stop"], level["step"])
            if len(rows) == len(frame):  # another program may have changed the rows
                frame[level["name"]] = rows
                frame.attrs[INDEX].append(flat_name(level["name"]))
    return frame


def _as_pandas(table: pa.Table, gaps: Sequence[str], *, as_times: bool) -> pd.DataFrame:
    """Return a Parquet table as a DataFrame; texts that stand for gaps become gaps."""
    nested: dict[int, list[Any]] = {}
    decimals: list[int] = []
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_nested(field.type):  # pyarrow converts some nested types, but not all
            nested[position] = column.to_pylist()
            column = pa.nulls(table.num_rows)
        elif pa.types.is_decimal(field.type):
            decimals.append(position)
        elif pa.types.is_time(field.type):
            whole = column.cast(pa.int32() if field.type.bit_width == 32 else pa.int64())
            column = whole.cast(pa.int64()).cast(pa.duration(field.type.unit))
        else:
            column = _with_gaps(column, gaps)
        if column is not table.column(position):
            table = table.set_column(position, field.name, column)
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=_NULLABLE.get, ignore_metadata=True, date_as_object=not as_times
    )
    for position in decimals:  # pyarrow's own conversion is not exact
        frame.isetitem(position, frame.iloc[:, position].astype(np.float64).array)
    for position, values in nested.items():
        frame.isetitem(position, pd.Series(values, dtype=object).array)
    return frame


def _with_gaps(column: pa.ChunkedArray, gaps: Sequence[str]) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind) and is_text(kind.value_type):
        texts = column.cast(kind.value_type)
    elif pa.types.is_string_view(kind):  # pyarrow has few functions for it
        column = texts = column.cast(pa.large_string())
    elif is_text(kind):
        texts = column
    else:
        return column
    is_gap = pc.is_in(texts, pa.array(gaps, texts.type))
    if not pc.any(is_gap).as_py():
        return column
    return pc.if_else(is_gap, pa.scalar(None, texts.type), texts)


def is_text(kind: pa.DataType) -> bool:
    """Return whether columns of a type contain texts."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _without_numbers(frame: pd.DataFrame, gaps: Sequence[str]) -> pd.DataFrame:
    """Return a table in which numbers that stand for gaps, such as -999, are gaps."""
    numbers = [number for gap in gaps if (number := _number(gap)) is not None]
    if numbers:
        for name in frame.select_dtypes("number", exclude="timedelta"):
            is_gap = frame[name].isin(numbers).to_numpy()
            if is_gap.any():
                frame[name] = frame[name].mask(is_gap)
    return frame


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return None if isnan(number) else number
    return None


def _parser_reason(error: pd.errors.ParserError) -> str:
    """Return the reason and remedy for an error of the parser of pandas."""
    text = str(error).rpartition("C error: ")[2].strip()
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", text):
        n_names, line, n_fields = found.groups()
        return (
            f"line {line} has {n_fields} fields, and {n_names} columns have names; put quotes "
            "around fields with a separator, and delete lines above the line of column names"
        )
    if found := re.search(r"EOF inside string starting at row (\d+)", text):
        return (
            f"a quote that opens after line {found[1]} is never closed; close or remove the quote"
        )
    return text


def typed_columns(frame: pd.DataFrame, location: Location, texts: Collection[str]) -> pd.DataFrame:
    """Return columns of texts with the types that they have in a CSV file."""
    content = frame.to_csv(index=False, quoting=csv.QUOTE_ALL).encode()
    return _read_csv(location, content, texts, None, may_have_footer=False)


def _read_csv(
    location: Location,
    content: bytes,
    texts: Collection[str],
    only: Collection[str] | None,
    *,
    may_have_footer: bool = True,
) -> pd.DataFrame:
    _need_text(content)
    content, encoding = as_utf8(content)
    dialect = Dialect.of(content)
    names = list(dialect.names)
    last = footer(content, dialect.separator, len(names)) if may_have_footer else []
    content = content[: len(content) - sum(map(len, last))] if last else content
    as_texts = set(map(flat_name, texts))
    used = [i for i, name in enumerate(names) if only is None or name.lower() in only]
    arguments: dict[str, Any] = dict(  # noqa: C408 - of a call
        sep=dialect.separator,
        quotechar=dialect.quote,
        skipinitialspace=dialect.has_blanks,
        skiprows=dialect.skipped or None,
        low_memory=False,
        index_col=False,
        dtype_backend="numpy_nullable",
        keep_default_na=False,
        na_values=[*location.gaps, *([POSTGRES_NULL] if location.gaps == GAPS else [])],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(content),
            **arguments,
            header=0,
            dtype={i: str for i, name in enumerate(names) if flat_name(name) in as_texts},
            usecols=None if only is None else used,
        )
    frame.columns = pd.Index([names[i] for i in used])  # without blanks around them
    expected = "\t" if location.has_suffix(TSV) else ","
    found = dialect.note(encoding, expected=expected)
    notes = [f"{location.url} is {found}"] if found else []
    if text := b"".join(last).decode(errors="replace").strip():
        notes.append(f"lines at the end of {location.url} are skipped ({len(last)}): {text!r}")
    numbers, reread = frame.select_dtypes("number"), list[str]()
    if has_padded_codes(content, dialect.separator):
        reread += [str(name) for name in numbers if _is_whole(frame[name])]
    decimal = location.decimal or decimal_mark(frame)
    if has_points(content, dialect.separator):
        decimal = "" if decimal == "," else "."
    if decimal == ",":
        reread += [str(name) for name in numbers if _may_have_groups(frame[name])]
    if reread:
        positions = sorted(names.index(name) for name in set(reread))
        codes = pd.read_csv(io.BytesIO(content), **arguments, dtype=str, usecols=positions)
        codes.columns = pd.Index([names[i] for i in positions])
        notes += _with_codes(frame, codes, location.url)
    frame.attrs[NOTES], frame.attrs[DECIMAL] = notes, decimal
    return frame


def _with_codes(frame: pd.DataFrame, codes: pd.DataFrame, where: str) -> Iterator[str]:
    """Replace numbers of a frame that are padded codes or have thousands; yield notes."""
    for name in codes:
        if example := _padded_code(codes[name].dropna()):
            frame[name] = codes[name]
            what = f"codes with leading zeros, such as {example}, and is read as text"
            yield f"column {name} of {where} holds {what}"
        elif codes[name].str.fullmatch(_GROUPS).any():
            frame[name] = codes[name]


def _need_text(content: bytes) -> None:
    if not content.strip():
        raise ValueError("the file is empty")
    if content.startswith(b"PAR1"):
        raise ValueError("it is a Parquet file; let its name end in .parquet")


def _with_numbers(frame: pd.DataFrame, texts: Collection[str]) -> pd.DataFrame:
    """Return a table with the columns of numbers in texts as numbers, and a note, if all are."""
    decimal, as_texts = decimal_mark(frame), set(map(flat_name, texts))
    for name in frame.columns.difference(list(as_texts), sort=False):
        found = numbers_in(frame[name].dropna(), decimal)
        if isinstance(found, WrittenNumbers) and not (found.strays or found.is_plain):
            note = f"{name}: {found.notation.of(frame[name])}"
            frame.attrs[NOTES] = [*frame.attrs[NOTES], note]
            frame[name] = as_numbers(frame[name], found.notation)
    return frame


def _may_have_groups(numbers: pd.Series) -> bool:
    """Return whether all points may separate thousands: three digits follow each."""
    found = numbers.dropna().to_numpy(dtype=np.float64)
    thousands = found * 1_000
    are_whole = np.isclose(thousands, thousands.round(), rtol=0, atol=1e-6)
    return bool((np.abs(found) < 1_000).all() and are_whole.all())


def _is_whole(numbers: pd.Series) -> bool:
    """Return whether all numbers may be written with digits only."""
    is_whole = pd.api.types.is_integer_dtype(numbers) or bool((numbers.dropna() % 1 == 0).all())
    return is_whole and not bool((numbers < 0).any())


def _padded_code(texts: pd.Series) -> str:
    """Return the first zero-padded code; empty if no code is padded, or if a text is not a code."""
    padded = texts[texts.str.match(r"0\d")]
    return str(padded.iloc[0]) if len(padded) and texts.str.fullmatch(r"\d+").all() else ""


_ATTRIBUTE = re.compile(
    r"""(?im)^\s*@attribute\s+('(?:\\.|[^'])*'|"(?:\\.|[^"])*"|\S+)\s+(\{.*\}|[a-z]+)(.*)$"""
)
_JAVA = {"yyyy": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_JAVA |= {"ss": "%S", "SSS": "%f", "'": ""}


def _read_arff(location: Location) -> pd.DataFrame:
    dates: list[str] = []

    def plain(attribute: re.Match[str]) -> str:
        """Remove a range or comment, and read dates as texts."""
        is_date = attribute[2].lower() == "date"
        written = attribute[3].partition("%")[0].strip(" \t\r\"'") if is_date else ""
        for java, python in _JAVA.items():
            written = written.replace(java, python)
        dates.append(written)
        return f"@ATTRIBUTE {attribute[1]} {'STRING' if is_date else attribute[2]}"

    text = _ATTRIBUTE.sub(plain, as_utf8(location.content())[0].decode())
    try:
        document = arff.loads(text)
        rows = document["data"]
    except arff.BadLayout:  # the rows are sparse: omitted values are zero or the first category
        document = arff.loads(text, return_type=arff.LOD)
        rows = [_dense(row, document["attributes"]) for row in document["data"]]
    columns: dict[str, pd.Series] = {}
    for position, (name, kind) in enumerate(document["attributes"]):
        values = [row[position] for row in rows]
        if isinstance(kind, list) or kind == "STRING":
            texts = pd.Series(values, dtype=object)
            columns[name] = texts.where(~texts.isin(location.gaps), None)
        else:
            columns[name] = pd.Series(values, dtype=np.float64)
        if dates[position]:
            columns[name] = pd.to_datetime(columns[name], format=dates[position])
    return pd.DataFrame(columns)


def _dense(row: Mapping[int, Any], attributes: Sequence[tuple[str, Any]]) -> list[Any]:
    return [
        row.get(position, kind[0] if isinstance(kind, list) else 0)
        for position, (_, kind) in enumerate(attributes)
    ]
