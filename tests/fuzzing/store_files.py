"""A finished study whose files and rows are damaged, and commands that look at it."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from hypothesis import strategies as st

from fuzzing.command_lines import without_flows
from fuzzing.ground import REFUSALS, Ground, check_message, files_in
from fuzzing.values import documents, numbers
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.problem import open_store

_STUDY, _NEW = "flashed", "another"
_NEW_FILES = ("out.csv", "model.pkl", "part")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", _STUDY),
    ("show", _STUDY, "--json"),
    ("trials", _STUDY),
    ("trials", "picky", "--failed"),
    ("study", "ls"),
    ("study", "rm", _STUDY),
    ("artifacts", "ls"),
    ("artifacts", "ls", "--study", _STUDY, "--json"),
    ("artifacts", "show", "{key}"),
    ("artifacts", "export", "{key}", "part"),
    ("artifacts", "export", "{key}", "part", "--part", "estimator"),
    ("artifacts", "verify"),
    ("artifacts", "verify", "--repair"),
    ("artifacts", "stats"),
    ("artifacts", "prune", "--to", "0B"),
    ("predict", _STUDY, "table.csv", "--out", "out.csv"),
    ("export", _STUDY, "model.pkl"),
    ("retry", "picky"),
    ("run", "table.csv", "--target", "target", "--study", _STUDY),
    ("run", "table.csv", "--target", "target", "--space", "small", "--study", _NEW),
    ("open", _STUDY),
    ("open", "picky"),
)
"""What looks at the study; `open` opens it as a flow does."""


@dataclass(frozen=True)
class DamagedStore:
    """What is done to the files and rows of a store, and what looks at it then.

    Attributes:
        files: Operations, each on a file of the store by its place in order.
        rows: Cells of the database, each with what stands there instead.
        looks: Commands.
    """

    files: tuple[tuple[str, int, float], ...]
    rows: tuple[tuple[str, int, Any], ...]
    looks: tuple[tuple[str, ...], ...]


def damaged_stores() -> st.SearchStrategy[DamagedStore]:
    """Stores with one damage or two."""
    some = st.integers(0, 10**6)
    # Every other file is the database, the claim or a record: the cache has most of the others.
    files = st.tuples(st.sampled_from(sorted(_FILES)), some, st.floats(0, 1))
    rows = st.sampled_from(_DOCUMENTS).flatmap(
        lambda cell: st.tuples(st.just(cell), some, documents() | st.just(_NO_JSON))
    ) | st.sampled_from(_NUMBERS).flatmap(lambda cell: st.tuples(st.just(cell), some, numbers()))
    damages = st.sampled_from(((1, 0), (0, 1), (1, 1))).flatmap(
        lambda n: st.tuples(
            *(
                st.lists(s, min_size=n[i], max_size=n[i]).map(tuple)
                for i, s in enumerate((files, rows))
            )
        )
    )
    looks = st.lists(st.sampled_from(COMMANDS), min_size=3, max_size=5, unique=True).map(tuple)
    return st.builds(lambda damage, looked: DamagedStore(*damage, looked), damages, looks)


_NO_JSON = "{"
"""In place of a document: the beginning of one."""
_DOCUMENTS = (
    ("studies", "problem"), ("studies", "settings"), ("studies", "result"), ("studies", "state"),
    ("events", "body"), ("events", "kind"), ("trials", "body"), ("trials", "state"),
    ("records", "parts"), ("artifacts", "parts"), ("artifacts", "facts"), ("artifacts", "step"),
    ("store", "id"),
)  # fmt: skip
"""Columns of the database that hold documents or names, by table."""
_NUMBERS = (
    ("events", "sequence"), ("trials", "number"), ("store", "schema"), ("store", "budget_bytes"),
    ("sessions", "seconds"), ("artifacts", "size_bytes"), ("artifacts", "created"),
)  # fmt: skip
"""Columns that hold numbers."""


def check(ground: Ground, case: DamagedStore) -> bool:
    """Damage a copy of the store and look at it; whether all of that went well."""
    with ground.case() as folder, without_flows(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT_TUNE_OUTAGE_SECONDS", "0.1")
        (folder / "table.csv").symlink_to(ground.table)
        command = ground.new_home(folder)
        store = command.home / "store"
        key = _any_key(store)
        for cell, row, value in case.rows:
            _replace(store, *cell, row, value)
        for operation, place, share in case.files:
            _FILES[operation](store, _file_at(store, place), share)
        codes = [
            _looked(command, folder, tuple(word.format(key=key) for word in words))
            for words in case.looks
        ]
        return not any(codes)


def _looked(command: CommandLine, folder: Path, words: tuple[str, ...]) -> int:
    store = command.home / "store"
    if words[0] == "open":
        return _opened(store, words[1])
    before = files_in(folder)
    done = command(*words)
    said = done.stdout + done.stderr
    assert done.exit_code in (0, 1, 2), done.exit_code
    assert "Traceback" not in done.stderr
    after = files_in(folder)
    assert not [name for name in after - before if name.endswith(".part")]
    if done.exit_code:
        check_message(said)
        assert not {*_NEW_FILES} & (after - before), "refused, and yet it wrote its file"
        if _NEW in words:
            assert not _is_entered(store), "refused, and yet the study is entered"
    else:
        assert {*words} & {*_NEW_FILES} <= after
        if _NEW in words:
            _check_data(store)
    return int(done.exit_code)


def _opened(store: Path, study: str) -> int:
    try:
        with Study.opened(open_store(StoreAddress(str(store))), study):
            return 0
    except (*REFUSALS, StoreLost) as error:
        check_message(str(error))
        return 1


def _is_entered(store: Path) -> bool:
    """Whether the study is there that `run` was to enter."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(store / "index.sqlite")) as database:
        query = "SELECT count(*) FROM studies WHERE name = ?"
        return bool(database.execute(query, (_NEW,)).fetchone()[0])
    return False


def _check_data(store: Path) -> None:
    """A study that was entered has its data."""
    opened = open_store(StoreAddress(str(store)))
    stored = Ledger(opened.database).study(_NEW)
    assert stored is not None
    for record in StudyPlan.from_stored(stored).problem.records:
        assert opened.records.is_whole(record), record


def _any_key(store: Path) -> str:
    with closing(sqlite3.connect(store / "index.sqlite")) as database:
        found = database.execute("SELECT key FROM artifacts WHERE place != '' ORDER BY key LIMIT 1")
        return str(found.fetchone()[0])


def _replace(store: Path, table: str, column: str, row: int, value: Any) -> None:
    """Replace a cell; the database may refuse what its schema forbids."""
    is_plain = isinstance(value, int | float) or value == _NO_JSON
    written = value if is_plain else json.dumps(value)
    with suppress(sqlite3.Error, OverflowError), closing(_writing(store)) as database:
        n_rows = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        at = database.execute(
            f"SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?",  # noqa: S608
            (row % max(1, n_rows),),
        ).fetchone()
        statement = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        database.execute(statement, (written, at[0]))
        database.commit()


def _writing(store: Path) -> sqlite3.Connection:
    return sqlite3.connect(store / "index.sqlite")


def _file_at(store: Path, place: int) -> Path:
    """Return a file of the store: half of the time the database, the claim or a record."""
    files = sorted(path for path in store.rglob("*") if path.is_file())
    kept = [path for path in files if "cache" not in path.parts]
    among = kept if place % 2 else files
    return among[place // 2 % len(among)]


def _truncated(_: Path, file: Path, share: float) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])


def _flipped(_: Path, file: Path, share: float) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[min(int(share * len(data)), len(data) - 1)] ^= 0x55
    file.write_bytes(data)


def _swapped(store: Path, file: Path, share: float) -> None:
    other, aside = _file_at(store, int(share * 1e6)), file.with_name("aside")
    if other == file:
        return
    file.rename(aside)
    other.rename(file)
    aside.rename(other)


def _made_a_folder(_: Path, file: Path, share: float) -> None:
    file.unlink()
    file.mkdir()
    if share > 0.5:
        (file / "x").touch()


def _folder_gone(store: Path, file: Path, _: float) -> None:
    shutil.rmtree(file.parent) if file.parent != store else file.unlink()


_FILES: Mapping[str, Callable[[Path, Path, float], None]] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "deleted": lambda _, file, __: file.unlink(),
    "swapped": _swapped,
    "made a folder": _made_a_folder,
    "folder gone": _folder_gone,
    "replaced": lambda _, file, share: (
        file.write_bytes(b"[]" if share < 0.5 else b"\x80junk") and None
    ),
    "forbidden": lambda _, file, __: file.chmod(0),
    "prolonged": lambda _, file, __: file.write_bytes(file.read_bytes() + b"\0" * 9) and None,
}
"""By name: what is done to a file of a store, given a share."""
