"""The command line as users meet it: output, exit codes, and what it says of mistakes."""

import json
import pickle
import re
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from inputs import table, write_meds, write_table
from prefect_api import flow_runs

from prefect_tune.flows.workers import clusters

TOPICS = [
    (),
    ("run",),
    ("show",),
    ("trials",),
    ("retry",),
    ("compare",),
    ("standings",),
    ("artifacts",),
    ("artifacts", "ls"),
    ("artifacts", "show"),
    ("artifacts", "stats"),
    ("artifacts", "verify"),
    ("artifacts", "prune"),
    ("study",),
    ("study", "rm"),
    ("study", "ls"),
    ("predict",),
    ("export",),
    ("cohort",),
    ("serve",),
]


pytestmark = pytest.mark.usefixtures("server")


class Studied:
    """A home with one finished study of the test table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = CommandLine(folder / "home")
        self.json = self.run.json
        self.data = write_table(folder)
        self.ran = self.run(
            "run",
            self.data,
            "--target",
            "target",
            "--space",
            "small",
            "--study",
            "s",
            "--trials",
            5,
            "--json",
        )


@pytest.fixture(scope="module")
def studied(server, tmp_path_factory) -> Studied:  # noqa: ARG001 - flows go there
    return Studied(tmp_path_factory.mktemp("studied"))


@pytest.fixture
def run(tmp_path) -> CommandLine:
    return CommandLine(tmp_path / "home")


@pytest.mark.parametrize("topic", TOPICS, ids=" ".join)
def test_every_command_teaches_itself(run, topic) -> None:
    done = run(*topic, "--help")
    assert done.exit_code == 0
    assert len(done.stdout) > 100
    assert not run.home.exists()


def test_run_json_prints_what_show_prints_and_nothing_else(studied) -> None:
    assert studied.ran.exit_code == 0, studied.ran.stderr
    summary = json.loads(studied.ran.stdout)
    assert summary == studied.json("show", "s")
    assert set(summary) >= {
        "study", "method", "state", "n_trials", "n_failed", "incumbent", "test_loss", "cache",
        "seconds",
    }  # fmt: skip
    assert set(summary["incumbent"]) == {"trial", "loss", "constraints", "configuration"}
    assert set(summary["cache"]) == {"hits", "misses", "size_bytes", "seconds_saved"}
    assert set(summary["seconds"]) == {"total", "evaluating", "asking"}


def test_along_the_way_each_trial_is_a_line(studied) -> None:
    lines = re.findall(
        r"^trial +\d+ .*best error .* cache \d+ hits.*$", studied.ran.stderr, re.MULTILINE
    )
    assert len(lines) == 5
    assert "Traceback" not in studied.ran.stderr
    assert "Error" not in studied.ran.stderr


def test_show_says_it_to_people(studied) -> None:
    said = studied.run("show", "s").stdout
    assert re.search(r"best: trial \d, cross-validated error .* %; on the test rows", said)
    assert "guessing: " in said
    assert "fit model" in said
    assert "saved" in said


def test_trials_are_listed_with_stable_fields(studied) -> None:
    rows = studied.json("trials", "s")
    assert [row["number"] for row in rows] == list(range(5))
    for row in rows:
        assert set(row) == {"number", "state", "query", "evaluation", "failure", "attempts"}
        assert set(row["query"]) == {"configuration", "subset", "subset_draw", "epochs"}
        assert set(row["evaluation"]) >= {
            "loss", "cost_seconds", "cost_uncached_seconds", "fold_losses", "steps"
        }  # fmt: skip
        assert set(row["evaluation"]["steps"][0]) == {
            "step", "fold", "seconds", "load_seconds", "hit", "key"
        }  # fmt: skip
    assert studied.json("trials", "s", "--failed") == []
    assert "complete" in studied.run("trials", "s").stdout


def test_artifacts_are_listed_shown_counted_verified_and_pruned(studied) -> None:
    rows = studied.json("artifacts", "ls")
    assert set(rows[0]) == {
        "key", "study", "step", "algorithm", "size_bytes", "cost_seconds", "created", "last_used",
        "hits",
    }  # fmt: skip
    used = {s["key"] for t in studied.json("trials", "s") for s in t["evaluation"]["steps"]}
    assert {row["key"] for row in studied.json("artifacts", "ls", "--study", "s")} >= used
    key = rows[0]["key"]
    shown = studied.json("artifacts", "show", key[:16])
    assert shown["key"] == key
    assert shown["lineage"]["steps"][-1]["step"] == rows[0]["step"]
    stats = studied.json("artifacts", "stats")
    assert set(stats) >= {
        "size_bytes", "records_bytes", "budget_bytes", "count", "hits", "misses", "evicted",
        "refused",
    }  # fmt: skip
    assert stats["count"] == len(rows)
    found = studied.json("artifacts", "verify")
    assert set(found) == {"checked", "damaged", "missing", "orphans"}
    assert found["checked"] > len(rows)
    assert found["damaged"] == found["missing"] == found["orphans"] == []
    for command in (("ls",), ("show", key), ("stats",), ("verify",)):
        assert studied.run("artifacts", *command).exit_code == 0
    kept = stats["size_bytes"] // 2
    pruned = studied.json("artifacts", "prune", "--to", f"{kept}B")
    assert pruned["evicted"] > 0
    assert pruned["size_bytes"] <= kept
    assert studied.json("artifacts", "stats")["records_bytes"] == stats["records_bytes"]


def test_artifacts_are_filtered_and_sorted(studied) -> None:
    rows = studied.json("artifacts", "ls", "--sort", "size", "--limit", 4)
    assert [r["size_bytes"] for r in rows] == sorted((r["size_bytes"] for r in rows), reverse=True)
    assert len(rows) == 4
    models = studied.json("artifacts", "ls", "--step", "fit model", "--study", "s", "--limit", 2)
    assert {r["step"] for r in models} == {"fit model"}
    only = studied.json("artifacts", "ls", "--algorithm", models[0]["algorithm"])
    assert {r["algorithm"] for r in only} == {models[0]["algorithm"]}


def test_what_is_in_an_artifact_is_shown_and_exported(studied, tmp_path) -> None:
    used = {s["key"] for t in studied.json("trials", "s") for s in t["evaluation"]["steps"]}
    encoded = next(
        row
        for row in studied.json("artifacts", "ls")
        if row["key"] in used and row["step"] == "encode"
    )
    shown = studied.json("artifacts", "show", encoded["key"])
    train = shown["contents"]["train"]
    assert train["shape"] == [shown["facts"]["rows"], shown["facts"]["columns"]]
    assert len(train["rows"]) == 5
    assert set(train["columns"]["0"]) == {"min", "mean", "max", "share_zero"}
    assert shown["contents"]["estimator"]["type"].startswith("sklearn.")
    assert "n_features_in_" in shown["contents"]["estimator"]["fitted"]
    assert shown["trials"][0]["study"] == "s"
    assert all(child["step"] != encoded["step"] for child in shown["children"])
    assert studied.run("artifacts", "show", encoded["key"]).exit_code == 0

    out = tmp_path / "train.parquet"
    assert studied.run("artifacts", "export", encoded["key"], out).exit_code == 0
    assert len(pd.read_parquet(out)) == train["shape"][0]
    assert len(duckdb.read_parquet(str(out))) == train["shape"][0]
    about = json.loads(pq.read_schema(out).metadata[b"prefect_tune"])
    assert about["key"] == encoded["key"]
    assert about["shape"] == train["shape"]
    assert about["lineage"]["steps"][-1]["step"] == encoded["step"]
    estimator = tmp_path / "encoder.pkl"
    studied.run("artifacts", "export", encoded["key"], estimator, "--part", "estimator")
    assert hasattr(pickle.loads(estimator.read_bytes()), "transform")
    refused = studied.run("artifacts", "export", encoded["key"], out, "--part", "tail")
    assert refused.exit_code == 2
    assert "has no part 'tail'; it has" in refused.stderr


def test_a_damaged_store_is_found_and_repaired(run, tmp_path) -> None:
    run("run", write_table(tmp_path), "--target", "target", "--trials", 1, "--quiet")
    part = next((run.home / "store" / "cache").rglob("train.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    found = run("artifacts", "verify", "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["damaged"]) == 1
    assert run("artifacts", "verify", "--repair").exit_code == 0
    assert run.json("artifacts", "verify")["damaged"] == []


def test_the_policy_of_eviction_is_a_property_of_the_store(run, tmp_path) -> None:
    command = ("run", write_table(tmp_path), "--target", "target", "--trials", 1, "--study", "s")
    done = run(*command, "--eviction", "gdsf", "--cache-budget", "1GB")
    assert "the store's cache now evicts by gdsf" in done.stderr
    assert "the store's cache may now hold 1.0GB" in done.stderr
    stats = run.json("artifacts", "stats")
    assert (stats["policy"], stats["budget_bytes"]) == ("gdsf", 1000**3)
    assert set(stats["steps"]["fit model"]) == {
        "hits", "misses", "seconds_saved", "evicted", "size_bytes"
    }  # fmt: skip
    assert "unknown policy of --eviction 'fifo'" in run(*command, "--eviction", "fifo").stderr
    other = run(*command[:-1], "t", "--cache-budget", "2GB")  # another study on the same store
    assert "may now hold 2.0GB, before 1.0GB" in other.stderr
    assert run.json("artifacts", "stats")["budget_bytes"] == 2 * 1000**3


def test_predictions_and_the_model_are_files_of_the_users(studied) -> None:
    fresh = table(40, seed=4).drop(columns="target")
    fresh.to_parquet(studied.folder / "new.parquet", index=False)
    out = studied.folder / "predictions.csv"
    told = studied.json("predict", "s", studied.folder / "new.parquet", "--out", out)
    predictions = pd.read_csv(out)
    assert list(predictions) == told["columns"]
    assert list(predictions) == ["prediction", "probability_no", "probability_yes"]
    assert len(predictions) == 40
    assert predictions[["probability_no", "probability_yes"]].sum(axis=1).round(9).eq(1).all()
    model_file = studied.folder / "model.pkl"
    assert studied.run("export", "s", model_file).exit_code == 0
    model = pickle.loads(model_file.read_bytes())
    assert (model.predict(fresh) == predictions["prediction"]).all()


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
        (("export", "s", "FOLDER"), "is a folder"),
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
    ("arguments", "message"),
    [
        (("--target", "targt"), "Did you mean 'target'"),
        ((), "say which column to predict with --target"),
        (("--target", "target", "--method", "flsh"), "unknown method 'flsh'"),
        (("--target", "target", "--metric", "acuracy"), "unknown metric 'acuracy'"),
        (("--target", "target", "--space", "smal"), "Did you mean 'small'"),
        (("--target", "target", "--space", "healthcare"), "take --space flash"),
        (("--target", "target", "--budget", "30"), "--budget 30: a duration is a number with its"),
        (("--target", "target", "--cache-budget", "lots"), "--cache-budget lots: a size is"),
        (("--target", "target", "--trials", "0"), "--trials 0: at least 1"),
        (("--target", "target", "--workers", "0"), "--workers 0: at least 1"),
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
    assert "ended without a completed trial: 3 trials failed, " in done.stderr
    assert "no code occurs in" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    failed = run.json("trials", "s", "--failed")
    assert [t["failure"]["step"] for t in failed] == ["construct features"] * 3
    assert set(failed[0]["failure"]) == {
        "kind", "message", "traceback", "step", "fold", "cost_seconds"
    }  # fmt: skip
    assert "no code occurs in" in run("trials", "s").stdout


def test_json_lines_are_trials_as_they_end(run, tmp_path) -> None:
    data = write_table(tmp_path)
    done = run("run", data, "--target", "target", "--trials", 3, "--json-lines")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["number"] for line in lines) == [0, 1, 2]
    assert {line["state"] for line in lines} == {"complete"}


def test_a_removed_study_takes_its_records_and_leaves_those_of_others(run, tmp_path) -> None:
    data = write_meds(tmp_path / "meds")
    command = ("run", data, "--labels", "labels/task", "--trials", 2, "--quiet")
    for study in ("one", "two"):
        done = run(*command, "--study", study)
        assert done.exit_code == 0
        assert done.stderr == ""
    assert [row["study"] for row in run.json("study", "ls")] == ["two", "one"]
    gone = run.json("study", "rm", "one")
    assert gone["records"] == ["models/one"]  # the rest is what study two uses as well
    assert run("show", "one").exit_code == 2
    assert run.json("show", "two")["n_trials"] == 2
    times, out = tmp_path / "times.csv", tmp_path / "p.parquet"
    times.write_text("subject_id,prediction_time\n100,2020-03-01\n101,2020-03-01\n")
    assert run.json("predict", "two", data, "--labels", times, "--out", out)["rows"] == 2
    predictions = pd.read_parquet(out)
    assert list(predictions["subject_id"]) == [100, 101]
    assert "prediction" in predictions
    everything = run.json("study", "rm", "two")["records"]
    assert any(r.startswith("data/") for r in everything)
    assert run.json("artifacts", "stats")["records_bytes"] == 0
    assert run.json("artifacts", "verify")["damaged"] == []


def test_a_cohort_is_written_once_and_can_be_tuned_on(run, tmp_path) -> None:
    out = tmp_path / "new" / "meds"
    name = "demo?n_patients=60&noise_codes=0"
    written = run.json("cohort", name, "--out", out)
    assert written["patients"] == 60
    assert written["truth"]["aggregation"] == "average"
    assert [path.name for path in out.parent.iterdir()] == ["meds"]
    assert (out / written["labels"]).is_dir()
    again = run("cohort", name, "--out", out)
    assert again.exit_code == 2
    assert "is there already; name a folder that is empty or not there" in again.stderr
    unknown = run("cohort", "demo?famly=sum", "--out", tmp_path / "other")
    assert unknown.exit_code == 2
    assert "Did you mean 'family'" in unknown.stderr
    assert not (tmp_path / "other").exists()
