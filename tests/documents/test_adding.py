"""Each page on adding something works as described: files, commands, programs."""

import json
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import CommandLine
from documents.inputs_of_documents import write_inputs
from documents.pages import ADDING, files
from plugin_distribution import write_metadata
from services import Postgres, bucket_at, s3_server

from prefect_tune.optimizers.registry import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.full]


class Reader:
    """Does what a page describes, in one folder."""

    def __init__(self, page: str, folder: Path, n_trials: int) -> None:
        self.n_trials = n_trials
        self.page = next(d for d in ADDING if d.path.stem == page)
        self.prefect_tune = CommandLine(folder / "home")
        write_inputs(folder)
        for name, text in files(self.page).items():
            (folder / name).write_text(text)

    def run(self, command: str, *more: str) -> str:
        """Run a command of the page, with few trials."""
        program, *words = [*shlex.split(command), *more]
        if "run" in words[:2]:
            words += ["--trials", str(self.n_trials), "--workers", "1", "--quiet"]
        if "compare" in words[:2]:
            words += ["--repeats", "1", "--trials", "2", "--workers", "1", "--quiet"]
        if program == "python":
            return self.run_file(*words)
        assert program == "prefect-tune"
        came = self.prefect_tune(*words)
        assert came.exit_code == 0, f"{command}: {came.output}"
        return str(came.stdout)

    def run_file(self, name: str, *words: str) -> str:
        """Return the output of `python FILE WORDS`, and forget methods that the file registered."""
        runner = CliRunner(env={"PREFECT_TUNE_HOME": str(self.prefect_tune.home)})
        known, code = set(METHODS.own), 0
        with runner.isolation() as (printed, *_), pytest.MonkeyPatch.context() as patched:
            patched.setattr("sys.argv", [name, *words])
            try:
                runpy.run_path(name, run_name="__main__")
            except SystemExit as ended:
                code = int(ended.code or 0)
            sys.stdout.flush()
            text = printed.getvalue().decode()
        for method in set(METHODS.own) - known:
            METHODS._known.pop(method)
        assert code == 0, text
        return text

    def ran(self) -> list[str]:
        """Return the output of each command of the page, in order."""
        return [self.run(command) for command in self.page.commands]


@pytest.fixture(autouse=True)
def here(server, tmp_path, monkeypatch) -> None:  # noqa: ARG001 - flows go to it
    """A separate folder, whose files can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_algorithm_is_added_as_described(tmp_path) -> None:
    check, search, look = Reader("algorithm", tmp_path, 4).ran()
    assert "winsorize" in check
    assert "best: trial" in search
    assert "winsorize" in look


def test_method_is_added_as_described(tmp_path) -> None:
    explained, searched, compared, _ = Reader("method", tmp_path, 3).ran()
    assert "n_first" in explained
    assert "settled for " in searched
    assert "settle" in compared


def test_plugin_is_added_as_described(tmp_path, monkeypatch) -> None:
    reader = Reader("plugin", tmp_path, 3)
    for name, text in files(*ADDING).items():
        (tmp_path / name).write_text(text)
    (pyproject,) = map(tomllib.loads, reader.page.blocks("toml"))
    project, modules = pyproject["project"], pyproject["tool"]["setuptools"]["py-modules"]
    assert {f"{module}.py" for module in modules} <= {p.name for p in tmp_path.iterdir()}
    groups = project["entry-points"]
    write_metadata(tmp_path, project["name"], project["version"], modules, groups)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of workers
    explained, searched, shown = reader.ran()
    assert "n_first" in explained
    assert " EUR" in searched
    assert "metric cost of tune-extras 1.0" in shown


def test_store_is_added_as_described(tmp_path, tmp_path_factory) -> None:
    reader = Reader("store", tmp_path, 1)
    save, look = reader.page.blocks("python")
    postgres = Postgres(tmp_path_factory.mktemp("postgres"))
    with s3_server() as url, bucket_at(url):
        database = postgres.new_database()
        mine = save.replace("postgresql+psycopg://user:password@host/name", database)
        (tmp_path / "save.py").write_text(mine)
        (tmp_path / "look.py").write_text(look)
        reader.run_file("save.py")
        local, shared, stats = reader.page.commands
        reader.run(local)
        reader.run(shared)
        assert (tmp_path / "team-store" / "store.json").exists()
        count = json.loads(reader.run(stats, "--json"))["count"]
        assert count > 0
        assert reader.run_file("look.py") == f"{count} artifacts\n"
    postgres.stop()
