"""Commands that look at a study that has ended, and that go on with it elsewhere."""

import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from finished.ended import Ended
from finished.programs import built_from, parameters, run_without_prefect_tune
from processes import run_python

from prefect_tune.deployments.server import embedded
from prefect_tune.flows.reading.opened_study import Moments, OpenedStudy
from prefect_tune.flows.results import exported
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.data.split import REFIT

pytestmark = pytest.mark.slow

FRAMEWORKS = {"prefect", "dask", "distributed"}
HEAVY = FRAMEWORKS | {"ConfigSpace", "numpy", "scipy", "sklearn", "pandas", "plotly", "pyarrow"}
LOOKS = (
    ("show", "s"), ("trials", "s"), ("study", "ls"), ("artifacts", "ls", "--study", "s"),
    ("artifacts", "stats"), ("series",),
)  # fmt: skip
LOADS = """
import pickle, sys
import pandas as pd

with open(sys.argv[1], "rb") as file:
    model = pickle.load(file)
predictions = model.predict_proba(pd.read_csv(sys.argv[2]).drop(columns="target"))
pd.DataFrame(predictions).to_csv(sys.stdout, index=False, header=False, float_format="%.17g")
"""


@pytest.fixture
def changed(ended: Ended, tmp_path: Path) -> CommandLine:
    """The command in a copy of the home, which may be changed."""
    return CommandLine(shutil.copytree(ended.folder / "home", tmp_path / "home"))


def rows_of(ended: Ended) -> pd.DataFrame:
    return pd.read_csv(ended.folder / "table.csv").drop(columns="target")


def test_artifacts_are_listed_filtered_shown_counted_and_verified(ended) -> None:
    rows = ended.run.json("artifacts", "ls")
    assert set(rows[0]) == {
        "key", "study", "step", "algorithm", "size_bytes", "cost_seconds", "created", "last_used",
        "hits",
    }  # fmt: skip
    assert [r["created"] for r in rows] == sorted((r["created"] for r in rows), reverse=True)
    trials = [t["evaluation"] for t in ended.run.json("trials", "s") if t["evaluation"]]
    used = {s["key"] for evaluation in trials for s in evaluation["steps"]}
    assert {row["key"] for row in ended.run.json("artifacts", "ls", "--study", "s")} >= used
    models = ended.run.json("artifacts", "ls", "--step", "fit model", "--study", "s", "--limit", 2)
    assert [r["step"] for r in models] == ["fit model"] * 2
    shown = ended.run.json("artifacts", "show", rows[0]["key"][:16])
    assert (shown["key"], shown["lineage"]["steps"][-1]["step"]) == (
        rows[0]["key"], rows[0]["step"]
    )  # fmt: skip
    stats = ended.run.json("artifacts", "stats")
    assert stats["count"] == len(rows)
    found = ended.run.json("artifacts", "verify")
    assert found["checked"] > len(rows)
    assert found["damaged"] == found["missing"] == found["orphans"] == []
    for command in (("ls",), ("show", rows[0]["key"]), ("stats",), ("verify",)):
        assert ended.run("artifacts", *command).exit_code == 0


def test_pruning_evicts_from_the_cache_and_leaves_records(changed) -> None:
    stats = changed.json("artifacts", "stats")
    kept = stats["size_bytes"] // 2
    pruned = changed.json("artifacts", "prune", "--to", f"{kept}B")
    assert pruned["evicted"] > 0
    assert pruned["size_bytes"] <= kept
    assert changed.json("artifacts", "stats")["records_bytes"] == stats["records_bytes"]


def test_a_damaged_store_is_found_and_repaired(changed) -> None:
    part = next((changed.home / "store" / "cache").rglob("train.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    found = changed("artifacts", "verify", "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["damaged"]) == 1
    assert changed("artifacts", "verify", "--repair").exit_code == 0
    assert changed.json("artifacts", "verify")["damaged"] == []


def test_a_damaged_study_is_named_beside_the_others(changed) -> None:
    with (
        closing(sqlite3.connect(changed.home / "store" / "index.sqlite")) as connection,
        connection,
    ):
        connection.execute(
            "INSERT INTO studies (name, problem, settings, result, state, created) "
            "SELECT 'damaged', '{}', '{}', result, state, created FROM studies LIMIT 1"
        )
    done = changed("study", "ls", "--json")
    assert {study["study"] for study in json.loads(done.stdout)} == {"s", "h"}
    assert "study damaged is damaged" in done.stderr
    row, *_ = changed.json("artifacts", "ls")
    assert changed("artifacts", "show", row["key"]).exit_code == 0


def test_what_is_in_an_artifact_is_shown_and_exported(ended, tmp_path) -> None:
    encoded = ended.run.json("artifacts", "ls", "--step", "encode", "--study", "s")[0]
    shown = ended.run.json("artifacts", "show", encoded["key"])
    train = shown["contents"]["train"]
    assert train["shape"] == [shown["facts"]["rows"], shown["facts"]["columns"]]
    assert len(train["rows"]) == 5
    assert set(train["columns"]["0"]) >= {"count", "min", "mean", "max"}
    assert "n_features_in_" in shown["contents"]["estimator"]["fitted"]
    assert all(child["step"] != encoded["step"] for child in shown["children"])

    out, estimator = tmp_path / "train.parquet", tmp_path / "encoder.pkl"
    assert ended.run("artifacts", "export", encoded["key"], out).exit_code == 0
    assert len(pd.read_parquet(out)) == len(duckdb.read_parquet(str(out))) == train["shape"][0]
    about = json.loads(pq.read_schema(out).metadata[b"prefect_tune"])
    assert (about["key"], about["shape"]) == (encoded["key"], train["shape"])
    ended.run("artifacts", "export", encoded["key"], estimator, "--part", "estimator")
    assert hasattr(pickle.loads(estimator.read_bytes()), "transform")
    refused = ended.run("artifacts", "export", encoded["key"], out, "--part", "tail")
    assert refused.exit_code == 2
    assert "'tail'" in refused.stderr


def test_the_final_model_is_of_all_training_rows_and_others_of_a_fold(ended) -> None:
    with closing(sqlite3.connect(ended.folder / "home" / "store" / "index.sqlite")) as index:
        keys = dict(index.execute("SELECT fold, key FROM artifacts WHERE step = 'fit model'"))
    shown = {fold: ended.run("artifacts", "show", key).stdout for fold, key in keys.items()}
    assert "all training rows" in shown.pop(REFIT)
    assert all(f", fold {fold}, " in text for fold, text in shown.items())


def test_trials_are_listed_with_stable_fields_and_written_as_a_table(ended, tmp_path) -> None:
    rows = ended.run.json("trials", "s")
    assert [row["number"] for row in rows] == list(range(9))
    assert set(rows[0]) == {
        "number", "state", "query", "evaluation", "failure", "attempts", "deaths",
    }  # fmt: skip
    assert set(rows[0]["query"]) == {"configuration", "subset", "subset_draw", "epochs", "folds"}
    found = [row["evaluation"] for row in rows if row["evaluation"]]
    assert set(found[0]) >= {
        "loss", "cost_seconds", "cost_uncached_seconds", "fold_losses", "steps"
    }  # fmt: skip
    of_step = {"step", "fold", "seconds", "held_out_seconds", "load_seconds", "hit", "key"}
    assert set(found[0]["steps"][0]) == of_step
    for suffix, read in (("parquet", pd.read_parquet), ("csv", pd.read_csv)):
        out = tmp_path / f"trials.{suffix}"
        said, table = ended.run.json("trials", "s", "--out", out), read(out)
        assert (said["rows"], said["columns"]) == (9, list(table))
        assert np.allclose(table["value"].dropna(), [evaluation["loss"] for evaluation in found])
    assert len(ended.run.json("trials", "s", "--failed")) == 1
    assert ended.run.json("trials", "s", "--failed", "--out", out)["rows"] == 1


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("show", "nothing"), ("nothing",)),
        (("show", "S"), ("'s'",)),
        (("trials", "nothing"), ("nothing",)),
        (("study", "rm", "nothing"), ("nothing",)),
        (("report", "nothing"), ("nothing",)),
        (("artifacts", "show", "xyz"), ("'xyz'",)),
        (("artifacts", "prune", "--to", "5"), ("--to 5", "unit")),
        (("artifacts", "ls", "--study", "t"), ("unknown study",)),
        (("predict", "s", "nowhere.csv"), ("nowhere.csv",)),
        (("predict", "s", "DATA", "--out", "no/where.csv"), ("no/where.csv",)),
        (("predict", "s", "OTHER"), ("'a'",)),
        (("predict", "s", "DATA", "--id", "b", "--id", "day"), ("'day'",)),
        (("show", "s", "--store", "/no/such/store"), ("/no/such/store",)),
        (("retry", "s", "--trial", "1"), ("trial 1",)),
        (("run", "DATA", "--target", "target", "--study", "s", "--metric", "auroc"), ("error",)),
        (("trials", "s", "--out", "t.xlsx"), ("--out t.xlsx", ".parquet")),
        (("predict", "s", "new.csv", "--out", "p.json"), ("--out p.json", ".csv")),
        (("export", "s", "model.onnx"), ("model.onnx", ".pkl")),
        (("export", "s", "."), ("folder", ".pkl")),
        (("report", "s", "--out", "."), (".",)),
        (("show", "s", "--code"), ("--trial N",)),
        (("show", "s", "--output"), ("--trial",)),
        (("show", "s", "--trial", "12"), ("--trial 12", "0 to 8")),
        (("show", "s", "--trial", "12", "--code"), ("--trial 12", "0 to 8")),
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_in_one_message_with_exit_code_2(
    ended, tmp_path, monkeypatch, command, named
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    files = {"DATA": ended.folder / "table.csv", "OTHER": tmp_path / "other.csv"}
    done = ended.run(*(files.get(word, word) for word in command))
    assert (done.exit_code, done.stdout) == (2, "")
    assert all(part in done.stderr for part in named)
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("form", ["path", "relative", "symbolic link", "hard link"])
def test_no_output_replaces_an_input(ended, tmp_path, monkeypatch, form) -> None:
    monkeypatch.chdir(tmp_path)
    data, new, out = ended.folder / "table.csv", tmp_path / "new.csv", tmp_path / "out.csv"
    rows_of(ended).to_csv(new, index=False)
    named = {data: out, new: tmp_path / "new_out.csv"}
    for file, link in named.items():
        if form == "symbolic link":
            link.symlink_to(file)
        elif form == "hard link":
            link.hardlink_to(file)
        else:
            named[file] = Path(os.path.relpath(file)) if form == "relative" else file
    before, key = data.read_bytes(), ended.run.json("artifacts", "ls")[0]["key"]
    commands = [
        ("predict", "s", new, "--out", named[new]),
        ("predict", "s", new, "--out", named[data]),
        ("trials", "s", "--out", named[data]),
        ("report", "s", "--out", named[data]),
        ("artifacts", "export", key, named[data]),
        ("artifacts", "export", key, ended.run.home / "store" / "index.sqlite"),
    ]
    for command in commands:
        done = ended.run(*command)
        assert done.exit_code == 2, command
        assert "name another file" in done.stderr
        assert data.read_bytes() == before


def test_a_trial_is_explained_to_people(ended) -> None:
    said, best = ended.run("show", "s", "--trial", "1").stdout, ended.load().best_trial
    for part in (f"trial {best} (best)", "k_nearest", "n_neighbors", "1 to 100", "model_size_bytes",
                 "prefect-tune show s --trial 1 --code"):  # fmt: skip
        assert part in said
    failed = ended.run("show", "s", "--trial", "0").stdout
    assert "fit model, fold 0: ValueError: picky [about] new" in failed
    assert "prefect-tune retry s --trial 0" in failed


def test_the_code_of_a_trial_builds_its_pipeline_and_is_all_that_is_printed(ended) -> None:
    text = ended.run("show", "s", "--trial", "2", "--code").stdout
    assert text == ended.run.json("show", "s", "--trial", "2", "--code")["code"]
    name, _ = (built := built_from(text)).steps[0]
    assert name == "read rows"
    assert parameters(built[1:]) == parameters(ended.load().pipeline(2))


def test_its_task_run_is_linked_where_a_server_is_known(ended, monkeypatch) -> None:
    found = OpenedStudy.moments

    def moments(study: OpenedStudy, number: int) -> dict[int, Moments]:
        return {n: replace(of, task_run_id="abc") for n, of in found(study, number).items()}

    monkeypatch.setattr(OpenedStudy, "moments", moments)
    monkeypatch.setenv("PREFECT_UI_URL", "http://prefect:4200/")
    page = "http://prefect:4200/runs/task-run/abc"
    assert ended.run.json("show", "s", "--trial", "1")["task_run_url"] == page
    assert page in ended.run("show", "s", "--trial", "1").stdout
    monkeypatch.delenv("PREFECT_UI_URL")
    monkeypatch.setattr(embedded, "may_be_configured", lambda: False)
    assert "task run abc" in ended.run("show", "s", "--trial", "1").stdout


@pytest.mark.parametrize(
    ("commands", "unneeded"),
    [
        ((("spaces", "--json"),), FRAMEWORKS),
        (LOOKS, HEAVY),
        (
            (("report", "s", "--out", "s.html"),),
            {"prefect", "distributed", "prefect_tune.deployments.server.embedded"},
        ),
    ],
    ids=["catalogue", "looks", "report"],
)
def test_looking_imports_nothing_heavy(ended, tmp_path, commands, unneeded) -> None:
    program = (
        "import sys; from prefect_tune.deployments.cli.command import main\n"
        f"for command in {commands!r}: main(list(command), standalone_mode=False)\n"
        f"print(sorted({unneeded!r} & set(sys.modules)))"
    )
    variables = {**os.environ, "PREFECT_TUNE_HOME": str(ended.run.home), "PYTHONWARNINGS": "ignore"}
    printed = run_python(program, cwd=tmp_path, env=variables)
    assert printed.endswith("[]\n"), printed.splitlines()[-1]


def test_a_report_is_one_file_named_after_the_study(ended, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = ended.run.json("report", "s")
    assert list(tmp_path.iterdir()) == []
    assert set(found) == {
        "summary", "created", "progress", "incumbents", "algorithms", "paths", "step_times",
        "failures", "trade_offs", "levels", "curves", "members", "importance", "model",
        "reproduction", "series",
    }  # fmt: skip
    assert found["summary"] == ended.run.json("show", "s")
    assert sum(step["served"] for step in found["step_times"]) == found["summary"]["cache"]["hits"]
    assert found["reproduction"]["command"][:2] == ["prefect-tune", "run"]
    assert ended.run.json("report", "s", "--out", "named.html") == found
    assert "s.html" in ended.run("report", "s").stdout
    assert {path.name for path in tmp_path.iterdir()} == {"named.html", "s.html"}
    assert "What next" in (page := (tmp_path / "s.html").read_text())
    assert len(page) < 5_000_000


def test_predictions_and_the_model_are_files_of_the_users(ended, tmp_path) -> None:
    fresh, out = rows_of(ended).head(40), tmp_path / "predictions.csv"
    fresh = fresh.assign(name=[f"00{row}" for row in range(40, 0, -1)])
    fresh.loc[[4, 9, 21], "colour"] = "mauve"
    fresh.to_parquet(tmp_path / "new.parquet", index=False)
    told = ended.run.json("predict", "s", tmp_path / "new.parquet", "--out", out, "--id", "name")
    predictions = pd.read_csv(out, dtype={"name": str})
    assert list(predictions) == told["columns"]
    assert list(predictions) == ["name", "prediction", "probability_no", "probability_yes"]
    assert predictions["name"].tolist() == fresh["name"].tolist()
    assert told["unseen_values"] == {"colour": 3}
    chances = predictions[["probability_no", "probability_yes"]]
    assert chances.sum(axis=1).round(9).eq(1).all()
    assert ended.run("export", "s", tmp_path / "model.pkl").exit_code == 0
    model = pickle.loads((tmp_path / "model.pkl").read_bytes())
    assert (model.predict(fresh) == predictions["prediction"]).all()


def test_an_exported_model_predicts_the_same_where_prefect_tune_is_not_installed(
    ended, tmp_path: Path
) -> None:
    told = ended.run.json("export", "s", tmp_path / "m.pkl")
    assert told["rows_checked"] == 30
    (tmp_path / "loads.py").write_text(LOADS)
    data = ended.folder / "table.csv"
    said = run_without_prefect_tune(tmp_path / "loads.py", tmp_path / "m.pkl", data)
    there = [[float(p) for p in line.split(",")] for line in said.splitlines()]
    assert np.array_equal(there, ended.load().model().predict_proba(rows_of(ended)))


def test_a_model_comes_with_its_card_in_which_what_people_wrote_is_kept(ended, tmp_path) -> None:
    done = ended.run("export", "s", tmp_path / "m.pkl")
    assert "an ensemble of 2 pipelines (trials 2 66.7%, 1 33.3%)" in done.stdout
    card = (tmp_path / "m.md").read_text()
    assert "# Model card: s" in card
    (tmp_path / "m.md").write_text(card.replace("*To be written", "Mine.\n\n*To be written"))
    assert ended.run.json("export", "s", tmp_path / "m.pkl")["card"] == str(tmp_path / "m.md")
    assert "Mine." in (mine := (tmp_path / "m.md").read_text())
    assert ended.run.json("export", "s", tmp_path / "n.pkl", "--no-card")["card"] is None
    assert not (tmp_path / "n.md").exists()
    model = (tmp_path / "m.pkl").read_bytes()
    other = ended.run("export", "h", tmp_path / "m.pkl")
    assert other.exit_code == 2  # it has no model, and nothing is written
    assert ((tmp_path / "m.md").read_text(), (tmp_path / "m.pkl").read_bytes()) == (mine, model)


@pytest.mark.parametrize(
    "mine",
    ["", "---\ntags: [sklearn]\n---\n", "---\n[\n---\n", "# a\n---\ntags: [prefect-tune]\n---\n"],
)
def test_a_card_replaces_no_file_of_others(ended, tmp_path: Path, monkeypatch, mine) -> None:
    monkeypatch.setattr(exported, "export", lambda *_: pytest.fail("there was work before"))
    (tmp_path / "README.md").write_text(mine)
    done = ended.run("export", "s", tmp_path / "README.pkl")
    assert done.exit_code == 2
    assert f"{tmp_path}/README.md" in done.stderr
    assert "--no-card" in done.stderr
    assert (tmp_path / "README.md").read_text() == mine
    assert not (tmp_path / "README.pkl").exists()


def test_a_skops_file_is_loaded_by_the_lines_that_are_printed(ended, tmp_path: Path) -> None:
    lines = ended.run("export", "s", tmp_path / "m.skops").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "import skops.io" in line)
    end = next(i for i, line in enumerate(lines) if "skops.io.load(" in line)
    program = "\n".join(line[6:] for line in lines[start : end + 1])
    loaded: dict[str, object] = {}
    exec(program, loaded)  # noqa: S102 - what a user does with them
    expected = ended.load().model().predict_proba(rows_of(ended))
    assert np.array_equal(loaded["model"].predict_proba(rows_of(ended)), expected)  # type: ignore[attr-defined]


@pytest.fixture
def removed(changed: CommandLine) -> Callable[..., CommandLine]:
    """The command; the study was started with an option of a method that is gone."""
    ledger = Ledger(ArtifactStore(StoreAddress(str(changed.home / "store"))).database)

    def started_with(method: str, option: str, value: object) -> CommandLine:
        settings = ledger.study("s").settings
        options = {**settings["options"], "method": method, "option": {option: value}}
        settings = {**settings, "options": options}
        ledger.update_study("s", settings=settings)
        return changed

    return started_with


def test_a_study_with_a_removed_option_can_be_read(removed, ended, tmp_path) -> None:
    run, data = removed("admm", "units", "raw"), ended.folder / "table.csv"
    for command in (
        ("show", "s"), ("show", "s", "--json"), ("show", "s", "--trial", "1"), ("trials", "s"),
        ("trials", "s", "--out", tmp_path / "trials.csv"), ("study", "ls"),
        ("report", "s", "--out", tmp_path / "report.html"), ("export", "s", tmp_path / "m.pkl"),
        ("predict", "s", data, "--out", tmp_path / "p.csv"),
    ):  # fmt: skip
        done = run(*command)
        assert done.exit_code == 0, done.stderr


def test_a_study_with_a_removed_option_cannot_be_extended(removed, ended) -> None:
    run = removed("admm", "units", "raw")
    for command in (
        ("run", ended.folder / "table.csv", "--study", "s", "--trials", "12"), ("retry", "s"),
    ):  # fmt: skip
        done = run(*command)
        assert done.exit_code == 2
        assert "'units'" in done.stderr
        assert "Traceback" not in done.stderr
