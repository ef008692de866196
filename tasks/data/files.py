"""Files and folders of the user: CSV, Parquet and ARFF below any URL that fsspec knows."""

import gzip
import io
import posixpath
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import arff
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from prefect_tune.tasks.bad_input import BadInput

__all__ = ["GAPS", "Location", "column_names", "columns_called", "read_table", "shards"]

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")
_ARFF = (".arff", ".arff.gz")
SUFFIXES = (*_CSV, *_PARQUET, *_ARFF)
"""Endings of the files that are read."""
SUFFIX_NAMES = ".csv, .csv.gz, .parquet or .arff"

GAPS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
"""Texts that are gaps, in any kind of file."""

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


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder.

    Attributes:
        url: What the user calls it.
        filesystem: The file system that it is on.
        path: Where it is there.
    """

    url: str
    filesystem: Any
    path: str

    @classmethod
    def at(cls, url: str) -> Self:
        """The location of a URL, whether or not anything is there.

        Raises:
            BadInput: If its protocol is not known, or needs a package that is not there.
        """
        try:
            filesystem, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInput(f"{url} cannot be read: {error}") from error
        return cls(url, filesystem, path)

    def exists(self) -> bool:
        """Whether there is something.

        Raises:
            BadInput: If the file system cannot be asked.
        """
        try:
            return bool(self.filesystem.exists(self.path))
        except Exception as error:
            raise BadInput(f"{self.url} cannot be reached: {error}") from error

    def is_folder(self) -> bool:
        """Whether it is a folder; a name with the suffix of a file settles it without listing."""
        if self.is_table() and self.filesystem.isfile(self.path):
            return False
        return bool(self.filesystem.isdir(self.path))

    def is_table(self) -> bool:
        """Whether it has the suffix of a file that is read."""
        return self.has_suffix(SUFFIXES)

    def is_parquet(self) -> bool:
        """Whether it has the suffix of a Parquet file."""
        return self.has_suffix(_PARQUET)

    @property
    def stem(self) -> str:
        """Its name without folders and suffix."""
        return self.path.rstrip("/").rsplit("/", 1)[-1].split(".")[0]

    @property
    def table_name(self) -> str:
        """Its name in small letters, without folders and the suffix of a table."""
        name = self.path.rstrip("/").rsplit("/", 1)[-1].lower()
        suffix = max((s for s in SUFFIXES if name.endswith(s)), key=len, default="")
        return name.removesuffix(suffix)

    def below(self, name: str) -> Self:
        """What is called so in this folder."""
        return self._child(posixpath.join(self.path, name))

    def children(self) -> list[Self]:
        """Files and folders directly in this folder, in order of names."""
        listed = self.filesystem.ls(self.path, detail=False)
        return [self._child(path) for path in sorted(p.rstrip("/") for p in listed)]

    def tables(self, names: Collection[str]) -> dict[str, Self]:
        """Tables of this folder that are called so, by name in small letters.

        A table is a file that is read, or a folder of Parquet files; other files are passed over.

        Raises:
            BadInput: If there are two of one name.
        """
        found: dict[str, Self] = {}
        for child in self.children():
            name = child.table_name
            if name not in names or not (child.is_table() or child.is_folder()):
                continue
            if name in found:
                raise BadInput(
                    f"{found[name].url} and {child.url} are both the table {name}; remove one"
                )
            found[name] = child
        return found

    def parquet_files(self) -> list[Self]:
        """All Parquet files below this folder, in order of names."""
        files = (self._child(path) for path in sorted(self.filesystem.find(self.path)))
        return [file for file in files if file.is_parquet()]

    def content(self) -> bytes:
        """All its bytes, unpacked."""
        with self.filesystem.open(self.path, "rb") as file:
            data: bytes = file.read()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data

    def _child(self, path: str) -> Self:
        url = f"{self.url.rstrip('/')}{path.removeprefix(self.path.rstrip('/'))}"
        return type(self)(url, self.filesystem, path)

    def has_suffix(self, suffixes: Sequence[str]) -> bool:
        """Whether its name ends with one of these, in letters of any size."""
        path = urlsplit(self.path).path if "://" in self.path else self.path
        return path.lower().endswith(tuple(suffixes))


def shards(location: Location) -> list[Location]:
    """The file itself, or all Parquet files below a folder.

    Raises:
        BadInput: If there is none.
    """
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    if not location.is_folder():
        return [location]
    files = location.parquet_files()
    if not files:
        raise BadInput(f"there is no Parquet file below {location.url}")
    return files


def read_table(
    location: Location, texts: Collection[str] = (), only: Collection[str] | None = None
) -> pd.DataFrame:
    """The table in a file. Gaps turn no whole number into a float; texts in `GAPS` are gaps.

    Args:
        location: The file.
        texts: Columns to read as texts where the file does not say what they are.
        only: Columns to read, in small letters; all by default. Those not there are passed over.

    Raises:
        BadInput: If it cannot be read, or two columns have the same name.
    """
    if not location.is_table():
        raise BadInput(f"{location.url} is no file that is read: use {SUFFIX_NAMES}")
    try:
        if location.is_parquet():
            frame = _read_parquet(location, only)
        elif location.has_suffix(_CSV):
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


def column_names(location: Location) -> list[str]:
    """Names of the columns of a file, without reading its rows where that is possible."""
    try:
        if location.is_parquet():
            with location.filesystem.open(location.path, "rb") as file:
                return [str(name) for name in pq.read_schema(file).names]
        if location.has_suffix(_CSV):
            with location.filesystem.open(location.path, "rb", compression="infer") as file:
                return list(pd.read_csv(file, nrows=0).columns.astype(str))
    except Exception as error:
        raise BadInput(f"{location.url} cannot be read: {error}") from error
    return []


def columns_called(location: Location, names: Collection[str]) -> list[str]:
    """Columns of a file whose names in small letters are among these."""
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
    """The same with texts that are gaps left out."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_dictionary(field.type) and _is_text(field.type.value_type):
            column = column.cast(field.type.value_type)
        elif not _is_text(field.type):
            continue
        is_gap = pc.is_in(column, pa.array(GAPS, column.type))
        if pc.any(is_gap).as_py():
            kept = pc.if_else(is_gap, pa.scalar(None, column.type), column)
            table = table.set_column(position, field.name, kept)
    return table


def _is_text(kind: pa.DataType) -> bool:
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
