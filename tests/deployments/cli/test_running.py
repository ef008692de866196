"""The commands `run`, `compare` and `retry`: output, exit codes, user mistakes, user methods."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from unittest.mock import Mock

import httpx
import pandas as pd
import pytest
from inputs import write_table
from prefect.utilities.callables import parameter_schema
from prefect_api import flow_runs

from prefect_tune.deployments.cli.errors import reported_errors
from prefect_tune.deployments.cli.flow_run import run_flow
from prefect_tune.deployments.server.embedded import ServerFailed
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tune import tune
from prefect_tune.flows.workers import clusters
from prefect_tune.optimizers import METHODS, Method, option, register
from prefect_tune.storage.artifacts import StoreRefused
from prefect_tune.tasks.bad_input import BadInput

SMALL = ("--target", "target", "--space", "small", "--workers", 1, "--no-race")


@pytest.mark.usefixtures("server")
def test_flow_takes_over_the_study_prepared_by_the_command(run, tmp_path, monkeypatch) -> None:
    """Input is read once and nothing is reported twice, in new and in resumed studies."""
    prepared_by_the_flow = "prefect_tune.flows.tune.prepare_run"
    monkeypatch.setattr(prepared_by_the_flow, lambda *_, **__: pytest.fail("again"))
    command = ("run", write_table(tmp_path), *SMALL, "--method", "random", "--study", "s")
    command += ("--constraint", "group_gap(color)<=100")
    first = run(*command, "--trials", 1, "--cache-budget", "1GB", "--json")
    assert first.exit_code == 0, first.stderr
    assert json.loads(first.stdout) == run.json("show", "s")
    assert len(re.findall(r"^trial +\d+ ", first.stderr, re.MULTILINE)) == 1
    notes = [line for line in first.stderr.splitlines() if not line.startswith("trial ")]
    assert len(notes) == len(set(notes)) > 0
    assert run.json("artifacts", "stats")["budget_bytes"] == 1000**3  # one of the store
    second = run(*command, "--trials", 3, "--cache-budget", "2GB", "--json-lines")
    assert run.json("artifacts", "stats")["budget_bytes"] == 2 * 1000**3
    lines = [line for line in map(json.loads, second.stdout.splitlines()) if "number" in line]
    assert {line["number"]: line["state"] for line in lines} == {1: "complete", 2: "complete"}
    assert "no trial was added" in run(*command, "--trials", 3).stderr


@pytest.mark.usefixtures("server")
def test_comparison_and_pooled_curves_have_a_report(run, tmp_path) -> None:
    out, file = tmp_path / "curves.parquet", tmp_path / "compared.html"
    options = ("--methods", "random,tpe", "--trials", 1, "--repeats", 1, "--quiet")
    where = ("--store", tmp_path / "its store", "--out", out, "--report", file)
    done = run("compare", write_table(tmp_path), *SMALL, *options, *where)
    assert done.exit_code == 0, done.output
    assert re.search(r"prefect-tune report \S+ --store .*/its store", unescape(file.read_text()))
    pooled = tmp_path / "pooled.html"
    assert run.json("standings", out, "--report", pooled)["n_blocks"] == 1
    assert "Pairs of methods" in pooled.read_text()
    assert run("standings", out, "--report", tmp_path).exit_code == 2
    assert set(pd.read_parquet(out)["method"]) >= {"random", "tpe"}


@pytest.mark.usefixtures("server")
def test_failure_while_running_ends_with_exit_code_1(run, tmp_path) -> None:
    n = 40
    events = {"patient_id": range(n), "time": "2020-01-01", "code": [f"C{i}" for i in range(n)]}
    classes = [i % 2 for i in range(n)]
    labels = {"patient_id": range(n), "prediction_time": "2021-01-01", "label": classes}
    pd.DataFrame(events).to_csv(tmp_path / "events.csv", index=False)
    pd.DataFrame(labels).to_csv(tmp_path / "labels.csv", index=False)
    where = (tmp_path / "events.csv", "--labels", tmp_path / "labels.csv", "--study", "s")
    done = run("run", *where, "--space", "healthcare", "--trials", 2, "--workers", 1, "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "2 trials failed" in done.stderr
    failed = run.json("trials", "s", "--failed")
    assert [t["failure"]["step"] for t in failed] == ["construct features"] * 2


MISTAKES = """
--target targt
--trials 3
--target target --method flsh
--target target --method optuna
--target target --metric cost.py:cost
--target target --metric acuracy
--target target --space smal
--target target --space healthcare
--target target --budget 30
--target target --cache-budget lots
--target target --trials 0
--target target --workers 0
--target target --seed -1
--target target --seed 4294967296
--target target --store memory://x
--target target --folds 90
--target target --test-size 2
--target target --task-runs all
--target target --option x
--target target --option x=1
--target target --study a/b
--target target --store s3://b/c
"""


@pytest.mark.usefixtures("server")
def test_mistake_in_a_run_is_reported_before_anything_is_written(
    run, tmp_path, check_printed
) -> None:
    before, data, said = len(flow_runs()), write_table(tmp_path), []
    for options in MISTAKES.strip().splitlines():
        done = run("run", data, *options.split())
        assert (done.exit_code, done.stdout) == (2, ""), options
        said.append(f"$ {options}\n{done.stderr}")
    check_printed("\n".join(said), "mistakes", tmp_path)
    for options in ("--database nonsense", "--database sqlite:////none/x", "--store /proc/none"):
        done = run("run", data, "--target", "target", *options.split())
        assert (done.exit_code, done.stdout) == (2, ""), options
        assert "Traceback" not in done.stderr
    assert len(flow_runs()) == before


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "foo"])
def test_error_names_an_unresponsive_scheduler(run, tmp_path, monkeypatch, address) -> None:
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    done = run("run", write_table(tmp_path), "--target", "target", "--dask", address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--dask {address}" in done.stderr


def test_misspelled_target_is_reported_before_a_server_starts(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("prefect_tune.deployments.cli.run.run_flow", lambda *_, **__: sys.exit(7))
    names = ["first column", "responder"]
    table = pd.DataFrame({name: range(9) for name in names})
    for separator in ",;":
        table.to_csv(tmp_path / "table.csv", index=False, sep=separator)
        done = run("run", tmp_path / "table.csv", "--target", "respondr")
        assert done.exit_code == 2
        assert done.stderr.endswith(
            "no column 'respondr'. Did you mean 'responder'? Its columns: first column, responder\n"
        )


@pytest.mark.parametrize("target", ["responder", "é", "Unnamed: 0"])
def test_target_that_may_exist_is_checked_by_the_flow(run, tmp_path, monkeypatch, target) -> None:
    monkeypatch.setattr("prefect_tune.deployments.cli.run.run_flow", lambda *_, **__: sys.exit(7))
    table = pd.DataFrame({"x": range(9), "responder": range(9)})
    for encoding in ("utf-16", "latin-1"):
        table.to_csv(tmp_path / "table.csv", encoding=encoding)
        assert run("run", tmp_path / "table.csv", "--target", target).exit_code == 7
    assert run("run", tmp_path / "table.csv", "--labels", tmp_path, "--target", "y").exit_code == 7


OF_PREFECT = RuntimeError("Failed to reach API at http://127.0.0.1:1/api/")
OF_PREFECT.__cause__ = httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("no such column"), 2, "Error: no such column"),
        (StoreRefused("of another index"), 2, "Error: of another index"),
        (StudyFailed("no trial completed"), 1, "Failed: no trial completed"),
        (ServerFailed("it did not start"), 1, "Failed: it did not start"),
        (httpx.ConnectError("refused"), 1, "Failed: the Prefect server"),
        (OF_PREFECT, 1, "Failed: the Prefect server"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_error_becomes_a_message_and_an_exit_code(error, code, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended, reported_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("quiet", "announcement"), [(False, "loading the libraries and the data ...\n"), (True, "")]
)
def test_start_of_a_run_is_announced_in_a_terminal(
    monkeypatch, capsys, quiet, announcement
) -> None:
    server = "prefect_tune.deployments.server.embedded.launched_server"
    monkeypatch.setattr(server, Mock(side_effect=ServerFailed))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(ServerFailed):
        run_flow(Mock(), Mock(), quiet=quiet, json_lines=False, keep_server=False)
    assert capsys.readouterr().err == announcement


def test_unexpected_error_shows_the_traceback() -> None:
    with pytest.raises(ZeroDivisionError), reported_errors():
        raise ZeroDivisionError


@dataclass(frozen=True)
class WalkOptions:
    """Options of `--method walk`."""

    first: int = option("The path to begin with.", at_least=0, default=0)
    plain: int = 0


@dataclass(frozen=True)
class Untold:
    """Options with a field that has no default."""

    first: int


WALK = Method(
    name="walk",
    purpose="each path with its default values, in order",
    implementation=f"{__name__}:Walk",
    options=WalkOptions,
    honors_constraints=True,
)


@pytest.fixture
def walk() -> Iterator[None]:
    register(WALK)
    yield
    METHODS._known.pop("walk")


@pytest.mark.usefixtures("walk")
def test_user_method_is_listed_by_catalog_help_and_forms(run, check_printed) -> None:
    assert run("methods").stdout.count(WALK.purpose) == 1
    check_printed(run("methods", "walk").stdout, "method_of_a_user")
    assert run.json("methods", "walk")["honours_constraints"] is True
    assert "random or walk;" in " ".join(run("run", "--help").stdout.split())
    assert "random,walk]" in "".join(run("compare", "--help").stdout.split())
    assert "walk" in parameter_schema(tune).properties["method"]["anyOf"][0]["enum"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "Walk on"}, "lower-case"),
        ({"purpose": "two\nlines"}, "one line"),
        ({"implementation": "walk"}, "module:Class"),
        ({"options": dict}, "dataclass"),
        ({"options": Untold}, "Untold.first"),
    ],
)
def test_invalid_declaration_of_a_user_method_is_refused(wrong, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        replace(WALK, **wrong)
