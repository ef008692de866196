"""The ledger: studies, their events in order, and the state of each trial.

Every event is written to the ledger before anything else depends on the event. Events are only
appended. The table of trials holds the state of each trial after its latest event, and shows which
trials were running when a process died.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import time
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, delete, func, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from prefect_tune.storage.database import Database, epoch, insert_new, upsert
from prefect_tune.storage.lease import check_held
from prefect_tune.storage.schema import (
    event_table,
    memo_table,
    session_table,
    study_table,
    trial_table,
)

_ROWS_AT_ONCE = 500
"""Number of rows in memory at a time while events or trials are streamed."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study as stored in the ledger.

    Attributes:
        created: Time at which the study was created, in seconds since 1970.
        problem: JSON documents that are fixed when the study is created.
        settings: Settings with which the study was last started.
        seconds: Total duration of all sessions of the study.
    """

    name: str
    created: float
    state: str
    problem: Mapping[str, Any]
    settings: Mapping[str, Any]
    result: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One event of a study, such as a proposed configuration or the outcome of a trial.

    Attributes:
        sequence: Number of the event within its study, from 0.
        at: Time of the event, in seconds since 1970.
    """

    sequence: int
    kind: str
    body: Mapping[str, Any]
    at: float


class Ledger:
    """Studies and their events. If `lease` is given, changes raise LeaseLost unless it is held."""

    def __init__(self, database: Database, lease: str | None = None) -> None:
        self._database, self._lease = database, lease

    def create_study(
        self,
        name: str,
        problem: Mapping[str, Any],
        settings: Mapping[str, Any],
        events: Iterable[tuple[str, Mapping[str, Any]]] = (),
        also: Callable[[Connection], None] = lambda _: None,
    ) -> bool:
        """Insert a new study. If the name is taken, change nothing and return False.

        Args:
            name: Name of the new study.
            problem: JSON documents that stay fixed for the whole study.
            settings: Settings with which the study is first started.
            events: First events of the study (kind and body), which belong to no trial.
            also: Function that makes further changes in the same transaction.
        """
        documents = {"problem": dict(problem), "settings": dict(settings), "result": {}}
        new = insert(study_table).values(name=name, created=time(), state="new", **documents)
        try:
            with self._database.write() as connection:
                connection.execute(new)
                for sequence, (kind, body) in enumerate(events):
                    event = {"study": name, "sequence": sequence, "kind": kind, "body": dict(body)}
                    connection.execute(insert(event_table).values(**event, at=epoch()))
                also(connection)
        except IntegrityError:
            return False
        return True

    def study(self, name: str) -> StoredStudy | None:
        """Return the study with this name; None if it does not exist."""
        lasted = select(func.sum(session_table.c.seconds)).where(session_table.c.study == name)
        for row in self._database.rows(select(study_table).where(study_table.c.name == name)):
            seconds = float(self._database.scalar(lasted) or 0.0)
            return StoredStudy(**row._mapping, seconds=seconds)  # noqa: SLF001
        return None

    def study_names(self) -> list[str]:
        """Return the names of all studies, newest first."""
        return self._database.scalars(
            select(study_table.c.name).order_by(study_table.c.created.desc())
        )

    def update_study(self, name: str, **values: Any) -> None:
        """Set columns in the row of a study, such as `state`, `settings` or `result`."""
        statement = update(study_table).where(study_table.c.name == name).values(**values)
        self._change(lambda connection: connection.execute(statement))

    def delete_study(self, name: str) -> None:
        """Delete a study with its events, memo, trials and sessions."""

        def change(connection: Connection) -> None:
            for table in (event_table, memo_table, trial_table, session_table):
                connection.execute(delete(table).where(table.c.study == name))
            connection.execute(delete(study_table).where(study_table.c.name == name))

        self._change(change)

    def append(
        self,
        study: str,
        kind: str,
        body: Mapping[str, Any],
        trial: Mapping[str, Any],
        *,
        memo: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Append an event, and update the document of its trial, in one transaction.

        The memo and the result of the study are also set, unless they are None.
        """
        event: dict[str, Any] = {"study": study, "kind": kind, "body": dict(body)}

        def change(connection: Connection) -> None:
            if "sequence" in event:  # an attempt before an outage may have been committed
                insert_new(connection, event_table, event, at=epoch())
            else:
                sequence = event_table.c.sequence
                last_one = select(func.max(sequence)).where(event_table.c.study == study)
                last = connection.execute(last_one).scalar()
                event["sequence"] = 0 if last is None else last + 1
                connection.execute(insert(event_table).values(**event, at=epoch()))
            self._set_trial(connection, study, trial)
            if memo is not None:
                upsert(connection, memo_table, {"study": study, "body": dict(memo)})
            if result is not None:
                of_study = update(study_table).where(study_table.c.name == study)
                connection.execute(of_study.values(result=dict(result)))

        self._change(change)

    def memo(self, study: str) -> Mapping[str, Any] | None:
        """Return the latest memo of a study; None if the study has no memo."""
        return self._database.scalar(select(memo_table.c.body).where(memo_table.c.study == study))

    def set_trial(self, study: str, trial: Mapping[str, Any]) -> None:
        """Set the document of a trial without appending an event."""
        self._change(lambda connection: self._set_trial(connection, study, trial))

    def asking_seconds(self, study: str) -> float:
        """Return the total time that a study's method took for its proposals, in seconds."""
        seconds = func.sum(event_table.c.body["seconds"].as_float())
        query = select(seconds).where(event_table.c.study == study, event_table.c.kind == "ask")
        return float(self._database.scalar(query) or 0.0)

    def each_event(self, study: str, number: int | None = None) -> Iterator[LedgerEvent]:
        """Yield the events of a study, or of one of its trials, in order and in bounded memory."""
        table = event_table.c
        query = select(table.sequence, table.kind, table.body, table.at).where(table.study == study)
        if number is not None:
            query = query.where(table.body["number"].as_integer() == number)
        for row in self._each(query, table.sequence):
            yield LedgerEvent(*row)

    def trial(self, study: str, number: int) -> Mapping[str, Any] | None:
        """Return the document of a trial; None if the trial does not exist."""
        table = trial_table.c
        return self._database.scalar(
            select(table.body).where(table.study == study, table.number == number)
        )

    def trials(self, study: str, *states: str) -> list[Mapping[str, Any]]:
        """Return the documents of a study's trials by number, restricted to `states` if given."""
        return list(self.each_trial(study, *states))

    def each_trial(self, study: str, *states: str) -> Iterator[Mapping[str, Any]]:
        """Yield the documents of a study's trials by number, in bounded memory; see `trials`."""
        table = trial_table.c
        query = select(table.number, table.body).where(table.study == study)
        if states:
            query = query.where(table.state.in_(states))
        for row in self._each(query, table.number):
            yield row.body

    def _each(self, query: Select[Any], number: ColumnElement[int]) -> Iterator[Row[Any]]:
        last = -1
        while True:
            page = query.where(number > last).order_by(number).limit(_ROWS_AT_ONCE)
            rows = self._database.rows(page)
            yield from rows
            if len(rows) < _ROWS_AT_ONCE:
                return
            last = rows[-1][0]

    def start_session(self, study: str) -> int:
        """Start a session, which counts the time a process spends on a study; return its id."""

        def change(connection: Connection) -> int:  # a repeated call may leave a session of 0 s
            started = insert(session_table).values(study=study, started=epoch(), seconds=0.0)
            (number,) = connection.execute(started).inserted_primary_key or (0,)
            return int(number)

        return self._change(change)

    def beat(self, session: int, seconds: float) -> None:
        """Record how long a session has lasted so far."""
        lasted = update(session_table).where(session_table.c.id == session).values(seconds=seconds)
        self._change(lambda connection: connection.execute(lasted))

    def _change(self, change: Callable[[Connection], Result]) -> Result:
        def if_held(connection: Connection) -> Result:
            if self._lease is not None:
                check_held(connection, self._lease)
            return change(connection)

        return self._database.transact(if_held)

    def _set_trial(self, connection: Connection, study: str, trial: Mapping[str, Any]) -> None:
        values = {"number": trial["number"], "state": trial["state"], "body": dict(trial)}
        upsert(connection, trial_table, {"study": study, **values})
