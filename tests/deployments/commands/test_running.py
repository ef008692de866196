"""`run` and `retry` as users meet them: output, exit codes, and mistakes told before any work."""

import json
import re

import httpx
import pandas as pd
import pytest
from inputs import write_table
from prefect_api import flow_runs

from prefect_tune.deployments.commands.errors import reported_errors
from prefect_tune.deployments.server.embedded import ServerFailed
from prefect_tune.flows import comparing, tuning
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.workers import clusters
from prefect_tune.storage import StoreRefused
from prefect_tune.tasks.bad_input import BadInput

pytestmark = pytest.mark.usefixtures("server")


def test_run_json_prints_what_show_prints_and_nothing_else(studied) -> None:
    assert studied.ran.exit_code == 0, studied.ran.stderr
    summary = json.loads(studied.ran.stdout)
    assert summary == studied.json("show", "s")
    assert set(summary) >= {
        "study", "method", "state", "n_trials", "n_failed", "n_stopped", "n_begun", "incumbent",
        "test_loss", "cache", "seconds",
    }  # fmt: skip
    assert set(summary["incumbent"]) == {
        "trial", "loss", "fidelity", "constraints", "configuration",
    }  # fmt: skip
    assert set(summary["cache"]) == {"hits", "misses", "size_bytes", "seconds_saved"}
    assert set(summary["seconds"]) == {"total", "evaluating", "asking"}


def test_along_the_way_each_trial_is_a_line(studied) -> None:
    lines = re.findall(
        r"^trial +\d+ .*best error .* cache \d+ hits.*$", studied.ran.stderr, re.MULTILINE
    )
    assert len(lines) == 5
    assert "Traceback" not in studied.ran.stderr
    assert "Error" not in studied.ran.stderr


def test_a_command_prepares_and_its_flow_takes_over(run, tmp_path, monkeypatch) -> None:
    """Input is read once, and nothing is said twice: of a new study, and of one continued."""
    for module in (comparing, tuning):
        for name in ("prepare", "prepare_comparison"):
            monkeypatch.setattr(module, name, lambda *_: pytest.fail("again"), raising=False)
    data = ("--target", "target", "--space", "small", "--workers", 1)
    study = ("run", write_table(tmp_path), *data, "--method", "random", "--study", "s")
    for trials in (1, 2):
        done = run(*study, "--trials", trials, "--constraint", "disparate_impact(colour)<=100")
        assert done.exit_code == 0, done.stderr
        notes = [line for line in done.stderr.splitlines() if not line.startswith("trial ")]
        assert len(notes) == len(set(notes))
        assert any(
            "disparate_impact" in note or "colour gives the groups" in note for note in notes
        )
    assert "continues study s" in notes
    compared = ("compare", *study[1:-4], "--methods", "random,tpe", "--repeats", 1, "--trials", 1)
    done = run(*compared, "--out", tmp_path / "curves.parquet")
    assert done.exit_code == 0, done.stderr


def test_json_lines_are_trials_as_they_end(run, tmp_path) -> None:
    data = write_table(tmp_path)
    done = run("run", data, "--target", "target", "--trials", 3, "--no-race", "--json-lines")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["number"] for line in lines) == [0, 1, 2]
    assert {line["state"] for line in lines} == {"complete"}


def test_the_budget_of_the_cache_is_a_property_of_the_store(run, tmp_path) -> None:
    command = ("run", write_table(tmp_path), "--target", "target", "--trials", 1, "--study", "s")
    done = run(*command, "--cache-budget", "1GB")
    assert "the store's cache may now hold 1.0GB" in done.stderr
    stats = run.json("artifacts", "stats")
    assert stats["budget_bytes"] == 1000**3
    assert set(stats["steps"]["fit model"]) == {
        "hits", "misses", "seconds_saved", "evicted", "size_bytes"
    }  # fmt: skip
    other = run(*command[:-1], "t", "--cache-budget", "2GB")  # another study on the same store
    assert "may now hold 2.0GB, before 1.0GB" in other.stderr
    assert run.json("artifacts", "stats")["budget_bytes"] == 2 * 1000**3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "targt"), "Did you mean 'target'"),
        ((), "say which column to predict with --target"),
        (("--target", "target", "--method", "flsh"), "unknown method 'flsh'"),
        (("--target", "target", "--metric", "acuracy"), "unknown metric 'acuracy'"),
        (("--target", "target", "--space", "smal"), "Did you mean 'small'"),
        (("--target", "target", "--space", "healthcare"), "take --space modern"),
        (("--target", "target", "--budget", "30"), "--budget 30: a duration is a number with its"),
        (("--target", "target", "--cache-budget", "lots"), "--cache-budget lots: a size is"),
        (("--target", "target", "--trials", "0"), "--trials 0: must be at least 1"),
        (("--target", "target", "--workers", "0"), "--workers 0: must be at least 1"),
        (("--target", "target", "--seed", "-1"), "--seed -1: a seed is between 0 and"),
        (("--target", "target", "--seed", str(2**32)), "a seed is between 0 and 4294967294"),
        (("--target", "target", "--store", "memory://x"), "trials run in others; name a folder"),
        (("--target", "target", "--database", "nonsense"), "is not a SQLAlchemy URL"),
        (("--target", "target", "--database", "sqlite:////none/x"), "unable to open database"),
        (("--target", "target", "--folds", "90"), "fewer than the 90 folds"),
        (("--target", "target", "--test-size", "2"), "--test-size 2.0"),
        (("--target", "target", "--task-runs", "all"), "unknown value of --task-runs"),
        (("--target", "target", "--option", "x"), "--option x: write NAME=VALUE"),
        (("--target", "target", "--option", "x=1"), "option of method 'flash'"),
        (("--target", "target", "--study", "a/b"), "a study's name is made of letters"),
        (("--target", "target", "--store", "/proc/none"), "the store /proc/none cannot be written"),
        (("--target", "target", "--store", "s3://b/c"), "name a PostgreSQL one with --database"),
        (("--target", "target", "--dask", "tcp://127.0.0.1:9"), "no scheduler with a worker"),
    ],
)
def test_a_mistake_in_a_run_is_told_before_anything_is_made(
    run, tmp_path, monkeypatch, arguments, message
) -> None:
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    before = len(flow_runs())
    done = run("run", write_table(tmp_path), *arguments)
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(flow_runs()) == before + ("--dask" in arguments)  # only a flow can ask a scheduler


def test_a_failure_while_running_is_told_with_exit_code_1(run, tmp_path) -> None:
    n = 40
    pd.DataFrame(
        {"patient_id": range(n), "time": "2020-01-01", "code": [f"C{i}" for i in range(n)]}
    ).to_csv(tmp_path / "events.csv", index=False)
    pd.DataFrame(
        {
            "patient_id": range(n),
            "prediction_time": "2021-01-01",
            "label": [i % 2 for i in range(n)],
        }
    ).to_csv(tmp_path / "labels.csv", index=False)
    labels = tmp_path / "labels.csv"
    command = ("run", tmp_path / "events.csv", "--labels", labels, "--study", "s", "--trials", 3)
    done = run(*command, "--json")
    assert done.exit_code == 1
    assert "3 trials failed" in done.stderr
    assert "no code occurs in" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    failed = run.json("trials", "s", "--failed")
    assert [t["failure"]["step"] for t in failed] == ["construct features"] * 3
    assert set(failed[0]["failure"]) == {
        "kind", "message", "traceback", "step", "fold", "cost_seconds", "steps",
        "output",
    }  # fmt: skip
    assert "no code occurs in" in run("trials", "s").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing"), "unknown study in the store"),
        (("show", "S"), "Did you mean 's'"),
        (("trials", "nothing"), "unknown study"),
        (("artifacts", "show", "xyz"), "no artifact has a key that begins with 'xyz'"),
        (("artifacts", "prune", "--to", "5"), "a size is a number with its unit"),
        (("artifacts", "ls", "--study", "t"), "unknown study"),
        (("predict", "s", "nowhere.csv"), "there is no file or folder nowhere.csv"),
        (("predict", "s", "DATA", "--out", "no/where.csv"), "no/where.csv cannot be written"),
        (("predict", "s", "OTHER"), "has no column 'a'"),
        (("export", "s", "FOLDER"), "this is a folder; the file must end in .pkl"),
        (("show", "s", "--store", "/no/such/store"), "there is no store at /no/such/store"),
        (("study", "rm", "nothing"), "unknown study"),
        (("retry", "s", "--trial", "0"), "trial 0 of study 's' has not failed"),
        (
            ("run", "DATA", "--target", "target", "--study", "s", "--metric", "auroc"),
            "has --metric error",
        ),
    ],
)
def test_a_mistake_is_told_in_one_message_with_exit_code_2(studied, arguments, message) -> None:
    other = studied.folder / "other.csv"
    other.write_text("x,y\n1,2\n")
    named = {"DATA": studied.data, "OTHER": other, "FOLDER": studied.folder}
    done = studied.run(*(named.get(a, a) for a in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("no such column"), 2, "Error: no such column"),
        (StoreRefused("of another index"), 2, "Error: of another index"),
        (StudyFailed("no trial completed"), 1, "Failed: no trial completed"),
        (ServerFailed("it did not start"), 1, "Failed: it did not start"),
        (httpx.ConnectError("refused"), 1, "Failed: the Prefect server does not answer"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_becomes_a_message_and_an_exit_code(error, code, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended, reported_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(said)


def test_a_server_that_prefect_cannot_reach_is_told_without_its_traceback(capsys) -> None:
    error = RuntimeError("Failed to reach API at http://127.0.0.1:1/api/")
    error.__cause__ = httpx.ConnectError("refused")
    with pytest.raises(SystemExit), reported_errors():
        raise error
    said = capsys.readouterr().err
    assert said.startswith("Failed: the Prefect server does not answer: RuntimeError('Failed to re")


def test_an_error_of_our_own_making_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), reported_errors():
        raise ZeroDivisionError
