"""The ledger: studies, their events in order, and where each trial stands. It comes first.

Events are only ever appended; the table of trials is what they add up to, kept because a trial that
was running when its process died is known. Documents are JSON values: the ledger does not know what
they mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import time
from typing import Any

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
"""Documents held at the same time where they are read one by one."""


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
        values = {
            "name": name,
            "created": time(),
            "state": "new",
            "problem": dict(problem),
            "settings": dict(settings),
            "result": {},
        }
        try:
            with self._database.write() as connection:
                connection.execute(insert(study_table).values(values))
        except IntegrityError:
            return False
        return True

    def study(self, name: str) -> StoredStudy | None:
        """Return the study of that name, if there is one."""
        with self._database.read() as connection:
            row = connection.execute(select(study_table).where(study_table.c.name == name)).first()
            if row is None:
                return None
            seconds = connection.execute(
                select(func.sum(session_table.c.seconds)).where(session_table.c.study == name)
            ).scalar()
        return StoredStudy(**row._mapping, seconds=float(seconds or 0.0))  # noqa: SLF001

    def study_names(self) -> list[str]:
        """Return the names of all studies, newest first."""
        with self._database.read() as connection:
            query = select(study_table.c.name).order_by(study_table.c.created.desc())
            return list(connection.execute(query).scalars())

    def update_study(self, name: str, **values: Any) -> None:
        """Set columns of a study: state, settings or result.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        statement = update(study_table).where(study_table.c.name == name).values(**values)

        def change(connection: Connection) -> None:
            self._check_lease(connection)
            connection.execute(statement)

        self._database.transact(change)

    def delete_study(self, name: str) -> None:
        """Remove a study with its events, memo, trials and sessions.

        Raises:
            LeaseLost: If another process has taken over the study.
        """

        def change(connection: Connection) -> None:
            self._check_lease(connection)
            for table, column in (
                (event_table, event_table.c.study),
                (memo_table, memo_table.c.study),
                (trial_table, trial_table.c.study),
                (session_table, session_table.c.study),
                (study_table, study_table.c.name),
            ):
                connection.execute(delete(table).where(column == name))

        self._database.transact(change)

    def append(
        self,
        study: str,
        kind: str,
        body: Mapping[str, Any],
        trial: Mapping[str, Any],
        memo: Mapping[str, Any] | None = None,
    ) -> None:
        """Append an event and set where its trial now stands, both or neither.

        Args:
            study: Name of the study.
            kind: Kind of the event.
            body: The event.
            trial: Its trial from now on.
            memo: Replaces the memo of the study, unless None.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        event: dict[str, Any] = {"study": study, "kind": kind, "body": dict(body)}

        def change(connection: Connection) -> None:
            self._check_lease(connection)
            if "sequence" in event:  # it may have been committed before the database went away
                insert_new(connection, event_table, event, at=epoch())
            else:
                event["sequence"] = self._next_sequence(connection, study)
                connection.execute(insert(event_table).values(**event, at=epoch()))
            self._set_trial(connection, study, trial)
            if memo is not None:
                upsert(connection, memo_table, {"study": study, "body": dict(memo)})

        self._database.transact(change)
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
        query = select(memo_table.c.body).where(memo_table.c.study == study)
        with self._database.read() as connection:
            return connection.execute(query).scalar()

    def set_trial(self, study: str, trial: Mapping[str, Any]) -> None:
        """Set where a trial stands, when no event of the optimizer says so.

        Raises:
            LeaseLost: If another process has taken over the study.
        """

        def change(connection: Connection) -> None:
            self._check_lease(connection)
            self._set_trial(connection, study, trial)

        self._database.transact(change)

    def events(self, study: str, kind: str | None = None) -> list[LedgerEvent]:
        """Return all events of a study, or those of one kind, in order."""
        query = (
            select(event_table.c.sequence, event_table.c.kind, event_table.c.body, event_table.c.at)
            .where(event_table.c.study == study)
            .order_by(event_table.c.sequence)
        )
        if kind is not None:
            query = query.where(event_table.c.kind == kind)
        with self._database.read() as connection:
            return [LedgerEvent(*row) for row in connection.execute(query)]

    def asking_seconds(self, study: str) -> float:
        """Return the seconds that all asks of a study took."""
        seconds = func.sum(event_table.c.body["seconds"].as_float())
        query = select(seconds).where(event_table.c.study == study, event_table.c.kind == "ask")
        with self._database.read() as connection:
            return float(connection.execute(query).scalar() or 0.0)

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
        with self._database.read() as connection:
            return [tuple(row) for row in connection.execute(query)]

    def each_event(self, study: str) -> Iterator[LedgerEvent]:
        """Yield all events of a study in order, without holding them all."""
        table = event_table.c
        query = select(table.sequence, table.kind, table.body, table.at)
        for row in self._each(query.where(table.study == study), table.sequence):
            yield LedgerEvent(row.sequence, row.kind, row.body, row.at)

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
            with self._database.read() as connection:
                rows = connection.execute(page).all()
            yield from rows
            if len(rows) < _ROWS_AT_ONCE:
                return
            last = rows[-1][0]

    def trials(self, study: str, *states: str) -> list[Mapping[str, Any]]:
        """Return all trials of a study, or those in some states, by number."""
        query = (
            select(trial_table.c.body)
            .where(trial_table.c.study == study)
            .order_by(trial_table.c.number)
        )
        if states:
            query = query.where(trial_table.c.state.in_(states))
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def start_session(self, study: str) -> int:
        """Begin to count the time that a process works on a study; return the session's id.

        Raises:
            LeaseLost: If another process has taken over the study.
        """

        def change(connection: Connection) -> int:  # one of no seconds more does no harm
            self._check_lease(connection)
            result = connection.execute(
                insert(session_table).values(study=study, started=epoch(), seconds=0.0)
            )
            (number,) = result.inserted_primary_key or (0,)
            return int(number)

        return self._database.transact(change)

    def beat(self, session: int, seconds: float) -> None:
        """Note how long a session has lasted so far.

        Raises:
            LeaseLost: If another process has taken over the study.
        """
        lasted = update(session_table).where(session_table.c.id == session).values(seconds=seconds)

        def change(connection: Connection) -> None:
            self._check_lease(connection)
            connection.execute(lasted)

        self._database.transact(change)

    def _check_lease(self, connection: Connection) -> None:
        if self._lease is not None:
            check_held(connection, self._lease)

    def _set_trial(self, connection: Connection, study: str, trial: Mapping[str, Any]) -> None:
        values = {"number": trial["number"], "state": trial["state"], "body": dict(trial)}
        upsert(connection, trial_table, {"study": study, **values})
