"""Commands that look at a study that has ended: its store, trials, report, model."""

import json
import os
import pickle
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from html import unescape
from pathlib import Path
from subprocess import run as run_process

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from finished.programs import built_from, parameters, run_without_prefect_tune
from inputs import table, write_meds, write_table

from prefect_tune.tasks.data.split import REFIT


@pytest.mark.usefixtures("server")
def test_artifacts_are_listed_shown_counted_and_verified(studied) -> None:
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


@pytest.mark.usefixtures("server")
def test_pruning_evicts_from_the_cache_and_leaves_records(studied, tmp_path) -> None:
    home = CommandLine(shutil.copytree(studied.run.home, tmp_path / "home"))
    stats = home.json("artifacts", "stats")
    kept = stats["size_bytes"] // 2
    pruned = home.json("artifacts", "prune", "--to", f"{kept}B")
    assert pruned["evicted"] > 0
    assert pruned["size_bytes"] <= kept
    assert home.json("artifacts", "stats")["records_bytes"] == stats["records_bytes"]


@pytest.mark.usefixtures("server")
def test_artifacts_are_filtered_and_sorted(studied) -> None:
    rows = studied.json("artifacts", "ls", "--sort", "size", "--limit", 4)
    assert [r["size_bytes"] for r in rows] == sorted((r["size_bytes"] for r in rows), reverse=True)
    assert len(rows) == 4
    models = studied.json("artifacts", "ls", "--step", "fit model", "--study", "s", "--limit", 2)
    assert {r["step"] for r in models} == {"fit model"}
    only = studied.json("artifacts", "ls", "--algorithm", models[0]["algorithm"])
    assert {r["algorithm"] for r in only} == {models[0]["algorithm"]}


@pytest.mark.usefixtures("server")
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


@pytest.mark.usefixtures("server")
def test_the_final_model_is_of_all_training_rows_and_others_of_a_fold(studied) -> None:
    with closing(sqlite3.connect(studied.run.home / "store" / "index.sqlite")) as index:
        keys = dict(index.execute("SELECT fold, key FROM artifacts WHERE step = 'fit model'"))
    shown = {fold: studied.run("artifacts", "show", key).stdout for fold, key in keys.items()}
    assert "all training rows, the final model, made by study s" in shown.pop(REFIT)
    assert all(f", fold {fold}, made by study s" in text for fold, text in shown.items())


@pytest.mark.usefixtures("server")
def test_a_damaged_store_is_found_and_repaired(run, tmp_path) -> None:
    run("run", write_table(tmp_path), "--target", "target", "--trials", 1, "--quiet")
    part = next((run.home / "store" / "cache").rglob("train.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    found = run("artifacts", "verify", "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["damaged"]) == 1
    assert run("artifacts", "verify", "--repair").exit_code == 0
    assert run.json("artifacts", "verify")["damaged"] == []


HEAVY = {"ConfigSpace", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "prefect", "distributed"}


@pytest.mark.usefixtures("server")
def test_show_says_it_to_people(studied) -> None:
    said = studied.run("show", "s").stdout
    assert re.search(r"best: trial \d, cross-validated error .* %; on the test rows", said)
    assert "guessing: " in said
    assert "fit model" in said
    assert "saved" in said


@pytest.mark.usefixtures("server")
def test_trials_are_listed_with_stable_fields(studied) -> None:
    rows = studied.json("trials", "s")
    assert [row["number"] for row in rows] == list(range(5))
    for row in rows:
        assert set(row) == {
            "number", "state", "query", "evaluation", "failure", "attempts", "deaths",
        }  # fmt: skip
        assert set(row["query"]) == {
            "configuration", "subset", "subset_draw", "epochs", "folds"
        }  # fmt: skip
        assert set(row["evaluation"]) >= {
            "loss", "cost_seconds", "cost_uncached_seconds", "fold_losses", "steps"
        }  # fmt: skip
        assert set(row["evaluation"]["steps"][0]) == {
            "step", "fold", "seconds", "load_seconds", "hit", "key"
        }  # fmt: skip
    assert studied.json("trials", "s", "--failed") == []
    assert "complete" in studied.run("trials", "s").stdout


@pytest.mark.usefixtures("server")
def test_a_removed_study_takes_its_records_and_leaves_those_of_others(run, tmp_path) -> None:
    data = write_meds(tmp_path / "meds")
    command = (
        "run",
        data,
        "--labels",
        "labels/task",
        "--method",
        "random",
        "--trials",
        2,
        "--quiet",
    )
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


@pytest.mark.usefixtures("server")
def test_looking_imports_nothing_heavy(studied) -> None:
    for command in (
        ("show", "s"),
        ("trials", "s"),
        ("study", "ls"),
        ("artifacts", "ls", "--study", "s"),
        ("artifacts", "stats"),
    ):
        program = (
            "import sys; from prefect_tune.deployments.command import main\n"
            f"main({list(command)!r}, standalone_mode=False)\n"
            f"print(sorted({HEAVY} & set(sys.modules)))"
        )
        done = run_process(
            [sys.executable, "-c", program],
            env={**os.environ, "PREFECT_TUNE_HOME": str(studied.run.home)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith("[]\n"), (command, done.stdout.splitlines()[-1])


UNNEEDED = {"plotly", "prefect", "distributed", "prefect_tune.deployments.server.embedded"}


@pytest.mark.usefixtures("server")
def test_a_report_is_one_file_named_after_the_study(studied, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = studied.run("report", "s")
    assert done.exit_code == 0
    assert "the report of study s is in s.html" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["s.html"]
    page = (tmp_path / "s.html").read_text()
    assert "The best pipeline" in page
    assert len(page) < 5_000_000


@pytest.mark.usefixtures("server")
def test_as_json_it_is_a_document_and_a_file_only_where_one_is_named(
    studied, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = studied.json("report", "s")
    assert list(tmp_path.iterdir()) == []
    assert set(found) == {
        "summary", "created", "progress", "paths", "step_times", "failures", "trade_offs",
        "fidelities", "members", "importance", "reproduction",
    }  # fmt: skip
    assert found["summary"] == studied.json("show", "s")
    assert sum(step["served"] for step in found["step_times"]) == found["summary"]["cache"]["hits"]
    assert found["reproduction"]["command"][:4] == ["prefect-tune", "run", str(studied.data),
                                                    "--target"]  # fmt: skip
    assert studied.json("report", "s", "--out", "named.html") == found
    assert [path.name for path in tmp_path.iterdir()] == ["named.html"]


@pytest.mark.usefixtures("server")
def test_an_unknown_study_and_a_file_that_cannot_be_written_are_said(studied, tmp_path) -> None:
    unknown = studied.run("report", "t", "--out", tmp_path / "t.html")
    assert unknown.exit_code == 2
    assert "unknown study" in unknown.stderr
    for out in (tmp_path, tmp_path / "none" / "s.html"):
        done = studied.run("report", "s", "--out", out)
        assert done.exit_code == 2
        assert f"{out} cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("server")
def test_it_needs_no_server_and_imports_none(studied, tmp_path) -> None:
    command = ["report", "s", "--out", str(tmp_path / "s.html")]
    program = (
        "import sys; from prefect_tune.deployments.command import main\n"
        f"main({command!r}, standalone_mode=False)\n"
        f"print(sorted({UNNEEDED} & set(sys.modules)))"
    )
    done = run_process(
        [sys.executable, "-c", program],
        env={**os.environ, "PREFECT_TUNE_HOME": str(studied.run.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("[]\n"), done.stdout


@pytest.mark.usefixtures("server")
def test_a_comparison_and_pooled_curves_have_a_report_too(run, studied, tmp_path) -> None:
    out, file = tmp_path / "curves.parquet", tmp_path / "compared.html"
    options = ("--target", "target", "--space", "small", "--methods", "random,tpe", "--trials", 2,
               "--repeats", 1, "--workers", 2, "--quiet")  # fmt: skip
    store = ("--store", tmp_path / "its store")
    done = run("compare", studied.data, *options, *store, "--out", out, "--report", file)
    assert done.exit_code == 0, done.output
    assert "the report of comparison" in done.stdout
    assert re.search(r"prefect-tune report \S+ --store .*/its store", unescape(file.read_text()))
    assert "Who leads" in file.read_text()
    pooled = tmp_path / "pooled.html"
    found = run.json("standings", out, "--report", pooled)
    assert found["n_blocks"] == 1
    assert "Who leads" in pooled.read_text()
    unwritable = run("standings", out, "--report", tmp_path)
    assert unwritable.exit_code == 2
    assert len(pd.read_parquet(out)) == 6


LOADS = """
import pickle, sys
import pandas as pd

with open(sys.argv[1], "rb") as file:
    model = pickle.load(file)
predictions = model.predict_proba(pd.read_csv(sys.argv[2]).drop(columns="target"))
pd.DataFrame(predictions).to_csv(sys.stdout, index=False, header=False, float_format="%.17g")
"""


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_trials_are_written_as_a_table(ended, tmp_path: Path, suffix) -> None:
    out = tmp_path / f"trials.{suffix}"
    said = ended.run.json("trials", "s", "--out", out)
    table = pd.read_parquet(out) if suffix == "parquet" else pd.read_csv(out)
    assert (said["rows"], said["columns"]) == (9, list(table))
    losses = [t["evaluation"]["loss"] for t in ended.run.json("trials", "s") if t["evaluation"]]
    assert np.allclose(table["value"].dropna(), losses)
    assert f"9 trials of s in {out}" in ended.run("trials", "s", "--out", out).stdout
    failed = ended.run.json("trials", "s", "--failed", "--out", out)
    assert failed["rows"] == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("trials", "s", "--out", "t.xlsx"), "--out t.xlsx: the file must end in .csv or .parquet"),
        (("predict", "s", "new.csv", "--out", "p.json"), "--out p.json: the file must end in .csv"),
        (("export", "s", "model.onnx"), "model.onnx: the file must end in .pkl, .pickle or"),
        (("show", "s", "--code"), "--code: the code is that of a trial; add --trial N"),
        (("show", "s", "--trial", "12"), "--trial 12: study s has the trials 0 to 8"),
        (("show", "s", "--trial", "12", "--code"), "--trial 12: study s has the trials 0 to 8"),
    ],
)
def test_what_is_not_written_is_refused_by_name(
    ended, tmp_path, monkeypatch, command, said
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ended.run(*command)
    assert done.exit_code == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_trial_is_explained_to_people(ended) -> None:
    said = ended.run("show", "s", "--trial", "1").stdout
    best = ended.load().best_trial
    assert said.startswith("trial 1 of s: complete, error ")
    assert f"trial {best} (best)" in said
    assert "k_nearest" in said
    assert "n_neighbors" in said
    assert "a whole number from 1 to 100 (log)" in said
    assert "model_size_bytes" in said
    assert "prefect-tune show s --trial 1 --code" in said


def test_a_failed_trial_shows_its_message_verbatim_and_how_to_retry(ended) -> None:
    said = ended.run("show", "s", "--trial", "0").stdout
    assert "failed: fit model, fold 0: ValueError: picky [about] new" in said
    assert "retry it: prefect-tune retry s --trial 0" in said
    assert "traceback" in said


def test_the_code_of_a_trial_builds_its_pipeline_and_is_all_that_is_printed(ended) -> None:
    text = ended.run("show", "s", "--trial", "2", "--code").stdout
    assert text == ended.run.json("show", "s", "--trial", "2", "--code")["code"]
    assert parameters(built_from(text)) == parameters(ended.load().pipeline(2))


def test_its_task_run_is_linked_where_a_server_is_known(ended, monkeypatch) -> None:
    from prefect_tune.deployments.server import task_run_page
    from prefect_tune.flows.results import explained

    told = explained.explained_trial
    monkeypatch.setattr(
        explained, "explained_trial", lambda *given: {**told(*given), "task_run_id": "abc"}
    )
    monkeypatch.setenv("PREFECT_UI_URL", "http://prefect:4200/")
    page = "http://prefect:4200/runs/task-run/abc"
    assert ended.run.json("show", "s", "--trial", "1")["task_run_url"] == page
    assert f"in Prefect: {page}" in ended.run("show", "s", "--trial", "1").stdout
    monkeypatch.delenv("PREFECT_UI_URL")
    monkeypatch.setattr(task_run_page, "may_be_configured", lambda: False)
    assert "in Prefect: task run abc" in ended.run("show", "s", "--trial", "1").stdout


@pytest.mark.slow
def test_an_exported_model_predicts_the_same_where_prefect_tune_is_not_installed(
    ended, tmp_path: Path
) -> None:
    told = ended.run.json("export", "s", tmp_path / "m.pkl")
    assert told["rows_checked"] == 30
    (tmp_path / "loads.py").write_text(LOADS)
    data = ended.folder / "table.csv"
    said = run_without_prefect_tune(tmp_path / "loads.py", tmp_path / "m.pkl", data)
    there = [[float(p) for p in line.split(",")] for line in said.splitlines()]
    rows = pd.read_csv(data).drop(columns="target")
    assert np.array_equal(there, ended.load().model().predict_proba(rows))


def test_a_model_comes_with_its_card_and_says_what_it_is(ended, tmp_path: Path) -> None:
    done = ended.run("export", "s", tmp_path / "m.pkl")
    assert (
        "m.pkl: an ensemble of 2 pipelines (trials 2 66.7%, 1 33.3%), error on the" in done.stdout
    )
    assert "not prefect-tune," in done.stdout
    card = (tmp_path / "m.md").read_text()
    assert "# Model card: s" in card
    assert "| `no` | 17 |" in card
    (tmp_path / "m.md").write_text(card.replace("*To be written", "Mine.\n\n*To be written"))
    assert ended.run.json("export", "s", tmp_path / "m.pkl")["card"] == str(tmp_path / "m.md")
    assert "Mine." in (tmp_path / "m.md").read_text()
    assert ended.run.json("export", "s", tmp_path / "n.pkl", "--no-card")["card"] is None
    assert not (tmp_path / "n.md").exists()
    assert isinstance(pickle.loads((tmp_path / "n.pkl").read_bytes()).weights, list)


@pytest.mark.parametrize(
    "mine",
    [
        "# Read me\n",
        "",
        "---\ntags: [sklearn]\n---\n",
        "---\n[\n---\n",
        "# a\n---\ntags: [prefect-tune]\n---\n",
    ],
)
def test_a_card_replaces_no_file_of_others(ended, tmp_path: Path, monkeypatch, mine) -> None:
    from prefect_tune.flows.results import exported

    monkeypatch.setattr(exported, "export", lambda *_: pytest.fail("there was work before"))
    (tmp_path / "README.md").write_text(mine)
    done = ended.run("export", "s", tmp_path / "README.pkl")
    assert done.exit_code == 2
    assert f"{tmp_path}/README.md is not a model card of prefect-tune" in done.stderr
    assert "--no-card" in done.stderr
    assert (tmp_path / "README.md").read_text() == mine
    assert not (tmp_path / "README.pkl").exists()


def test_what_people_wrote_of_one_study_gets_into_no_card_of_another(ended, tmp_path: Path) -> None:
    ended.run("export", "s", tmp_path / "m.pkl")
    card, model = tmp_path / "m.md", (tmp_path / "m.pkl").read_bytes()
    card.write_text(mine := card.read_text().replace("*To be written", "Mine.\n\n*To be written"))
    done = ended.run("export", "h", tmp_path / "m.pkl")
    assert done.exit_code == 2
    assert "m.md is the model card of another study" in done.stderr
    assert card.read_text() == mine
    assert (tmp_path / "m.pkl").read_bytes() == model


def test_a_skops_file_is_loaded_by_the_lines_that_are_printed(ended, tmp_path: Path) -> None:
    import skops.io

    done = ended.run("export", "s", tmp_path / "m.skops")
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "import skops.io" in line)
    end = next(i for i, line in enumerate(lines) if "skops.io.load(" in line)
    program = "\n".join(line[6:] for line in lines[start : end + 1])
    loaded: dict[str, object] = {}
    exec(program, loaded)  # noqa: S102 - what a user does with them
    rows = pd.read_csv(ended.folder / "table.csv").drop(columns="target")
    expected = ended.load().model().predict_proba(rows)
    assert np.array_equal(loaded["model"].predict_proba(rows), expected)  # type: ignore[attr-defined]
    assert skops.io.get_untrusted_types(file=tmp_path / "m.skops")


@pytest.mark.usefixtures("server")
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
