"""Tables in CSV, Parquet and ARFF files.

The encoding and `Dialect` (separator, quotes and header line) of a CSV file are detected.
"""

import ast
import csv
import io
import json
import re
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from math import isfinite
from statistics import mode
from typing import Any

import arff
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.location import CSV, SUFFIX_NAMES, TSV, Location
from prefect_tune.tasks.data.notation import (
    DECIMAL,
    TRUTHS,
    WrittenNumbers,
    as_number,
    as_numbers,
    decimal_mark,
    numbers_in,
)
from prefect_tune.tasks.data.row_reader import joined_name, without_gaps
from prefect_tune.tasks.data.source import GAPS

HEAD_BYTES = 1 << 20
"""Number of bytes at the beginning of a file from which the dialect is detected."""
_BOMS = (
    (BOM_UTF8, "utf-8-sig"),
    (BOM_UTF32_LE, "utf-32"),  # begins like the byte order mark of UTF-16
    (BOM_UTF32_BE, "utf-32"),
    (BOM_UTF16_LE, "utf-16"),
    (BOM_UTF16_BE, "utf-16"),
)
_ROWS = 100
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "pipes"}
"""Separators in order of preference. Tabs come first, because column names contain no tabs."""
_QUOTED = r"(?m)(?:^|[\t,;|])'"
_PLAIN = re.compile(r"[^\t,;|]*|[-+]?[\d.]*,\d+(?:[eE][-+]?\d+)?")
_DASHES = re.compile(r"[\W_]*(?:--|==)[\W_]*")
_TOTAL = re.compile(r"(?:sub|grand )?totals?|sum|summe|(?:ins)?gesamt|somme|totale", re.IGNORECASE)
_NUMERIC = re.compile(r"\s*[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?\s*\Z")
_TAIL_BYTES = 4096
"""Number of bytes at the end of a table that are searched for remarks and totals."""


def as_utf8(content: bytes) -> tuple[bytes, str]:
    """Return text converted to UTF-8 without a byte order mark, and its original encoding.

    Text that has no byte order mark and is not UTF-8 is decoded as Windows-1252, or as Latin-1 if a
    byte is undefined in Windows-1252.
    """
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            if encoding == "utf-8-sig":
                return content[len(mark) :], "utf-8"
            return content.decode(encoding, errors="replace").encode(), encoding
    if content.isascii():
        return content, "utf-8"
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return content.decode(encoding).encode(), encoding
    return content.decode("latin-1").encode(), "latin-1"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Layout of a CSV file.

    Attributes:
        separator: Character between fields.
        quote: Quotation mark around fields.
        has_blanks: Whether spaces after separators are ignored.
        names: Names of the columns.
        above: Number of lines above the header line.
        start: Number of lines above the first row, including the header line.
        skipped: Line numbers, counted from 0, of lines that are neither header nor rows.
    """

    separator: str = ","
    quote: str = '"'
    has_blanks: bool = False
    names: tuple[str, ...] = ()
    above: int = 0
    start: int = 1
    skipped: tuple[int, ...] = ()

    @classmethod
    def of(cls, content: bytes) -> "Dialect":
        """Detect the dialect of a table from its UTF-8 content or the beginning of the content."""
        end = max(HEAD_BYTES, content.find(b"\n") + 1)
        text = content[:end].decode(errors="ignore")
        n_quoted = 0 if '"' in text or "'" not in text else len(re.findall(_QUOTED, text))
        is_single = n_quoted and n_quoted == len(re.findall(_QUOTED + r"[^'\n]*'(?=\W|\Z)", text))
        quote = "'" if is_single else '"'
        separator, rows = _layout(text, quote, is_whole=len(content) <= end)
        above, names = rows[0] if rows else (0, [])
        skipped = [
            line
            for line, row in rows[1:]
            if _DASHES.fullmatch(" ".join(row)) or (_is_comment(row) and len(row) < len(names))
        ]
        return cls(
            separator,
            quote,
            f"{separator} " in text,
            tuple(name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)),
            above,
            rows[1][0] if len(rows) > 1 else above + 1,
            (*range(above), *skipped),
        )

    def note(self, encoding: str, *, expected: str) -> str:
        """Return a note for the user if the dialect is unusual; empty otherwise."""
        n_others = len(self.skipped) - self.above
        facts = {
            f"columns separated by {_SEPARATORS[self.separator]}": self.separator != expected,
            f"text encoded as {encoding}": encoding != "utf-8",
            "single quotes around fields": self.quote != '"',
            f"column names from line {self.above + 1}, skipping the lines above": self.above > 0,
            f"lines of dashes or comments skipped ({n_others})": n_others > 0,
        }
        found = [text for text, is_so in facts.items() if is_so]
        return f"read with {' and '.join(found)}" if found else ""


def footer(content: bytes, separator: str, n_names: int) -> list[bytes]:
    """Return the trailing lines that are not rows: empty lines, a line of totals, or a remark.

    A line of totals begins with a word such as "total" that occurs nowhere else in the table. A
    remark is a single text field, or a line with too few fields below an empty line.
    """
    lines = content[-_TAIL_BYTES:].splitlines(keepends=True)[len(content) > _TAIL_BYTES :]
    found: list[bytes] = []
    for before, line in reversed([*pairwise(lines)]):
        cells = [cell.strip(' "\r\n-=') for cell in line.decode(errors="ignore").split(separator)]
        first, *others = [*filter(None, cells)] or [""]
        is_short = len(cells) < n_names
        is_remark = not others and (is_short or (n_names > 2 and " " in first))
        is_remark = (is_remark or (is_short and not before.strip())) and not _NUMERIC.match(first)
        is_total = _TOTAL.fullmatch(first.rstrip(":")) and content.count(first.encode()) == 1
        if n_names < 2 or line.count(b'"') % 2 or (first and not is_total and not is_remark):
            break
        found.insert(0, line)
    return found


_Rows = list[tuple[int, list[str]]]
"""Rows, each given by the number of lines above the row and the row's fields."""


def _layout(text: str, quote: str, *, is_whole: bool) -> tuple[str, _Rows]:
    """Return the separator, and the header line with the first rows.

    A separator fits if it splits the header and all rows into the same number of fields, at least
    two. If several separators fit, separators whose fields contain no other separator are
    preferred, then separators with fewer lines above the header. If no separator fits because rows
    differ in length, the result is the comma if the header contains a comma, or else the separator
    that yields the most names.
    """
    found = {s: _from_names(_rows(text, s, quote, is_whole=is_whole)) for s in _SEPARATORS}

    def rank(separator: str) -> tuple[bool | int, ...]:
        table = [row for _, row in found[separator] if row and not _DASHES.fullmatch(" ".join(row))]
        while len(table) > 1 and len(table[-1]) == 1:
            table.pop()
        n_names = len(table[0]) if table else 1
        if n_names > 1 and {*map(len, table)} == {n_names}:
            return True, all(map(_PLAIN.fullmatch, chain(*table[1:]))), -found[separator][0][0]
        return False, separator == "," and n_names > 1, n_names, separator == ","

    best = max(_SEPARATORS, key=rank)
    return best, found[best]


def _rows(text: str, separator: str, quote: str, *, is_whole: bool) -> _Rows:
    """Return the first rows, without the last row if the text may end within that row."""
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=separator, quotechar=quote, skipinitialspace=True)
    rows: _Rows = []
    line = 0
    with suppress(csv.Error):  # a quoted field exceeds the reader's limit
        for row in islice(reader, _ROWS):
            rows.append((line, row))
            line = reader.line_num
    is_cut = not is_whole and len(rows) < _ROWS
    return rows[:-1] if is_cut and len(rows) > 1 else rows


def _from_names(rows: _Rows) -> _Rows:
    """Return rows without lines above the header: titles, comments, empty lines, merged cells.

    If the header line is uncertain, all rows are returned.
    """
    width = mode([len(row) for _, row in rows if row] or [1])
    for position, (_, row) in enumerate(rows):
        below, later = ([*rows, (0, []), (0, [])][position + i][1] for i in (1, 2))
        n_filled = sum(bool(cell.strip()) for cell in row)
        is_short = len(row) < width or (width > 2 and row[-1] == "")
        is_title = is_short and (n_filled < 2 or not below)
        is_merged = "" in row[1:] and "" not in below and _are_names(below, later)
        is_comment = _is_comment(row) and not _are_names(row, below)
        is_stated = position == 0 and "".join(row).lower().startswith("sep=")
        if not (is_title or is_merged or is_comment or is_stated or n_filled == 0):
            is_sure = len(row) == width and not _NUMERIC.fullmatch(row[0])
            return rows[position:] if is_sure else rows
    return rows


def _is_comment(row: list[str]) -> bool:
    return "".join(row).startswith("#")


def _are_names(row: list[str], below: list[str]) -> bool:
    """Return whether a row has no numbers although the row below has at least one."""
    return (
        len(row) == len(below)
        and any(map(_NUMERIC.fullmatch, below))
        and not any(map(_NUMERIC.fullmatch, row))
    )


NOTES, INDEX = "notes", "index of a DataFrame"
"""Keys of `DataFrame.attrs`: notes on how the table was read, and columns that were an index.

A column that was an index is a feature only if an option names it.
"""

_GROUPS = r"[-+]?[1-9]\d{0,2}\.\d{3}"
"""Pattern of numbers in which the point may separate thousands."""
POSTGRES_NULL = r"\N"
"""String that PostgreSQL's COPY writes for a missing value; counts as missing by default."""
_WITH_POINT = r"[-+]?\d*\.(?:\d{1,2}|\d{4,})(?:[eE][-+]?\d+)?"
"""Pattern of numbers in which the point cannot separate thousands."""
_PROBED = 10_000
"""Number of rows searched for numbers in which the point cannot separate thousands."""
_BLOCK_BYTES = 2**23
_PIECE_ROWS, _PIECE_BYTES = 1_000_000, 2**28
_WHOLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "boolean")
_NULLABLE: Mapping[pa.DataType, Any] = {
    pa.type_for_alias(name.lower()): pd.api.types.pandas_dtype(name) for name in _WHOLE
}
"""Types that preserve integers in columns with missing values; floats lose digits beyond 2^53."""

_REMEDIES = {
    "Length of header": "give each column a name, and delete the lines above the header line",
    "Expected ": "quote fields that contain a separator, and delete lines above the header line",
    "EOF inside string": "close or remove the quote that opens after this row",
}
"""Remedies for errors of pandas' parser."""


def read_table(
    location: Location,
    texts: Collection[str] = (),
    only: Collection[str] | None = None,
    *,
    of_rows: bool = False,
) -> pd.DataFrame:
    """Return the table in a file.

    Integers stay integers, even in columns with missing values. A CSV column of digits is read as
    strings if any value has leading zeros, as in `007`. Two-level column names are joined. Notes
    for the user are stored in `attrs` under `NOTES`.

    Args:
        location: Location of the file, including the strings that count as missing in the file.
        texts: Columns to read as strings if the file is untyped.
        only: Columns to read, in lower case; all by default. Columns that the file lacks are
            skipped.
        of_rows: Whether each table row is one case, unlike in tables of events or labels. If true,
            dates of a Parquet file become times at midnight, and `attrs` lists the columns that
            were the index of a DataFrame.

    Raises:
        BadInput: If the file cannot be read, or two columns have the same name.
    """
    if not location.is_table():
        raise BadInput(f"{location.url} has an unsupported file type; use {SUFFIX_NAMES}")
    try:
        if location.is_parquet():
            frame = _read_parquet(location, only, of_rows=of_rows)
        elif location.has_suffix(CSV):
            frame = _read_csv(location, texts, only)
            frame = frame if of_rows else _with_numbers(frame, texts)
        else:
            frame = _read_arff(location)
    except Exception as error:
        reason = str(error).rpartition("C error: ")[2].strip()
        remedy = next((then for part, then in _REMEDIES.items() if part in reason), "")
        raise BadInput(f"{location.url} cannot be read: {reason}", remedy=remedy) from error
    return _without_gaps(with_flat_names(frame, location.url), location.gaps)


def _without_gaps(frame: pd.DataFrame, gaps: Sequence[str]) -> pd.DataFrame:
    """Empty the cells with a string or number that means a missing value, such as -999."""
    for name in frame.columns:
        given = frame[name]
        if (column := without_gaps(given, gaps)) is not given:
            frame[name] = column
    return frame


def with_flat_names(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Convert column names of a new frame to strings, and add a note if names have two levels.

    Raises:
        BadInput: If two columns have the same name.
    """
    names = pd.Index([*map(flat_name, frame.columns)]).astype(str)
    if names.has_duplicates:
        doubled = names[names.duplicated()][0]
        both = " and ".join(str(given) for given in frame.columns if flat_name(given) == doubled)
        raise BadInput(f"{where} has two columns called {doubled!r} ({both}); rename one")
    given = zip(names, map(str, frame.columns), strict=True)
    if joined := [name for name, former in given if name != former]:
        note = f"{where} has column names of two levels, joined by _, such as {joined[0]}"
        frame.attrs[NOTES] = [*frame.attrs.get(NOTES, ()), note]
    frame.columns = names
    return frame


def flat_name(name: object) -> str:
    """Return the name of a column as a string, with its levels joined.

    >>> flat_name(("B", "y")), flat_name("('B', 'y')"), flat_name("f(x)"), flat_name(3)
    ('B_y', 'B_y', 'f(x)', '3')
    """
    levels = name
    if isinstance(name, str) and name.startswith("(") and name.endswith(")"):
        with suppress(ValueError, SyntaxError):
            levels = ast.literal_eval(name)
    has_levels = isinstance(levels, tuple) and len(levels) > 1
    return joined_name(levels) if has_levels else str(name)


def joined(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all parts of a table, and their notes.

    Parts in which a column is empty do not affect the column's type.
    """
    parts = [*frames]
    notes = [note for part in parts for note in part.attrs.get(NOTES, ())]
    names = list(dict.fromkeys(name for part in parts for name in part))
    filled = parts if len(parts) == 1 else [part.dropna(axis=1, how="all") for part in parts]
    frame = pd.concat(filled, ignore_index=True).reindex(columns=names)
    decimals = {part.attrs[DECIMAL] for part in parts if DECIMAL in part.attrs} - {""}
    frame.attrs[NOTES] = list(dict.fromkeys(notes))
    frame.attrs[INDEX] = [name for part in parts[:1] for name in part.attrs.get(INDEX, ())]
    frame.attrs.pop(DECIMAL, None)
    if decimals:
        frame.attrs[DECIMAL] = decimals.pop() if len(decimals) == 1 else ""
    return frame


def need_scalars(column: pd.Series, where: str) -> None:
    """Raise `BadInput` if a column to predict contains lists, structs or bytes."""
    values = column.dropna()
    if len(values) and isinstance(values.iloc[0], list | tuple | dict | set | np.ndarray | bytes):
        kind = type(values.iloc[0]).__name__
        raise BadInput(
            f"target {column.name!r} of {where} holds values of type {kind}, which cannot be "
            "predicted; convert them to numbers or strings"
        )


def parquet_schema(location: Location) -> pa.Schema:
    """Return the column types of a Parquet file; raises BadInput if the file is unreadable."""
    try:
        with location.filesystem.open(location.path, "rb") as file:
            return pq.read_schema(file)
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error


def read_pieces(
    location: Location, names: Collection[str], categories: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield the table in a CSV or Parquet file in pieces, so that the table may exceed memory.

    In a file with tabs, such as OMOP vocabularies, quotes have no special meaning.

    Args:
        location: Location of the file.
        names: Columns to read, in any case; missing columns are skipped.
        categories: String columns to read as categories from a Parquet file.

    Raises:
        BadInput: If the file cannot be read.
    """
    names = {name.lower() for name in names}
    try:
        if location.is_parquet():
            with location.filesystem.open(location.path, "rb") as opened:
                source = pq.ParquetFile(opened, read_dictionary=categories)
                columns = [n for n in source.schema_arrow.names if n.lower() in names]
                about = source.metadata
                groups = map(about.row_group, range(about.num_row_groups))
                size = max(1, sum(group.total_byte_size for group in groups))
                n_rows = min(_PIECE_ROWS, max(1, _PIECE_BYTES * about.num_rows // size))
                for batch in source.iter_batches(n_rows, columns=columns):
                    frame = batch.to_pandas(types_mapper=_NULLABLE.get, ignore_metadata=True)
                    for name in categories:
                        column = frame[name].astype("category")
                        gaps = column.cat.categories.intersection(list(location.gaps))
                        frame[name] = column.cat.remove_categories(gaps)
                    yield _without_gaps(frame, location.gaps)
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


def column_names(location: Location) -> list[str]:
    """Return a file's column names without reading all rows; empty for ARFF.

    May raise `BadInput`.
    """
    try:
        if location.is_parquet():
            schema = parquet_schema(location)
            unnamed = [*filter(_is_unnamed, _index_of(schema))]
            return [flat_name(name) for name in schema.names if name not in unnamed]
        if location.has_suffix(CSV):
            head, _ = as_utf8(location.head(HEAD_BYTES))
            return [flat_name(name) for name in Dialect.of(head).names]
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    return []


def columns_called(location: Location, names: Collection[str]) -> list[str]:
    """Return the columns of a file whose lowercased names are in `names`."""
    return [name for name in column_names(location) if name.lower() in names]


def _index_of(schema: pa.Schema) -> list[Any]:
    """Return the levels of the saved index, each a column name or a description of a range."""
    about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    return list(about.get("index_columns", ()))


def _is_unnamed(level: Any) -> bool:
    return isinstance(level, str) and level.startswith("__index_level_")


def _read_parquet(
    location: Location, only: Collection[str] | None, *, of_rows: bool
) -> pd.DataFrame:
    with location.filesystem.open(location.path, "rb") as file:
        source = pq.ParquetFile(file)
        names = source.schema_arrow.names
        columns = None if only is None else [n for n in names if n.lower() in only]
        table = source.read(columns=columns)
    levels = _index_of(table.schema)
    frame = _as_pandas(
        table.drop_columns([n for n in table.schema.names if n in levels and _is_unnamed(n)]),
        as_times=of_rows,
    )
    frame.attrs[INDEX] = [
        flat_name(name) for name in levels if of_rows and isinstance(name, str) and name in frame
    ]
    for level in levels:
        if of_rows and isinstance(level, dict) and level["name"] and level["name"] not in frame:
            rows = range(level["start"], level["stop"], level["step"])
            if len(rows) == len(frame):  # another program may have added or removed rows
                frame[level["name"]] = rows
                frame.attrs[INDEX].append(flat_name(level["name"]))
    return frame


def _as_pandas(table: pa.Table, *, as_times: bool = False) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame."""
    special: dict[int, Any] = {}
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_nested(field.type):  # pyarrow converts only some nested types
            special[position] = pd.Series(column.to_pylist(), dtype=object).array
            column = pa.nulls(table.num_rows)
        elif pa.types.is_time(field.type):
            whole = column.cast(pa.int32() if field.type.bit_width == 32 else pa.int64())
            column = whole.cast(pa.int64()).cast(pa.duration(field.type.unit))
        elif pa.types.is_string_view(field.type):  # pyarrow supports few functions for this type
            column = column.cast(pa.large_string())
        elif pa.types.is_decimal(field.type):  # pyarrow's own conversion is inexact
            special[position] = column.to_pandas().astype(np.float64).array
        table = table.set_column(position, field.name, column)
    frame: pd.DataFrame = table.to_pandas(
        types_mapper=_NULLABLE.get,
        ignore_metadata=True,
        date_as_object=not as_times,
        split_blocks=True,
    )
    for position, values in special.items():
        frame.isetitem(position, values)
    return frame


def is_text(kind: pa.DataType) -> bool:
    """Return whether columns of this type contain strings."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _read_csv(
    location: Location, texts: Collection[str], only: Collection[str] | None
) -> pd.DataFrame:
    content = location.content()
    if not content or content.isspace():
        raise ValueError("the file is empty")
    if content.startswith(b"PAR1"):
        raise ValueError("this is a Parquet file; rename it to end in .parquet")
    content, encoding = as_utf8(content)
    dialect = Dialect.of(content)
    names = dialect.names
    if last := footer(content, dialect.separator, len(names)):
        content = content[: -sum(map(len, last))]
    gaps = [*location.gaps, *([POSTGRES_NULL] if location.gaps == GAPS else [])]
    used = [i for i, name in enumerate(names) if only is None or name.lower() in only]
    columns = _csv_texts(content, dialect, gaps)
    frame = typed_columns([columns[i] for i in used], [names[i] for i in used], location, texts)
    found = dialect.note(encoding, expected="\t" if location.has_suffix(TSV) else ",")
    notes = [f"{location.url} is {found}"] if found else []
    if text := b"".join(last).decode(errors="replace").strip():
        notes.append(f"skipped {len(last)} lines at the end of {location.url}: {text!r}")
    frame.attrs[NOTES] = [*notes, *frame.attrs[NOTES]]
    return frame


def _csv_texts(content: bytes, dialect: Dialect, gaps: Sequence[str]) -> list[pa.ChunkedArray]:
    """Return the strings of each column of a UTF-8 table, with missing values as nulls."""
    names = [*map(str, range(len(dialect.names)))]
    if len(dialect.skipped) == dialect.above:
        with suppress(pa.ArrowInvalid):  # only the slower parser reads rows with fewer fields
            table = arrow_csv.read_csv(
                pa.BufferReader(content),
                arrow_csv.ReadOptions(
                    column_names=names, skip_rows=dialect.start, block_size=_BLOCK_BYTES
                ),
                arrow_csv.ParseOptions(
                    delimiter=dialect.separator,
                    quote_char=dialect.quote,
                    newlines_in_values=dialect.quote.encode() in content,
                ),
                arrow_csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=gaps,
                    strings_can_be_null=True,
                ),
            )
            blank = (pc.any(pc.starts_with(column, " ")).as_py() for column in table.columns)
            if not (dialect.has_blanks and any(blank)):
                return list(table.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame: pd.DataFrame = pd.read_csv(
            io.BytesIO(content),
            sep=dialect.separator,
            quotechar=dialect.quote,
            skipinitialspace=dialect.has_blanks,
            skiprows=dialect.skipped or None,
            low_memory=False,
            index_col=False,
            header=0,
            dtype=str,
            keep_default_na=False,
            na_values=gaps,
        )
    return [
        pa.chunked_array([pa.array(frame.iloc[:, i], pa.string(), from_pandas=True)])
        for i in range(frame.shape[1])
    ]


def typed_columns(
    columns: Sequence[pa.ChunkedArray],
    names: Sequence[str],
    location: Location,
    as_texts: Collection[str],
) -> pd.DataFrame:
    """Return string columns as truth values, numbers or strings, like a CSV reader.

    Codes with leading zeros stay strings. If the decimal mark is a comma, numbers with points as
    thousands separators also stay strings. `attrs` contains notes and the decimal mark.
    """
    kept, notes = set(map(flat_name, as_texts)), list[str]()
    typed = [c if flat_name(n) in kept else _typed(c) for n, c in zip(names, columns, strict=True)]
    for position, (name, texts) in enumerate(zip(names, columns, strict=True)):
        if not pa.types.is_integer(typed[position].type):
            continue
        may_be = texts.filter(pc.starts_with(texts, "0"))
        padded = may_be.filter(pc.match_substring_regex(may_be, r"^0\d+$"))
        if len(padded) and not pc.any(pc.match_substring_regex(texts, r"\D")).as_py():
            typed[position] = texts
            what = f"codes with leading zeros, such as {padded[0]}, and is read as strings"
            notes.append(f"column {name} of {location.url} holds {what}")
    frame = _as_pandas(pa.table(dict(zip(map(str, range(len(typed))), typed, strict=True))))
    decimal = location.decimal or decimal_mark(frame)
    fractions = {i: c for i, c in enumerate(columns) if pa.types.is_floating(typed[i].type)}
    if any(_holds(texts.slice(0, _PROBED), _WITH_POINT) for texts in columns):
        decimal = "" if decimal == "," else "."
    for position, texts in fractions.items():
        if decimal == "," and _holds(texts, _GROUPS):
            frame.isetitem(position, _as_pandas(pa.table({"": texts}))[""].array)
    frame.columns = pd.Index(names)
    frame.attrs = {NOTES: notes, DECIMAL: decimal}
    return frame


def _typed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings as truth values or numbers if all of them convert without losing digits."""
    there = texts.drop_null()
    first = there[0].as_py().strip() if len(there) else "0"
    if first in TRUTHS and pc.all(pc.is_in(there, pa.array([*TRUTHS]))).as_py():
        return texts.cast(pa.bool_())
    is_whole = first.lstrip("+-").isdecimal()
    if is_whole and _holds(texts, r"\s*[-+]?0[xX][0-9a-fA-F]+\s*"):
        return texts  # pyarrow would read hexadecimal numbers
    if not is_whole and not isfinite(as_number(first)) and "inf" not in first.lower():
        return texts
    for kind in (pa.int64(), pa.uint64(), pa.float64())[0 if is_whole else 2 :]:
        if kind == pa.float64() and is_whole and _holds(texts, r"\s*[-+]?\d{19,}\s*"):
            return texts
        for is_trimmed in (False, True):
            with suppress(pa.ArrowInvalid):
                trimmed = (
                    pc.utf8_ltrim(pc.utf8_trim_whitespace(texts), "+") if is_trimmed else texts
                )
                numbers = trimmed.cast(kind)
                return texts if pc.any(pc.is_nan(numbers)).as_py() else numbers
    return texts


def _holds(texts: pa.ChunkedArray, pattern: str) -> bool:
    """Return whether any string matches a pattern."""
    return bool(pc.any(pc.match_substring_regex(texts, f"^(?:{pattern})$")).as_py())


def _with_numbers(frame: pd.DataFrame, texts: Collection[str]) -> pd.DataFrame:
    """Convert columns whose strings are all numbers, adding a note; return the table."""
    decimal, as_texts = decimal_mark(frame), set(map(flat_name, texts))
    for name in frame.columns.difference(list(as_texts), sort=False):
        found = numbers_in(frame[name].dropna(), decimal)
        if isinstance(found, WrittenNumbers) and not (found.strays or found.is_plain):
            note = f"{name}: {found.notation.of(frame[name])}"
            frame.attrs[NOTES] = [*frame.attrs[NOTES], note]
            frame[name] = as_numbers(frame[name], found.notation)
    return frame


_ATTRIBUTE = re.compile(
    r"""(?im)^\s*@attribute\s+('(?:\\.|[^'])*'|"(?:\\.|[^"])*"|\S+)\s+(\{.*\}|[a-z]+)(.*)$"""
)
_JAVA = {"yyyy": "%Y", "yy": "%y", "MMM": "%b", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_JAVA |= {"ss": "%S", "SSS": "%f", "'": ""}


def _read_arff(location: Location) -> pd.DataFrame:
    dates: list[str] = []

    def plain(attribute: re.Match[str]) -> str:
        """Return a declaration without range and comment, and with dates declared as strings."""
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
    except arff.BadLayout:  # rows are sparse: an omitted value is zero or the first category
        document = arff.loads(text, return_type=arff.LOD)
        kinds = [kind for _, kind in document["attributes"]]
        omitted = {i: kind[0] if isinstance(kind, list) else 0 for i, kind in enumerate(kinds)}
        rows = [omitted | row for row in document["data"]]
    columns: dict[str, pd.Series] = {}
    for position, (name, kind) in enumerate(document["attributes"]):
        values = [row[position] for row in rows]
        is_text = isinstance(kind, list) or kind == "STRING"
        columns[name] = pd.Series(values, dtype=object if is_text else np.float64)
        if dates[position]:
            columns[name] = pd.to_datetime(columns[name], format=dates[position])
    return pd.DataFrame(columns)
