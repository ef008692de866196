"""What a file or folder holds, found out from its name, its files and its columns."""

from collections.abc import Mapping

from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.events import has_event_columns
from prefect_tune.tasks.data.files import SUFFIX_NAMES, Location, column_names
from prefect_tune.tasks.data.omop import is_omop
from prefect_tune.tasks.data.synthea import is_synthea

__all__ = ["FORMATS", "check_format", "recognised"]

FORMATS: Mapping[str, str] = {
    "table": "a table",
    "events": "a table of patient events",
    "meds": "a MEDS data set",
    "omop": "tables of the OMOP common data model",
    "synthea": "a CSV export of Synthea",
}
"""What `--format` can say, and what it is."""
_FOLDERS = ("meds", "omop", "synthea")
"""Formats of folders; the others are files, or folders of Parquet files with the same columns."""


def check_format(name: str) -> str:
    """The format, if it is one.

    Raises:
        UnknownName: If it is none.
    """
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS)
    return name


def recognised(
    location: Location, chosen: str | None, target: str | None, labels: str | None
) -> str:
    """The format of a file or folder.

    Args:
        location: Where it is.
        chosen: What the user says it is, if anything.
        target: Column to predict; a file that has it is a table unless there are labels.
        labels: Table of labels, if any.

    Raises:
        BadInput: If there is nothing, or it is none of the formats.
        UnknownName: If the chosen one does not exist.
    """
    if chosen is not None:
        check_format(chosen)
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    is_folder = location.is_folder()
    if chosen in _FOLDERS:
        if not is_folder:
            raise BadInput(f"{location.url} is a file; {FORMATS[chosen]} is a folder")
        if chosen == "meds" and not location.below("data").is_folder():
            raise BadInput(
                f"{location.url} is a folder without data/, so it is no MEDS data set: its events "
                "would be in data/**/*.parquet"
            )
    if chosen is not None:
        return chosen
    return _of_folder(location, target, labels) if is_folder else _of_file(location, target, labels)


def _of_folder(location: Location, target: str | None, labels: str | None) -> str:
    if location.below("data").is_folder():
        return "meds"
    if is_omop(location):
        return "omop"
    if is_synthea(location):
        return "synthea"
    parts = [child for child in location.children() if child.is_parquet()]
    if not parts:
        raise BadInput(
            f"{location.url} is a folder without data/*.parquet (MEDS), tables of OMOP such as "
            "condition_occurrence, patients.csv and others of Synthea, or Parquet files of one "
            "table; name a file, or say what it is with --format"
        )
    return _of_file(parts[0], target, labels)


def _of_file(location: Location, target: str | None, labels: str | None) -> str:
    if not location.is_table():
        raise BadInput(f"{location.url} is no file that is read: use {SUFFIX_NAMES}")
    if labels is not None:
        return "events"
    columns = column_names(location)
    return "events" if target not in columns and has_event_columns(columns) else "table"
