"""Resuming a stored study: options that may change, and options that may not."""

import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from flow_studies import prepare_study
from inputs import events, table, write_meds, written
from user_spaces import PRELUDE

from prefect_tune.flows.options.values import EnsembleRule, StopRule
from prefect_tune.flows.starting.prepare import PreparedStudy, prepare_retry
from prefect_tune.flows.starting.resume import CannotContinue
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Algorithm, Budget
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks import user_code
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue import spaces

GIVEN = {"target": "target", "drop": ["patient"], "study": "one"}
TRIALS = {**GIVEN, "trials": 3}


def test_resumed_study_keeps_constraints_of_the_first_run(prepared, tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def worth(pipeline, X, y):\n    return 1.0\n")
    bounds = ["latency_us<=50", f"{file}:worth<=2"]
    prepared("train.csv", **GIVEN, constraint=bounds)
    for same in ({}, {"constraint": bounds}):
        assert len(prepared("train.csv", **GIVEN, **same).plan.options.bounds) == 2
    with pytest.raises(CannotContinue, match="--start 'one'"):
        prepared("train.csv", **GIVEN, constraint=bounds[:1])
    file.write_text("def worth(pipeline, X, y):\n    return 500.0\n")
    with pytest.raises(CannotContinue, match="different version"):
        prepared("train.csv", **GIVEN, constraint=bounds)


@pytest.mark.slow
def test_changeable_options_change_on_resume_when_given(prepared) -> None:
    first = {"trials": 4, "budget": "1m", "ensemble": 2, "trial_timeout": "5s"}
    prepared("train.csv", **GIVEN, **first)
    for options, field, value in (
        ({}, "stop_rule", StopRule(4, 60.0)),
        ({"trials": 9}, "stop_rule", StopRule(9, None)),
        ({"budget": "5m"}, "stop_rule", StopRule(None, 300.0)),
        ({}, "trial_timeout", 5.0),
        ({"trial_timeout": "7s"}, "trial_timeout", 7.0),
        ({"trial_memory": "2GB"}, "trial_memory", 2 * 10**9),
        ({}, "ensemble", EnsembleRule("greedy", 2)),
        ({"ensemble": "single"}, "ensemble", EnsembleRule("single")),
        ({"no_cache": True}, "use_cache", False),
        ({"workers": 3}, "workers", 3),
    ):
        again = prepared("train.csv", **GIVEN, **options).plan.options
        assert getattr(again, field) == value, options


@pytest.mark.slow
def test_fixed_options_are_refused_with_the_value_of_the_study(prepared) -> None:
    prepared("train.csv", **GIVEN)
    prepared("train.csv", **{**GIVEN, "study": "two"}, race=False, holdout=0.3)
    for study, options, flag in (
        ("one", {"seed": 1}, "--seed 0"),
        ("one", {"method": "tpe"}, "--method flash"),
        ("one", {"metric": "auroc"}, "--metric error"),
        ("one", {"space": "small"}, "--space modern"),
        ("one", {"folds": 4}, "--folds 3"),
        ("one", {"test_size": 0.3}, "--test-size 0.2"),
        ("one", {"option": {"r": 3}}, "no --option"),
        ("one", {"race": False}, "has --race"),
        ("one", {"holdout": 0.2}, "no --holdout"),
        ("one", {"drop": ["patient", "a"]}, "different --drop"),
        ("one", {"test": "test.parquet"}, "different --test"),
        ("two", {"race": True}, "has --no-race"),
        ("two", {"holdout": 0.2}, "--holdout 0.3"),
    ):
        with pytest.raises(CannotContinue, match=flag) as refused:
            prepared("train.csv", **{**GIVEN, "study": study, **options})
        assert "--study" in refused.value.remedy


def test_retry_keeps_stored_values_of_options_that_retry_lacks(prepared) -> None:
    first = prepared("train.csv", target="target", no_cache=True, trial_timeout="5s", workers=1)
    again = prepare_retry(first.name, None, {"workers": 3, "trial_memory": "2GB"}).plan.options
    assert again == replace(first.plan.options, workers=3, trial_memory=2 * 10**9)


def test_study_removed_by_another_process_is_not_prepared(prepared, monkeypatch) -> None:
    monkeypatch.setattr(Ledger, "create_study", lambda *_: False)
    with pytest.raises(BadInput, match="'one' was removed"):
        prepared("train.csv", target="target", study="one")


SPACE = f'{PRELUDE}\nspace = models(one("nb", GaussianNB, SMOOTHING))\n'


def test_only_comments_of_a_user_file_may_change(prepared, tmp_path) -> None:
    given = {**GIVEN, "space": "mine.py:space"}
    file = tmp_path / "mine.py"
    file.write_text(SPACE)
    prepared("train.csv", **given)
    file.write_text(f'"""Two models."""\n{SPACE}# as in the paper\n')
    assert prepared("train.csv", **given).name == "one"
    file.write_text(f"{SPACE}\nseed = 1\n")
    with pytest.raises(CannotContinue, match="different version"):
        prepared("train.csv", **given)


@pytest.mark.slow
def test_resumed_study_uses_only_models_of_the_first_run(prepared, monkeypatch, request) -> None:
    given = {**GIVEN, "method": "random"}
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "catboost", None)
        prepared("train.csv", **given)
    made = prepared("train.csv", **given)
    with Study.opened(made.store, made.name) as study:
        models = [algorithm.id for algorithm in study.optimizer.space.steps[-1].algorithms]
    assert "catboost" not in models
    assert "lightgbm" in models
    request.getfixturevalue("without_libgomp")
    with pytest.raises(BadInput, match="libgomp"), Study.opened(made.store, made.name):
        pass


SMALL = spaces.SPACES["small"]
MODELS = SMALL.steps[-1].algorithms
NEW = Algorithm(id="new", estimator="sklearn.naive_bayes.BernoulliNB")


def knows(monkeypatch: pytest.MonkeyPatch, *models: Algorithm) -> None:
    """Let the catalog's space `small` have these models."""
    step = replace(SMALL.steps[-1], algorithms=models)
    monkeypatch.setitem(
        spaces.SPACES._known, "small", replace(SMALL, steps=(*SMALL.steps[:-1], step))
    )


def queries(made: PreparedStudy, n: int) -> list[object]:
    with Study.opened(made.store, made.name) as study:
        return [study.ask(Budget()).query for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "flash"])
def test_proposals_are_unchanged_after_the_space_has_grown(prepared, monkeypatch, method) -> None:
    given = {"target": "target", "space": "small", "method": method}
    expected = queries(prepared("train.csv", **given, study="never"), 6)
    grows = prepared("train.csv", **given, study="grows")
    before = queries(grows, 3)
    knows(monkeypatch, NEW, *MODELS)
    assert before + queries(grows, 3) == expected
    knows(monkeypatch, NEW, *MODELS[1:])  # a space that changed otherwise
    with pytest.raises(BadInput, match="differs"):
        Study(grows.store, grows.name)


def test_change_of_the_default_space_does_not_change_a_study(
    prepared, tmp_path, monkeypatch
) -> None:
    meds = str(write_meds(tmp_path / "meds"))
    with monkeypatch.context() as earlier:
        earlier.setitem(spaces.DEFAULT_SPACES, ("events", "classification"), "healthcare")
        prepared(meds, labels="labels/task", study="one")
    assert prepared(meds, labels="labels/task", study="one").plan.space == "healthcare"
    assert prepared(meds, labels="labels/task", study="two").plan.space == "events"


def ended(study: PreparedStudy, state: str = "complete") -> PreparedStudy:
    """Set the state and store the plan of the study, as at the end of a session."""
    settings = study.plan.to_json()
    Ledger(study.store.database).update_study(study.name, state=state, settings=settings)
    return study


def rewrite(file: str) -> None:
    """Write other rows into a file of `prepared`."""
    frame = table(100, seed=1)
    written(frame.assign(patient=[f"{file}{row}" for row in range(100)]), Path(file))


@pytest.mark.parametrize(("file", "trials"), [("train.csv", 3), ("test.parquet", 9)])
def test_study_of_a_changed_file_cannot_be_extended(prepared, file, trials) -> None:
    """The final model is also refused if no trial is left to run."""
    given = {**TRIALS, "test": "test.parquet"}
    first = ended(prepared("train.csv", **given))
    rewrite(file)
    with pytest.raises(CannotContinue, match=file) as refused:
        prepared("train.csv", **given | {"trials": trials})
    assert all(option in refused.value.remedy for option in ("--study", "--input 'stored'"))
    again = prepared("train.csv", **given, input="stored")
    assert (again.plan.problem, again.plan.source) == (first.plan.problem, first.plan.source)


def test_omitted_input_options_keep_the_stored_values(prepared, tmp_path) -> None:
    """The argument for the data is required, so even the default value counts as given."""
    first = prepared("train.csv", **GIVEN, na_values=["NA"])
    (tmp_path / "train.csv").unlink()
    assert prepared("train.csv", study="one").plan.source == first.plan.source
    with pytest.raises(BadInput):
        prepared("cohort:demo", study="one")


def test_changed_labels_and_changed_shards_of_events_are_noticed(prepared, tmp_path) -> None:
    log, labels = events()
    given = {"labels": "labels.csv", "study": "one", "trials": 3, "format": "events"}
    (tmp_path / "log").mkdir()
    for number, part in enumerate((log[:90], log[90:])):
        part.to_parquet(tmp_path / "log" / f"{number}.parquet")
    labels.to_csv("labels.csv", index=False)
    ended(prepared("log", **given))
    ended(prepared("log", **given))
    labels[2:].to_csv("labels.csv", index=False)
    with pytest.raises(CannotContinue, match="labels"):
        prepared("log", **given)
    labels.to_csv("labels.csv", index=False)
    log[5:9].to_parquet(tmp_path / "log" / "2.parquet")
    with pytest.raises(CannotContinue, match="content of log"):
        prepared("log", **given)


def test_unreadable_file_stops_an_extended_study_but_not_a_killed_run(prepared) -> None:
    first = ended(prepared("train.csv", **TRIALS))
    Path("train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CannotContinue, match="--input 'stored'"):
        prepared("train.csv", **TRIALS)
    ended(first, "running")

    def fail(_: object) -> None:
        raise OSError("read error")

    again = prepare_study({"data": "train.csv", **TRIALS}, reader=fail)
    assert any("read error" in str(note) for note in again.notes)


@pytest.mark.parametrize(
    ("state", "run"), [("running", None), ("interrupted", None), ("failed", "7")]
)
def test_killed_run_continues_on_the_stored_data_but_an_extended_study_does_not(
    prepared, state, run
) -> None:
    made = prepared("train.csv", **TRIALS)
    ended(replace(made, plan=replace(made.plan, flow_run_id=run)), state)
    rewrite("train.csv")
    again = prepare_study({"data": "train.csv", **TRIALS}, flow_run_id=run)
    assert any("has changed" in str(note) for note in again.notes)
    for longer in ({"trials": 4}, {"trials": None, "budget": "1h"}):
        with pytest.raises(CannotContinue, match="has changed"):
            prepare_study({"data": "train.csv", **TRIALS, **longer}, flow_run_id="8")


def test_study_continues_if_the_file_is_missing_or_has_the_same_rows(prepared) -> None:
    ended(prepared("train.csv", **TRIALS))
    frame = pd.read_csv("train.csv", keep_default_na=False)
    frame.to_csv("train.csv", index=False, quoting=1, lineterminator="\r\n")
    assert len(prepared("train.csv", **TRIALS).notes) == 1
    Path("train.csv").rename("elsewhere.csv")
    again = ended(prepared("train.csv", **TRIALS | {"trials": 9}))
    assert any("train.csv cannot be" in str(note) for note in again.notes)
    assert len(prepared("elsewhere.csv", **TRIALS).notes) == 1
    rewrite("train.csv")
    with pytest.raises(CannotContinue):
        prepared("train.csv", **TRIALS)


def test_stored_copy_is_used_only_if_complete_and_with_the_same_options(prepared) -> None:
    stored = {**TRIALS, "input": "stored"}
    with pytest.raises(BadInput, check=lambda e: e.option == "input"):
        prepared("train.csv", **stored)
    made = ended(prepared("train.csv", **TRIALS))
    with pytest.raises(CannotContinue, match="--target target"):
        prepared("train.csv", **stored | {"target": "color"})
    made.store.records.release("one", made.plan.problem.records[:1])
    with pytest.raises(BadInput, check=lambda e: e.option == "input"):
        prepared("train.csv", **stored)
    assert prepared("train.csv", **TRIALS).name == "one"  # imported once more
    Path("train.csv").unlink()
    assert prepared("other.csv", study="one", input="stored").plan.source.data == "train.csv"


def test_changed_version_of_a_boosting_library_is_noted_once(prepared, monkeypatch) -> None:
    installed = user_code.installed_version

    def notes() -> str:
        study = prepared("train.csv", **GIVEN, space="modern")
        with Study.opened(study.store, study.name) as entered:
            entered.set_plan(entered.plan)
        return " ".join(map(str, study.notes))

    assert "instead of" not in notes()
    assert "instead of" not in notes()
    newer = {"xgboost": "99.0"}
    monkeypatch.setattr(
        user_code, "installed_version", lambda name: newer.get(name) or installed(name)
    )
    assert "xgboost is 99.0 instead of" in notes()
    assert "instead of" not in notes()
