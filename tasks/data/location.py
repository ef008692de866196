"""Files and folders of the user, at any URL supported by fsspec."""

import bz2
import gzip
import io
import lzma
import posixpath
import re
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import IO, Any, Self
from urllib.parse import unquote, urlsplit

import fsspec
import pyarrow as pa

from prefect_tune.storage.masking import masked, with_signature
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.source import GAPS

PARQUET = (".parquet", ".pq")
_PACKED = ("", ".gz", ".bz2", ".xz", ".zip", ".zst")
TSV = tuple(f".tsv{packed}" for packed in _PACKED)
_CSV = (*(f".csv{packed}" for packed in _PACKED), *TSV)
CSV = (*_CSV, *(f".txt{packed}" for packed in _PACKED), ".zip")
ARFF = (".arff", ".arff.gz")
SUFFIXES = (*CSV, *PARQUET, *ARFF)
"""Suffixes of readable files."""
_TABLES = (*_CSV, *PARQUET, *ARFF)
"""Suffixes of tables in folders. Files ending in .txt are excluded, because most are
documentation."""
_HIDDEN = re.compile(r"(?:^|/)(?:\.|__MACOSX|_[^/=]*(?:/|$))")
"""Pattern of names that programs and operating systems give to files without data, such as
`_SUCCESS`."""
_HIVE = re.compile(r"([^/=]+)=([^/]*)/")
_HIVE_GAP = "__HIVE_DEFAULT_PARTITION__"
_LOGS = {
    "Delta Lake": re.compile(r"(?:^|/)_delta_log/"),
    "Iceberg": re.compile(r"(?:^|/)metadata/[^/]+\.metadata\.json$"),
    "Hudi": re.compile(r"(?:^|/)\.hoodie/"),
}
"""Logs that list a table's valid files, by format. Files not in the log contain deleted rows."""
SUFFIX_NAMES = ".csv, .tsv or .txt (also .gz, .bz2, .xz, .zip and .zst), .zip, .parquet or .arff"


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder.

    Attributes:
        url: URL or path as given by the user.
        filesystem: File system of the location.
        path: Path on that file system.
        gaps: Strings that count as missing in tables at the location.
        decimal: Decimal mark of numbers in strings; empty to detect the mark from the values.
        folders: Columns and values taken from folder names, as in `site=A/year=2024/part.parquet`;
            missing values are empty strings.
    """

    url: str
    filesystem: Any
    path: str
    gaps: tuple[str, ...] = GAPS
    folders: tuple[tuple[str, str], ...] = ()
    decimal: str = ""

    @classmethod
    def at(cls, url: str, gaps: tuple[str, ...] = GAPS) -> Self:
        """Return the location of a URL; the file or folder need not exist.

        Raises:
            BadInput: If the file system cannot be opened, for example because a package is missing.
        """
        try:
            filesystem, path = fsspec.core.url_to_fs(with_signature(url))
        except Exception as error:  # any error, because file systems come from many libraries
            raise BadInput(f"{url} cannot be read: {error}") from error
        return cls(masked(url), filesystem, path, gaps)

    def exists(self) -> bool:
        """Return whether the location exists; raise `BadInput` if it cannot be reached."""
        try:
            return bool(self.filesystem.exists(self.path))
        except Exception as error:
            raise BadInput(f"{self.url} cannot be reached: {error}") from error

    def is_folder(self) -> bool:
        """Return whether the location is a folder.

        Files with a table's suffix are recognized first, which avoids a slow listing.
        """
        if self.is_table() and self.filesystem.isfile(self.path):
            return False
        return bool(self.filesystem.isdir(self.path))

    def is_table(self) -> bool:
        """Return whether the suffix belongs to a readable file type."""
        return self.has_suffix(SUFFIXES)

    def is_parquet(self) -> bool:
        """Return whether the suffix belongs to Parquet files."""
        return self.has_suffix(PARQUET)

    @property
    def stem(self) -> str:
        """File name without folders and suffix."""
        return self._path.rsplit("/", 1)[-1].split(".")[0]

    @property
    def table_name(self) -> str:
        """Lowercase file name without folders and without a table's suffix."""
        name = self._path.rsplit("/", 1)[-1].lower()
        suffix = max((s for s in SUFFIXES if name.endswith(s)), key=len, default="")
        return name.removesuffix(suffix)

    def below(self, name: str) -> Self:
        """Return the location of the file or folder `name` inside this folder."""
        return self._child(posixpath.join(self.path, name))

    def children(self) -> list[Self]:
        """Return the visible files and folders directly in this folder, sorted by name."""
        listed = sorted(path.rstrip("/") for path in self.filesystem.ls(self.path, detail=False))
        return [self._child(path) for path in listed if not is_hidden(posixpath.basename(path))]

    def tables(self, names: Collection[str]) -> dict[str, Self]:
        """Return the tables in this folder with one of the given names, by lowercase name.

        A table is a readable file or a folder of Parquet files; other files are skipped.

        Raises:
            BadInput: If two tables have the same name.
        """
        found: dict[str, Self] = {}
        for child in self.children():
            name = child.table_name
            if name not in names or not (child.is_table() or child.is_folder()):
                continue
            if name in found and not (child.has_suffix(_TABLES) or child.is_folder()):
                continue  # probably documentation of a table
            if name in found:
                raise BadInput(
                    f"{found[name].url} and {child.url} are both table {name}; remove one of them"
                )
            found[name] = child
        return found

    def unread_tables(self, read: Collection[str], used: Sequence["Location"]) -> list[str]:
        """Return the sorted names of the tables in this folder that are not read.

        `read` contains the lowercase names of the tables that are read. `used` contains locations
        read for another purpose, such as labels.
        """
        paths = [location.path.rstrip("/") for location in used]
        return sorted(
            child.table_name
            for child in self.children()
            if child.table_name not in read
            and not any(path == child.path or path.startswith(f"{child.path}/") for path in paths)
            and (
                child.has_suffix(_TABLES)
                or (child.is_folder() and any(part.is_parquet() for part in child.children()))
            )
        )

    def parts(self) -> tuple[list[Self], list[str]]:
        """Return the Parquet (or else CSV) files below this folder, sorted by name, and notes.

        Hidden and empty files are skipped. The `folders` of each part contain the columns defined
        by folder names.

        Raises:
            BadInput: If the folder is a Delta Lake, Iceberg or Hudi table.
        """
        found = self.filesystem.find(self.path, detail=True)
        names = {path: path.removeprefix(self.path).lstrip("/") for path in sorted(found)}
        for kind, log in _LOGS.items():
            if any(map(log.search, names.values())):
                raise BadInput(
                    f"{self.url} is a {kind} table, whose files also hold deleted rows",
                    remedy="read the table with its own library, and pass the DataFrame to tune() "
                    "or save it as one Parquet file",
                )
        tables = [path for path in names if self._child(path).has_suffix(_TABLES)]
        kept = [p for p in tables if not is_hidden(names[p]) and found[p].get("size") != 0]
        parts: list[Self] = []
        for path in kept:
            found_names = [map(unquote, both) for both in _HIVE.findall(names[path])]
            folders = tuple((name, value.replace(_HIVE_GAP, "")) for name, value in found_names)
            parts.append(replace(self._child(path), folders=folders))
        parquet = [part for part in parts if part.is_parquet()]
        parts = parquet or [part for part in parts if part.has_suffix(_CSV)]
        left = [names[p] for p in tables if p not in {part.path for part in parts}]
        shown = f"skipped {len(left)} hidden, empty or other files of {self.url}"
        return parts, [f"{shown}, such as {left[0]}"] if left else []

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file for reading; decompress it if its first bytes show a known compression."""
        with (
            self.filesystem.open(self.path, "rb") as file,
            io.BufferedReader(file) as buffered,  # some streams do not support seeking
            _unpacked(buffered) as unpacked,
        ):
            yield unpacked

    def head(self, n_bytes: int) -> bytes:
        """Return the first lines, decompressed: about `n_bytes` bytes, but at least one line."""
        with self.opened() as file, io.BufferedReader(file) as lines:  # type: ignore[type-var]
            return lines.read(n_bytes) + lines.readline()

    def content(self) -> bytes:
        """Return all bytes of the file, decompressed. Old Mac line endings become line feeds."""
        with self.opened() as file:
            content = file.read()
        return content if b"\n" in content else content.replace(b"\r", b"\n")

    def _child(self, path: str) -> Self:
        url = f"{self.url.rstrip('/')}{path.removeprefix(self.path.rstrip('/'))}"
        return replace(self, url=url, path=path)

    def has_suffix(self, suffixes: Sequence[str]) -> bool:
        """Return whether the name ends with one of the suffixes, ignoring case."""
        return self._path.lower().endswith(tuple(suffixes))

    @property
    def _path(self) -> str:
        """Path without the query of a web address."""
        return urlsplit(self.path).path if "://" in self.path else self.path.rstrip("/")


def is_hidden(path: str) -> bool:
    """Return whether a file is hidden or unfinished, or is in a hidden or unfinished folder.

    >>> [is_hidden(path) for path in ("a/._b.csv", "_temporary/b.csv", "__MACOSX/b", "_x=1/b.csv")]
    [True, True, True, False]
    """
    return _HIDDEN.search(path) is not None


def shards(location: Location) -> list[Location]:
    """Return the file itself, or all parts of the table in a folder.

    Raises:
        BadInput: If the location does not exist or is a folder without tables.
    """
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    if not location.is_folder():
        return [location]
    files, _ = location.parts()
    if not files:
        raise BadInput(f"there is no table below {location.url}; expected Parquet or CSV files")
    return files


def _unpacked(file: "io.BufferedReader[Any]") -> Any:
    start = file.peek(10)[:10]
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh") and start[4:] == b"1AY&SY":
        return bz2.BZ2File(file)
    if start.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return pa.CompressedInputStream(file, "zstd")
    if start.startswith(b"PK\x03\x04"):
        archive = zipfile.ZipFile(file)
        names = [name for name in archive.namelist() if name[-1] != "/" and not is_hidden(name)]
        if len(names) != 1:
            shown = f" ({', '.join(names[:3])})" if names else ""
            raise ValueError(f"the archive holds {len(names)} files{shown}, but must hold one")
        if names[0].lower().endswith((*PARQUET, *ARFF)):
            raise ValueError(f"archives may hold CSV files only; unpack {names[0]}")
        return archive.open(names[0])
    return nullcontext(file)
