"""Checks and decisions before a study starts."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flow_studies import prepare_study
from inputs import write_meds, write_table

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.starting import resolve
from prefect_tune.flows.starting.prepare import name_of_flow_run, study_name_from
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Evaluation, racing
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.modern import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data import split as splits
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import LEARN, SKIPPED, load_split

pytestmark = pytest.mark.slow

TARGET = {"target": "target", "drop": ["patient"]}


def test_options_decide_how_rows_are_split(prepared) -> None:
    study = prepared(
        "train.csv", target="target", group="patient", test="test.parquet", holdout=0.3
    )
    problem = open_study(study.store, study.name).row.problem
    dataset = load_dataset(study.store, problem["dataset"])
    split = load_split(study.store, problem["split"])
    assert split.held_out(1000).tolist() == list(range(100, 150))
    assert set(np.unique(split.fold)) == {LEARN, -1, 0}
    assert (split.fold == 0).sum() == pytest.approx(30, abs=4)
    for group in np.unique(dataset.groups):
        assert len(set(split.fold[dataset.groups == group])) == 1


def test_large_data_uses_one_holdout_unless_the_user_sets_folds(prepared, monkeypatch) -> None:
    for name, least in {"_ROWS": 10, "_RAREST": 1, "_GROUPS": 1}.items():
        monkeypatch.setattr(splits, f"_HELD_OUT{name}", least)
    for given, expected in (({}, (None, 0.1)), ({"folds": 4}, (4, None))):
        study = prepared("train.csv", target="target", test="test.parquet", **given)
        assert (study.plan.options.folds, study.plan.options.holdout) == expected
        assert any(note.option == "holdout" for note in study.notes) is not bool(given)


def test_inferred_kind_of_data_is_noted(prepared, tmp_path) -> None:
    found = str(prepared(str(write_meds(tmp_path / "data")), labels="labels/task").notes[0])
    assert all(part in found for part in ("MEDS", "--format", "80 rows"))


def test_impossible_options_are_refused_before_any_work(prepared, tmp_path) -> None:
    for options, option, value in (
        ({"test": "test.parquet", "test_size": 0.2}, "test", "test.parquet"),
        ({"folds": 3, "holdout": 0.2}, "folds", 3),
        ({"race": True, "holdout": 0.2}, "race", None),
        ({"epochs": 10, "space": "svm"}, "epochs", 10),
        ({"method": "bapi"}, "epochs", None),
        ({"option": {"r": "x"}}, "option", None),
        ({"constraint": ["latency_us"]}, "constraint", "latency_us"),
        ({"constraint": ["latency_us<=1", "latency_us<=2"]}, "constraint", "latency_us"),
        ({"trial_timeout": "60"}, "trial-timeout", "60"),
        ({"trial_memory": "100MB"}, "trial-memory", "100MB"),
        ({"start": "nothing"}, "start", "nothing"),
        ({"start": "portfolio", "space": "small"}, "start", "portfolio"),
        ({"target": "a", "metric": "r2", "space": "small"}, "space", "small"),
        ({"target": "a", "positive": "1"}, "positive", "1"),
        ({"constraint": ["group_gap(shade)<=1"]}, "constraint", "group_gap(shade)"),
    ):
        with pytest.raises(BadInput) as refused:
            prepared("train.csv", **{"target": "target", **options})
        assert (refused.value.option, refused.value.value) == (option, value)
    with pytest.raises(BadInput, match="1 row"):
        prepared("train.csv", target="a", metric="error")
    assert not list((tmp_path / "home").glob("store/records/data/*"))


def test_constraints_that_a_search_ignores_are_noted(prepared) -> None:
    given = {"target": "target", "space": "small", "constraint": ["latency_us<=50"]}
    for method, is_noted in (("random", True), ("smac", False), ("flash", False)):
        notes = prepared("train.csv", **given, method=method).notes
        assert any(note.option == "method" for note in notes) is is_noted


def test_method_knows_which_models_train_in_epochs(prepared) -> None:
    for epochs, known in ((None, set()), (10, {"extra_trees"})):
        study = prepared("train.csv", target="target", space="small", epochs=epochs)
        objective = Study(study.store, study.name).optimizer.objective
        assert (objective.epochs, objective.iterative) == (epochs, known)


def test_race_is_used_if_helpful_or_requested(prepared, monkeypatch) -> None:
    for options, is_raced in (
        ({}, True),
        ({"method": "random"}, False),
        ({"method": "random", "race": True}, True),
        ({"method": "hyperband", "option": {"fidelity": "folds"}}, False),
        ({"option": {"variant": "paper"}}, False),
        ({"holdout": 0.3}, False),
        ({"no_cache": True}, False),
    ):
        assert prepared("train.csv", **TARGET, **options).plan.options.race is is_raced, options
    for name, least in {"MANY_ROWS": 50, "_PARTIAL_ROWS": 20, "LEAST_ROWS": 2}.items():
        monkeypatch.setattr(racing, name, least)
    assert prepared("train.csv", **TARGET, holdout=0.2, no_cache=True).plan.options.race


@pytest.mark.usefixtures("without_libgomp")
def test_new_study_leaves_out_lightgbm_with_a_note_if_openmp_is_missing(prepared) -> None:
    made = prepared("train.csv", **TARGET)
    (note,) = [note for note in made.notes if "lightgbm" in str(note)]
    assert "libgomp.so.1" in note.reason
    models = dict(made.plan.problem.algorithms)["fit model"]
    assert {"xgboost", "catboost"} < set(models)
    started = {c["fit model"]["algorithm"] for c in made.plan.start_configurations}
    assert "lightgbm" not in started | set(models)


OWN = """
from dataclasses import replace
from prefect_tune.tasks.catalogue.modern import MODERN
space = replace(MODERN, name="own")
"""


def test_missing_optional_dependency_of_a_user_space_is_noted(
    prepared, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "catboost", None)
    (tmp_path / "own.py").write_text(OWN)
    for options, is_said in (({}, False), ({"space": f"{tmp_path / 'own.py'}:space"}, True)):
        made = prepared("train.csv", **TARGET, **options)
        assert "catboost" not in dict(made.plan.problem.algorithms)["fit model"]
        assert any("catboost" in str(note) for note in made.notes) is is_said


def test_too_few_trials_for_a_bracket_are_noted_before_the_start(prepared) -> None:
    given = {**TARGET, "method": "hyperband", "option": {"fidelity": "folds"}}
    for trials, is_said in ((2, True), (3, False)):
        notes = prepared("train.csv", **given, trials=trials).notes
        assert any(note.option == "trials" for note in notes) is is_said


SPACE = space_named("small")
KNOWN = [default_configuration(SPACE, path).to_json() for path in list(SPACE.paths())[:3]]
MODERN = [c.to_json() for c in portfolio_of(space_named("modern"))]
EVENTS = [c.to_json() for c in portfolio_of(space_named("events"))]


def write_start(start: object) -> dict[str, object]:
    """Write a start file, and return parameters of a study that uses the file."""
    Path("start.json").write_text(start if isinstance(start, str) else json.dumps(start))
    return {**TARGET, "space": "small", "start": "start.json"}


def test_start_file_is_read_once_and_the_configurations_are_stored(prepared) -> None:
    trials = [{"number": 4, "query": {"configuration": KNOWN[1]}}]
    first = {**write_start([KNOWN[0], *trials, KNOWN[2]]), "study": "one"}
    assert list(prepared("train.csv", **first).plan.start_configurations) == KNOWN
    Path("start.json").unlink()
    assert list(prepared("train.csv", **first).plan.start_configurations) == KNOWN
    with pytest.raises(BadInput, match="--start"):
        prepared("train.csv", **{**first, "start": "another.json"})


def test_error_in_a_start_file_is_reported(prepared) -> None:
    first, nearest = KNOWN[0], {"algorithm": "k_nearest", "hyperparameters": {"p": 9}}
    for start, named in (
        ("{", "start.json"),
        ({"rescale": 1}, "no list"),
        ([first, 7], "entry 2"),
        ([{**first, "fit model": {"algorithm": "forest"}}], "'forest'"),
        ([{"fit model": first["fit model"]}], "space 'small'"),
        ([{**first, "fit model": {}}], "'algorithm' is missing"),
        ([{**first, "fit model": nearest}], "'k_nearest'"),
    ):
        with pytest.raises(BadInput, match=named) as refused:
            prepared("train.csv", **write_start(start))
        assert refused.value.option == "start"


def test_flash_begins_with_the_portfolio_by_default_and_smac_only_on_request(prepared) -> None:
    for options, begins_with in (
        ({}, MODERN),
        ({"start": "none"}, []),
        ({"option": {"variant": "paper"}}, []),
        ({"method": "smac"}, []),
        ({"method": "smac", "start": "portfolio"}, MODERN),
    ):
        plan = prepared("train.csv", **TARGET, space="modern", **options).plan
        assert list(plan.start_configurations) == begins_with, options


def test_only_the_default_space_of_events_begins_with_a_portfolio(
    prepared, tmp_path, monkeypatch
) -> None:
    data = {"data": str(write_meds(tmp_path / "data")), "labels": "labels/task"}
    with monkeypatch.context() as before:
        before.setattr(resolve, "portfolio_of", lambda *_: [])
        assert prepared(**data, study="one").plan.start_configurations == ()
    assert prepared(**data, study="one").plan.start_configurations == ()  # as it began
    assert list(prepared(**data, study="two").plan.start_configurations) == EVENTS
    assert prepared(**data, space="healthcare", study="three").plan.start_configurations == ()


def test_nearest_neighbors_run_first_with_many_classes(prepared, tmp_path) -> None:
    y = np.repeat(np.arange(120), 5)
    pd.DataFrame({"x": y % 7, "y": [f"c{v}" for v in y]}).to_csv(tmp_path / "many.csv", index=False)
    study = prepared(str(tmp_path / "many.csv"), target="y")
    first, *others = study.plan.start_configurations
    assert first["fit model"]["algorithm"] == "k_nearest"
    assert sorted(map(str, [first, *others])) == sorted(map(str, MODERN))


def test_positive_class_matches_the_spelling_in_the_file(prepared) -> None:
    for labels, given, positive in (
        (["0", "1"], "1.0", "1"),
        (["0", "1"], "true", "1"),
        (["False", "True"], "1", "True"),
    ):
        frame = pd.DataFrame({"x": range(60), "y": [labels[i % 3 == 0] for i in range(60)]})
        frame.to_csv("two.csv", index=False)
        study = prepared("two.csv", target="y", metric="recall", positive=given, study=f"p-{given}")
        dataset = load_dataset(study.store, study.plan.problem.dataset)
        assert str(dataset.classes[study.plan.problem.positive]) == positive


def test_cases_are_the_positive_class_of_a_generated_cohort(prepared) -> None:
    study = prepared("cohort:demo?n_patients=80", metric="recall", positive=None)
    dataset = load_dataset(study.store, study.plan.problem.dataset)
    assert dataset.classes[study.plan.problem.positive] == "case"
    assert not any("the rarer one" in str(note) for note in study.notes)


def test_older_rows_of_test_groups_are_noted_as_unused(prepared) -> None:
    frame = pd.read_csv("train.csv").assign(day=range(100), half=[i % 50 for i in range(100)])
    frame.to_csv("visits.csv", index=False)
    study = prepared("visits.csv", target="target", time="day", group="half", folds=2)
    is_unused = load_split(study.store, study.plan.problem.split).fold == SKIPPED
    assert is_unused.any()
    assert any(f"{is_unused.sum()} of 100 rows" in str(note) for note in study.notes)


def test_rare_classes_are_noted_and_hidden_from_methods(prepared, tmp_path) -> None:
    y = ["a"] * 100 + ["b"] * 60 + ["c"] * 2 + ["d"]
    pd.DataFrame({"x": range(163), "y": y}).to_csv(tmp_path / "t.csv", index=False)
    study = prepared(str(tmp_path / "t.csv"), target="y", space="small")
    (note,) = (str(n) for n in study.notes if "held out:" in str(n))
    assert "c: 2, d: 1" in note
    objective = Study(study.store, study.name).optimizer.objective
    assert objective.n_rarest == 32  # of b: four fifths are no test rows, and a fold trains on 2/3
    assert objective.chance == pytest.approx(100 * 60 / 160, abs=1)


def test_rare_class_is_noted_if_the_metric_is_the_error_rate(prepared) -> None:
    y = ["ill" if i % 20 else "well" for i in range(200)]
    pd.DataFrame({"x": range(200), "target": y}).to_csv("rare.csv", index=False)
    for metric, is_noted in (("error", True), ("auroc", False)):
        notes = prepared("rare.csv", target="target", metric=metric).notes
        assert any("auroc" in note.remedy for note in notes) is is_noted
    # So are classes that only test rows have.
    for name, classes in (("train", "abc"), ("test", "abz")):
        frame = pd.DataFrame({"x": range(90), "y": list(classes * 30)})
        frame.to_csv(f"{name}2.csv", index=False)
    study = prepared("train2.csv", target="y", space="small", test="test2.csv")
    assert any("z: 30" in str(note) for note in study.notes)


def test_study_begins_with_the_best_feasible_trials_of_another_study(prepared) -> None:
    one = prepared(
        "train.csv", **write_start(KNOWN), study="one", race=False, constraint=["latency_us<=50"]
    )
    two = {**TARGET, "space": "small", "start": "one"}
    with Study.opened(one.store, "one") as study:
        for loss, latency in ((3.0, 60.0), (2.0, 40.0), (1.0, 40.0)):
            trial = study.set_trial(study.ask(Budget()).started())
            study.tell(trial.completed(Evaluation(loss, constraints={"latency_us": latency})))
            if loss == 3.0:
                with pytest.raises(BadInput, match="constraints"):
                    prepared("train.csv", **two)
    assert list(prepared("train.csv", **two).plan.start_configurations) == [KNOWN[2], KNOWN[1]]
    with pytest.raises(BadInput, match="--space 'small'"):
        prepared("train.csv", **{**two, "space": "modern"})


def test_study_uses_seconds_measured_by_earlier_studies_of_the_same_space(prepared) -> None:
    table = {"target": "target", "test": "test.parquet"}
    first = prepared("train.csv", **table, space="small", study="first")
    assert first.plan.earlier_seconds == ()
    for name, level in (("first", -3.0), ("second", -5.0)):
        study = prepared("train.csv", **table, space="small", study=name)
        Ledger(study.store.database).update_study(
            name, result={"algorithm_seconds": [["fit model", "svm", level, None]]}
        )
    later = prepared("train.csv", **table, space="small", study="later")
    assert later.plan.earlier_seconds == (("fit model", "svm", -4.0, None),)
    with Study.opened(later.store, "later") as study:
        assert study.optimizer.objective.earlier_seconds == later.plan.earlier_seconds
    assert prepared("train.csv", **table, space="modern", study="o").plan.earlier_seconds == ()


def test_default_name_made_from_data_can_be_used_to_resume() -> None:
    names = {"données": "donnees", "Größe": "Gro-e", "患者": "data", "_x": "x", "é" * 80: "e" * 50}
    for text, name in names.items():
        assert study_name_from(text) == name
        given = f"{name}-flash-20260101-000000"
        assert StudyOptions.parse({"study": given}).study == given


def test_study_of_a_deployment_is_named_after_the_flow_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    given = {"data": str(write_table(tmp_path)), "target": "target", "study": "diamond-beagle"}
    first, other = "11111111-first", "22222222-other"
    study = prepare_study({**dict.fromkeys(OPTIONS), **given}, flow_run_id=first)
    names = [name_of_flow_run(study.store, "diamond-beagle", run) for run in (first, other)]
    assert names == ["diamond-beagle", "diamond-beagle-22222222"]
    assert name_of_flow_run(study.store, "Lauf für Größe", other) == "Lauf-fur-Gro-e"
