"""Entries of the index, one for each artifact ever made, and selections of entries."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.engine import Row

from prefect_tune.storage.database import as_written
from prefect_tune.storage.files import Part
from prefect_tune.storage.schema import artifact_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An artifact as the index knows it. Times are seconds since 1970.

    Attributes:
        key, parent: Prefix keys of the artifact and its predecessor (None: the data set).
        study: The study that made it.
        step, algorithm, fold: Name of the step, id of its algorithm, number of the fold.
        is_present: Whether its bytes are in the cache.
        size_bytes, cost_seconds: Size of all parts, and time to make it from its parent.
        created, last_used, hits: Time of creation, of last use (to a second), and number of uses.
        summary: JSON values that keys of later steps need.
        parts, place: Files by name; their folder below the folder of the key (empty if refused).
    """

    key: str
    parent: str | None
    study: str
    step: str
    algorithm: str
    fold: int
    cost_seconds: float
    summary: Mapping[str, Any]
    is_present: bool = True
    size_bytes: int = 0
    created: float = 0.0
    last_used: float = 0.0
    hits: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    place: str = ""


ENTRY_COLUMNS = tuple(
    artifact_table.c.facts.label("summary") if f.name == "summary" else artifact_table.c[f.name]
    for f in fields(Entry)
)

SORTS: Mapping[str, str] = {
    "age": "created",
    "cost": "cost_seconds",
    "size": "size_bytes",
    "use": "last_used",
}
"""Column to sort by, for each name of an order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Artifacts to list: `beginning` is a key prefix, and `sort` a name in `SORTS` (descending)."""

    step: str | None = None
    algorithm: str | None = None
    beginning: str = ""
    parent: str | None = None
    sort: str = "age"
    limit: int | None = None
    present_only: bool = True

    def query(self) -> Select[Any]:
        """Return the SQL statement."""
        table = artifact_table.c
        query = select(*ENTRY_COLUMNS).order_by(table[SORTS[self.sort]].desc(), table.key.desc())
        for name in ("step", "algorithm", "parent"):
            if (value := getattr(self, name)) is not None:
                query = query.where(table[name] == value)
        if self.beginning:
            last = self.beginning + "g"  # keys have hexadecimal digits
            query = query.where(table.key >= self.beginning, table.key < last)
        if self.present_only:
            query = query.where(table.is_present)
        return query.limit(self.limit)


def entry_of(row: Row[Any]) -> Entry:
    """Return the entry in a row of `ENTRY_COLUMNS`; raises DatabaseDamaged if it is malformed."""
    values = dict(row._mapping)  # noqa: SLF001 - public API of SQLAlchemy
    with as_written(f"artifact {row.key}"):
        values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
        values["summary"] = dict(values["summary"])
    return Entry(**values)


def row_of(entry: Entry) -> dict[str, Any]:
    """Return the column values of an entry."""
    values = {f.name: getattr(entry, f.name) for f in fields(Entry)}
    values["facts"] = values.pop("summary")
    values["parts"] = {name: asdict(part) for name, part in entry.parts.items()}
    return values
