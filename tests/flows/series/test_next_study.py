"""Runs of a series that start, resume or skip a study, or are refused."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from flow_studies import prepare_study, tell
from inputs import QUICK
from user_spaces import PRELUDE
from worlds import evaluation

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.series import next_study
from prefect_tune.flows.series.locked import LockedSeries, SeriesBusy
from prefect_tune.flows.series.next_study import SeriesStudy, send_changes
from prefect_tune.flows.series.question import Question
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.study.facts import ModelFacts
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.series import Champion, Changes, Series, SeriesRun, SeriesTable
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data import schema
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import TEST, load_split

GIVEN = {"target": "target", "drop": ["patient"], "series": "n", "trials": 4, **QUICK}
Begin = Callable[..., SeriesStudy]


@pytest.fixture
def begin(prepared) -> Begin:
    """Prepare a run of the series `n` and release the series at once."""

    def prepare(data: str = "train.csv", **options: object) -> SeriesStudy:
        study = prepared(data, **{**GIVEN, **options})
        study.release()
        return study

    return prepare


def ended(
    prepared: SeriesStudy, state: str = "complete", losses: tuple[float, ...] = ()
) -> SeriesStudy:
    """End the study of a run, with trials of these losses."""
    with Study.opened(prepared.store, prepared.name) as study:
        for loss in losses:
            tell(study, evaluation(loss))
        study.set_state(state)
    return prepared


def grow(n: int = 120) -> None:
    """Let `train.csv` have n rows."""
    frame = pd.concat([pd.read_csv("train.csv"), pd.read_parquet("test.parquet")])
    frame[:n].to_csv("train.csv", index=False)


def action(prepared: SeriesStudy) -> tuple[str, str]:
    does = "skip" if prepared.nothing_to_do else "start" if prepared.is_new else "resume"
    return does, prepared.name


def series_of(prepared: SeriesStudy) -> Series:
    return prepared.locked.read()


def last_run(prepared: SeriesStudy) -> SeriesRun:
    return series_of(prepared).runs[-1]


def make_champion(prepared: SeriesStudy) -> None:
    with closing(LockedSeries(prepared.store, "n")) as locked:
        locked.table.save(locked.read().with_champion(Champion(prepared.name, "none", "rule")))


def lose_data(prepared: PreparedStudy) -> None:
    """Remove the stored copy of a study's data."""
    prepared.store.records.release(prepared.name, [prepared.plan.problem.records[0]])
    load_dataset.cache_clear()


def is_test(prepared: PreparedStudy) -> list[bool]:
    return (load_split(prepared.store, prepared.plan.problem.split).fold == TEST).tolist()


def test_studies_are_numbered_as_data_grow(prepared, begin) -> None:
    first = ended(begin())
    assert action(first) == ("start", "n-1")
    assert action(begin()) == ("skip", "n-1")
    pd.read_csv("train.csv").to_parquet("later.parquet", index=False)
    assert action(begin("later.parquet")) == ("skip", "n-1")  # the same rows
    prepared("train.csv", **{**GIVEN, "series": None, "study": "n-2"})  # by hand
    grow()
    second = ended(begin())
    assert action(second) == ("start", "n-3")
    assert last_run(second).changes == Changes(rows_added=20)
    assert [run.rows for run in series_of(second).runs] == [100, 120]
    assert is_test(second)[:100] == is_test(first)  # test rows stay test rows
    assert 0 < sum(is_test(first)) < 50
    frame = pd.read_csv("train.csv")
    frame.assign(new=range(len(frame))).to_csv("train.csv", index=False)
    third = ended(begin())
    assert is_test(third) == is_test(second)
    Ledger(third.store.database).delete_study(third.name)
    frame[:110].to_csv("train.csv", index=False)
    fourth = ended(begin())
    assert action(fourth) == ("start", "n-5")
    assert last_run(fourth).changes == Changes(rows_removed=10)  # since the newest that is left
    with closing(LockedSeries(first.store, "n")) as locked:
        locked.delete()
    assert action(begin()) == ("start", "n-4")  # studies of a removed series keep their names


def test_unchanged_study_is_resumed_if_the_budget_has_grown(begin) -> None:
    ended(begin())
    for options in (
        {"trials": 3},
        {"trials": 5, "if_unchanged": "skip"},
        {"promotion": "always", "margin": 0.5, "workers": 1},
    ):
        assert action(begin(**options)) == ("skip", "n-1"), options
    for options in ({"trials": 5}, {"trials": None, "budget": "5m"}):
        again = ended(begin(**options))
        assert action(again) == ("resume", "n-1")
        assert again.plan.options.stop_rule.trials == options["trials"]


def test_unchanged_study_is_resumed_after_a_failure_or_without_a_full_refit(begin) -> None:
    first = ended(begin(), "failed")
    assert action(begin()) == ("resume", "n-1")
    ended(first)
    assert action(begin()) == ("skip", "n-1")
    with Study.opened(first.store, "n-1") as study:
        study.record(replace(study.facts, model=ModelFacts(model_of_folds=True)))
    assert action(begin(if_unchanged="skip")) == ("skip", "n-1")
    assert action(begin()) == ("resume", "n-1")


def test_changed_options_start_a_new_study(begin) -> None:
    own = f'{PRELUDE}\nspace = models(one("nb", GaussianNB, SMOOTHING), one("flat", GaussianNB))\n'
    Path("mine.py").write_text(own)
    given: dict[str, object] = {"space": "mine.py:space"}
    ended(begin(**given))
    assert action(begin(**given)) == ("skip", "n-1")
    changes = (
        {"method": "tpe"},
        {"folds": 4},
        {"trial_timeout": "9s"},
        {"constraint": ["latency_us<=50"]},
    )
    for number, change in enumerate(changes, 2):
        given |= change
        changed = begin(**given)
        assert action(changed) == ("start", f"n-{number}")
        assert action(ended(begin(**given))) == ("resume", f"n-{number}")  # it had not ended
    Path("mine.py").write_text(own.replace("flat", "other"))
    grow()
    other = begin(**given)  # another version of the space
    assert action(other) == ("start", "n-6")
    assert other.notes[0].reason.startswith("--space changed; the data changed: +20 rows")


def test_unfinished_study_continues_on_the_stored_data(begin) -> None:
    first = begin()
    grow()
    for state in ("new", "running", "interrupted"):
        again = begin()
        assert action(again) == ("resume", "n-1")
        assert again.plan.problem == first.plan.problem
        ended(again, state)
    ended(first)
    plan = first.plan.to_json() | {"flow_run_id": "f"}  # of a flow run that is retried
    Ledger(first.store.database).update_study("n-1", settings=plan)
    retried = prepare_study(
        {**dict.fromkeys(OPTIONS), "data": "train.csv", **GIVEN}, flow_run_id="f"
    )
    retried.release()
    assert action(retried) == ("resume", "n-1")
    assert action(begin()) == ("start", "n-2")


def test_study_and_series_run_are_stored_in_a_single_transaction(begin, monkeypatch) -> None:
    first = ended(begin())
    grow()
    with monkeypatch.context() as patched:  # as if the process was killed
        patched.setattr(SeriesTable, "write", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            begin()
    assert Ledger(first.store.database).study_names() == ["n-1"]
    assert len(series_of(first).runs) == 1
    assert action(begin()) == ("start", "n-2")


def test_damaged_data_does_not_stop_the_series(begin) -> None:
    first = ended(begin())
    make_champion(first)
    lose_data(first)
    again = ended(begin(trials=9))
    assert action(again) == ("resume", "n-1")
    assert again.store.records.is_whole(first.plan.problem.records[0])  # from the file
    lose_data(first)
    grow()
    second = begin(trials=9)
    assert action(second) == ("start", "n-2")
    assert last_run(second).changes is None


def prior_of(prepared: PreparedStudy) -> dict | None:
    events = Ledger(prepared.store.database).each_event(prepared.name)
    return next((event.body for event in events if event.kind == "prior"), None)


def test_new_study_begins_with_the_best_trials_of_earlier_studies(begin) -> None:
    first = ended(begin(), losses=(30.0, 10.0, 20.0))
    assert prior_of(first) is None
    grow()
    second = begin()
    prior = prior_of(second)
    assert [(t["runs_ago"], t["loss"]) for t in prior["trials"]] == [
        (1, 10.0),
        (1, 20.0),
        (1, 30.0),
    ]
    assert len(prior["start"]) == GIVEN["trials"] // 2
    with Study.opened(second.store, second.name) as study:
        asked = tell(study, evaluation(11.0)).query.configuration.to_json()
    assert asked == prior["trials"][0]["configuration"]
    ended(second, losses=(12.0,))
    grow(150)
    third = prior_of(begin(start="none"))  # a given start replaces that of the prior
    assert sorted((t["runs_ago"], t["loss"]) for t in third["trials"]) == [
        (1, 11.0), (1, 12.0), (2, 10.0), (2, 20.0), (2, 30.0),
    ]  # fmt: skip
    assert third["start"] == []
    reused = last_run(second).reused
    assert (reused.studies, reused.observations) == (("n-2", "n-1"), 5)


def test_replayed_study_has_the_same_prior_and_proposals(begin) -> None:
    ended(begin(), losses=(30.0, 10.0, 20.0, 15.0))
    grow()
    second = begin(method="tpe", trials=8)
    with Study.opened(second.store, second.name) as study:
        for loss in (11.0, 12.0, 13.0, 14.0, 15.0):
            tell(study, evaluation(loss))
        decisions = study.optimizer.decisions["prior"]
    copies = []
    for _ in range(2):
        with Study.opened(second.store, second.name) as study:
            assert study.optimizer.decisions["prior"] == decisions
            copies.append(study.optimizer.ask(Budget()))
    assert copies[0] == copies[1]
    assert decisions["repeated"] == 4


def test_trials_outside_the_constraints_are_not_reused(begin) -> None:
    first = begin()
    with Study.opened(first.store, first.name) as study:
        for loss, latency in ((10.0, 90.0), (20.0, 30.0)):
            tell(study, replace(evaluation(loss), constraints={"latency_us": latency}))
    ended(first)
    grow()
    prior = prior_of(begin(constraint=["latency_us<=50"]))
    assert [trial["loss"] for trial in prior["trials"]] == [20.0]


def test_changed_metric_target_or_test_rows_are_refused(begin) -> None:
    ended(begin(metric="auroc", positive="yes"))
    for options in (
        {"metric": "error"},
        {"target": "color"},
        {"positive": "no"},
        {"test_size": 0.3},
        {"group": "patient", "drop": None},
        {"test": "test.parquet"},
        {"input": "stored"},
    ):
        option = next(iter(options)).replace("_", "-")
        with pytest.raises(BadInput, check=lambda e, option=option: e.option == option):
            begin(**options)
    with pytest.raises(BadInput, match="kind"):
        begin("cohort:demo", target=None, drop=None, space=None, method=None)
    again = begin()  # an omitted option has the value of the series, which is not locked
    assert action(again) == ("skip", "n-1")
    assert (again.plan.metric, again.plan.options.positive) == ("auroc", "yes")


def test_later_studies_of_a_series_keep_the_kind_of_event_folds() -> None:
    known = Question(kind="events", predicts="classification", metric="error", looks_forward=True)
    assert known.completed("n", StudyOptions()).gap == 0.0
    assert known.completed("n", StudyOptions(gap=5.0)).gap == 5.0
    with pytest.raises(BadInput, check=lambda e: e.option == "gap"):
        replace(known, looks_forward=False).completed("n", StudyOptions(gap=5.0))


def test_data_without_columns_of_the_champion_is_refused(begin) -> None:
    make_champion(ended(begin()))
    frame = pd.read_csv("train.csv")
    frame.drop(columns="color").to_csv("train.csv", index=False)
    with pytest.raises(BadInput, match="color"):
        begin()


def test_second_concurrent_run_of_a_series_is_refused(prepared, begin) -> None:
    running = prepared("train.csv", **GIVEN)
    with pytest.raises(SeriesBusy, match="'n'"):
        begin()
    running.release()
    assert action(begin()) == ("resume", "n-1")


def test_series_options_require_a_series(prepared) -> None:
    for name, value in (("if_unchanged", "skip"), ("promotion", "always"), ("margin", 0.0)):
        option = name.replace("_", "-")
        with pytest.raises(BadInput, check=lambda e, option=option: e.option == option):
            prepared("train.csv", **{**GIVEN, name: value, "series": None})


def texts(n: int, *names: str) -> pd.DataFrame:
    """Return the first n rows of the table, with a free text column of each name."""
    whole = pd.concat([pd.read_csv("train.csv"), pd.read_parquet("test.parquet")])
    notes = {name: [f"{name} on day {i} for {i * i} tests" for i in range(n)] for name in names}
    return whole[:n].reset_index(drop=True).assign(**notes)


def n_words(prepared: PreparedStudy) -> dict[str, int]:
    return dict(load_dataset(prepared.store, prepared.plan.problem.dataset).texts)


def test_hashed_words_of_a_text_column_stay_the_same_as_rows_grow(begin, monkeypatch) -> None:
    """Row ids depend on the number of hashed words, which would otherwise fall with more rows."""
    monkeypatch.setattr(schema, "_HASHED_CELLS", 8_000)  # 53 words per text on 150 rows
    whole = texts(150, "note")
    whole[:110].to_csv("train.csv", index=False)
    first = ended(begin())
    whole.to_csv("train.csv", index=False)
    second = ended(begin())
    assert last_run(second).changes == Changes(rows_added=40)
    assert n_words(first)["note"] == n_words(second)["note"] == 8_000 // 110
    lose_data(second)
    assert action(begin(trials=9)) == ("resume", "n-2")  # the file is read as on that begin


def test_later_text_columns_share_the_remaining_hashed_words(begin, monkeypatch) -> None:
    monkeypatch.setattr(schema, "_HASHED_CELLS", 8_000)
    whole = texts(150, "first", "second", "third")
    frames = [
        whole[:110].drop(columns=["first", "second", "third"]),
        whole[:110].drop(columns=["second", "third"]),
        whole,
        whole.drop(columns="first"),
        whole,
    ]
    words = []
    for frame in frames:
        frame.to_csv("train.csv", index=False)
        words.append(n_words(ended(begin())))
    assert words[1]["first"] == 72
    assert words[2] == words[1] | {"second": 16, "third": 16}
    assert words[4]["first"] == 72  # although it was away for a begin


def test_text_column_stays_a_text_column_in_later_studies(begin) -> None:
    """With other rows, categories may resemble free texts, and vice versa."""
    few = [f"text {i % 90} of few" for i in range(150)]
    diverse = texts(150, "note")["note"]
    whole = texts(150)
    whole[:110].assign(note=few[:110], code=diverse[:110]).to_csv("train.csv", index=False)
    first = ended(begin())
    whole.assign(note=diverse, code=few).to_csv("train.csv", index=False)
    second = begin()
    assert (n_words(first)["note"], n_words(first)["code"]) == (0, 128)
    assert n_words(second) == n_words(first)


def test_event_about_changed_data_names_the_previous_study(prepared, begin, monkeypatch) -> None:
    ended(begin())
    grow()
    sent = []
    monkeypatch.setattr(next_study, "send_event", lambda *_, **payload: sent.append(payload))
    second = prepared("train.csv", **GIVEN)
    send_changes(second)
    assert [(e["study"], e["former"], e["rows_added"]) for e in sent] == [("n-2", "n-1", 20)]
    second.release()
    send_changes(begin())  # it is resumed
    assert len(sent) == 1
