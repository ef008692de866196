"""Folders in which cases are tried, and checks after each case."""

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
from inputs import events, write_table, written

from fuzzing.values import SECRET
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import StoreAddress, StoreRefused
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import open_store

REFUSALS = (BadInput, UnknownName, StoreRefused)
"""How input is refused."""


@dataclass
class Ground:
    """A folder with a table, an event log with labels, and space for files of the cases.

    Attributes:
        folder: The folder, which is the working folder during the cases.
    """

    folder: Path
    _kept: Path | None = field(default=None, repr=False)
    _shared: CommandLine | None = field(default=None, repr=False)

    @classmethod
    @contextmanager
    def entered(cls) -> Iterator["Ground"]:
        """Make a folder that contains the home of the user, and work in the folder."""
        before, home = Path.cwd(), os.environ.get("HOME")
        with TemporaryDirectory() as name:
            ground = cls(Path(name).resolve())
            write_table(ground.folder)
            for frame, stem in zip(events(), ("events", "labels"), strict=True):
                written(frame, ground.folder / f"{stem}.csv")
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
        """Yield a new folder to work in, and remove it afterwards."""
        with TemporaryDirectory(dir=self.folder, prefix="case-") as name:
            os.chdir(name)
            try:
                yield Path(name)
            finally:
                open_store.cache_clear()
                os.chdir(self.folder)

    def new_home(self, folder: Path) -> CommandLine:
        """Return commands with a copy of two finished studies, one of them without a model."""
        if self._kept is None:
            self._kept = self.folder / "kept"
            self._kept.mkdir()
            (self._kept / "space.py").write_text(SPACE)
            given = {"data": str(self.table), "target": "target", "trials": 5}
            for study, space in (("flashed", "small"), ("picky", f"{self._kept}/space.py:space")):
                fit = study == "flashed"
                searched(self._kept, study=study, space=space, fit=fit, **given).store.close()
            CommandLine(self._kept)("artifacts", "prune", "--to", "60KB")
        shutil.copytree(self._kept, folder / "home")
        return CommandLine(folder / "home")

    def shared_home(self) -> CommandLine:
        """Return commands with a copy of the finished studies shared by many cases."""
        if self._shared is None:
            self._shared = self.new_home(self.folder)
        return self._shared

    def renew_home(self) -> None:
        """Give the next cases a fresh copy, because the present copy has changed."""
        shutil.rmtree(self.shared_home().home)
        self._shared = None


def check_message(message: str) -> None:
    """Check that a refusal gives a reason in one or a few lines, without a password."""
    assert message.strip(), "refused without a word"
    assert "Traceback" not in message
    assert SECRET not in message, "a password is shown"


@contextmanager
def leaves_nothing(store: Path) -> Iterator[None]:
    """Check that a refusal in the body leaves no study and no file in the store."""
    try:
        yield
    except REFUSALS as error:
        check_message(str(error))
        assert studies_in(store) == set()
        assert files_in(store) <= {"store.json"}


def studies_in(store: Path) -> set[str]:
    """Return the studies of a store."""
    if not (store / "store.json").exists():
        return set()
    return set(Ledger(open_store(StoreAddress(str(store))).database).study_names())


def files_in(folder: Path) -> set[str]:
    """Return all files below a folder except databases."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".sqlite" not in path.name
    }
