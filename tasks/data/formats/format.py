"""Data formats: their declaration, lookup by the name given to `--format`, and recognition.

The module is cheap to import, because help and completion list the names of formats, and each
format is imported on demand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

from prefect_tune.optimizers.registry import Registry
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    import pandas as pd

    from prefect_tune.tasks.data.location import Location

CodeTable: TypeAlias = "tuple[pd.DataFrame | None, list[str]]"
"""Frame with columns code, description and parents (or None), and notes for the user."""


@dataclass(frozen=True)
class Given:
    """Data named by the user, before reading.

    Attributes:
        location: Location of the file or folder.
        target: Column to predict, if named.
        labels: Table of labels, if named.
    """

    location: "Location"
    target: str | None = None
    labels: str | None = None

    @cached_property
    def is_folder(self) -> bool:
        """Whether the location is a folder."""
        return self.location.is_folder()

    @cached_property
    def table(self) -> "Location | None":
        """The file, or the first part of the folder's table; None if a folder has no single table.

        Parts are located in the folder itself or in subfolders such as `site=A`. CSV files directly
        in the folder are parts of one table if all have the same columns.
        """
        location = self.location
        if not self.is_folder:
            return location if location.is_table() else None
        parts = [
            part
            for part in location.parts()[0]
            if part.url.removeprefix(location.url).strip("/").count("/") == len(part.folders)
        ]
        if parts and not parts[0].is_parquet() and not parts[0].folders:
            names = {frozenset(_column_names(part)) for part in parts}
            return parts[0] if len(names) == 1 else None
        return parts[0] if parts else None

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns of `table`, including columns defined by folder names."""
        if self.table is None:
            return []
        return [*_column_names(self.table), *(name for name, _ in self.table.folders)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A data format.

    Attributes:
        name: Name of the format, as given to `--format`.
        description: Noun phrase for data in the format, including the article.
        kind: Kind of the data: `table` for a table that includes its target, or `events` for
            patient events with a separate table of labels.
        recognizes: Function that returns whether data appear to have this format.
        read: Function that returns the frames of a file or folder, given the columns to read as
            strings. Columns of event frames have names listed in `event_tables`.
        subfolder: Subfolder that contains the files; empty for the folder itself.
        splits: Table in the folder with the split of each subject, such as `held_out`; empty if the
            format has no such table.
        folder_holds: Files by which a folder of the format is recognized; empty if a single file
            may also have the format.
        tables: Lowercase names of the tables to read in a folder; a note lists all other tables.
            Empty if all tables are read.
        read_codes: Function that returns descriptions and ancestors of codes, like `code_table`;
            None if the format has no tables of codes.
    """

    name: str
    description: str
    kind: Literal["table", "events"]
    recognizes: Callable[[Given], bool]
    read: "Callable[[Location, Sequence[str]], Iterable[pd.DataFrame]]"
    subfolder: str = ""
    splits: str = ""
    folder_holds: str = ""
    tables: frozenset[str] = frozenset()
    read_codes: "Callable[[Location, Sequence[str]], CodeTable] | None" = None

    def root(self, location: "Location") -> "Location":
        """Return the location of the files to read: the file, the folder or its subfolder."""
        return location.below(self.subfolder) if self.subfolder else location

    def frames(self, location: "Location", texts: Sequence[str] = ()) -> "Iterable[pd.DataFrame]":
        """Return the frames of a file or folder; columns in `texts` are read as strings."""
        return self.read(self.root(location), texts)

    def code_table(self, location: "Location", codes: Sequence[str]) -> CodeTable:
        """Return descriptions and ancestors of codes, and notes for the user.

        Raises:
            BadInput: If a code is its own ancestor, or a table cannot be read.
        """
        return (None, []) if self.read_codes is None else self.read_codes(location, codes)


def _column_names(location: "Location") -> list[str]:
    from prefect_tune.tasks.data.files import column_names  # noqa: PLC0415 - heavy

    return column_names(location)


_FOLDER = "prefect_tune.tasks.data.formats"

FORMATS: Registry[Format] = Registry(
    "format",
    f"{_FOLDER}.format:Format",
    {
        "table": f"{_FOLDER}.tables:TABLE",
        "events": f"{_FOLDER}.tables:EVENTS",
        "synthea": f"{_FOLDER}.synthea:SYNTHEA",
        "omop": f"{_FOLDER}.omop:OMOP",
        "meds": f"{_FOLDER}.tables:MEDS",
    },
)
"""Formats by name, most general first."""


def recognize(
    given: Given, chosen: str | None = None, kind: Literal["table", "events"] | None = None
) -> Format:
    """Return the format of a file or folder.

    Formats of other distributions are tried last, so installing a plugin never changes how data of
    a known format is read.

    Args:
        given: Data named by the user.
        chosen: Name of the format chosen by the user, if any.
        kind: Kind of format to consider if none is chosen; None for both kinds.

    Raises:
        BadInput: If the data do not exist, are not in the chosen format, or have no known format.
        UnknownName: If the chosen format does not exist.
    """
    found = None if chosen is None else FORMATS.named(chosen)
    location = given.location
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    if given.is_folder:
        location.parts()  # rejects tables whose files also contain deleted rows
    if found is not None:
        if found.folder_holds and not found.recognizes(given):
            raise BadInput(
                f"{location.url} is not {found.description}, which needs {found.folder_holds}"
            )
        return found
    asked = []
    plugins = (one for one in FORMATS.usable() if one.name not in FORMATS.own)
    for candidate in chain([*FORMATS.without_plugins()][::-1], plugins):
        if kind in (None, candidate.kind) and candidate.recognizes(given):
            return candidate
        asked.append(candidate)
    if not given.is_folder:
        from prefect_tune.tasks.data.location import SUFFIX_NAMES  # noqa: PLC0415 - heavy

        raise BadInput(f"{location.url} has an unsupported file type; use {SUFFIX_NAMES}")
    holds = ", ".join(f.folder_holds for f in asked if f.folder_holds)
    raise BadInput(
        f"{location.url} is a folder with none of: {holds}, Parquet or CSV files of one table; "
        "name a file, or choose a format with --format"
    )
