"""Completion, by real shells where they are installed, and by click's protocol of each."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_line import CommandLine

from prefect_tune.deployments.command import main
from prefect_tune.deployments.commands.completing import HEAVY
from prefect_tune.flows.preparation.options import OPTIONS

BIN = Path(sys.executable).parent
ASK_BASH = """
eval "$(prefect-tune completion bash)"
complete -p prefect-tune
COMP_LINE="$1" COMP_WORDS=($1 "$2") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p prefect-tune | sed 's/.*-F \\([^ ]*\\).*/\\1/') prefect-tune
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def home(tmp_path) -> Path:
    """A home whose store has two studies."""
    (tmp_path / "home" / "store").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "home" / "store" / "index.sqlite") as index:
        index.execute("CREATE TABLE studies (name TEXT PRIMARY KEY, created REAL)")
        index.executemany("INSERT INTO studies VALUES (?, ?)", [("responders", 1), ("readmit", 2)])
    index.close()
    return tmp_path / "home"


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PREFECT_TUNE_HOME": str(home)}


def completed(home: Path, line: str, incomplete: str) -> list[str]:
    """What may stand in place of the word that is being typed; `file` leaves it to the shell."""
    asked = ShellComplete(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT_TUNE_HOME", str(home))
        items = asked.get_completions(line.split(), incomplete)
    return [f"file {i.value}" if i.type == "file" else i.value for i in items]


def test_a_real_bash_completes_names_of_studies(home) -> None:
    done = subprocess.run(
        ["bash", "-c", ASK_BASH, "bash", "prefect-tune show", "res"],
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    defined, *candidates = done.stdout.splitlines()
    assert "-F _prefect_tune_completion prefect-tune" in defined
    assert candidates == ["responders"]


def test_help_has_one_command_a_line(home) -> None:
    lines = CommandLine(home)("completion", "--help").stdout.splitlines()
    assert "  prefect-tune completion bash >> ~/.bashrc" in lines
    assert "  prefect-tune completion zsh >> ~/.zshrc" in lines


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_methods_with_their_purpose(home, shell) -> None:
    script = CommandLine(home)("completion", shell).stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    variable = f"_PREFECT_TUNE_COMPLETE={shell}_complete"
    assert variable in script
    at = "fab" if shell == "fish" else "2"
    asking = {"COMP_WORDS": "prefect-tune methods fab", "COMP_CWORD": at}
    done = subprocess.run(
        [BIN / "prefect-tune"],
        env=environment(home) | asking | dict([variable.split("=")]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "fabolas" in done.stdout
    assert "for many rows" in done.stdout


@pytest.mark.parametrize(
    ("line", "incomplete", "expected"),
    [
        ("show", "", ["readmit", "responders"]),
        ("run data.csv --study", "read", ["readmit"]),
        ("run data.csv --method", "fl", ["flash"]),
        ("compare data.csv --methods", "flash,ad", ["flash,admm"]),
        ("run data.csv --space", "modern_h", ["modern_healthcare"]),
        ("run data.csv --space", "my_sp", ["file my_sp"]),
        ("run data.csv --metric", "neg_root_mean_squared_e", ["neg_root_mean_squared_error"]),
        ("run data.csv --method tpe --option", "n_c", ["n_candidates=24"]),
        ("run data.csv --start", "port", ["portfolio"]),
        ("run data.csv --start", "resp", ["responders"]),
        ("run data.csv --start", "my_st", ["file my_st"]),
        ("run data.csv --ensemble", "gr", ["greedy"]),
        ("run data.csv --format", "om", ["omop"]),
        ("run data.csv --labels", "lab", ["file lab"]),
        ("run", "pat", ["file pat"]),
        ("run", "cohort", ["cohort:demo", "cohort:paper"]),
        ("export responders", "mod", ["file mod"]),
    ],
)  # fmt: skip
def test_values_are_completed(home, line, incomplete, expected) -> None:
    assert completed(home, line, incomplete) == expected


@pytest.mark.parametrize("store", ["s3://bucket/store", "file:///store", "block:main"])
def test_what_is_no_folder_is_not_looked_into(home, store, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(home / "store", tmp_path / store)  # where it would be, were it a folder
    assert completed(home, f"show --store {store}", "") == []
    assert completed(home, f"show --store {home}/store", "r") == ["readmit", "responders"]


@pytest.mark.parametrize("damage", ["no store", "no database", "another format"])
def test_where_no_names_can_be_read_there_are_none(home, damage) -> None:
    index = home / "store" / "index.sqlite"
    if damage == "no store":
        shutil.rmtree(home)
    elif damage == "no database":
        index.write_text("what is this?")
    else:
        index.write_bytes(b"")
    assert completed(home, "show", "") == []
    assert home.exists() == (damage != "no store")


def test_a_store_in_use_is_read(home) -> None:
    with sqlite3.connect(home / "store" / "index.sqlite") as index:
        index.execute("BEGIN EXCLUSIVE")
        assert completed(home, "show", "") == []
    index.close()
    assert len(completed(home, "show", "")) == 2


def parameters(group: click.Group) -> dict[str, click.Parameter]:
    """All parameters of all commands, by command and name."""
    found: dict[str, click.Parameter] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= {f"{name} {at}": p for at, p in parameters(command).items()}
        else:
            found |= {f"{name} {p.name}": p for p in command.params}
    return found


def test_whatever_names_a_study_a_method_or_a_file_is_completed() -> None:
    named = {"study", "method", "methods", "space", "metric", "file", "out", "curves", "labels",
             "report"}  # fmt: skip
    of_studies = {"study rm name"}
    lacking = {
        at
        for at, parameter in parameters(main).items()
        if (parameter.name in named or at in of_studies)
        and parameter._custom_shell_complete is None
    }
    assert lacking == set()


@pytest.mark.parametrize("name", HEAVY)
def test_choices_that_are_heavy_to_load_are_all_named(name) -> None:
    assert sorted(HEAVY[name]) == sorted(OPTIONS[name].known)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("show", ""),
        *((f"run data.csv {OPTIONS[name].flag}", "") for name in
          ("format", "space", "metric", "method", "ensemble", "task_runs", "start")),
        ("run data.csv --method flash --option", ""),
    ],
)  # fmt: skip
def test_completing_imports_nothing_heavy(line, word) -> None:
    program = (
        "import sys; from prefect_tune.deployments.command import main\n"
        "try: main([], prog_name='prefect-tune')\nexcept SystemExit: pass\n"
        "print(sorted({'prefect', 'numpy', 'sklearn', 'dask', 'pandas'} & set(sys.modules)))"
    )
    words = f"prefect-tune {line} {word}"
    asking = {"_PREFECT_TUNE_COMPLETE": "bash_complete", "COMP_WORDS": words}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asking, "COMP_CWORD": str(1 + len(line.split()))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("[]\n")
