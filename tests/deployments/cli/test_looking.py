"""Commands that inspect a finished study, and commands that use its results."""

import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from finished.ended import Ended
from processes import run_python

from prefect_tune.deployments.server import embedded
from prefect_tune.flows.reading.opened_study import Moments, OpenedStudy
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.results import exported
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

pytestmark = pytest.mark.slow

IMPORTS = """
import sys
from prefect_tune.deployments.cli.command import main

frameworks = {"prefect", "dask", "distributed"}
libraries = {"ConfigSpace", "numpy", "scipy", "sklearn", "pandas", "plotly", "pyarrow"}
of_a_report = {"prefect", "distributed", "prefect_tune.deployments.server.embedded"}
looks = ["show s", "trials s", "study ls", "artifacts ls --study s", "artifacts stats", "series"]
steps = (looks, frameworks | libraries), (["spaces --json"], frameworks)
for commands, unneeded in (*steps, (["report s --out s.html"], of_a_report)):
    for command in commands:
        main(command.split(), standalone_mode=False)
    print(commands, unneeded & set(sys.modules), file=sys.stderr)
    assert not unneeded & set(sys.modules)
"""


@pytest.fixture
def changed(ended: Ended, tmp_path: Path) -> CommandLine:
    """The command line in a copy of the home, which may be changed."""
    ended.store.database.close()  # SQLite deletes its log as the last connection closes
    return CommandLine(shutil.copytree(ended.folder / "home", tmp_path / "home"))


def rows_of(ended: Ended) -> pd.DataFrame:
    return pd.read_csv(ended.folder / "table.csv").drop(columns="target")


@pytest.mark.parametrize(
    "command",
    ["show s", "show h", "show s --trial 0", "show s --trial 1", "show s --trial 2 --code"],
)
def test_output_equals_the_golden_file(ended, check_printed, command) -> None:
    done = ended.run(*command.split())
    assert (done.exit_code, done.stderr) == (0, "")
    check_printed(done.stdout, command.replace(" --", "_").replace(" ", "_"), ended.folder)


def test_cached_steps_of_folds_and_of_all_rows_are_shown(ended, check_printed) -> None:
    keys = [row["key"] for row in ended.run.json("artifacts", "ls", "--step", "encode")]
    shown = [ended.run("artifacts", "show", key[:16]).stdout for key in (keys[0], keys[-1])]
    head = ["\n".join(text.splitlines()[:4]) for text in shown]
    check_printed("\n\n".join(head), "artifacts_show", ended.folder)


def test_json_fields_are_stable(ended, tmp_path, check_fields) -> None:
    key = ended.run.json("artifacts", "ls", "--step", "encode", "--study", "s")[0]["key"]
    commands = [
        "show s", "show h", "show s --trial 1", "trials s", "study ls", "artifacts ls",
        "artifacts stats", "artifacts verify", f"artifacts show {key}",
        f"predict s {ended.folder}/table.csv --out {tmp_path}/p.csv",
    ]  # fmt: skip
    names = [" ".join(c.split()[: 3 if "--trial" in c else 2]) for c in commands]
    found = {n: ended.run.json(*c.split()) for n, c in zip(names, commands, strict=True)}
    check_fields(found, "fields", depth=2)


def test_show_without_a_study_lists_the_newest_studies(ended, tmp_path) -> None:
    assert ended.run.json("show") == ended.run.json("study", "ls")
    for command in ("show", "study ls"):
        done = CommandLine(tmp_path / "new home")(*command.split())
        assert (done.exit_code, done.stderr) == (0, "")
        assert "no studies yet; to start one: prefect-tune run" in done.stdout
    assert CommandLine(tmp_path / "new home")("show", "s").exit_code == 2


def test_cached_steps_are_listed_filtered_and_counted(ended) -> None:
    rows = ended.run.json("artifacts", "ls")
    assert [r["created"] for r in rows] == sorted((r["created"] for r in rows), reverse=True)
    trials = [t["evaluation"] for t in ended.run.json("trials", "s") if t["evaluation"]]
    used = {s["key"] for evaluation in trials for s in evaluation["steps"]}
    assert {row["key"] for row in ended.run.json("artifacts", "ls", "--study", "s")} >= used
    models = ended.run.json("artifacts", "ls", "--step", "fit model", "--study", "s", "--limit", 2)
    assert [r["step"] for r in models] == ["fit model"] * 2
    assert ended.run.json("artifacts", "stats")["count"] == len(rows)


def test_damaged_store_is_repaired_and_pruning_keeps_records(changed) -> None:
    part = next((changed.home / "store" / "cache").rglob("train.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    found = changed("artifacts", "verify", "--json")
    assert found.exit_code == 1
    assert len(json.loads(found.stdout)["damaged"]) == 1
    assert changed("artifacts", "verify", "--repair").exit_code == 0
    sound = changed.json("artifacts", "verify")
    assert sound["damaged"] == sound["missing"] == sound["orphans"] == []
    stats = changed.json("artifacts", "stats")
    kept = stats["size_bytes"] // 2
    pruned = changed.json("artifacts", "prune", "--to", f"{kept}B")
    assert pruned["evicted"] > 0
    assert pruned["size_bytes"] <= kept
    assert changed.json("artifacts", "stats")["records_bytes"] == stats["records_bytes"]


def test_damaged_study_is_reported_and_all_sound_studies_are_listed(changed) -> None:
    index = changed.home / "store" / "index.sqlite"
    with closing(sqlite3.connect(index)) as connection, connection:
        connection.execute(
            "INSERT INTO studies (name, problem, settings, result, state, created) "
            "SELECT 'damaged', '{}', '{}', result, state, created FROM studies LIMIT 1"
        )
    done = changed("study", "ls", "--json")
    assert {study["study"] for study in json.loads(done.stdout)} == {"s", "h"}
    assert "study damaged is damaged" in done.stderr


def test_removing_a_study_leaves_the_records_of_other_studies(changed, ended, tmp_path) -> None:
    gone = changed.json("study", "rm", "h")["records"]
    assert not any(record.startswith("data/") for record in gone)  # the other study uses them too
    assert changed("show", "h").exit_code == 2
    predict = ("predict", "s", ended.folder / "table.csv", "--out", tmp_path / "p.csv")
    assert changed.json(*predict)["rows"] == 150
    gone = changed.json("study", "rm", "s")["records"]
    assert {record.partition("/")[0] for record in gone} >= {"data", "models"}
    assert changed.json("artifacts", "stats")["records_bytes"] == 0


def test_parts_of_a_cached_step_are_exported(ended, tmp_path) -> None:
    key = ended.run.json("artifacts", "ls", "--step", "encode", "--study", "s")[0]["key"]
    shape = ended.run.json("artifacts", "show", key)["contents"]["train"]["shape"]
    out, estimator = tmp_path / "train.parquet", tmp_path / "encoder.pkl"
    assert ended.run("artifacts", "export", key, out).exit_code == 0
    assert len(pd.read_parquet(out)) == shape[0]
    about = json.loads(pq.read_schema(out).metadata[b"prefect_tune"])
    assert (about["key"], about["shape"]) == (key, shape)
    ended.run("artifacts", "export", key, estimator, "--part", "estimator")
    assert hasattr(pickle.loads(estimator.read_bytes()), "transform")


def test_trials_are_written_as_a_table(ended, tmp_path) -> None:
    for options, n_rows in (((), 9), (("--failed",), 1)):
        out = tmp_path / f"{n_rows}.csv"
        said = ended.run.json("trials", "s", *options, "--out", out)
        table = pd.read_csv(out)
        assert (said["rows"], said["columns"]) == (len(table), list(table)) == (n_rows, list(table))


MISTAKES = """
show nothing
show S
trials nothing
study rm nothing
report nothing
artifacts show xyz
artifacts prune --to 5
artifacts ls --study t
artifacts export KEY x.parquet --part tail
predict s nowhere.csv
predict s DATA --out no/where.csv
predict s OTHER
predict s DATA --id b --id day
predict s new.csv --out p.json
predict s new.csv --series t
show s --store /no/such/store
retry s --trial 1
run DATA --target target --study s --metric auroc
trials s --out t.xlsx
export s model.onnx
export s .
report s --out .
show s --code
show s --output
show --trial 1
show s --trial 12
show s --trial 12 --code
"""


def test_user_mistake_gives_a_single_message_and_exit_code_2(
    ended, tmp_path, monkeypatch, check_printed
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    key = ended.run.json("artifacts", "ls", "--step", "encode")[0]["key"]
    words = {"DATA": ended.folder / "table.csv", "OTHER": tmp_path / "other.csv", "KEY": key}
    said = []
    for command in MISTAKES.strip().splitlines():
        done = ended.run(*(words.get(word, word) for word in command.split()))
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert list((tmp_path / "here").iterdir()) == [], command
        said.append(f"$ {command}\n{done.stderr}")
    check_printed("\n".join(said), "mistakes", tmp_path / "here", tmp_path, ended.folder)


@pytest.mark.parametrize("form", ["relative", "symbolic link", "hard link"])
def test_output_never_replaces_an_input(ended, tmp_path, monkeypatch, form) -> None:
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
            named[file] = Path(os.path.relpath(file))
    before, key = data.read_bytes(), ended.run.json("artifacts", "ls")[0]["key"]
    for command in (
        ("predict", "s", new, "--out", named[new]),
        ("predict", "s", new, "--out", named[data]),
        ("trials", "s", "--out", named[data]),
        ("report", "s", "--out", named[data]),
        ("artifacts", "export", key, named[data]),
        ("artifacts", "export", key, ended.run.home / "store" / "index.sqlite"),
    ):
        done = ended.run(*command)
        assert (done.exit_code, data.read_bytes()) == (2, before), command


def test_task_run_is_linked_if_a_server_is_known(ended, monkeypatch) -> None:
    found = OpenedStudy.moments

    def moments(study: OpenedStudy, number: int) -> dict[int, Moments]:
        return {n: replace(of, task_run_id="abc") for n, of in found(study, number).items()}

    monkeypatch.setattr(OpenedStudy, "moments", moments)
    monkeypatch.setenv("PREFECT_UI_URL", "http://prefect:4200/")
    page = "http://prefect:4200/runs/task-run/abc"
    assert ended.run.json("show", "s", "--trial", "1")["task_run_url"] == page
    monkeypatch.delenv("PREFECT_UI_URL")
    monkeypatch.setattr(embedded, "may_be_configured", lambda: False)
    assert "task run abc" in ended.run("show", "s", "--trial", "1").stdout


def test_inspecting_imports_nothing_heavy(ended, tmp_path) -> None:
    variables = {**os.environ, "PREFECT_TUNE_HOME": str(ended.run.home), "PYTHONWARNINGS": "ignore"}
    run_python(IMPORTS, cwd=tmp_path, env=variables)


def test_report_is_one_file_named_after_the_study(
    ended, tmp_path, monkeypatch, check_fields
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ended.run.json("report", "s")
    assert list(tmp_path.iterdir()) == []
    assert found["summary"] == ended.run.json("show", "s")
    assert sum(step["served"] for step in found["step_times"]) == found["summary"]["cache"]["hits"]
    assert found["reproduction"]["command"][:2] == ["prefect-tune", "run"]
    assert ended.run("report", "s").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["s.html"]
    assert (tmp_path / "s.html").stat().st_size < 5_000_000
    check_fields({"report s": found}, "report", depth=2)


def test_predictions_and_model_are_written_to_files(ended, tmp_path) -> None:
    fresh, out = rows_of(ended).head(40), tmp_path / "predictions.csv"
    fresh = fresh.assign(name=[f"00{row}" for row in range(40, 0, -1)])
    fresh.loc[[4, 9, 21], "color"] = "mauve"
    fresh.to_parquet(tmp_path / "new.parquet", index=False)
    told = ended.run.json("predict", "s", tmp_path / "new.parquet", "--out", out, "--id", "name")
    predictions = pd.read_csv(out, dtype={"name": str})
    assert list(predictions) == told["columns"]
    assert list(predictions) == ["name", "prediction", "probability_no", "probability_yes"]
    assert predictions["name"].tolist() == fresh["name"].tolist()
    assert told["unseen_values"] == {"color": 3}
    chances = predictions[["probability_no", "probability_yes"]]
    assert chances.sum(axis=1).round(9).eq(1).all()
    assert (ended.load().model().predict(fresh) == predictions["prediction"]).all()


def test_study_without_a_model_cannot_be_exported(ended, tmp_path, check_fields) -> None:
    told = ended.run.json("export", "s", tmp_path / "m.pkl", "--no-card")
    assert (told["rows_checked"], told["card"]) == (30, None)
    check_fields({"export s": told}, "export", depth=2)
    model = (tmp_path / "m.pkl").read_bytes()
    assert ended.run("export", "h", tmp_path / "m.pkl").exit_code == 2
    assert (tmp_path / "m.pkl").read_bytes() == model
    assert not (tmp_path / "m.md").exists()


def test_predict_and_export_warn_about_a_useless_model(ended, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(StudyView, "uselessness", "no better than a constant")
    new = ended.folder / "table.csv"
    for command in (
        ("predict", "s", new, "--out", tmp_path / "p.csv"),
        ("export", "s", tmp_path / "m.pkl"),
    ):
        done = ended.run(*command)
        assert (done.exit_code, done.stderr) == (0, "warning: no better than a constant\n")
    assert "**Warning: no better than a constant.**" in (tmp_path / "m.md").read_text()


def test_model_card_never_replaces_another_file(ended, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(exported, "export", lambda *_: pytest.fail("there was work before"))
    (tmp_path / "README.md").write_text("# Notes\n\n## Intended use\n\nmine\n")
    done = ended.run("export", "s", tmp_path / "README.pkl")
    assert done.exit_code == 2
    assert "--no-card" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_printed_code_loads_the_exported_skops_file(ended, tmp_path: Path) -> None:
    lines = ended.run("export", "s", tmp_path / "m.skops").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if "import skops.io" in line)
    end = next(i for i, line in enumerate(lines) if "skops.io.load(" in line)
    program = "\n".join(line[6:] for line in lines[start : end + 1])
    loaded: dict[str, object] = {}
    exec(program, loaded)  # noqa: S102 - what a user does with them
    expected = ended.load().model().predict_proba(rows_of(ended))
    assert np.array_equal(loaded["model"].predict_proba(rows_of(ended)), expected)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("server")
def test_study_with_a_removed_option_can_be_read_but_not_extended(changed, ended, tmp_path) -> None:
    ledger = Ledger(ArtifactStore(StoreAddress(str(changed.home / "store"))).database)
    settings = ledger.study("s").settings
    options = {**settings["options"], "method": "admm", "option": {"units": "raw"}}
    ledger.update_study("s", settings={**settings, "options": options})
    data = ended.folder / "table.csv"
    for command in (
        ("show", "s"), ("show", "s", "--json"), ("show", "s", "--trial", "1"), ("trials", "s"),
        ("study", "ls"), ("report", "s", "--out", tmp_path / "report.html"),
        ("predict", "s", data, "--out", tmp_path / "p.csv"),
    ):  # fmt: skip
        done = changed(*command)
        assert done.exit_code == 0, done.stderr
    for command in (("run", data, "--study", "s", "--trials", "12"), ("retry", "s")):
        done = changed(*command)
        assert done.exit_code == 2
        assert "'units'" in done.stderr
