"""Folders in which cases are tried, and what holds after each."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from command_line import CommandLine
from finished.ended import SPACE
from finished.searched import searched
from inputs import events, write_table

from fuzzing.values import SECRET
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import StoreAddress, StoreRefused
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import open_store

_CACHE = "60KB"
REFUSALS = (BadInput, UnknownName, StoreRefused)
"""How input is refused."""


@dataclass
class Ground:
    """A folder with a table, an event log with labels, and room for what cases make.

    Attributes:
        folder: The folder, which is the working folder while cases are tried.
        n_cases: How many were tried, those that were made smaller included.
    """

    folder: Path
    n_cases: int = 0
    _kept: Path | None = field(default=None, repr=False)
    _shared: CommandLine | None = field(default=None, repr=False)

    @classmethod
    @contextmanager
    def entered(cls) -> Iterator["Ground"]:
        """Make one and work in it; the home of the user is in it, too."""
        before, home = Path.cwd(), os.environ.get("HOME")
        with TemporaryDirectory() as name:
            ground = cls(Path(name).resolve())
            write_table(ground.folder)
            log, labels = events()
            log.to_csv(ground.folder / "events.csv", index=False)
            labels.to_csv(ground.folder / "labels.csv", index=False)
            os.chdir(ground.folder)
            os.environ["HOME"] = name
            try:
                yield ground
            finally:
                open_store.cache_clear()
                os.chdir(before)
                os.environ.pop("HOME") if home is None else os.environ.update(HOME=home)

    @property
    def table(self) -> Path:
        return self.folder / "table.csv"

    @contextmanager
    def case(self) -> Iterator[Path]:
        """Yield a new folder to work in; nothing of it is left."""
        self.n_cases += 1
        with TemporaryDirectory(dir=self.folder, prefix="case-") as name:
            os.chdir(name)
            try:
                yield Path(name)
            finally:
                open_store.cache_clear()
                os.chdir(self.folder)

    def new_home(self, folder: Path) -> CommandLine:
        """Commands with a copy of the kept studies."""
        if self._kept is None:
            self._kept = self._make()
        home = folder / "home"
        shutil.copytree(self._kept, home)
        return CommandLine(home)

    def shared_home(self) -> CommandLine:
        """Commands with a copy of the kept studies that many cases share."""
        if self._shared is None:
            self._shared = self.new_home(self.folder)
        return self._shared

    def renew_home(self) -> None:
        """Give the next cases another copy: this one has changed."""
        if self._shared is not None:
            shutil.rmtree(self._shared.home)
        self._shared = None

    def _make(self) -> Path:
        kept = self.folder / "kept"
        kept.mkdir()
        given = {"data": str(self.table), "target": "target", "trials": 5}
        (kept / "space.py").write_text(SPACE)
        picky = f"{kept}/space.py:space"
        for study, space, fit in (("flashed", "small", True), ("picky", picky, False)):
            searched(kept, study=study, space=space, fit=fit, **given).store.close()
        CommandLine(kept)("artifacts", "prune", "--to", _CACHE)
        for path in sorted(kept.rglob("*"), reverse=True):  # a folder costs more than a file
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        return kept


def check_message(message: str) -> None:
    """Whoever is refused is told why, in a line or some, and without a password."""
    assert message.strip(), "refused without a word"
    assert "Traceback" not in message
    assert SECRET not in message, "a password is shown"


def studies_in(store: Path) -> set[str]:
    """The studies of a store."""
    if not (store / "store.json").exists():
        return set()
    return set(Ledger(open_store(StoreAddress(str(store))).database).study_names())


def files_in(folder: Path) -> set[str]:
    """All files below a folder but those of databases."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".sqlite" not in path.name
    }
