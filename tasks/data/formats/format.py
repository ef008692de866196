"""A data format: its name, how to recognise it, and how to read it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pandas as pd

from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.table_files import column_names

CodeTable = tuple[pd.DataFrame | None, list[str]]
"""A frame with columns code, description and parents, or None; and notes for the user."""


@dataclass(frozen=True)
class Given:
    """Data named by the user, before reading.

    Attributes:
        location: The file or folder.
        target: Column to predict, if named.
        labels: Table of labels, if named.
    """

    location: Location
    target: str | None = None
    labels: str | None = None

    @cached_property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.location.is_folder()

    @cached_property
    def table(self) -> Location | None:
        """The file, or the first part of a folder with one table; None if the folder has none.

        Parts are in the folder itself, or in folders such as `site=A`. CSV files directly in the
        folder are parts of one table if they have the same columns.
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
            names = {frozenset(column_names(part)) for part in parts}
            return parts[0] if len(names) == 1 else None
        return parts[0] if parts else None

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns of `table`, with those in names of folders."""
        if self.table is None:
            return []
        return [*column_names(self.table), *(name for name, _ in self.table.folders)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A data format.

    Attributes:
        name: Name that `--format` takes.
        description: A phrase for data in this format, with an article.
        kind: A table with its target, or patient events, whose labels are a separate table.
        recognises: Returns whether data seem to have this format.
        read: Returns the frames of a file or folder, given the columns to read as texts. Frames of
            events have columns with names in `event_tables`.
        subfolder: Subfolder with its files; empty for the folder itself.
        splits: Table in a folder with the split of each subject, such as `held_out`; empty if none.
        folder_holds: Files that identify a folder of this format; empty if files have it, too.
        check: Raises `BadInput` if the user names this format for a folder that cannot have it.
        tables: Names of the tables to read in a folder, in lower case; a note lists other tables.
            Empty if all tables are read.
        read_codes: Returns descriptions and ancestors of codes in a folder, like `code_table`; None
            if the format has no such tables.
    """

    name: str
    description: str
    kind: Literal["table", "events"]
    recognises: Callable[[Given], bool]
    read: Callable[[Location, Sequence[str]], Iterable[pd.DataFrame]]
    subfolder: str = ""
    splits: str = ""
    folder_holds: str = ""
    check: Callable[[Location], None] | None = None
    tables: frozenset[str] = frozenset()
    read_codes: Callable[[Location, Sequence[str]], CodeTable] | None = None

    def root(self, location: Location) -> Location:
        """Return the file, or the folder that contains its files."""
        return location.below(self.subfolder) if self.subfolder else location

    def frames(self, location: Location, texts: Sequence[str] = ()) -> Iterable[pd.DataFrame]:
        """Return the frames of a file or folder, with some columns read as texts."""
        return self.read(self.root(location), texts)

    def code_table(self, location: Location, codes: Sequence[str]) -> CodeTable:
        """Return descriptions and ancestors of codes, and notes for the user.

        Raises:
            BadInput: If parents form a loop or a table cannot be read.
        """
        return (None, []) if self.read_codes is None else self.read_codes(location, codes)
