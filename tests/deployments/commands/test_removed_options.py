"""A study that was started with an option which is gone can be read, and not extended."""

from pathlib import Path

import pytest
from command_line import CommandLine
from finished.ended import SPACE
from finished.searched import searched
from inputs import write_table

from prefect_tune.storage import StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.problem import open_store

REMOVED = [
    ("admm", "units", "raw"),
    ("admm", "start", "random"),
    ("flash", "cost", "literal"),
    ("flash", "intercept", True),
    ("bapi", "variant", "ei"),
    ("bapi", "n_points", 1),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a table, and a home with the study `s`."""
    made = tmp_path_factory.mktemp("removed")
    write_table(made)
    (made / "space.py").write_text(SPACE)
    space, data = f"{made / 'space.py'}:space", str(made / "table.csv")
    searched(made / "home", data=data, target="target", space=space, method="admm", trials=4)
    return made


@pytest.fixture
def run(folder: Path) -> CommandLine:
    """The command; the study was started with `units=raw`."""
    return started_with(folder, "admm", "units", "raw")


def started_with(folder: Path, method: str, option: str, value: object) -> CommandLine:
    ledger = Ledger(open_store(StoreAddress(str(folder / "home" / "store"))).database)
    stored = ledger.study("s")
    assert stored is not None
    changed = {**stored.settings, "method": method, "option": {option: value}}
    ledger.update_study("s", settings=changed)
    return CommandLine(folder / "home")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "s"),
        ("show", "s", "--json"),
        ("show", "s", "--trial", "1"),
        ("trials", "s"),
        ("trials", "s", "--out", "{}/trials.csv"),
        ("report", "s", "--out", "{}/report.html"),
        ("export", "s", "{}/model.pkl"),
        ("predict", "s", "{}/table.csv", "--out", "{}/predictions.csv"),
        ("study", "ls"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]).replace("{}/", ""),
)
def test_it_can_be_read(folder: Path, run: CommandLine, arguments: tuple[str, ...]) -> None:
    done = run(*(argument.format(folder) for argument in arguments))
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(("method", "option", "value"), REMOVED)
def test_it_cannot_be_extended(folder: Path, method: str, option: str, value: object) -> None:
    run = started_with(folder, method, option, value)
    done = run("run", str(folder / "table.csv"), "--study", "s", "--trials", "6")
    assert done.exit_code == 2
    assert f"{option}={value}" in done.stderr
    assert "show" in done.stderr
    assert "Traceback" not in done.stderr


def test_its_failed_trials_cannot_run_again(run: CommandLine) -> None:
    done = run("retry", "s")
    assert done.exit_code == 2
    assert "units=raw" in done.stderr
