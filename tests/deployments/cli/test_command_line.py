"""Commands that need no study: help, completion, catalogs, cohorts, output files."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from command_line import CommandLine
from processes import run_python

from prefect_tune.deployments.cli.command import main
from prefect_tune.deployments.cli.output import atomic_output, atomic_output_folder
from prefect_tune.flows.options.declared import COMPARE_OPTIONS, OPTIONS
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import SPACES


def commands(group: click.Group, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command of a group, with the words that call the command."""
    for name, command in group.commands.items():
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)


def test_every_command_has_help_and_help_creates_no_files(run) -> None:
    for words in [(), *(words for words, _ in commands(main))]:
        done = run(*words, "--help")
        assert done.exit_code == 0, words
        assert len(done.stdout) > 100, words
        assert "\\b" not in done.stdout, words
    assert not run.home.exists()


def test_help_lists_commands_by_task(run, file_regression) -> None:
    file_regression.check(run("--help").stdout, basename="help")


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_fits_on_two_screens_and_help_all_has_every_option(run, command) -> None:
    short, full = (run(command, option).stdout for option in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 90
    assert re.findall(r"(?m)^(\w.*):$", short) == ["Often used", "Sometimes used", "Output"]
    options = OPTIONS if command == "run" else COMPARE_OPTIONS
    lacking = [o.flag for o in options.values() if not o.is_argument and f"  {o.flag} " not in full]
    assert lacking == []


@pytest.mark.slow
@pytest.mark.parametrize("words", ["spaces", "spaces flash", "methods", "methods flash"])
def test_catalogs_equal_the_golden_files(run, words, file_regression) -> None:
    file_regression.check(run(*words.split()).stdout, basename=words.replace(" ", "_"))


def test_catalogs_have_stable_fields(run) -> None:
    rows = {row["name"]: row for row in run.json("spaces")}
    assert list(rows) == list(SPACES)
    assert {"n_paths", "n_feasible_paths", "n_hyperparameters", "steps"} <= set(rows["flash"])
    trees = run.json("spaces", "flash")["steps"][3]["hyperparameters"]["decision_tree"]
    assert {h["name"]: h.get("choices") or h["range"] for h in trees} == {
        "criterion": ["gini", "entropy"],
        "max_depth": [0.0, 2.0],
        "min_samples_split": [2, 20],
        "min_samples_leaf": [1, 20],
    }
    assert [row["name"] for row in run.json("methods")] == list(METHODS)
    shown = {option["name"]: option for option in run.json("methods", "flash")["options"]}
    assert shown["r"]["bounds"] == {"minimum": 1}
    assert shown["variant"]["choices"] == ["default", "paper"]


@pytest.mark.parametrize("group", [(), ("artifacts",)])
def test_command_group_without_a_command_prints_the_help_of_the_group(run, group) -> None:
    result = run(*group)
    assert result.stderr.rstrip() == run(*group, "--help").stdout.rstrip()


@pytest.mark.parametrize("of", ["spaces", "methods"])
def test_unknown_name_is_an_error_that_suggests_the_nearest_name(run, of) -> None:
    result = run(of, "flahs")
    assert result.exit_code == 2
    assert "'flahs'" in result.stderr
    assert "'flash'" in result.stderr


@pytest.mark.parametrize("name", METHODS)
def test_every_option_of_a_method_is_explained(run, name) -> None:
    shown = run.json("methods", name)
    text = " ".join(run("methods", name).stdout.split())
    for option in shown["options"]:
        assert len(option["meaning"]) > 10
        assert f"--option {option['name']}=" in text
        assert option["meaning"] in text


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
    """Return the completions of the word being typed; `file` leaves completion to the shell."""
    asked = ShellComplete(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PREFECT_TUNE_HOME", str(home))
        items = asked.get_completions(line.split(), incomplete)
    return [f"file {i.value}" if i.type == "file" else i.value for i in items]


@pytest.mark.slow
def test_bash_completes_names_of_studies(home) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", pytest.param("fish", marks=pytest.mark.full)])
def test_completion_in_zsh_and_fish_shows_the_purpose_of_methods(home, shell) -> None:
    script = CommandLine(home)("completion", shell).stdout
    variable = f"_PREFECT_TUNE_COMPLETE={shell}_complete"
    assert variable in script
    at = "fab" if shell == "fish" else "2"
    asking = {"COMP_WORDS": "prefect-tune methods fab", "COMP_CWORD": at}
    done = subprocess.run(
        [BIN / "prefect-tune"], env=environment(home) | asking | dict([variable.split("=")]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "fabolas" in done.stdout
    assert "for many rows" in done.stdout


@pytest.mark.parametrize(
    ("line", "incomplete", "expected"),
    [
        ("show", "", ["readmit", "responders"]),
        ("run data.csv --study", "read", ["readmit"]),
        ("run data.csv --method", "fl", ["flash"]),
        ("compare data.csv --methods", "ad", ["admm"]),
        ("run data.csv --space", "modern_h", ["modern_healthcare"]),
        ("run data.csv --space", "my_sp", ["file my_sp"]),
        ("run data.csv --metric", "neg_root_mean_squared_e", ["neg_root_mean_squared_error"]),
        ("run data.csv --start", "port", ["portfolio"]),
        ("run data.csv --start", "resp", ["responders"]),
        ("run data.csv --start", "my_st", ["file my_st"]),
        ("run data.csv --ensemble", "gr", ["greedy"]),
        ("run data.csv --format", "om", ["omop"]),
        ("run data.csv --labels", "lab", ["file lab"]),
        ("run", "pat", ["file pat"]),
        ("export responders", "mod", ["file mod"]),
    ],
)  # fmt: skip
def test_option_values_are_completed(home, line, incomplete, expected) -> None:
    assert completed(home, line, incomplete) == expected


@pytest.mark.parametrize("store", ["s3://bucket/store", "file:///store", "block:main"])
def test_completion_reads_only_local_folders(home, store, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(home / "store", tmp_path / store)  # where it would be, were it a folder
    assert completed(home, f"show --store {store}", "") == []
    assert completed(home, f"show --store {home}/store", "r") == ["readmit", "responders"]


def test_unreadable_store_yields_no_completions(home) -> None:
    index = home / "store" / "index.sqlite"
    with sqlite3.connect(index) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert completed(home, "show", "") == []
    other.close()
    for damage in (b"what is this?", b""):
        index.write_bytes(damage)
        assert completed(home, "show", "") == []
    shutil.rmtree(home)
    assert completed(home, "show", "") == []
    assert not home.exists()


def test_shell_completes_names_of_studies_and_methods_and_files() -> None:
    named = {"study", "method", "methods", "space", "metric", "file", "out", "curves", "labels",
             "report"}  # fmt: skip
    lacking = [
        (words, parameter.name)
        for words, command in commands(main)
        for parameter in command.params
        if parameter.name in named or (words == ("study", "rm") and parameter.name == "name")
        if parameter._custom_shell_complete is None
    ]
    assert lacking == []


@pytest.mark.slow
def test_completion_imports_nothing_heavy() -> None:
    named = ("format", "space", "metric", "method", "ensemble", "task_runs", "start")
    lines = ["show", *(f"run data.csv {OPTIONS[name].flag}" for name in named)]
    lines.append("run data.csv --method flash --option")
    program = (
        "import os, sys; from prefect_tune.deployments.cli.command import main\n"
        f"for line in {lines!r}:\n"
        "    words = len(line.split())\n"
        "    os.environ.update(COMP_WORDS=f'prefect-tune {line} ', COMP_CWORD=str(1 + words))\n"
        "    try: main([], prog_name='prefect-tune')\n    except SystemExit: pass\n"
        "heavy = {'prefect', 'numpy', 'sklearn', 'dask', 'pandas', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    variables = {**os.environ, "_PREFECT_TUNE_COMPLETE": "bash_complete"}
    printed = run_python(program, env=variables)
    assert "responders" not in printed
    assert "flash" in printed
    assert printed.endswith("[]\n")


def test_cohort_command_writes_a_new_folder_and_replaces_no_folder(run, tmp_path) -> None:
    out = tmp_path / "new" / "meds"
    name = "demo?n_patients=60&noise_codes=0"
    written = run.json("cohort", name, "--out", out)
    assert written["patients"] == 60
    assert written["truth"]["aggregation"] == "average"
    assert [path.name for path in out.parent.iterdir()] == ["meds"]
    assert (out / written["labels"]).is_dir()
    again = run("cohort", name, "--out", out)
    assert again.exit_code == 2
    assert str(out) in again.stderr
    unknown = run("cohort", "demo?famly=sum", "--out", tmp_path / "other")
    assert unknown.exit_code == 2
    assert "'family'" in unknown.stderr
    assert not (tmp_path / "other").exists()


def test_output_file_appears_only_when_complete_and_never_after_an_error(
    tmp_path,
) -> None:
    file, folder = tmp_path / "out.csv", tmp_path / "new" / "out"
    with atomic_output(str(file)) as path, atomic_output_folder(str(folder)) as parts:
        path.write_text("all")
        (parts / "part").write_text("all")
        assert not file.exists()
        assert not folder.exists()
    with pytest.raises(ZeroDivisionError), atomic_output(str(file)) as path:
        path.write_text(str(1 / 0))
    assert file.read_text() == (folder / "part").read_text() == "all"
    assert {*tmp_path.iterdir(), *folder.parent.iterdir()} == {file, folder.parent, folder}


def test_unwritable_output_is_an_error(tmp_path) -> None:
    for out in (tmp_path, tmp_path / "no" / "where.csv"):
        with pytest.raises(BadInput, match="cannot be written") as caught, atomic_output(str(out)):
            pass
        assert ".part" not in str(caught.value)
    (tmp_path / "mine").touch()
    with pytest.raises(BadInput, match="already exists"), atomic_output_folder(str(tmp_path)):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["run --folds 1", "compare --folds 1", "run --method optuna", "run --metric cost.py:cost"],
)
def test_wrong_option_is_refused_before_libraries_are_imported(words) -> None:
    program = (
        "import sys; from prefect_tune.deployments.cli.command import main\n"
        f"try: main([*{words.split()}, 'table.csv', '--target', 'y'])\n"
        "except SystemExit as end:\n"
        "    print(end.code, {'prefect', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    assert run_python(program) == "2 set()\n"
