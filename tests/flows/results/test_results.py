"""Results of a study in Python: tables of trials, explanation of a trial, the model."""

import json
import pickle
import sys
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models
from answer_worlds.own_studies import own_context
from command_line import CommandLine
from flow_studies import plan_of
from inputs import events, written
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from studies import context_of, problem_of, store_of

from prefect_tune.flows.reading.opened_study import explained_trial, open_study
from prefect_tune.flows.results import exported as exporting
from prefect_tune.flows.results import predict as predicting
from prefect_tune.flows.results.exported import export
from prefect_tune.flows.results.model_card import card_facts, model_card
from prefect_tune.flows.results.predict import final_model, predict
from prefect_tune.flows.results.trial_table import writable
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.ledger import Ledger, LedgerEvent
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.construction import EventAggregation
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import REFIT, TEST, load_split
from prefect_tune.tasks.objective.predictions import InvalidPredictions
from prefect_tune.tasks.problem import Problem

pytestmark = pytest.mark.slow


def documents(store: ArtifactStore, study: str = "s") -> list[Any]:
    """Return the trials of a study."""
    return [trial.document for trial in open_study(store, study).trials()]


def explained(store: ArtifactStore, number: int, study: str = "s") -> dict[str, Any]:
    return explained_trial(store, study, number).to_json()


def test_trial_is_explained_by_ranges_partial_evaluations_and_the_best_trial(
    ended, monkeypatch
) -> None:
    best, trials = ended.load().best_trial, documents(ended.store)
    other = next(t for t in trials if t["evaluation"] and t["number"] != best)
    found = explained(ended.store, other["number"])
    assert found["evaluation"] == other["evaluation"]
    of_best = {name: trials[best]["evaluation"][name] for name in ("loss", "fold_losses")}
    assert found["incumbent"] == {"trial": best, **of_best}
    assert found["in_model"] == (other["number"] in {1, 2})
    assert json.loads(json.dumps(found)) == found
    models = [t["query"]["configuration"]["fit model"]["algorithm"] for t in trials]
    nearest = explained(ended.store, models.index("k_nearest"))
    assert set(nearest["choices"]["rescale"]) == {"none", "minmax", "standardize", "normalize"}
    assert nearest["ranges"]["fit model"]["n_neighbors"] == {
        "default": 1, "range": "a whole number from 1 to 100", "log": True
    }  # fmt: skip
    failure = explained(ended.store, 0)["failure"]
    assert (failure["step"], failure["fold"], failure["kind"]) == ("fit model", 0, "error")
    assert failure["message"] == "ValueError: picky [about] new"
    assert "in fit" in failure["traceback"]
    assert {step["step"] for step in failure["steps"]} == {"impute", "encode"}
    parts = [explained(ended.store, t["number"], "h") for t in documents(ended.store, "h")]
    whole = next(t for t in parts if t["same_configuration"] and not t["fidelity"])
    [part] = whole["same_configuration"]
    assert (parts[part]["is_partial"], parts[part]["fidelity"]) == (True, "folds 1 of 3")
    monkeypatch.setattr(Problem, "find_space", lambda _: import_module("no_such_module"))
    unknown = explained(ended.store, 1)
    assert unknown["choices"] == unknown["ranges"] == {}


def test_reason_and_task_run_of_a_trial_come_from_the_events(ended, monkeypatch) -> None:
    events = list(Ledger(ended.store.database).each_event("s"))
    reason = {"phase": "tuning", "text": "best by [EI]"}
    for event in events:
        if event.body["number"] == 2:
            more = {"reason": reason} if event.kind == "ask" else {"task_run_id": "abc"}
            event.body.update(more)  # type: ignore[attr-defined]
        else:
            event.body.pop("reason", None)  # type: ignore[attr-defined]
    of = lambda number: [e for e in events if number in {None, e.body["number"]}]  # noqa: E731
    monkeypatch.setattr(Ledger, "each_event", lambda _, __, number=None: iter(of(number)))
    found = explained(ended.store, 2)
    assert (found["reason"], found["task_run_id"]) == (reason, "abc")
    assert found["asked_at"] < found["ended_at"]
    assert explained(ended.store, 3)["reason"] is None
    table = ended.load().trials_dataframe()
    assert list(table["user_attrs_reason"].dropna()) == ["tuning"]
    assert list(table["system_attrs_task_run_id"].dropna()) == ["abc"]


def test_table_of_trials_matches_the_ledger(ended) -> None:
    study, trials = ended.load(), documents(ended.store)
    table = study.trials_dataframe()
    assert list(table)[:5] == ["number", "value", "datetime_start", "datetime_complete", "duration"]
    assert list(table)[-1] == "state"
    assert set(table["state"]) == {"COMPLETE", "FAIL"}
    for trial, (_, row) in zip(trials, table.iterrows(), strict=True):
        configuration, evaluation = trial["query"]["configuration"], trial["evaluation"]
        assert row["params_rescale"] == configuration["rescale"]["algorithm"]
        for name, value in configuration["fit model"]["hyperparameters"].items():
            assert row[f"params_fit model__{name}"] == value
        if not evaluation:
            assert pd.isna(row["value"])
            assert row["user_attrs_failure_message"] == trial["failure"]["message"]
            assert row["user_attrs_failure_step"] == "fit model"
            continue
        assert row["value"] == evaluation["loss"]
        assert [row[f"user_attrs_loss_fold_{i}"] for i in range(3)] == evaluation["fold_losses"]
        assert row["user_attrs_cache_hits"] == sum(s["hit"] for s in evaluation["steps"])
        assert row["user_attrs_model_size_bytes"] == evaluation["constraints"]["model_size_bytes"]
        assert row["system_attrs_constraints"][0] <= 0
    tells = [e for e in Ledger(ended.store.database).each_event("s") if e.kind == "tell"]
    seconds = table["datetime_complete"].astype("int64").to_numpy() / 1e6
    ends = {event.body["number"]: event.at for event in tells}
    assert np.allclose(seconds, list(ends.values()), atol=1e-5)
    assert str(table["datetime_complete"].dt.tz) == "UTC"
    assert (table["duration"] == table["datetime_complete"] - table["datetime_start"]).all()
    assert study.best_value == table["value"].min() == table["value"][study.best_trial]
    assert study.best_params["rescale"] == table["params_rescale"][study.best_trial]


def test_duration_of_a_trial_excludes_waiting_and_earlier_attempts(ended, monkeypatch) -> None:
    events, day = list(Ledger(ended.store.database).each_event("s")), 86_400.0
    asked = next(e.at for e in events if e.kind == "ask" and e.body["number"] == 0)
    told = next(e for e in events if e.kind == "tell" and e.body["number"] == 0)
    retried = LedgerEvent(len(events), "retry", {"number": 0}, asked + day)
    monkeypatch.setattr(Ledger, "each_event", lambda *_: iter([*events, retried]))
    waiting = ended.load().trials_dataframe().loc[0]
    assert waiting["datetime_start"].timestamp() == pytest.approx(asked + day, abs=1e-5)
    assert pd.isna(waiting["duration"])
    again = LedgerEvent(len(events) + 1, "tell", told.body, asked + 2 * day)
    monkeypatch.setattr(Ledger, "each_event", lambda *_: iter([*events, retried, again]))
    row, theirs = ended.load().trials_dataframe().loc[0], ended.load().to_optuna().trials[0]
    cost = pd.Timedelta(row["user_attrs_cost_seconds"], "s")
    assert row["datetime_complete"].timestamp() == pytest.approx(asked + 2 * day, abs=1e-5)
    assert abs(row["duration"] - cost) < pd.Timedelta(1, "ms")
    assert abs(theirs.duration - cost) < pd.Timedelta(1, "ms")


def test_partial_trials_are_marked_as_pruned_in_tables_and_files(ended, tmp_path: Path) -> None:
    trials = ended.load("h").trials_dataframe()
    partial = trials[trials["user_attrs_is_partial"]]
    for column, value in (("state", "PRUNED"), ("user_attrs_fidelity", "folds 1 of 3")):
        assert set(partial[column]) == {value}
    table = writable(trials.assign(mixed=[1, "word", 2.5, None, 1, 1]))
    table.to_parquet(tmp_path / "trials.parquet")
    read = pd.read_parquet(tmp_path / "trials.parquet")
    assert list(read) == list(table)
    assert list(read["mixed"])[:3] == ["1", "word", "2.5"]
    assert read["duration"].equals(table["duration"])


@pytest.mark.parametrize("name", ["s", "h"])
def test_study_converts_to_optuna_with_the_same_best_value(ended, name, monkeypatch) -> None:
    study = ended.load(name)
    made = study.to_optuna()
    ours, theirs = study.trials_dataframe(), made.trials_dataframe()
    assert made.best_value == study.best_value
    for column in ("number", "state"):
        assert list(ours[column]) == list(theirs[column])
    assert np.allclose(ours["value"].dropna(), theirs["value"].dropna())
    local = ours["datetime_start"].dt.tz_convert(None)
    assert len(set((theirs["datetime_start"] - local).dt.round("min"))) == 1  # local times
    assert set(made.trials[1].params) >= {"rescale", "fit model"}
    monkeypatch.setattr(Problem, "find_space", lambda _: space_named("flash"))
    with pytest.raises(BadInput, match=f"study '{name}'"):  # the space is another one here
        study.to_optuna()


@pytest.mark.parametrize("file_format", ["pickle", "skops"])
def test_exported_model_predicts_like_the_stored_model(ended, file_format) -> None:
    model, about = final_model(ended.store, "s")
    found = export(ended.store, "s", file_format)
    dataset = load_dataset(ended.store, about["dataset"])
    rows = dataset.rows(np.arange(len(dataset)))
    assert np.array_equal(found.model.predict_proba(rows), model.predict_proba(rows))
    assert list(found.weights) == [member["trial"] for member in about["members"]]
    assert found.rows_checked == 30
    assert ("prefect-tune" in found.packages) == (file_format == "skops")
    assert bool(found.trusted) == (file_format == "skops")


def test_exported_pickle_compares_versions_on_loading(ended, monkeypatch) -> None:
    data = export(ended.store, "s", "pickle").data
    assert pickle.loads(data).classes_.tolist() == ["no", "yes"]
    other = data.replace(
        f"'numpy': '{np.__version__}'".encode(), f"'numpy': '{np.__version__[:-1]}?'".encode()
    )
    with pytest.warns(UserWarning, match="numpy .* instead of"):
        pickle.loads(other)
    monkeypatch.setattr(sys, "version_info", (2, 7))
    with pytest.raises(ImportError, match="needs Python 3"):
        pickle.loads(data)


def test_export_is_refused_if_the_exported_model_predicts_differently(ended, monkeypatch) -> None:
    def turned(model: Any) -> Any:
        made = deepcopy(model)
        made.weights_ = made.weights_[::-1]
        return made

    stored, _ = final_model(ended.store, "s")
    monkeypatch.setattr(exporting, "plain", turned)  # plain classes would: it is exported as it is
    assert list(export(ended.store, "s", "pickle").model[-1].weights_) == list(stored.weights_)
    calls = count()
    monkeypatch.setattr(exporting, "_predicted", lambda *_: [np.array([next(calls)])])
    with pytest.raises(RuntimeError, match="predicts differently"):
        export(ended.store, "s", "pickle")
    with pytest.raises(BadInput, match="no final model"):
        export(ended.store, "h", "pickle")


def test_model_card_facts_match_study_data_and_test_rows(ended) -> None:
    facts = card_facts(ended.store, export(ended.store, "s", "pickle"))
    study = ended.load()
    loss = study.view.test_loss
    assert facts.exported.test_loss == loss == pytest.approx(facts.quality.wrong.loss)
    model, about = final_model(ended.store, "s")
    dataset = load_dataset(ended.store, about["dataset"])
    test = load_split(ended.store, study.plan.problem.split).held_out(REFIT)
    right = model.predict(dataset.rows(test)) == dataset.labels[test]
    for row in facts.quality.classes.itertuples():
        of_class = dataset.labels[test] == row.label
        assert row.rows == of_class.sum()
        assert row.recall == pytest.approx(100 * right[of_class].mean())
    assert facts.columns["column"].tolist() == [str(name) for name in dataset.X]
    assert (len(facts.dataset), facts.n_test, facts.n_training) == (150, 30, 120)
    assert [member.number for member in facts.members] == [*facts.exported.weights]
    assert f"type: accuracy\n      value: {1 - loss / 100}" in model_card(facts, "m.pkl")


@pytest.mark.usefixtures("without_libgomp")
def test_error_names_a_required_library_that_cannot_be_loaded(ended, monkeypatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")

    def broken(*_: object) -> None:
        try:
            import_module("lightgbm")
        except OSError as error:
            raise RecordDamaged("record model-s") from error

    records = type(ended.store.records)
    monkeypatch.setattr(records, "get", missing)
    with pytest.raises(BadInput, match="needs lightgbm"):
        export(ended.store, "s", "pickle")
    monkeypatch.setattr(records, "get", broken)
    with pytest.raises(RecordDamaged):  # its space is another one, which needs no library
        final_model(ended.store, "s")
    monkeypatch.setattr(Problem, "find_space", lambda _: space_named("modern"))
    with pytest.raises(BadInput, match="libgomp"):
        final_model(ended.store, "s")


def keep_model(store: ArtifactStore, problem: Problem, model: Any) -> None:
    """Store the final model of the study `test`."""
    about = {"dataset": problem.dataset, "trial": 0, "members": [{"trial": 0, "weight": 1.0}]}
    store.records.put(model_record("test"), {"model": model, "about": about}, "test")


def hostile(folder: Path, model: str) -> tuple[ArtifactStore, str, Any, Any]:
    """Return a study with a hostile final model, and a file of new rows."""
    made = own_context(folder, model, 3, "error")
    store, file = store_of(made), str(folder / "own.csv")
    settings = plan_of(made, data=file, target="y", data_name="own").to_json()
    Ledger(store.database).create_study("test", made.problem.to_json(), settings)
    dataset = load_dataset(store, made.problem.dataset)
    fitted = getattr(hostile_models, model)().fit(dataset.X, dataset.labels)
    keep_model(store, made.problem, Pipeline([("model", fitted)]))
    return store, file, fitted.inner_, dataset.X


@pytest.mark.parametrize("model", ["Column", "ReversedClasses"])
def test_predicted_labels_are_flat_and_probabilities_are_ordered_by_class(tmp_path, model) -> None:
    store, file, inner, X = hostile(tmp_path, model)
    found = predict(store, "test", file, None)
    assert found["prediction"].tolist() == inner.predict(X).tolist()
    assert list(found)[1:] == [f"probability_{label}" for label in inner.classes_]
    np.testing.assert_array_equal(found.iloc[:, 1:], inner.predict_proba(X))


def test_invalid_predictions_are_not_written(tmp_path) -> None:
    store, file, _, _ = hostile(tmp_path, "Abstains")
    with pytest.raises(InvalidPredictions, match="3 of 120"):
        predict(store, "test", file, None)
    out = tmp_path / "out.csv"
    done = CommandLine(tmp_path)("predict", "test", file, "--out", out)
    assert (done.exit_code, out.exists()) == (1, False)


def test_copy_of_a_former_model_has_no_test_loss_of_the_present_model(tmp_path) -> None:
    store, *_ = hostile(tmp_path, "Plain")
    own, former = model_record("test"), "champions/n/test/1"
    store.records.copy(own, former, "series n")
    Ledger(store.database).update_study("test", result={"model": {"test_loss": 1.5}})
    losses = [final_model(store, "test", record)[1]["test_loss"] for record in (own, former)]
    store.records.put(own, {**store.records.get(own), "model": hostile_models.Plain()})
    losses += [final_model(store, "test", record)[1]["test_loss"] for record in (own, former)]
    assert losses == [1.5, 1.5, 1.5, None]


def counting(folder: Path, values: np.ndarray) -> ArtifactStore:
    """Return a study of events whose final model counts codes and predicts these values."""
    made = context_of(folder, events=True)
    store = store_of(made)
    labels = written(events()[1].assign(boolean_value=values), folder / "labels.csv")
    predicts = "classification" if values.dtype == bool else "regression"
    source = Source(str(folder / "meds"), labels=labels, predicts=predicts)
    made = replace(made, problem=problem_of(source, store, space_named("healthcare")))
    settings = plan_of(
        made, data=str(folder / "meds"), target=None, labels="labels/task", data_name="events"
    ).to_json()
    ledger = Ledger(store.database)
    ledger.create_study("test", made.problem.to_json(), settings)
    trial = {"number": 0, "state": "complete", "query": {"configuration": {}}, "attempts": 1}
    ledger.set_trial("test", {**trial, "evaluation": None, "failure": None})
    dataset = load_dataset(store, made.problem.dataset)
    model = LogisticRegression() if dataset.classes else Ridge()
    fitted = make_pipeline(EventAggregation(), model).fit(dataset.X, dataset.labels)
    keep_model(store, made.problem, fitted)
    return store


def predict_rows(store: ArtifactStore, folder: Path, rows: list[tuple[object, str]]):
    file = folder / "times.csv"
    pd.DataFrame(rows, columns=["subject_id", "prediction_time"]).to_csv(file, index=False)
    return predict(store, "test", str(folder / "meds"), str(file))


ROWS = [(101, "2021-01-01"), (101, "2019-01-01"), ("new", "2021-01-01"), (100, "2021-01-01")]
"""The second has no event before, and the third is unknown."""


def test_rows_without_events_get_the_base_rates_of_the_training_rows(
    tmp_path, caplog, monkeypatch
) -> None:
    store = counting(tmp_path, np.arange(80) // 2 % 4 != 1)
    problem = open_study(store, "test").plan.problem
    split, dataset = load_split(store, problem.split), load_dataset(store, problem.dataset)
    share = dataset.y[split.fold != TEST].mean()
    found = predict_rows(store, tmp_path, ROWS)
    assert found["subject_id"].astype(str).tolist() == ["101", "101", "new", "100"]
    assert found["probability_True"].tolist()[1:3] == [share, share]
    assert share > 0.5
    assert found["prediction"].tolist()[1:3] == [True, True]
    assert any("2 of 4 rows" in message for message in caplog.messages)
    alone = predict_rows(store, tmp_path, [ROWS[0], ROWS[3]])
    assert alone["probability_True"].tolist() == found["probability_True"].tolist()[::3]
    # Classes count alike as far as the model's do.
    monkeypatch.setattr(predicting, "balanced_weight", lambda *_: 0.4)
    balanced = predict_rows(store, tmp_path, ROWS)["probability_True"]
    assert balanced[1] == balanced[2] == pytest.approx(0.6 * share + 0.2)
    assert balanced[0] == found["probability_True"][0]


def test_ensemble_weight_of_class_balanced_models_is_computed(ended, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    for name, word in (("small", "weighting"), ("admm_large", "balanced")):
        space = space_named(name)
        drawn = [sample_configuration(space, rng).to_json() for _ in range(60)]
        found = [predicting.is_balanced(document, space) for document in drawn]
        texts = map(json.dumps, drawn)  # k_nearest weights nothing
        assert found == [word in text and "k_nearest" not in text for text in texts]
        assert set(found) == {True, False}
    exported = export(ended.store, "s", "pickle")
    first, *others = card_facts(ended.store, exported).members
    assert others
    alike = [first.configuration]
    monkeypatch.setattr(predicting, "is_balanced", lambda configuration, _: configuration in alike)
    weight = predicting.balanced_weight(ended.store, "s", ended.load().plan, exported.about)
    assert weight == exported.weights[first.number] < 1


def test_rows_without_events_get_the_mean_and_new_codes_change_nothing(tmp_path) -> None:
    value = np.arange(80) ** 2 / 10
    store = counting(tmp_path, value)
    split = load_split(store, open_study(store, "test").plan.problem.split)
    found = predict_rows(store, tmp_path, ROWS)
    means = found["prediction"]
    assert means[1] == means[2] == value[split.fold != TEST].mean()
    assert means[0] != means[3]
    new = pd.DataFrame({"subject_id": [100, 101], "time": pd.Timestamp(2020, 1, 2), "code": "AA"})
    written(new.assign(numeric_value=9.0), tmp_path / "meds" / "data" / "new.parquet")
    pd.testing.assert_frame_equal(predict_rows(store, tmp_path, ROWS), found)
