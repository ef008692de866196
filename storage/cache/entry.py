"""Entries of the index: one for each artifact that was ever made, and which of them to list."""

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
    """An artifact as the index knows it.

    Attributes:
        key: Prefix key.
        parent: Key of the artifact it was made from; None when made from the data set.
        study: The study that made it.
        step: Name of the step.
        algorithm: Id of the step's algorithm.
        fold: Number of the fold.
        is_present: Whether its bytes are in the cache.
        size_bytes: Size of all its parts.
        cost_seconds: Time to make it from its parent.
        created: Seconds since 1970.
        last_used: Seconds since 1970, right to within a second.
        hits: How often it was served.
        summary: What keys of later steps need, as JSON values.
        parts: Its files by name.
        place: The folder of this publication, below that of the key; empty if it was refused.
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
"""Columns by which artifacts are sorted, by the name of the order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which artifacts to list, and in which order.

    Attributes:
        step: Only of this step.
        algorithm: Only of this algorithm.
        beginning: Only those whose key begins so.
        parent: Only those made from this one.
        sort: One of `SORTS`; the largest or newest comes first.
        limit: At most so many.
        present_only: Only those whose bytes are in the cache.
    """

    step: str | None = None
    algorithm: str | None = None
    beginning: str = ""
    parent: str | None = None
    sort: str = "age"
    limit: int | None = None
    present_only: bool = True

    def query(self) -> Select[Any]:
        """Return the statement."""
        table = artifact_table.c
        query = select(*ENTRY_COLUMNS).order_by(table[SORTS[self.sort]].desc(), table.key.desc())
        for name in ("step", "algorithm", "parent"):
            if (value := getattr(self, name)) is not None:
                query = query.where(table[name] == value)
        if self.beginning:
            last = self.beginning + "g"  # keys are of hexadecimal digits
            query = query.where(table.key >= self.beginning, table.key < last)
        if self.present_only:
            query = query.where(table.is_present)
        return query.limit(self.limit)


def entry_of(row: Row[Any]) -> Entry:
    """Return the entry that a row of `ENTRY_COLUMNS` holds.

    Raises:
        DatabaseDamaged: If it is not as it was written.
    """
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    with as_written(f"artifact {row.key}"):
        values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
        values["summary"] = dict(values["summary"])
    return Entry(**values)


def row_of(entry: Entry) -> dict[str, Any]:
    """Return the values of an entry by column, to be written."""
    values = {f.name: getattr(entry, f.name) for f in fields(Entry)}
    values["facts"] = values.pop("summary")
    values["parts"] = {name: asdict(part) for name, part in entry.parts.items()}
    return values
