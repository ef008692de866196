"""The ledger: studies, their events in order, and where each trial stands. It comes first.

Events are only ever appended; the table of trials is what they add up to, kept because a trial that
was running when its process died is known. Documents are JSON values: the ledger does not know what
they mean.
"""

from collections.abc import Callable, Iterator, Mapping
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

_EVENTS = select(event_table.c.sequence, event_table.c.kind, event_table.c.body, event_table.c.at)
_ROWS_AT_ONCE = 500
"""Documents held at the same time where they are read one by one."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study as the ledger has it.

    Attributes:
        name: Its name.
        created: Seconds since 1970.
        state: Where it stands.
        problem: What may not change in its life.
        settings: What it was last started with.
        result: Its outcome.
        seconds: Seconds that its sessions have lasted.
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
    """One event of a study."""

    sequence: int
    kind: str
    body: Mapping[str, Any]
    at: float


class Ledger:
    """Studies and what happened in them.

    Args:
        database: Where they are kept.
        lease: Lease that this process must hold to change a study; checked with each change, and
            kept until that is committed.
    """

    def __init__(self, database: Database, lease: str | None = None) -> None:
        self._database, self._lease = database, lease
        self._last_sequence: dict[str, int] = {}

    def create_study(
        self, name: str, problem: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> bool:
        """Enter a new study; return False and change nothing if the name is taken."""
        documents = {"problem": dict(problem), "settings": dict(settings), "result": {}}
        new = insert(study_table).values(name=name, created=time(), state="new", **documents)
        try:
            with self._database.write() as connection:
                connection.execute(new)
        except IntegrityError:
            return False
        return True

    def study(self, name: str) -> StoredStudy | None:
        """Return the study of that name, if there is one."""
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
        """Set columns of a study: state, settings or result.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        statement = update(study_table).where(study_table.c.name == name).values(**values)
        self._change(lambda connection: connection.execute(statement))

    def delete_study(self, name: str) -> None:
        """Remove a study with its events, memo, trials and sessions.

        Raises:
            LeaseLost: If another process has taken over the study.
        """

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
        """Append an event, and set the state of its trial with all else, in one transaction.

        Args:
            study: Name of the study.
            kind: Kind of the event.
            body: The event.
            trial: Its trial from now on.
            memo: Replaces the memo of the study, unless None.
            result: Replaces the result of the study, unless None.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        event: dict[str, Any] = {"study": study, "kind": kind, "body": dict(body)}

        def change(connection: Connection) -> None:
            if "sequence" in event:  # it may have been committed before the database went away
                insert_new(connection, event_table, event, at=epoch())
            else:
                event["sequence"] = self._next_sequence(connection, study)
                connection.execute(insert(event_table).values(**event, at=epoch()))
            self._set_trial(connection, study, trial)
            if memo is not None:
                upsert(connection, memo_table, {"study": study, "body": dict(memo)})
            if result is not None:
                of_study = update(study_table).where(study_table.c.name == study)
                connection.execute(of_study.values(result=dict(result)))

        self._change(change)
        self._last_sequence[study] = event["sequence"]

    def _next_sequence(self, connection: Connection, study: str) -> int:
        """Return the place of the next event; who holds the lease is the only one to append."""
        last = self._last_sequence.get(study) if self._lease else None
        if last is None:
            query = select(func.max(event_table.c.sequence)).where(event_table.c.study == study)
            last = connection.execute(query).scalar()
        return 0 if last is None else last + 1

    def memo(self, study: str) -> Mapping[str, Any] | None:
        """Return the last memo of a study, if there is one."""
        return self._database.scalar(select(memo_table.c.body).where(memo_table.c.study == study))

    def set_trial(self, study: str, trial: Mapping[str, Any]) -> None:
        """Set where a trial stands, when no event of the optimizer says so.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        self._change(lambda connection: self._set_trial(connection, study, trial))

    def events(self, study: str, kind: str | None = None) -> list[LedgerEvent]:
        """Return all events of a study, or those of one kind, in order."""
        query = _EVENTS.where(event_table.c.study == study).order_by(event_table.c.sequence)
        if kind is not None:
            query = query.where(event_table.c.kind == kind)
        return [LedgerEvent(*row) for row in self._database.rows(query)]

    def asking_seconds(self, study: str) -> float:
        """Return the seconds that all asks of a study took."""
        seconds = func.sum(event_table.c.body["seconds"].as_float())
        query = select(seconds).where(event_table.c.study == study, event_table.c.kind == "ask")
        return float(self._database.scalar(query) or 0.0)

    def event_values(
        self, study: str, kind: str, *places: tuple[str, ...]
    ) -> list[tuple[Any, ...]]:
        """Return values from the bodies of all events of one kind, in order.

        Args:
            study: Name of the study.
            kind: Kind of the events.
            places: Where each value is: its name, after those of the objects that it is in.

        Returns:
            For each event its values in the order of `places`, numbers to 15 digits; None for what
            is not there.
        """
        table = event_table.c
        query = select(*(table.body[place] for place in places))
        query = query.where(table.study == study, table.kind == kind).order_by(table.sequence)
        return [tuple(row) for row in self._database.rows(query)]

    def each_event(self, study: str) -> Iterator[LedgerEvent]:
        """Yield all events of a study in order, without holding them all."""
        query = _EVENTS.where(event_table.c.study == study)
        for row in self._each(query, event_table.c.sequence):
            yield LedgerEvent(*row)

    def each_trial(self, study: str) -> Iterator[Mapping[str, Any]]:
        """Yield all trials of a study, by number, without holding them all."""
        table = trial_table.c
        query = select(table.number, table.body).where(table.study == study)
        for row in self._each(query, table.number):
            yield row.body

    def _each(self, query: Select[Any], number: ColumnElement[int]) -> Iterator[Row[Any]]:
        """Yield rows by their number, some at a time; no connection is held between."""
        last = -1
        while True:
            page = query.where(number > last).order_by(number).limit(_ROWS_AT_ONCE)
            rows = self._database.rows(page)
            yield from rows
            if len(rows) < _ROWS_AT_ONCE:
                return
            last = rows[-1][0]

    def trials(self, study: str, *states: str) -> list[Mapping[str, Any]]:
        """Return all trials of a study, or those in some states, by number."""
        table = trial_table.c
        query = select(table.body).where(table.study == study).order_by(table.number)
        if states:
            query = query.where(table.state.in_(states))
        return self._database.scalars(query)

    def start_session(self, study: str) -> int:
        """Begin to count the time that a process works on a study; return the session's id.

        Raises:
            LeaseLost: If another process has taken over the study.
        """

        def change(connection: Connection) -> int:  # one of no seconds more does no harm
            started = insert(session_table).values(study=study, started=epoch(), seconds=0.0)
            (number,) = connection.execute(started).inserted_primary_key or (0,)
            return int(number)

        return self._change(change)

    def beat(self, session: int, seconds: float) -> None:
        """Note how long a session has lasted so far.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        lasted = update(session_table).where(session_table.c.id == session).values(seconds=seconds)
        self._change(lambda connection: connection.execute(lasted))

    def _change(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change in a transaction in which this process still holds the lease."""

        def if_held(connection: Connection) -> Result:
            if self._lease is not None:
                check_held(connection, self._lease)
            return change(connection)

        return self._database.transact(if_held)

    def _set_trial(self, connection: Connection, study: str, trial: Mapping[str, Any]) -> None:
        values = {"number": trial["number"], "state": trial["state"], "body": dict(trial)}
        upsert(connection, trial_table, {"study": study, **values})
