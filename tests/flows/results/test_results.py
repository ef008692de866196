"""What came of a study, in Python: its trials as tables, one trial explained, its model."""

import json
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from answer_worlds import hostile_models
from answer_worlds.own_studies import own_context
from command_line import CommandLine
from finished.ended import Ended
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
from prefect_tune.optimizers.documents import UnknownName
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


def test_a_trial_is_compared_with_the_best_one(ended) -> None:
    best = ended.load().best_trial
    losses = {t.number: t.document["evaluation"] for t in open_study(ended.store, "s").trials()}
    other = next(n for n, evaluation in losses.items() if evaluation and n != best)
    found = explained_trial(ended.store, "s", other).to_json()
    assert found["evaluation"] == losses[other]
    assert found["incumbent"] == {
        "trial": best, "loss": losses[best]["loss"], "fold_losses": losses[best]["fold_losses"]
    }  # fmt: skip
    assert found["in_model"] == (other in {1, 2})
    assert json.loads(json.dumps(found)) == found


def test_values_come_with_defaults_and_ranges(ended) -> None:
    trials = [t.document for t in open_study(ended.store, "s").trials()]
    nearest = next(
        t for t in trials if t["query"]["configuration"]["fit model"]["algorithm"] == "k_nearest"
    )
    found = explained_trial(ended.store, "s", nearest["number"]).to_json()
    assert set(found["choices"]["rescale"]) == {"none", "minmax", "standardize", "normalize"}
    assert found["ranges"]["fit model"]["n_neighbors"] == {
        "default": 1, "range": "a whole number from 1 to 100", "log": True
    }  # fmt: skip


def test_a_failure_says_where_and_why(ended) -> None:
    failure = explained_trial(ended.store, "s", 0).to_json()["failure"]
    assert (failure["step"], failure["fold"], failure["kind"]) == ("fit model", 0, "error")
    assert failure["message"] == "ValueError: picky [about] new"
    assert "in fit" in failure["traceback"]
    assert {step["step"] for step in failure["steps"]} == {"impute", "encode"}


def test_other_stretches_of_a_configuration_are_listed(ended) -> None:
    trials = [t.document for t in open_study(ended.store, "h").trials()]
    whole = next(t for t in trials if t["state"] == "complete" and _same(t, trials))
    found = explained_trial(ended.store, "h", whole["number"]).to_json()
    (part,) = found["same_configuration"]
    assert found["fidelity"] == ""
    part = explained_trial(ended.store, "h", part).to_json()
    assert (part["state"], part["fidelity"]) == ("stopped", "folds 1 of 3")


def _same(trial, trials) -> bool:
    configuration = trial["query"]["configuration"]
    return sum(t["query"]["configuration"] == configuration for t in trials) > 1


def test_reason_and_task_run_come_from_the_events(ended, monkeypatch) -> None:
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
    found = explained_trial(ended.store, "s", 2).to_json()
    assert found["reason"] == reason
    assert found["task_run_id"] == "abc"
    assert found["asked_at"] < found["ended_at"]
    assert explained_trial(ended.store, "s", 3).to_json()["reason"] is None
    table = ended.load().trials_dataframe()
    assert list(table["user_attrs_reason"].dropna()) == ["tuning"]
    assert list(table["system_attrs_task_run_id"].dropna()) == ["abc"]


def test_without_its_space_a_trial_has_its_values_alone(ended, monkeypatch) -> None:
    def gone(_: Problem) -> None:
        raise ImportError("no module named lightgbm")

    monkeypatch.setattr(Problem, "find_space", gone)
    found = explained_trial(ended.store, "s", 1).to_json()
    assert found["choices"] == found["ranges"] == {}


@pytest.fixture(scope="module")
def table(ended: Ended) -> pd.DataFrame:
    return ended.load().trials_dataframe()


def test_a_study_says_what_it_is_and_what_was_best(ended) -> None:
    study, trials = ended.load(), [t.document for t in open_study(ended.store, "s").trials()]
    losses = {t["number"]: t["evaluation"]["loss"] for t in trials if t["evaluation"]}
    assert study.best_value == min(losses.values()) == losses[study.best_trial]
    chosen = trials[study.best_trial]["query"]["configuration"]
    assert {n for n in study.best_params if "__" not in n} == set(chosen)
    assert study.best_params["rescale"] == chosen["rescale"]["algorithm"]
    assert (study.view.state, study.view.n_failed) == ("complete", 1)
    assert study.plan.seed == 1


def test_the_table_has_the_columns_of_optuna_and_a_row_for_each_trial(table) -> None:
    assert list(table)[:5] == [
        "number", "value", "datetime_start", "datetime_complete", "duration"
    ]  # fmt: skip
    assert list(table)[-1] == "state"
    assert list(table["number"]) == list(range(9))
    assert set(table["state"]) == {"COMPLETE", "FAIL"}
    failed = table[table["state"] == "FAIL"].iloc[0]
    assert pd.isna(failed["value"])
    assert failed["user_attrs_failure_message"] == "ValueError: picky [about] new"
    assert (failed["user_attrs_failure_step"], failed["user_attrs_failure_fold"]) == (
        "fit model",
        0,
    )


def test_values_parameters_and_attributes_match_the_trials(ended, table) -> None:
    for trial, (_, row) in zip(
        [t.document for t in open_study(ended.store, "s").trials()], table.iterrows(), strict=True
    ):
        configuration, evaluation = trial["query"]["configuration"], trial["evaluation"]
        assert row["params_rescale"] == configuration["rescale"]["algorithm"]
        model = configuration["fit model"]
        for name, value in model["hyperparameters"].items():
            assert row[f"params_fit model__{name}"] == value
        if evaluation:
            assert row["value"] == evaluation["loss"]
            assert [row[f"user_attrs_loss_fold_{i}"] for i in range(3)] == evaluation["fold_losses"]
            assert row["user_attrs_cache_hits"] == sum(s["hit"] for s in evaluation["steps"])
            assert (
                row["user_attrs_model_size_bytes"] == evaluation["constraints"]["model_size_bytes"]
            )
            assert row["system_attrs_constraints"][0] <= 0


def test_times_match_the_ledger_in_utc(ended, table) -> None:
    ends = {
        e.body["number"]: e.at
        for e in [e for e in Ledger(ended.store.database).each_event("s") if e.kind == "tell"]
    }
    seconds = table["datetime_complete"].astype("int64").to_numpy() / 1e6
    assert np.allclose(seconds, list(ends.values()), atol=1e-5)
    assert str(table["datetime_complete"].dt.tz) == "UTC"
    assert (table["duration"] == table["datetime_complete"] - table["datetime_start"]).all()
    assert (table["duration"] > pd.Timedelta(0)).all()


def test_neither_waiting_nor_an_earlier_attempt_counts_as_duration(ended, monkeypatch) -> None:
    ledger = Ledger(ended.store.database)
    events, day = list(ledger.each_event("s")), 86_400.0
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


def test_the_table_survives_files(ended, tmp_path: Path) -> None:
    trials = ended.load("h").trials_dataframe()
    table = writable(trials.assign(mixed=[1, "word", 2.5, None, 1, 1]))
    table.to_parquet(tmp_path / "trials.parquet")
    read = pd.read_parquet(tmp_path / "trials.parquet")
    assert list(read) == list(table)
    assert list(read["mixed"])[:3] == ["1", "word", "2.5"]
    assert read["duration"].equals(table["duration"])


def test_what_ran_on_less_is_pruned_in_optunas_words(ended) -> None:
    table = ended.load("h").trials_dataframe()
    stopped = table["user_attrs_state"] == "stopped"
    assert stopped.any()
    assert set(table["state"][stopped]) == {"PRUNED"}
    assert set(table["user_attrs_fidelity"][stopped]) == {"folds 1 of 3"}
    assert set(table["user_attrs_folds"][stopped]) == {1}


@pytest.mark.parametrize("name", ["s", "h"])
def test_a_study_becomes_one_of_optunas_with_the_same_best_value(ended, name) -> None:
    study = ended.load(name)
    made = study.to_optuna()
    ours, theirs = study.trials_dataframe(), made.trials_dataframe()
    assert made.best_value == study.best_value
    for column in ("number", "state"):
        assert list(ours[column]) == list(theirs[column])
    assert np.allclose(ours["value"].dropna(), theirs["value"].dropna())
    local = ours["datetime_start"].dt.tz_convert(None)
    spread = (theirs["datetime_start"] - local).dt.round("min")
    assert len(set(spread)) == 1  # they are local times
    assert set(made.trials[1].params) >= {"rescale", "fit model"}


def test_a_space_that_is_another_one_here_is_refused(ended, monkeypatch) -> None:
    monkeypatch.setattr(Problem, "find_space", lambda _: space_named("flash"))
    with pytest.raises(BadInput, match="study 'h'"):
        ended.load("h").to_optuna()


@pytest.mark.parametrize("file_format", ["pickle", "skops"])
def test_a_model_read_back_predicts_as_the_stored_one(ended, file_format) -> None:
    model, about = final_model(ended.store, "s")
    found = export(ended.store, "s", file_format)
    dataset = load_dataset(ended.store, about["dataset"])
    rows = dataset.rows(np.arange(len(dataset)))
    assert np.array_equal(found.model.predict_proba(rows), model.predict_proba(rows))
    assert list(found.weights) == [member["trial"] for member in about["members"]]
    assert found.rows_checked == 30
    assert ("prefect-tune" in found.packages) == (file_format == "skops")
    assert bool(found.trusted) == (file_format == "skops")


def test_a_model_that_predicts_otherwise_is_not_exported(ended, monkeypatch) -> None:
    calls = count()
    monkeypatch.setattr(exporting, "_predicted", lambda *_: [np.array([next(calls)])])
    with pytest.raises(RuntimeError, match="predicts differently"):
        export(ended.store, "s", "pickle")


def test_where_plain_classes_would_predict_otherwise_the_model_is_exported_as_it_is(
    ended, monkeypatch
) -> None:
    def turned(model):
        made = deepcopy(model)
        made.weights_ = made.weights_[::-1]
        return made

    monkeypatch.setattr(exporting, "plain", turned)
    stored, _ = final_model(ended.store, "s")
    found = export(ended.store, "s", "pickle")
    assert list(found.model[-1].weights_) == list(stored.weights_)


def test_a_study_without_a_model_is_refused(ended) -> None:
    with pytest.raises(BadInput, match="no final model"):
        export(ended.store, "h", "pickle")
    with pytest.raises(UnknownName, match="unknown study"):
        export(ended.store, "gone", "pickle")


def test_facts_match_study_data_and_test_rows(ended) -> None:
    facts = card_facts(ended.store, export(ended.store, "s", "pickle"))
    summary = ended.load().view.to_json()
    assert facts.exported.test_loss == summary["test_loss"]
    assert facts.quality.wrong[0] == pytest.approx(summary["test_loss"])
    model, about = final_model(ended.store, "s")
    dataset = load_dataset(ended.store, about["dataset"])
    test = load_split(ended.store, ended.load().plan.problem.split).held_out(REFIT)
    right = model.predict(dataset.rows(test)) == dataset.labels[test]
    for row in facts.quality.classes.itertuples():
        of_class = dataset.labels[test] == row.label
        assert row.rows == of_class.sum()
        assert row.recall == pytest.approx(100 * right[of_class].mean())
    assert [name for name, *_ in facts.columns] == [str(name) for name in dataset.X]
    assert (len(facts.dataset), facts.n_test, facts.n_training) == (150, 30, 120)
    assert [member.number for member in facts.members] == [*facts.exported.weights]
    assert all(member.quantities["model_size_bytes"] <= 1e6 for member in facts.members)
    accuracy = f"type: accuracy\n      value: {1 - summary['test_loss'] / 100}"
    assert accuracy in model_card(facts, "m.pkl")


def test_a_package_that_the_model_needs_and_is_not_here_is_named(ended, monkeypatch) -> None:
    def read(*_):
        raise ModuleNotFoundError("No module named 'lightgbm'", name="lightgbm")

    monkeypatch.setattr(type(ended.store.records), "get", read)
    with pytest.raises(BadInput, match="needs lightgbm"):
        export(ended.store, "s", "pickle")


@pytest.mark.usefixtures("without_libgomp")
def test_a_model_whose_library_does_not_load_is_not_taken_for_damaged(ended, monkeypatch) -> None:
    def read(*_):
        try:
            import_module("lightgbm")
        except OSError as error:
            raise RecordDamaged("record model-s") from error

    monkeypatch.setattr(type(ended.store.records), "get", read)
    with pytest.raises(RecordDamaged):  # its space is another one, which needs no library
        final_model(ended.store, "s")
    monkeypatch.setattr(Problem, "find_space", lambda _: space_named("modern"))
    with pytest.raises(BadInput, match=r"libgomp\.so\.1"):
        final_model(ended.store, "s")


def ended(folder, model: str, n_classes: int):
    """A study whose final model is one of `hostile_models`, and a file of new rows."""
    made = own_context(folder, model, n_classes, "error" if n_classes else "r2")
    store, file = store_of(made), str(folder / "own.csv")
    settings = plan_of(made, data=file, target="y", data_name="own").to_json()
    Ledger(store.database).create_study("test", made.problem.to_json(), settings)
    dataset = load_dataset(store, made.problem.dataset)
    fitted = getattr(hostile_models, model)().fit(dataset.X, dataset.labels)
    about = {"dataset": made.problem.dataset, "trial": 0, "members": [{"trial": 0, "weight": 1.0}]}
    parts = {"model": Pipeline([("model", fitted)]), "about": about}
    store.records.put(model_record("test"), parts, "test")
    return store, file, fitted.inner_, dataset.X


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", ["Column", "ReversedClasses", "NoClasses", "FrameOfLabels"])
def test_labels_are_flat_and_probabilities_stand_under_their_class(
    tmp_path, model, n_classes
) -> None:
    store, file, inner, X = ended(tmp_path, model, n_classes)
    found = predict(store, "test", file, None)
    assert found["prediction"].tolist() == inner.predict(X).tolist()
    assert list(found)[1:] == [f"probability_{label}" for label in inner.classes_]
    np.testing.assert_array_equal(found.iloc[:, 1:], inner.predict_proba(X))


def test_decision_values_are_not_written_as_probabilities(tmp_path) -> None:
    store, file, _, _ = ended(tmp_path, "Decides", 3)
    assert list(predict(store, "test", file, None)) == ["prediction"]


@pytest.mark.parametrize(
    ("model", "n_classes", "value"),
    [("Abstains", 3, "-1 in 3 of 120"), ("NumberNan", 0, "nan in 1 of 120")],
)
def test_what_is_no_prediction_is_not_written(tmp_path, model, n_classes, value) -> None:
    store, file, _, _ = ended(tmp_path, model, n_classes)
    with pytest.raises(InvalidPredictions, match=value):
        predict(store, "test", file, None)
    out = tmp_path / "out.csv"
    done = CommandLine(tmp_path)("predict", "test", file, "--out", out)
    assert done.exit_code == 1
    assert value in done.output
    assert not out.exists()


def test_numbers_in_a_column_are_written_flat(tmp_path) -> None:
    store, file, inner, X = ended(tmp_path, "NumberColumn", 0)
    expected = pd.DataFrame({"prediction": inner.predict(X)})
    pd.testing.assert_frame_equal(predict(store, "test", file, None), expected)


def ended_on_events(folder: Path, values: np.ndarray | None = None) -> ArtifactStore:
    """A study of events whose final model counts codes; it predicts classes, or these values."""
    made = context_of(folder, events=True)
    store = store_of(made)
    if values is not None:
        labels = written(events()[1].assign(boolean_value=values), folder / "labels.csv")
        predicts = "classes" if values.dtype == bool else "numbers"
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
    about = {"dataset": made.problem.dataset, "trial": 0, "members": [{"trial": 0, "weight": 1.0}]}
    store.records.put(model_record("test"), {"model": fitted, "about": about}, "test")
    return store


def predict_rows(store: ArtifactStore, folder: Path, rows: list[tuple[object, str]]):
    file = folder / "times.csv"
    pd.DataFrame(rows, columns=["subject_id", "prediction_time"]).to_csv(file, index=False)
    return predict(store, "test", str(folder / "meds"), str(file))


ROWS = [(101, "2021-01-01"), (101, "2019-01-01"), ("new", "2021-01-01"), (100, "2021-01-01")]
"""The second has no event before, and the third is unknown."""


def test_rows_without_events_get_the_shares_of_the_training_rows(tmp_path, caplog) -> None:
    store = ended_on_events(tmp_path, np.arange(80) // 2 % 4 != 1)
    problem = open_study(store, "test").plan.problem
    split, dataset = load_split(store, problem.split), load_dataset(store, problem.dataset)
    share = dataset.y[split.fold != TEST].mean()
    found = predict_rows(store, tmp_path, ROWS)
    assert found["subject_id"].astype(str).tolist() == ["101", "101", "new", "100"]
    assert found["probability_True"].tolist()[1:3] == [share, share]
    assert share > 0.5
    assert found["prediction"].tolist()[1:3] == [True, True]
    assert any("2 of 4 rows" in message and "101" in message for message in caplog.messages)
    alone = predict_rows(store, tmp_path, [ROWS[0], ROWS[3]])
    assert alone["probability_True"].tolist() == found["probability_True"].tolist()[::3]
    assert len(predict_rows(store, tmp_path, ROWS[1:3])) == 2


def test_rows_without_events_count_classes_alike_as_far_as_the_model_does(
    tmp_path, monkeypatch
) -> None:
    store = ended_on_events(tmp_path, np.arange(80) // 2 % 4 != 1)
    unbalanced = predict_rows(store, tmp_path, ROWS)["probability_True"]
    for weight in (0.4, 1.0):
        monkeypatch.setattr(predicting, "balanced_weight", lambda *_, weight=weight: weight)
        found = predict_rows(store, tmp_path, ROWS)["probability_True"]
        assert found[1] == found[2] == pytest.approx((1 - weight) * unbalanced[1] + weight / 2)
        assert found[0] == unbalanced[0]


def test_the_weight_of_balanced_members_counts(ended, monkeypatch) -> None:
    exported = export(ended.store, "s", "pickle")
    members = card_facts(ended.store, exported).members
    first = members[0].configuration
    monkeypatch.setattr(predicting, "is_balanced", lambda configuration, _: configuration == first)
    alike = [exported.weights[m.number] for m in members if m.configuration == first]
    found = predicting.balanced_weight(ended.store, "s", ended.load().plan, exported.about)
    assert found == pytest.approx(sum(alike))
    assert found > 0


def test_rows_without_events_get_the_mean_of_the_training_rows(tmp_path) -> None:
    value = np.arange(80) ** 2 / 10
    store = ended_on_events(tmp_path, value)
    split = load_split(store, open_study(store, "test").plan.problem.split)
    found = predict_rows(store, tmp_path, ROWS)["prediction"]
    assert found[1] == found[2] == value[split.fold != TEST].mean()
    assert found[0] != found[3]


def test_a_code_that_is_only_in_new_data_changes_no_prediction(tmp_path) -> None:
    store = ended_on_events(tmp_path)
    former = predict_rows(store, tmp_path, [ROWS[0], ROWS[3]])
    new = pd.DataFrame({"subject_id": [100, 101], "time": pd.Timestamp(2020, 1, 2), "code": "AA"})
    written(new.assign(numeric_value=9.0), tmp_path / "meds" / "data" / "new.parquet")
    pd.testing.assert_frame_equal(predict_rows(store, tmp_path, [ROWS[0], ROWS[3]]), former)
