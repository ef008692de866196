"""`run`, `compare` and `retry` as users meet them: output, exit codes, mistakes, own methods."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pandas as pd
import pytest
from command_line import CommandLine
from inputs import write_meds, write_table
from prefect.utilities.callables import parameter_schema
from prefect_api import flow_runs

from prefect_tune.deployments.cli.errors import reported_errors
from prefect_tune.deployments.server.embedded import ServerFailed
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.flows.tune import tune
from prefect_tune.flows.workers import clusters
from prefect_tune.optimizers import (
    METHODS,
    Method,
    Optimizer,
    Query,
    SpaceExhausted,
    option,
    register,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage.artifacts import StoreRefused
from prefect_tune.tasks.bad_input import BadInput

SMALL = ("--target", "target", "--space", "small", "--workers", 1, "--no-race")


class Studied:
    """A home in which a study of the test table was run."""

    def __init__(self, folder: Path) -> None:
        self.run = CommandLine(folder / "home")
        self.json = self.run.json
        self.data = write_table(folder)
        options = ("--study", "s", "--trials", 3, "--cache-budget", "1GB", "--json")
        self.ran = self.run("run", self.data, *SMALL, *options)


@pytest.fixture(scope="module")
def studied(server, tmp_path_factory) -> Studied:  # noqa: ARG001 - flows go there
    return Studied(tmp_path_factory.mktemp("studied"))


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
    of_time = {"total", "evaluating", "asking", "budget", "over_budget"}
    assert set(summary["seconds"]) == of_time
    assert len(re.findall(r"^trial +\d+ ", studied.ran.stderr, re.MULTILINE)) == 3


def test_the_budget_of_the_cache_is_a_property_of_the_store(studied) -> None:
    stats = studied.json("artifacts", "stats")
    assert stats["budget_bytes"] == 1000**3
    assert set(stats["steps"]["fit model"]) == {
        "hits", "misses", "seconds_saved", "evicted", "refused", "size_bytes"
    }  # fmt: skip
    options = ("--study", "s", "--trials", 5, "--cache-budget", "2GB", "--json-lines")
    other = studied.run("run", studied.data, *SMALL, *options)
    assert studied.json("artifacts", "stats")["budget_bytes"] == 2 * 1000**3
    lines = [line for line in map(json.loads, other.stdout.splitlines()) if "number" in line]
    assert {line["number"]: line["state"] for line in lines} == {3: "complete", 4: "complete"}


@pytest.mark.usefixtures("server")
def test_a_command_prepares_and_its_flow_takes_over(run, tmp_path, monkeypatch) -> None:
    """Input is read once, and nothing is said twice: of a new study, and of one continued."""
    prepared_by_the_flow = "prefect_tune.flows.tune.prepare_run"
    monkeypatch.setattr(prepared_by_the_flow, lambda *_, **__: pytest.fail("again"))
    study = ("run", write_table(tmp_path), *SMALL, "--method", "random", "--study", "s")
    for trials in (1, 2):
        done = run(*study, "--trials", trials, "--constraint", "disparate_impact(colour)<=100")
        assert done.exit_code == 0, done.stderr
        notes = [line for line in done.stderr.splitlines() if not line.startswith("trial ")]
        assert len(notes) == len(set(notes))
    assert any("study s" in note for note in notes)


@pytest.mark.usefixtures("server")
def test_a_comparison_has_a_report_and_so_have_pooled_curves(run, tmp_path) -> None:
    out, file = tmp_path / "curves.parquet", tmp_path / "compared.html"
    options = ("--methods", "random,tpe", "--trials", 2, "--repeats", 1, "--quiet")
    where = ("--store", tmp_path / "its store", "--out", out, "--report", file)
    done = run("compare", write_table(tmp_path), *SMALL, *options, *where)
    assert done.exit_code == 0, done.output
    assert re.search(r"prefect-tune report \S+ --store .*/its store", unescape(file.read_text()))
    assert "Pairs of methods" in file.read_text()
    pooled = tmp_path / "pooled.html"
    assert run.json("standings", out, "--report", pooled)["n_blocks"] == 1
    assert "Pairs of methods" in pooled.read_text()
    assert run("standings", out, "--report", tmp_path).exit_code == 2
    assert len(pd.read_parquet(out)) == 6


@pytest.mark.usefixtures("server")
def test_a_failure_while_running_is_told_with_exit_code_1(run, tmp_path) -> None:
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
    assert "Traceback" not in done.stderr
    failed = run.json("trials", "s", "--failed")
    assert [t["failure"]["step"] for t in failed] == ["construct features"] * 2
    assert set(failed[0]["failure"]) == {
        "kind", "message", "traceback", "step", "fold", "cost_seconds", "steps", "output",
        "load_seconds", "pilot",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_a_removed_study_takes_its_records_and_leaves_other_records(run, tmp_path) -> None:
    data = write_meds(tmp_path / "meds")
    command = ("run", data, "--labels", "labels/task", "--method", "random", "--trials", 2)
    for study in ("one", "two"):
        done = run(*command, "--quiet", "--study", study)
        assert (done.exit_code, done.stderr) == (0, "")
    assert [row["study"] for row in run.json("study", "ls")] == ["two", "one"]
    gone = run.json("study", "rm", "one")
    assert gone["records"] == ["models/one"]  # the rest is what study two uses as well
    assert run("show", "one").exit_code == 2
    times, out = tmp_path / "times.csv", tmp_path / "p.parquet"
    times.write_text("subject_id,prediction_time\n100,2020-03-01\n101,2020-03-01\n")
    assert run.json("predict", "two", data, "--labels", times, "--out", out)["rows"] == 2
    assert list(pd.read_parquet(out)["subject_id"]) == [100, 101]
    everything = run.json("study", "rm", "two")["records"]
    assert any(r.startswith("data/") for r in everything)
    assert run.json("artifacts", "stats")["records_bytes"] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--target", "targt"), "'target'"),
        ((), "--target"),
        (("--method", "flsh"), "'flsh'"),
        (("--metric", "acuracy"), "'acuracy'"),
        (("--space", "smal"), "'small'"),
        (("--space", "healthcare"), "--space modern"),
        (("--budget", "30"), "--budget 30"),
        (("--cache-budget", "lots"), "--cache-budget lots"),
        (("--trials", "0"), "--trials 0"),
        (("--workers", "0"), "--workers 0"),
        (("--seed", "-1"), "--seed -1"),
        (("--seed", str(2**32)), "4294967294"),
        (("--store", "memory://x"), "memory://x"),
        (("--database", "nonsense"), "SQLAlchemy"),
        (("--database", "sqlite:////none/x"), "unable to open"),
        (("--folds", "90"), "90 folds"),
        (("--test-size", "2"), "--test-size 2.0"),
        (("--task-runs", "all"), "--task-runs"),
        (("--option", "x"), "NAME=VALUE"),
        (("--option", "x=1"), "method 'flash'"),
        (("--study", "a/b"), "a/b"),
        (("--store", "/proc/none"), "/proc/none"),
        (("--store", "s3://b/c"), "--database"),
    ],
)
@pytest.mark.usefixtures("server")
def test_a_mistake_in_a_run_is_told_before_anything_is_made(
    run, tmp_path, arguments, named
) -> None:
    before = len(flow_runs())
    target = () if not arguments or "--target" in arguments else ("--target", "target")
    done = run("run", write_table(tmp_path), *target, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert len(flow_runs()) == before


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "foo"])
def test_a_scheduler_that_does_not_answer_is_named(run, tmp_path, monkeypatch, address) -> None:
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)
    before = len(flow_runs())
    done = run("run", write_table(tmp_path), "--target", "target", "--dask", address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--dask {address}" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(flow_runs()) == before + 1  # only a flow can ask it


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BadInput("no such column"), 2, "Error: no such column"),
        (StoreRefused("of another index"), 2, "Error: of another index"),
        (StudyFailed("no trial completed"), 1, "Failed: no trial completed"),
        (ServerFailed("it did not start"), 1, "Failed: it did not start"),
        (httpx.ConnectError("refused"), 1, "Failed: the Prefect server"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_becomes_a_message_and_an_exit_code(error, code, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended, reported_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err.startswith(said)


def test_only_errors_of_our_own_making_keep_their_traceback(capsys) -> None:
    error = RuntimeError("Failed to reach API at http://127.0.0.1:1/api/")
    error.__cause__ = httpx.ConnectError("refused")
    with pytest.raises(SystemExit), reported_errors():
        raise error
    assert capsys.readouterr().err.startswith("Failed: the Prefect server")
    with pytest.raises(ZeroDivisionError), reported_errors():
        raise ZeroDivisionError


@dataclass(frozen=True)
class WalkOptions:
    """Options of `--method walk`."""

    first: int = option("The path to begin with.", at_least=0, default=0)
    plain: int = 0


@dataclass(frozen=True)
class Untold:
    """Options, one of them without a default."""

    first: int


WALK = Method(
    name="walk",
    purpose="each path with its default values, in order",
    implementation=f"{__name__}:Walk",
    options=WalkOptions,
    honours_constraints=True,
    render_decisions=lambda decisions: [f"walked to path {decisions['reached']}"],
)


class Walk(Optimizer):
    method: ClassVar[Method] = WALK

    def _propose(self, budget, rng) -> Query:  # noqa: ARG002
        paths = list(self.space.paths())[self.options.first + len(self.history) :]
        if not paths:
            raise SpaceExhausted
        return Query(default_configuration(self.space, paths[0]))

    @property
    def decisions(self) -> dict[str, Any]:
        return {"reached": self.options.first + len(self.history) - 1}


@pytest.fixture
def walk() -> Iterator[None]:
    register(WALK)
    yield
    METHODS._known.pop("walk")


@pytest.mark.full
@pytest.mark.usefixtures("server", "walk")
def test_a_method_of_a_user_runs_with_its_options_and_shows_its_decisions(run, tmp_path) -> None:
    options = ("--method", "walk", "--option", "first=1", "--constraint", "latency_us<=1000000")
    command = ("run", write_table(tmp_path), *SMALL, *options, "--study", "w", "--trials", 2)
    ran = run(*command)
    assert ran.exit_code == 0, ran.stderr
    assert "walked to path 2" in ran.stdout
    assert "searches within them" not in ran.stderr
    assert run.json("show", "w")["decisions"] == {"reached": 2}
    assert "walked to path 2" in run("show", "w").stdout
    compared = ("--methods", "walk,random", "--trials", 1, "--repeats", 1)
    out = ("--out", tmp_path / "c.parquet", "--json")
    done = run("compare", command[1], *SMALL, *compared, *out)
    assert {row["method"] for row in json.loads(done.stdout)["methods"]} == {"walk", "random"}


@pytest.mark.usefixtures("walk")
def test_catalogue_help_and_forms_name_a_method_of_a_user(run) -> None:
    assert run("methods").stdout.count(WALK.purpose) == 1
    said = run("methods", "walk").stdout
    assert "--option first=0  (at least 0)" in said
    assert "The path to begin with." in said
    assert "--option plain=0\n" in said
    assert run.json("methods", "walk")["honours_constraints"] is True
    assert "random or walk;" in " ".join(run("run", "--help").stdout.split())
    assert "random,walk]" in "".join(run("compare", "--help").stdout.split())
    assert "walk" in parameter_schema(tune).properties["method"]["anyOf"][0]["enum"]


@pytest.mark.usefixtures("walk")
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
def test_a_declaration_that_cannot_be_is_refused(wrong, message) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        replace(METHODS["walk"], **wrong)
