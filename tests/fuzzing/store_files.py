"""A finished study with damaged files and rows, and commands that read it."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from hypothesis import strategies as st

from fuzzing.ground import REFUSALS, Ground, check_message, files_in
from fuzzing.options import without_flows
from fuzzing.values import documents, numbers
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.problem import open_store

_STUDY = "flashed"
_NEW_FILES = {"out.csv", "model.pkl", "part"}
_RUN = ("run", "table.csv", "--target", "target")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", _STUDY, "--json"),
    ("trials", "picky", "--failed"),
    ("study", "rm", _STUDY),
    ("artifacts", "ls", "--study", _STUDY, "--json"),
    ("artifacts", "show", "{key}"),
    ("artifacts", "export", "{key}", "part", "--part", "estimator"),
    ("artifacts", "verify", "--repair"),
    ("artifacts", "stats"),
    ("artifacts", "prune", "--to", "0B"),
    ("predict", _STUDY, "table.csv", "--out", "out.csv"),
    ("export", _STUDY, "model.pkl"),
    ("retry", "picky"),
    (*_RUN, "--study", _STUDY),
    (*_RUN, "--space", "small", "--study", "another"),
    ("open", _STUDY),
)
"""What looks at the study; `open` opens it as a flow does."""
_NO_JSON = "{"
"""In place of a document: the beginning of one."""
_DOCUMENTS = (
    "studies.problem", "studies.settings", "studies.result", "studies.state", "events.body",
    "events.kind", "trials.body", "trials.state", "records.parts", "artifacts.parts",
    "artifacts.facts", "store.id",
)  # fmt: skip
"""Columns of the database that hold documents or names."""
_NUMBERS = ("events.sequence", "trials.number", "store.schema", "sessions.seconds",
            "artifacts.size_bytes")  # fmt: skip
"""Columns that hold numbers."""


@dataclass(frozen=True)
class DamagedStore:
    """Damage to files and rows of a store, and commands that read it afterwards.

    Attributes:
        files: Operations, each with the position of a file in the store.
        rows: Cells of the database, each with a replacement.
        looks: Commands that read the store.
    """

    files: list[tuple[str, int, float]]
    rows: list[tuple[str, int, Any]]
    looks: list[tuple[str, ...]]


@st.composite
def damaged_stores(draw: st.DrawFn) -> DamagedStore:
    """Return stores with one or two damaged files or rows."""
    some = st.integers(0, 10**6)
    files = st.tuples(st.sampled_from(sorted(_FILES)), some, st.floats(0, 1))
    rows = st.tuples(st.sampled_from(_DOCUMENTS), some, documents() | st.just(_NO_JSON))
    rows |= st.tuples(st.sampled_from(_NUMBERS), some, numbers())
    n_files, n_rows = draw(st.sampled_from(((1, 0), (0, 1), (1, 1))))
    looks = st.lists(st.sampled_from(COMMANDS), min_size=3, max_size=5, unique=True)
    damages = (
        st.lists(one, min_size=n, max_size=n) for one, n in ((files, n_files), (rows, n_rows))
    )
    return DamagedStore(*(draw(damage) for damage in damages), draw(looks))


def check(ground: Ground, case: DamagedStore) -> None:
    """Damage a copy of the store and read it."""
    with ground.case() as folder, without_flows(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT_TUNE_OUTAGE_SECONDS", "0.1")
        (folder / "table.csv").symlink_to(ground.table)
        command = ground.new_home(folder)
        store = command.home / "store"
        with closing(sqlite3.connect(store / "index.sqlite")) as database:
            keys = database.execute("SELECT key FROM artifacts WHERE place != '' ORDER BY key")
            key = str(keys.fetchone()[0])
        for cell, row, value in case.rows:
            _replace(store, *cell.split("."), row, value)
        for operation, place, share in case.files:
            _FILES[operation](_file_at(store, place), share)
        for words in case.looks:
            if words[0] == "open":
                _open(store, words[1])
            else:
                _look(command, folder, tuple(word.format(key=key) for word in words))


def _look(command: CommandLine, folder: Path, words: tuple[str, ...]) -> None:
    before = files_in(folder)
    done = command(*words)
    assert done.exit_code in {0, 1, 2}
    assert "Traceback" not in done.stderr
    made = files_in(folder) - before
    assert not [name for name in made if name.endswith(".part")]
    if done.exit_code:
        check_message(done.stdout + done.stderr)
        assert not _NEW_FILES & made, "refused, and yet it wrote its file"
    else:
        assert {*words} & _NEW_FILES <= files_in(folder)


def _open(store: Path, study: str) -> None:
    try:
        with Study.opened(open_store(StoreAddress(str(store))), study):
            pass
    except (*REFUSALS, StoreLost) as error:
        check_message(str(error))


def _replace(store: Path, table: str, column: str, row: int, value: Any) -> None:
    """Replace a cell; the database may refuse values that its schema forbids."""
    is_plain = isinstance(value, int | float) or value == _NO_JSON
    written = value if is_plain else json.dumps(value)
    with (
        suppress(sqlite3.Error, OverflowError),
        closing(sqlite3.connect(store / "index.sqlite")) as database,
    ):
        rows = database.execute(f"SELECT rowid FROM {table} ORDER BY rowid").fetchall()  # noqa: S608
        statement = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        database.execute(statement, (written, rows[row % len(rows)][0]) if rows else (written, 0))
        database.commit()


def _file_at(store: Path, place: int) -> Path:
    """Return a file of the store: half of the time the database, the claim or a record."""
    files = sorted(path for path in store.rglob("*") if path.is_file())
    among = [path for path in files if "cache" not in path.parts] if place % 2 else files
    return among[place // 2 % len(among)]


def _flipped(file: Path, share: float) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[min(int(share * len(data)), len(data) - 1)] ^= 0x55
    file.write_bytes(data)


_FILES: Mapping[str, Callable[[Path, float], object]] = {
    "truncated": lambda file, share: file.write_bytes(
        (data := file.read_bytes())[: int(share * len(data))]
    ),
    "flipped": _flipped,
    "deleted": lambda file, _: file.unlink(),
    "replaced": lambda file, share: file.write_bytes(b"[]" if share < 0.5 else b"\x80junk"),
    "forbidden": lambda file, _: file.chmod(0),
    "prolonged": lambda file, _: file.write_bytes(file.read_bytes() + b"\0" * 9),
}
"""By name: what is done to a file of a store, given a share."""
