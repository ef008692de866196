"""A study to look at from Python: its trials as a table, as one of Optuna's, and its model."""

import pickle
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
from finished.ended import Ended

from prefect_tune import load_study
from prefect_tune.deployments.estimator.trial_columns import trial_columns
from prefect_tune.flows.results.trial_table import writable
from prefect_tune.flows.study.lookup import list_trials
from prefect_tune.flows.study.predict import final_model
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage import Ledger
from prefect_tune.storage.ledger import LedgerEvent
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem


@pytest.fixture(scope="module")
def table(ended: Ended) -> pd.DataFrame:
    return ended.load().trials_dataframe()


def test_a_study_says_what_it_is_and_what_was_best(ended) -> None:
    study, trials = ended.load(), list_trials(ended.store, "s")
    losses = {t["number"]: t["evaluation"]["loss"] for t in trials if t["evaluation"]}
    assert study.best_value == min(losses.values()) == losses[study.best_trial]
    chosen = trials[study.best_trial]["query"]["configuration"]
    assert {n for n in study.best_params if "__" not in n} == set(chosen)
    assert study.best_params["rescale"] == chosen["rescale"]["algorithm"]
    assert (study.method, study.metric, study.state) == ("random", "error", "complete")
    assert study.space.endswith("space.py:space")
    assert study.summary()["n_failed"] == 1
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


def test_values_parameters_and_attributes_are_those_of_the_trials(ended, table) -> None:
    for trial, (_, row) in zip(list_trials(ended.store, "s"), table.iterrows(), strict=True):
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


def test_times_are_those_of_the_ledger_in_utc(ended, table) -> None:
    ends = {e.body["number"]: e.at for e in Ledger(ended.store.database).events("s", "tell")}
    seconds = table["datetime_complete"].astype("int64").to_numpy() / 1e6
    assert np.allclose(seconds, list(ends.values()), atol=1e-5)
    assert str(table["datetime_complete"].dt.tz) == "UTC"
    assert (table["duration"] == table["datetime_complete"] - table["datetime_start"]).all()
    assert (table["duration"] > pd.Timedelta(0)).all()


def test_neither_waiting_nor_an_earlier_attempt_counts_as_duration(ended, monkeypatch) -> None:
    ledger = Ledger(ended.store.database)
    events, day = ledger.events("s"), 86_400.0
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


def test_parameters_are_called_as_those_of_the_estimator(ended, table) -> None:
    columns = trial_columns(ended.store, "s")
    searched = {n.removeprefix("param_") for n in columns if n.startswith("param_")}
    assert {n.removeprefix("params_") for n in table if n[:7] == "params_"} == searched


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
    with pytest.raises(BadInput, match="of study 'h' is another one here"):
        ended.load("h").to_optuna()


def test_optunas_importances_work_on_it(ended) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = ended.load("h").to_optuna()
    found = optuna.importance.get_param_importances(made, params=["rescale"])
    assert list(found) == ["rescale"]


def test_its_model_is_what_is_exported(ended, tmp_path: Path) -> None:
    out = ended.run.json("export", "s", tmp_path / "m.pkl", "--no-card")
    rows = pd.read_csv(ended.folder / "table.csv").drop(columns="target")
    stored, _ = final_model(ended.store, "s")
    expected = stored.predict_proba(rows)
    assert np.array_equal(ended.load().model().predict_proba(rows), expected)
    read = pickle.loads((tmp_path / "m.pkl").read_bytes())
    assert np.array_equal(read.predict_proba(rows), expected)
    assert out["own_classes"] == ["ClassEnsemble"]


def test_studies_and_stores_that_are_not_there_are_named(ended, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 's'"):
        ended.load("S")
    with pytest.raises(BadInput, match="there is no store at"):
        load_study("s", str(tmp_path))


def test_a_study_without_trials_has_a_table_of_none_and_no_best_value(ended) -> None:
    ledger = Ledger(ended.store.database)
    stored = ledger.study("s")
    ledger.create_study("empty", stored.problem, stored.settings)
    try:
        study = ended.load("empty")
        columns = ["number", "value", "datetime_start", "datetime_complete", "duration", "state"]
        assert list(study.trials_dataframe()) == columns
        with pytest.raises(ValueError, match="no complete trial"):
            _ = study.best_value
    finally:
        ledger.delete_study("empty")


def test_its_text_has_no_address(ended) -> None:
    assert repr(ended.load()) == "LoadedStudy(name='s')"
