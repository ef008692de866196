"""The formats of data that `--format` knows by name.

Cheap to import, because help and completion list the names: a format is imported when it is looked
up.
"""

from typing import TYPE_CHECKING

from prefect_tune.optimizers.plugins import Registry

if TYPE_CHECKING:
    from prefect_tune.tasks.data.formats.format import Format

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
"""By name, the most general first."""


def register_format(added: "Format") -> None:
    """Register a format, to be asked before all that were registered earlier.

    Raises:
        ValueError: If there is one of that name.
    """
    FORMATS.register(added)


def format_named(name: str) -> "Format":
    """Return the format of that name.

    Raises:
        UnknownName: If there is none, or it cannot be used.
    """
    return FORMATS.named(name)
