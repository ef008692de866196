"""Files and folders of the user, below any URL that fsspec knows."""

import gzip
import posixpath
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import fsspec

from prefect_tune.tasks.bad_input import BadInput

PARQUET = (".parquet", ".pq")
CSV = (".csv", ".csv.gz")
ARFF = (".arff", ".arff.gz")
SUFFIXES = (*CSV, *PARQUET, *ARFF)
"""Endings of the files that are read."""
SUFFIX_NAMES = ".csv, .csv.gz, .parquet or .arff"


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
        """Locate a URL, whether or not anything is there.

        Raises:
            BadInput: If there is no such file system, for want of a package or of an answer.
        """
        try:
            filesystem, path = fsspec.core.url_to_fs(url)
        except Exception as error:  # of any kind: each file system is another library's
            raise BadInput(f"{url} cannot be read: {error}") from error
        return cls(url, filesystem, path)

    def exists(self) -> bool:
        """Return whether anything is there.

        Raises:
            BadInput: If the file system cannot be asked.
        """
        try:
            return bool(self.filesystem.exists(self.path))
        except Exception as error:
            raise BadInput(f"{self.url} cannot be reached: {error}") from error

    def is_folder(self) -> bool:
        """Return whether it is a folder; a file's suffix settles that without listing."""
        if self.is_table() and self.filesystem.isfile(self.path):
            return False
        return bool(self.filesystem.isdir(self.path))

    def is_table(self) -> bool:
        """Return whether it has the suffix of a file that is read."""
        return self.has_suffix(SUFFIXES)

    def is_parquet(self) -> bool:
        """Return whether it has the suffix of a Parquet file."""
        return self.has_suffix(PARQUET)

    @property
    def stem(self) -> str:
        """Its name without folders and suffix."""
        return self.path.rstrip("/").rsplit("/", 1)[-1].split(".")[0]

    @property
    def table_name(self) -> str:
        """Its name in lower case, without folders and the suffix of a table."""
        name = self.path.rstrip("/").rsplit("/", 1)[-1].lower()
        suffix = max((s for s in SUFFIXES if name.endswith(s)), key=len, default="")
        return name.removesuffix(suffix)

    def below(self, name: str) -> Self:
        """Return the file or folder of that name in this folder."""
        return self._child(posixpath.join(self.path, name))

    def children(self) -> list[Self]:
        """Return the files and folders directly in this folder, in order of names."""
        listed = self.filesystem.ls(self.path, detail=False)
        return [self._child(path) for path in sorted(p.rstrip("/") for p in listed)]

    def tables(self, names: Collection[str]) -> dict[str, Self]:
        """Return the tables in this folder of these names, by name in lower case.

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
        """Return all Parquet files below this folder, in order of names."""
        files = (self._child(path) for path in sorted(self.filesystem.find(self.path)))
        return [file for file in files if file.is_parquet()]

    def content(self) -> bytes:
        """Return all its bytes, unpacked."""
        with self.filesystem.open(self.path, "rb") as file:
            data: bytes = file.read()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data

    def _child(self, path: str) -> Self:
        url = f"{self.url.rstrip('/')}{path.removeprefix(self.path.rstrip('/'))}"
        return type(self)(url, self.filesystem, path)

    def has_suffix(self, suffixes: Sequence[str]) -> bool:
        """Return whether its name ends with one of these, in any case."""
        path = urlsplit(self.path).path if "://" in self.path else self.path
        return path.lower().endswith(tuple(suffixes))


def shards(location: Location) -> list[Location]:
    """Return the file itself, or all Parquet files below a folder.

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
