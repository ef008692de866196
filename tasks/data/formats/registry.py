"""The formats of data that `--format` knows by name, and recognition of the format of data.

Cheap to import, because help and completion list the names: formats are imported on demand.
"""

from itertools import chain
from typing import TYPE_CHECKING, Literal

from prefect_tune.optimizers.plugins import Registry
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.tasks.data.formats.format import Format, Given

_FOLDER = "prefect_tune.tasks.data.formats"

FORMATS: "Registry[Format]" = Registry(
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
"""Formats by name, the most general first."""


def recognise(
    given: "Given", chosen: str | None = None, kind: Literal["table", "events"] | None = None
) -> "Format":
    """Return the format of a file or folder.

    Formats of other distributions come last, so installing one never changes how data are read.

    Args:
        given: The data.
        chosen: Name of the format that the user chose, if any.
        kind: The only kind of format to consider if none is chosen.

    Raises:
        BadInput: If the data does not exist, or has no known format.
        UnknownName: If the chosen format does not exist.
    """
    found = None if chosen is None else FORMATS.named(chosen)
    location = given.location
    if not location.exists():
        raise BadInput(f"there is no file or folder {location.url}")
    if given.is_folder:
        location.parts()  # refuses tables whose files also hold deleted rows
    if found is not None:
        if found.folder_holds and not given.is_folder:
            raise BadInput(f"{location.url} is a file; {found.description} is a folder")
        if found.check is not None:
            found.check(location)
        return found
    asked = []
    plugins = (one for one in FORMATS.usable() if one.name not in FORMATS.own)
    for candidate in chain([*FORMATS.without_plugins()][::-1], plugins):
        if kind in (None, candidate.kind) and candidate.recognises(given):
            return candidate
        asked.append(candidate)
    if not given.is_folder:
        from prefect_tune.tasks.data.location import SUFFIX_NAMES  # noqa: PLC0415 - heavy

        raise BadInput(f"{location.url} has an unsupported file type; use {SUFFIX_NAMES}")
    holds = ", ".join(f.folder_holds for f in asked if f.folder_holds)
    raise BadInput(
        f"{location.url} is a folder without {holds}, or Parquet or CSV files of one table; "
        "name a file, or say what it is with --format"
    )
