"""Migrations: create the tables of a new database, and upgrade an older one.

An older database is upgraded when it is opened, in one locked transaction, by Alembic's operations.
To change the tables, change them in `storage.schema`, raise `SCHEMA` there to N, and add a function
to `_UPGRADES` that makes schema N from N - 1:

    def _to_n(op: "Operations") -> None:
        op.add_column("trials", Column("loss", Double, nullable=True))

Then pin the tables in the tests. Add columns and tables rather than drop them, because running
processes of the previous version fail without a column they use (schema 3). Likewise keep the keys
of documents (schema 4). If a previous version prepares a study before the upgrade and begins it
afterwards, the study has the older form and is damaged.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import (
    JSON,
    Integer,
    String,
    Text,
    cast,
    column,
    delete,
    func,
    insert,
    inspect,
    select,
    table,
    text,
    update,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from prefect_tune.storage.database import Database
from prefect_tune.storage.notices import warn
from prefect_tune.storage.schema import (
    FIRST_SCHEMA,
    SCHEMA,
    metadata,
    revision_table,
    series_event_table,
    series_table,
    store_table,
)

if TYPE_CHECKING:
    from alembic.operations import Operations

_LOCK = 0x7072_7475
"""PostgreSQL advisory lock for changes of the tables."""


def bring_up_to_date(database: Database) -> int:
    """Create or upgrade the tables in one transaction; return the number of the schema.

    Databases that are newer, or older than the first schema, stay unchanged. Raises DatabaseLost.
    """
    with database.read() as connection:
        if _number_of_store(connection) == SCHEMA:
            return SCHEMA  # the usual case, which must be fast
    with database.write() as connection:
        lock_tables(connection)
        number = _number(connection)
        if number is None:
            metadata.create_all(connection)
            _note(connection, SCHEMA)
        elif number < FIRST_SCHEMA or number >= SCHEMA:
            return number
        else:
            _upgrade(connection, number)
            _note(connection, SCHEMA)
            connection.execute(update(store_table).values(schema=SCHEMA))
    return SCHEMA


def lock_tables(connection: Connection) -> None:
    """Lock tables against other processes until a writing transaction has ended."""
    if connection.dialect.name == "postgresql":  # SQLite has one writing transaction at a time
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _number_of_store(connection: Connection) -> int | None:
    try:
        return connection.execute(select(store_table.c.schema)).scalar()
    except DBAPIError:  # a new database lacks the table
        return None


def _number(connection: Connection) -> int | None:
    tables = inspect(connection).get_table_names()
    if revision_table.name in tables:
        number = connection.execute(select(revision_table.c.version_num)).scalar()
        return None if number is None else int(number)
    if store_table.name not in tables:
        return None
    return _number_of_store(connection) or 1


def _note(connection: Connection, number: int) -> None:
    revision_table.create(connection, checkfirst=True)
    connection.execute(delete(revision_table))
    connection.execute(insert(revision_table).values(version_num=str(number)))


def _upgrade(connection: Connection, number: int) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    operations = Operations(MigrationContext.configure(connection))
    for later in range(number + 1, SCHEMA + 1):
        _UPGRADES[later](operations)


_ORDER = ["is_present", "is_cheap", "last_used", "key"]


def _to_3(op: "Operations") -> None:
    """Drop columns for other eviction orders; only the last use remains."""
    url, policy = op.get_bind().execute(text("SELECT url, policy FROM store")).first() or ("", "")
    if policy == "gdsf":
        warn(
            "eviction",
            f"the store {url} used the eviction order gdsf, which was removed; the store now "
            "evicts the least recently used artifacts",
            url,
        )
    # SQLite before 3.35 lacks DROP COLUMN: Alembic then copies the table, which is slower.
    recreate: Literal["auto", "never"] = (
        "auto" if sqlite3.sqlite_version_info < (3, 35) else "never"
    )
    with op.batch_alter_table("artifacts", recreate=recreate) as artifacts:
        artifacts.drop_index("artifacts_by_priority")
        artifacts.drop_column("priority")
        artifacts.create_index("artifacts_by_use", _ORDER)
    with op.batch_alter_table("store", recreate=recreate) as store:
        store.drop_column("policy")
        store.drop_column("clock")


_DOCUMENT = JSON(none_as_null=True)
_STUDIES = table(
    "studies", column("name", String), column("settings", _DOCUMENT), column("result", _DOCUMENT)
)
_TRIALS = table(
    "trials", column("study", String), column("number", Integer), column("state", String),
    column("body", _DOCUMENT),
)  # fmt: skip
_AS_TEXT = cast(_STUDIES.c.settings, Text)
"""Settings as text, so that one damaged document does not stop the upgrade of others."""
_OF_SOURCE: Mapping[str, Any] = {
    **dict.fromkeys(("data", "target", "labels", "format", "test", "group")),
    "drop": [],
    "categorical": [],
    "drop_missing_target": False,
}
"""Options formerly in `source`, with defaults for missing ones."""
_SAME = (
    "test_size", "folds", "holdout", "space", "method", "metric", "positive", "constraint",
    "epochs", "race", "seed", "option", "trials",
)  # fmt: skip
_RENAMED = {
    "start": "start_from",
    "budget": "budget_seconds",
    "trial_timeout": "trial_seconds",
    "trial_memory": "trial_memory_bytes",
}


def _to_4(op: "Operations") -> None:
    """Separate options and facts in settings; old keys stay for processes of the old version."""
    connection = op.get_bind()
    for name, settings in connection.execute(select(_STUDIES.c.name, _AS_TEXT)).all():
        try:
            former = json.loads(settings)
            upgraded = {**former, **_settings_of_4(former)}
        except (KeyError, TypeError, AttributeError, ValueError):
            continue  # damaged: reported when the study is read
        of_study = _STUDIES.c.name == name
        connection.execute(_STUDIES.update().where(of_study).values(settings=upgraded))


def _settings_of_4(former: Mapping[str, Any]) -> dict[str, Any]:
    source = former["source"]
    options = {
        **{name: source.get(name, default) for name, default in _OF_SOURCE.items()},
        **{name: former[name] for name in _SAME},
        **{name: former[earlier] for name, earlier in _RENAMED.items()},
        "ensemble": _ensemble(former["ensemble"]),
        "no_cache": not former["use_cache"],
    }
    return {
        "options": options,
        "data_name": former["data_name"],
        "chance_loss": former["chance_loss"],
        "predicts": source.get("predicts"),
        "aside": source.get("aside", []),
        "quantity_digests": former["quantity_digests"],
        "start_configurations": former["start"],
        "earlier_seconds": former.get("earlier_seconds", []),
        "flow_run_id": former["flow_run_id"],
    }


def _ensemble(former: int | str | None) -> dict[str, Any] | None:
    if former is None:
        return None
    kind = former if isinstance(former, str) else "single" if former == 1 else "greedy"
    return {"kind": kind, "size": former if kind == "greedy" and former != kind else None}


def _to_5(op: "Operations") -> None:
    """Add the leading trial, or the one nearest to the constraints, to the result of a study.

    Readers used to rank the trials; their ranking is kept here. A running process of the previous
    version writes results without these keys, so its study shows no leader until it is resumed.
    """
    connection = op.get_bind()
    as_texts = _AS_TEXT, cast(_STUDIES.c.result, Text)
    for name, *texts in connection.execute(select(_STUDIES.c.name, *as_texts)).all():
        of_study = (_TRIALS.c.study == name) & _TRIALS.c.state.in_(("complete", "stopped"))
        in_order = select(cast(_TRIALS.c.body, Text)).where(of_study).order_by(_TRIALS.c.number)
        bodies = connection.execute(in_order)
        try:
            settings, result = map(json.loads, texts)
            bounds = settings["options"].get("constraint") or ()
            leaders = _leaders(map(json.loads, bodies.scalars()), bounds, result.get("incumbent"))
        except (KeyError, TypeError, AttributeError, ValueError):
            continue  # damaged: reported when the study is read
        change = _STUDIES.update().where(_STUDIES.c.name == name)
        connection.execute(change.values(result={**result, **leaders}))


def _leaders(
    trials: Iterable[Mapping[str, Any]], bounds: Iterable[Mapping[str, Any]], chosen: int | None
) -> dict[str, int | None]:
    """Return the leading trial (the method's choice, if any), or the nearest one."""
    limits = {_quantity_name(bound["quantity"]): float(bound["bound"]) for bound in bounds}
    best: tuple[float, int | None] = inf, None
    nearest: tuple[bool, float, float, int | None] = True, inf, inf, None
    for trial in trials:
        evaluation, number = trial["evaluation"], int(trial["number"])
        loss, is_partial = float(evaluation["loss"]), trial["state"] != "complete"
        measured = evaluation.get("constraints", {})
        excess = max((_excess(measured.get(q), bound) for q, bound in limits.items()), default=0.0)
        # Trials are ordered by number: the first of equals wins.
        if excess > 0:
            if nearest[-1] is None or (is_partial, excess, loss) < nearest[:-1]:
                nearest = is_partial, excess, loss, number
        elif not is_partial and (best[-1] is None or loss < best[0]):
            best = loss, number
    leader = chosen if chosen is not None else best[-1]
    return {"best_trial": leader, "nearest_trial": nearest[-1] if leader is None else None}


def _excess(value: float | None, bound: float) -> float:
    if value is None or isnan(value):
        return inf
    return (value - bound) / bound if bound else value


def _quantity_name(quantity: Mapping[str, Any]) -> str:
    arguments = [quantity["column"]] if quantity.get("column") else []
    if bins := quantity.get("bins"):
        arguments.append(f"bins={':'.join(f'{edge:.15g}' for edge in bins)}")
    if quantity.get("metric"):
        arguments.append(f"metric={quantity['metric']}")
    return f"{quantity['name']}({', '.join(arguments)})" if arguments else str(quantity["name"])


def _to_6(_: "Operations") -> None:
    """Refuse earlier versions, which do not read the new parts of documents.

    Data sets have row readers, settings the states of input files, and problems the modules behind
    a space. Earlier documents stay unchanged, because the missing parts are unknown.
    """


def _to_7(op: "Operations") -> None:
    """Add the tables of series."""
    for table_of_series in (series_table, series_event_table):
        table_of_series.create(op.get_bind(), checkfirst=True)


_UPGRADES: dict[int, Callable[["Operations"], None]] = {
    3: _to_3,
    4: _to_4,
    5: _to_5,
    6: _to_6,
    7: _to_7,
}
"""Function that makes each schema from the previous one."""
