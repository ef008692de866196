"""Entries of the index: one for each artifact ever made."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy.engine import Row

from prefect_tune.storage.database import as_written
from prefect_tune.storage.files import Part
from prefect_tune.storage.schema import artifact_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An artifact as the index knows it; the first six fields suffice to request one.

    Attributes:
        key, parent: Prefix keys of the artifact and its predecessor (None: the data set).
        study: The study that made it.
        step, algorithm, fold: Name of the step, id of its algorithm, number of the fold.
        cost_seconds: Time to make it from its parent.
        summary: JSON values that keys of later steps need.
        is_present: Whether its bytes are in the cache.
        size_bytes: Size of all files.
        created, last_used, hits: Times in seconds since 1970, and number of uses.
        parts, place: Files by name; their folder below the folder of the key (empty if refused).
    """

    key: str
    parent: str | None
    study: str
    step: str
    algorithm: str
    fold: int
    cost_seconds: float = 0.0
    summary: Mapping[str, Any] = field(default_factory=dict)
    is_present: bool = True
    size_bytes: int = 0
    created: float = 0.0
    last_used: float = 0.0
    hits: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    place: str = ""

    @classmethod
    def of_row(cls, row: Row[Any]) -> "Entry":
        """Return the entry in a row of `COLUMNS`; raises DatabaseDamaged if it is malformed."""
        values = dict(row._mapping)  # noqa: SLF001 - public API of SQLAlchemy
        with as_written(f"artifact {row.key}"):
            values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
            values["summary"] = dict(values["summary"])
        return cls(**values)

    def to_row(self) -> dict[str, Any]:
        """Return the values of `COLUMNS`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"parts": {name: asdict(part) for name, part in self.parts.items()}}


COLUMNS = tuple(artifact_table.c[f.name] for f in fields(Entry))
