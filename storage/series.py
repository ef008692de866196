"""Series: studies of one question over time, and the champion among their models.

Only the process that holds the lease of a series may change the series.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, Self

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, as_written, upsert
from prefect_tune.storage.lease import check_held
from prefect_tune.storage.schema import series_run_table, series_table

_KEPT_CHAMPIONS = 4
"""Number of champions whose models are kept: the current champion and three former champions."""

Outcome = Literal[
    "first", "always", "never", "better", "not better", "too few rows", "not compared"
]


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences between a data set and an earlier data set.

    A row is identified by its key or, without key columns, by its values in the columns that both
    data sets share. For patient events, a row is identified by patient, prediction time and events.
    A changed row counts as one removed row and one added row, unless only its target changed.

    Attributes:
        columns_differing: Columns that differ in nearly all rows and therefore do not identify
            rows.
    """

    rows_added: int = 0
    rows_removed: int = 0
    targets_changed: int = 0
    columns_added: int = 0
    columns_removed: int = 0
    classes_added: int = 0
    classes_removed: int = 0
    columns_differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reused:
    """Results of earlier studies that a later study reuses.

    Attributes:
        studies: Names of the earlier studies, the newest first.
        observations: Number of earlier trials that the method gets as prior knowledge.
        starts: Number of earlier configurations that the study evaluates first.
        weight: Weight of the prior knowledge, set after the earlier configurations were evaluated
            again; 0 if the prior knowledge was dropped, None if unknown.
    """

    studies: tuple[str, ...] = ()
    observations: int = 0
    starts: int = 0
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision on whether the model of a study becomes the champion.

    Attributes:
        reason: Reason for the decision, as a text for users.
        model: Record id of the copy of the model. The record exists only if the model was promoted.
        champion: Study of the champion at the time of the decision; None if there was no champion.
        test_number: Number of the statistical test since the champion last changed; None if no test
            decided.
        n_rows: Number of rows that neither model had seen; None if the rows were not counted.
        compared: Comparison of the two models (`PairedComparison`) as JSON; None if the models were
            not compared.
    """

    promoted: bool
    outcome: Outcome
    reason: str
    model: str
    champion: str | None = None
    test_number: int | None = None
    n_rows: int | None = None
    compared: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRun:
    """A run of a series that started a new study.

    Attributes:
        number: Number of the run's study in the series.
        at: Start of the study, in seconds since 1970.
        rows: Number of rows in the data.
        changes: Differences from the data of the previous study; None if unknown.
        options: Explicitly given options that require a new study when they change, as JSON values.
        state: State of the study. Only `read_series` sets this attribute.
        loss: Loss of the incumbent when the model was last judged.
        test_loss: Loss of the model on the test rows when the model was last judged.
        decision: Latest decision on whether the model becomes the champion.
        skipped: Number of later runs that ended at once because nothing had changed.
    """

    study: str
    number: int
    at: float
    rows: int
    changes: Changes | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    reused: Reused = Reused()
    state: str = ""
    loss: float | None = None
    test_loss: float | None = None
    decision: Decision | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Champion:
    """A model that was promoted in a series.

    Attributes:
        record: Record id of the copy of the model.
        by: Reason for the promotion: a test, the `--promotion` rule, or a person.
    """

    study: str
    record: str
    by: Literal["test", "rule", "hand"]


@dataclass(frozen=True, slots=True)
class Series:
    """A series of studies of one question.

    Attributes:
        created: Time at which the series was created, in seconds since 1970.
        question: Settings that all studies of the series share, as JSON values (see
            `flows.series.question`).
        champions: Promoted models that are still stored, the current champion first.
        n_tests: Number of models tested against the champion since the champion last changed.
        runs: Runs that started a new study, ordered by number.
    """

    name: str
    created: float
    question: Mapping[str, Any]
    champions: tuple[Champion, ...] = ()
    n_tests: int = 0
    runs: tuple[SeriesRun, ...] = ()

    @property
    def champion(self) -> Champion | None:
        """The current champion, the model in use; None if the series has no champion."""
        return self.champions[0] if self.champions else None

    def run_of(self, study: str) -> SeriesRun | None:
        """Return the run that started a study; None if the study is not in the series."""
        return next((run for run in self.runs if run.study == study), None)

    def with_run(self, run: SeriesRun) -> Self:
        """Return the series with a run added, or replaced if a run with its number exists."""
        others = (other for other in self.runs if other.number != run.number)
        return replace(self, runs=tuple(sorted((*others, run), key=lambda one: one.number)))

    def with_champion(self, champion: Champion) -> Self:
        """Return the series with a new champion. The series keeps at most one model per study."""
        others = (other for other in self.champions if other.study != champion.study)
        return replace(self, champions=(champion, *others)[:_KEPT_CHAMPIONS], n_tests=0)


_FIELDS = tuple(one.name for one in fields(Series))
"""Columns of the table of series, and `runs` as the last field."""


def series_lease(name: str) -> str:
    """Return the name of the lease that a process needs to change a series."""
    return f"series {name}"


class SeriesTable:
    """All series of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def names(self) -> list[str]:
        """Return the names of all series, newest first."""
        created = series_table.c.created.desc()
        return self._database.scalars(select(series_table.c.name).order_by(created))

    def find(self, name: str) -> Series | None:
        """Return the series with the given name; None if the series does not exist.

        Raises DatabaseDamaged if a document of the series is malformed.
        """
        from msgspec import convert  # noqa: PLC0415 - most commands need no series

        table = series_run_table.c
        runs = select(table.body).where(table.series == name).order_by(table.number)
        remedy = f", or remove the series with `prefect-tune series {name} --remove`"
        for row in self._database.rows(select(series_table).where(series_table.c.name == name)):
            with as_written(f"series {name}", remedy):
                values = (*row, self._database.scalars(runs))
                return convert(dict(zip(_FIELDS, values, strict=True)), Series)
        return None

    def write(self, series: Series, run: SeriesRun | None, connection: Connection) -> None:
        """Write a series, and one of its runs if given, in the caller's transaction.

        Other runs stay unchanged. Raises LeaseLost unless this process holds the series' lease.
        """
        from msgspec import to_builtins  # noqa: PLC0415 - as in `find`

        check_held(connection, series_lease(series.name))
        row = {name: getattr(series, name) for name in _FIELDS if name != "runs"}
        upsert(connection, series_table, to_builtins(row))
        if run is not None:
            row = {"series": series.name, "number": run.number, "body": to_builtins(run)}
            upsert(connection, series_run_table, row)

    def save(self, series: Series, run: SeriesRun | None = None) -> None:
        """Write a series, and one of its runs if given, in a new transaction."""
        self._database.transact(partial(self.write, series, run))

    def delete(self, name: str) -> None:
        """Delete a series with its runs, but not the studies of the series."""

        def change(connection: Connection) -> None:
            check_held(connection, series_lease(name))
            for table, column in ((series_run_table, "series"), (series_table, "name")):
                connection.execute(delete(table).where(table.c[column] == name))

        self._database.transact(change)
