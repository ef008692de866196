"""A store that version 0.1.0 made is opened, shown, continued, retried and used.

`data/store_of_0_1.tar.xz` holds that store, the table and the file with a space that its studies
were started with, and `before.json`: for each study the output of `show --json` and of
`trials --json`, and the queries after version 0.1.0 had continued a copy on one worker
(`continued`). The studies are `flashed` (constraints and an ensemble), `admmed` (the paper's
variant, a holdout, trial limits), `picky` (a user's space in which trials fail), `cut` (killed
while trial 3 ran) and those of the comparison `versus`.
"""

import json
import pickle
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_line import CommandLine
from finished.programs import fold_losses

from prefect_tune.flows.comparing import compare
from prefect_tune.flows.retrying import retry
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.replayed import replayed_study
from prefect_tune.flows.tuning import tune
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress

ARCHIVE = Path(__file__).parent / "data" / "store_of_0_1.tar.xz"
STUDIES = ("flashed", "admmed", "picky", "cut", "versus-0-random", "versus-0-flash-r-5")
STARTED_WITH: dict[str, dict[str, Any]] = {
    "flashed": {
        "method": "flash", "space": "small", "ensemble": 3,
        "constraint": ["disparate_impact(count, bins=0:3:6:9)<=60", "model_size_bytes<=1000000"],
    },
    "admmed": {
        "method": "admm", "space": "small", "option": {"variant": "paper"}, "holdout": 0.3,
        "metric": "auroc", "trial_timeout": "30s", "trial_memory": "2GB", "categorical": ["count"],
    },
    "cut": {"method": "random", "space": "small"},
}  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def before(unpacked: Path) -> dict[str, dict[str, Any]]:
    """What was printed then; queries say now on how many folds they are, None of all."""
    found: dict[str, dict[str, Any]] = json.loads((unpacked / "before.json").read_text())
    for study in found.values():
        for query in (*(t["query"] for t in study["trials"]), *study.get("continued", ())):
            query["folds"] = None
    return found


@pytest.fixture(scope="module")
def looked_at(unpacked: Path) -> CommandLine:
    """For commands that change nothing."""
    return CommandLine(unpacked)


@pytest.fixture
def old(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A copy to work on, in the folder in which the studies were started."""
    folder = tmp_path / "old"
    shutil.copytree(unpacked, folder)
    monkeypatch.chdir(folder)
    return CommandLine(folder)


def go_on(old: CommandLine, study: str, trials: int) -> list[dict[str, Any]]:
    """Continue a study on one worker, by the parameters of the command; its trials."""
    parameters = {"data": "table.csv", "target": "target", **STARTED_WITH[study]}
    store = str(old.home / "store")
    summary = tune(study=study, trials=trials, workers=1, store=store, **parameters)
    assert summary["n_trials"] == trials
    return listed(old, study)


def listed(command: CommandLine, study: str) -> list[dict[str, Any]]:
    """Its trials without tracebacks, which name files of the machine it was made on."""
    rows: list[dict[str, Any]] = command.json("trials", study)
    for row in rows:
        if row["failure"]:
            assert "ValueError: picky" in row["failure"]["traceback"]
            row["failure"]["traceback"] = ""
    return rows


@pytest.mark.parametrize("study", STUDIES)
def test_studies_are_shown_as_they_were(looked_at, before, study) -> None:
    shown, was = looked_at.json("show", study), before[study]["show"]
    assert (shown.pop("n_begun"), shown.pop("n_stopped")) == (len(before[study]["trials"]), 0)
    assert (shown.pop("finalists"), shown.pop("store_options")) == ([], [])
    for trial in (shown["incumbent"], shown["nearest_infeasible"]):
        assert trial is None or trial.pop("fidelity") == ""
    model = shown.pop("model_trial")
    assert model is None or model["loss"] == shown["incumbent"]["loss"]
    assert (shown.pop("model_is_partial"), shown.pop("instead_of")) == (False, None)
    assert shown.pop("test_loss_undefined") is shown.pop("single_best_test_loss_undefined") is None
    ensemble, alone = shown["ensemble"], shown.pop("single_best_test_loss")
    assert alone == (None if ensemble else shown["test_loss"])
    assert ensemble is None or ensemble.pop("kind") == "greedy"
    assert shown == was
    assert listed(looked_at, study) == before[study]["trials"]
    assert looked_at("show", study).exit_code == 0


@pytest.mark.parametrize("study", STUDIES)
def test_studies_are_reported(looked_at, before, study, tmp_path) -> None:
    file = tmp_path / "report.html"
    found = looked_at.json("report", study, "--out", file)
    assert found["summary"] == looked_at.json("show", study)
    best = before[study]["show"]["incumbent"]
    leads = found["progress"]["leads"]
    assert (leads[-1]["trial"], leads[-1]["loss"]) == (best["trial"], best["loss"])
    ended = [t for t in before[study]["trials"] if t["state"] in {"complete", "failed"}]
    assert sorted(found["progress"]["number"]) == [t["number"] for t in ended]
    assert sum(len(f["trials"]) for f in found["failures"]) == found["summary"]["n_failed"]
    assert study in file.read_text()


def test_everything_of_it_is_listed_and_sound(looked_at) -> None:
    assert {row["study"] for row in looked_at.json("study", "ls")} == set(STUDIES)
    found = looked_at.json("artifacts", "verify")
    assert found["checked"] > 200
    assert found["damaged"] == found["missing"] == found["orphans"] == []
    failed = looked_at.json("trials", "picky", "--failed")
    assert {t["failure"]["message"] for t in failed} == {"ValueError: picky"}
    key = looked_at.json("artifacts", "ls", "--study", "flashed", "--limit", 1)[0]["key"]
    assert looked_at.json("artifacts", "show", key)["contents"]


@pytest.mark.parametrize("study", ["flashed", "admmed", "cut"])
def test_trials_are_explained_listed_as_a_table_and_run_again(old, before, study) -> None:
    trial = before[study]["trials"][1]
    explained = old.json("show", study, "--trial", 1)
    assert explained["fold_losses"] == trial["evaluation"]["fold_losses"]
    assert explained["reason"] is explained["task_run_url"] is None
    code = old.json("show", study, "--trial", 1, "--code")["code"]
    assert fold_losses(code, Path.cwd()) == trial["evaluation"]["fold_losses"]
    rows = old.json("trials", study, "--out", "trials.parquet")["rows"]
    assert rows == len(pd.read_parquet("trials.parquet")) == len(before[study]["trials"])


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("study", "trials"), [("flashed", 7), ("admmed", 5), ("cut", 6)])
def test_a_study_goes_on_with_the_queries_that_its_version_asked(
    old, before, study, trials
) -> None:
    found = go_on(old, study, trials)
    finished = [t for t in before[study]["trials"] if t["state"] == "complete"]
    assert found[: len(finished)] == finished
    assert {t["state"] for t in found} == {"complete"}
    assert [t["query"] for t in found] == before[study]["continued"]


@pytest.mark.usefixtures("server")
def test_a_study_goes_on_without_its_file_and_makes_again_what_had_fewer_versions_in_its_key(
    old,
) -> None:
    Path("table.csv").unlink()
    found = go_on(old, "flashed", 8)
    steps = [s for s in found[6]["evaluation"]["steps"] if s["step"] in ("impute", "encode")]
    assert {s["hit"] for s in steps} == {False}
    steps = [s for s in found[7]["evaluation"]["steps"] if s["step"] in ("impute", "encode")]
    assert {s["hit"] for s in steps} == {True}


@pytest.mark.usefixtures("server")
def test_failed_trials_are_run_again(old, before) -> None:
    Path("space.py").unlink()  # its text is in the ledger
    summary = retry("picky", workers=1, store=str(old.home / "store"))
    assert (summary["n_trials"], summary["n_failed"]) == (6, 4)
    for trial, former in zip(old.json("trials", "picky"), before["picky"]["trials"], strict=True):
        if former["state"] == "complete":
            assert trial == former
        else:
            assert trial["query"] == former["query"]
            assert trial["attempts"] == former["attempts"] + 1
            assert trial["failure"]["message"] == "ValueError: picky"


@pytest.mark.parametrize("study", ["flashed", "admmed", "picky"])
def test_who_led_is_known_when_a_study_goes_on(old, before, study) -> None:
    """The events of 0.1 do not name who led."""
    with closing(ArtifactStore(StoreAddress(str(old.home / "store")))) as store:
        plan = StudyPlan.from_stored(find_study(store, study))
        space = plan.problem.find_space()
        curve = replayed_study(store, Ledger(store.database), study, plan, space).curve
        assert curve.points[-1].loss == before[study]["show"]["incumbent"]["loss"]
        seconds = [seconds for seconds, _ in curve.points]
        assert seconds == sorted(seconds)


@pytest.mark.parametrize("study", ["flashed", "admmed", "picky"])
def test_final_models_predict_and_are_exported(old, study) -> None:
    rows = pd.read_csv("table.csv").drop(columns="target")
    rows.to_csv("new.csv", index=False)
    out = old.json("predict", study, "new.csv", "--out", "predictions.csv")
    assert out["rows"] == len(rows)
    predictions = pd.read_csv("predictions.csv")
    assert old("export", study, "model.pkl").exit_code == 0
    model = pickle.loads(Path("model.pkl").read_bytes())
    if study == "admmed":
        rows["count"] = rows["count"].astype(str)  # as --categorical count says
    assert list(model.predict(rows)) == list(predictions["prediction"])


@pytest.mark.usefixtures("server")
def test_a_comparison_is_continued(old) -> None:
    parameters: dict[str, Any] = {
        "data": "table.csv", "target": "target", "methods": "random,flash:r=5", "space": "small",
        "name": "versus", "workers": 1, "store": str(old.home / "store"), "out": "curves.parquet",
    }  # fmt: skip
    ledgers = [listed(old, s) for s in STUDIES if s.startswith("versus")]
    assert compare(**parameters)["n_blocks"] == 1
    wider = compare(**parameters, repeats=2)
    assert (wider["n_blocks"], wider["budget_trials"]) == (2, 3)
    assert [listed(old, s) for s in STUDIES if s.startswith("versus")] == ledgers
    assert len(pd.read_parquet("curves.parquet")) == 2 * 2 * (1 + 3)
