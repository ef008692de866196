"""Going on with a study elsewhere: tables, programs and models, through the command."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from finished.programs import built_from, parameters, run_without_prefect_tune

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
