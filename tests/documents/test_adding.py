"""Each page on adding something is done as it says: its files, its commands, its programs."""

import json
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import CommandLine
from documents.inputs_of_documents import write_inputs
from documents.pages import ADDING, Document, files
from services import Postgres, bucket_at, s3_server

from prefect_tune.optimizers.registry import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.full]


class Reader:
    """Who does what a page says, in one folder."""

    def __init__(self, page: str, folder: Path, n_trials: str) -> None:
        self.n_trials = n_trials
        self.page: Document = next(d for d in ADDING if d.path.stem == page)
        self.prefect_tune = CommandLine(folder / "home")
        write_inputs(folder)
        for name, text in files(self.page).items():
            (folder / name).write_text(text)

    def run(self, command: str, *more: str) -> str:
        """A command of the page, with few trials."""
        program, *words = shlex.split(command)
        if program == "python":
            return run_file(words[0], self.made_short(words[1:]), self.prefect_tune.home)
        assert program == "prefect-tune"
        came = self.prefect_tune(*self.made_short(words), *more)
        assert came.exit_code == 0, f"{command}: {came.output}"
        return str(came.stdout)

    def ran(self) -> list[str]:
        """What each command of the page printed, in their order."""
        return [self.run(command) for command in self.page.commands]

    def made_short(self, words: list[str]) -> list[str]:
        if words[:1] == ["run"]:
            return [*words, "--trials", self.n_trials, "--workers", "1", "--quiet"]
        if words[:1] == ["compare"]:
            return [*words, "--repeats", "1", "--trials", "2", "--workers", "1", "--quiet"]
        return words


def run_file(name: str, words: list[str], home: Path) -> str:
    """What `python FILE WORDS` prints; methods that it registers are forgotten."""
    runner = CliRunner(env={"PREFECT_TUNE_HOME": str(home)})
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


@pytest.fixture(autouse=True)
def here(server, tmp_path, monkeypatch) -> None:  # noqa: ARG001 - flows go to it
    """A folder of its own, whose files can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_page_is_no_longer_than_a_page() -> None:
    assert {d.path.stem for d in ADDING} == {"algorithm", "method", "plugin", "store"}
    assert [d.name for d in ADDING if len(d.text.splitlines()) > 90] == []


def test_an_algorithm_is_added_as_the_page_says(tmp_path) -> None:
    check, search, look = Reader("algorithm", tmp_path, "4").ran()
    assert "winsorize" in check
    assert "4 paths" in check
    assert "best: trial" in search
    assert "winsorize" in look


def test_a_method_is_added_as_the_page_says(tmp_path) -> None:
    explained, searched, compared, _ = Reader("method", tmp_path, "3").ran()
    assert "before it settles for a path" in explained
    assert "settled for " in searched
    assert "settle" in compared


def lay_out(pyproject: str, folder: Path) -> None:
    """Put the metadata of a distribution beside its modules, as `pip install` would."""
    found = tomllib.loads(pyproject)
    project, modules = found["project"], found["tool"]["setuptools"]["py-modules"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    about.joinpath("top_level.txt").write_text("\n".join(modules))
    lines = []
    for group, named in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {at}" for name, at in named.items())]
    about.joinpath("entry_points.txt").write_text("\n".join(lines))
    assert {f"{module}.py" for module in modules} <= {p.name for p in folder.iterdir()}


def test_a_plugin_is_added_as_the_page_says(tmp_path, monkeypatch) -> None:
    reader = Reader("plugin", tmp_path, "3")
    for name, text in files(*ADDING).items():
        (tmp_path / name).write_text(text)
    lay_out(*reader.page.blocks("toml"), tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of workers
    explained, searched, shown = reader.ran()
    assert "before it settles for a path" in explained
    assert "mean cost" in searched
    assert " EUR" in searched
    assert "metric cost of tune-extras 1.0" in shown


@pytest.fixture
def services(tmp_path_factory) -> Iterator[str]:
    """A bucket, and the URL of an empty database."""
    postgres = Postgres(tmp_path_factory.mktemp("postgres"))
    with s3_server() as url, bucket_at(url):
        yield postgres.new_database()
    postgres.stop()


def test_a_store_is_added_as_the_page_says(services, tmp_path) -> None:
    reader = Reader("store", tmp_path, "1")
    save, look = reader.page.blocks("python")
    mine = save.replace("postgresql+psycopg://user:password@host/name", services)
    (tmp_path / "save.py").write_text(mine)
    (tmp_path / "look.py").write_text(look)
    run_file("save.py", [], reader.prefect_tune.home)
    local, shared, stats = reader.page.commands
    reader.run(local)
    reader.run(shared)
    assert (tmp_path / "team-store" / "store.json").exists()
    count = json.loads(reader.run(stats, "--json"))["count"]
    assert count > 0
    assert run_file("look.py", [], reader.prefect_tune.home) == f"{count} artifacts\n"
