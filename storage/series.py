"""The log of each series: studies of one question over time, and decisions on its champion.

A series has a fixed question and a list of events, which are only appended. Its state is a fold
over the events. A process that changes a series holds its lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, insert_new
from prefect_tune.storage.lease import check_held
from prefect_tune.storage.schema import series_event_table, series_table


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series as stored; `created` is in seconds since 1970."""

    name: str
    created: float
    question: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SeriesEvent:
    """One event of a series; `study` is the study it is about."""

    sequence: int
    kind: str
    study: str
    body: Mapping[str, Any]
    at: float


def series_lease(name: str) -> str:
    """Return the name of the lease for changing a series."""
    return f"series {name}"


class SeriesLog:
    """All series of a store. Appending needs the lease of the series, or raises LeaseLost."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, question: Mapping[str, Any]) -> bool:
        """Insert a new series; return False and change nothing if the name is taken."""
        values = {"name": name, "created": time(), "question": dict(question)}
        with self._database.write() as connection:
            return insert_new(connection, series_table, [values])

    def series(self, name: str) -> StoredSeries | None:
        """Return the series with this name; None if it does not exist."""
        for row in self._database.rows(select(series_table).where(series_table.c.name == name)):
            return StoredSeries(**row._mapping)  # noqa: SLF001
        return None

    def names(self) -> list[str]:
        """Return the names of all series, newest first."""
        created = series_table.c.created.desc()
        return self._database.scalars(select(series_table.c.name).order_by(created))

    def events(self, name: str) -> list[SeriesEvent]:
        """Return the events of a series in order."""
        table = series_event_table.c
        columns = table.sequence, table.kind, table.study, table.body, table.at
        query = select(*columns).where(table.series == name).order_by(table.sequence)
        return [SeriesEvent(*row) for row in self._database.rows(query)]

    def append(
        self, name: str, kind: str, study: str, body: Mapping[str, Any], *, once: bool = False
    ) -> bool:
        """Append an event about a study, in one transaction; return whether it was appended.

        With `once`, nothing is appended if the series has an event of this kind for the study.
        """
        event: dict[str, Any] = {"series": name, "kind": kind, "study": study, "body": dict(body)}

        def change(connection: Connection) -> bool:
            check_held(connection, series_lease(name))
            table = series_event_table.c
            of_series = table.series == name
            if "sequence" in event:  # an attempt before an outage may have been committed
                insert_new(connection, series_event_table, event, at=epoch())
                return True
            same = of_series & (table.kind == kind) & (table.study == study)
            if once and connection.execute(select(table.sequence).where(same)).first():
                return False
            last = connection.execute(select(func.max(table.sequence)).where(of_series)).scalar()
            event["sequence"] = 0 if last is None else last + 1
            connection.execute(insert(series_event_table).values(**event, at=epoch()))
            return True

        return self._database.transact(change)

    def delete(self, name: str) -> None:
        """Delete a series with its events; its studies stay."""

        def change(connection: Connection) -> None:
            check_held(connection, series_lease(name))
            of_series = series_event_table.c.series == name
            connection.execute(delete(series_event_table).where(of_series))
            connection.execute(delete(series_table).where(series_table.c.name == name))

        self._database.transact(change)
