"""What a run of a series does: start, resume or skip; and what it refuses."""

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


@pytest.fixture
def night(prepared) -> Callable[..., SeriesStudy]:
    """Prepares a run of the series `n`, which ends at once: it releases the series."""

    def prepare(data: str = "train.csv", **options: object) -> SeriesStudy:
        study = prepared(data, **{**GIVEN, **options})
        study.release()
        return study

    return prepare


def end(prepared: PreparedStudy, state: str = "complete", losses: tuple[float, ...] = ()) -> None:
    """End the study of a run, with trials of these losses."""
    with Study.opened(prepared.store, prepared.name) as study:
        for loss in losses:
            tell(study, evaluation(loss))
        study.set_state(state)


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


def test_studies_are_numbered(night) -> None:
    first = night()
    assert action(first) == ("start", "n-1")
    end(first)
    grow()
    second = night()
    assert action(second) == ("start", "n-2")
    assert last_run(second).changes == Changes(rows_added=20)
    assert [run.rows for run in series_of(second).runs] == [100, 120]


def test_a_run_on_unchanged_data_is_skipped(night) -> None:
    end(night())
    assert action(night()) == ("skip", "n-1")


def test_the_same_rows_in_another_file_are_unchanged(night) -> None:
    end(night())
    pd.read_csv("train.csv").to_parquet("later.parquet", index=False)
    assert action(night("later.parquet")) == ("skip", "n-1")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"trials": 4}, "skip"),
        ({"trials": 3}, "skip"),
        ({"trials": 5}, "resume"),
        ({"trials": None, "budget": "5m"}, "resume"),
        ({"trials": 5, "if_unchanged": "skip"}, "skip"),
        ({"promotion": "always", "margin": 0.5, "workers": 1}, "skip"),
    ],
)
def test_an_unchanged_study_is_resumed_if_its_budget_has_grown(night, options, expected) -> None:
    end(night())
    again = night(**options)
    assert action(again) == (expected, "n-1")
    if expected == "resume":
        assert again.options.stop_rule.trials == options["trials"]


@pytest.mark.parametrize(
    "options",
    [{"method": "tpe"}, {"folds": 4}, {"trial_timeout": "9s"}, {"constraint": ["latency_us<=50"]}],
)
def test_other_options_make_another_study(night, options) -> None:
    end(night())
    assert action(night(**options)) == ("start", "n-2")
    assert action(night(**options)) == ("resume", "n-2")  # it has not ended


def test_another_version_of_ones_own_space_makes_another_study(night) -> None:
    own = f'{PRELUDE}\nspace = models(one("nb", GaussianNB, SMOOTHING), one("flat", GaussianNB))\n'
    Path("mine.py").write_text(own)
    end(night(space="mine.py:space"))
    assert action(night(space="mine.py:space")) == ("skip", "n-1")
    Path("mine.py").write_text(own.replace("flat", "other"))
    assert action(night(space="mine.py:space")) == ("start", "n-2")


@pytest.mark.parametrize("state", ["new", "running", "interrupted"])
def test_an_unfinished_study_continues_on_its_stored_copy(night, state) -> None:
    first = night()
    end(first, state)
    grow()
    again = night()
    assert action(again) == ("resume", "n-1")
    assert again.plan.problem == first.plan.problem
    end(again)
    assert action(night()) == ("start", "n-2")


def test_a_failed_study_is_tried_again(night) -> None:
    end(night(), "failed")
    assert action(night()) == ("resume", "n-1")


def test_a_model_made_in_a_hurry_is_fitted_again(night) -> None:
    first = night()
    end(first)
    with Study.opened(first.store, "n-1") as study:
        study.record(replace(study.facts, model=ModelFacts(model_of_folds=True)))
    assert action(night(if_unchanged="skip")) == ("skip", "n-1")
    assert action(night()) == ("resume", "n-1")
    grow()
    assert action(night()) == ("start", "n-2")


def test_the_reason_of_a_new_study_names_options_and_data(night) -> None:
    end(night())
    grow()
    changed = night(method="tpe")
    assert changed.notes[0].reason.startswith("--method changed; the data changed: +20 rows")


def test_a_study_and_its_run_are_entered_together(night, monkeypatch) -> None:
    end(first := night())
    grow()
    with monkeypatch.context() as patched:  # as if the process was killed
        patched.setattr(SeriesTable, "write", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            night()
    assert Ledger(first.store.database).study_names() == ["n-1"]
    assert len(series_of(first).runs) == 1
    assert action(night()) == ("start", "n-2")


def test_data_is_compared_with_the_newest_study_that_is_left(night) -> None:
    end(night())
    grow()
    end(second := night())
    Ledger(second.store.database).delete_study("n-2")
    grow(130)
    third = night()
    assert action(third) == ("start", "n-3")
    assert last_run(third).changes == Changes(rows_added=30)


def test_damaged_data_of_the_last_study_does_not_stop_the_series(night) -> None:
    first = night()
    end(first)
    make_champion(first)
    first.store.records.release("n-1", [first.plan.problem.records[0]])
    load_dataset.cache_clear()
    grow()
    second = night()
    assert action(second) == ("start", "n-2")
    assert last_run(second).changes is None


def test_a_study_whose_copy_is_damaged_continues_on_the_file(night) -> None:
    first = night()
    end(first)
    first.store.records.release("n-1", [first.plan.problem.records[0]])
    load_dataset.cache_clear()
    again = night(trials=9)
    assert action(again) == ("resume", "n-1")
    assert again.store.records.is_whole(first.plan.problem.records[0])


def test_a_study_by_hand_keeps_its_name(prepared, night) -> None:
    end(night())
    prepared("train.csv", **{**GIVEN, "series": None, "study": "n-2"})
    grow()
    assert action(night()) == ("start", "n-3")


def test_test_rows_stay_test_rows(night) -> None:
    first = night()
    end(first)
    grow()
    second = night()
    before, now = (load_split(p.store, p.plan.problem.split).fold for p in (first, second))
    assert 0 < (before == TEST).sum() < 50
    assert ((now == TEST)[:100] == (before == TEST)).all()


def test_a_new_column_leaves_the_test_rows(night) -> None:
    first = night()
    end(first)
    frame = pd.read_csv("train.csv")
    frame.assign(new=range(len(frame))).to_csv("train.csv", index=False)
    second = night()
    before, now = (load_split(p.store, p.plan.problem.split).fold for p in (first, second))
    assert second.name == "n-2"
    assert ((now == TEST) == (before == TEST)).all()


def prior_of(prepared: PreparedStudy) -> dict | None:
    events = [
        e for e in Ledger(prepared.store.database).each_event(prepared.name) if e.kind == "prior"
    ]
    return events[0].body if events else None


def test_a_new_study_begins_with_the_best_of_earlier_ones(night) -> None:
    first = night()
    end(first, losses=(30.0, 10.0, 20.0))
    assert prior_of(first) is None
    grow()
    second = night()
    prior = prior_of(second)
    assert [trial["loss"] for trial in prior["trials"]] == [10.0, 20.0, 30.0]
    assert {trial["runs_ago"] for trial in prior["trials"]} == {1}
    assert len(prior["start"]) == GIVEN["trials"] // 2
    with Study.opened(second.store, second.name) as study:
        asked = tell(study, evaluation(11.0)).query.configuration.to_json()
    assert asked == prior["trials"][0]["configuration"]
    end(second, losses=(12.0,))
    grow(150)
    third = prior_of(night())
    assert sorted((t["runs_ago"], t["loss"]) for t in third["trials"]) == [
        (1, 11.0), (1, 12.0), (2, 10.0), (2, 20.0), (2, 30.0),
    ]  # fmt: skip
    reused = last_run(second).reused
    assert (reused.studies, reused.observations) == (("n-2", "n-1"), 5)


def test_a_study_with_a_prior_is_replayed(night) -> None:
    end(night(), losses=(30.0, 10.0, 20.0, 15.0))
    grow()
    second = night(method="tpe", trials=8)
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


def test_a_given_start_replaces_that_of_the_prior(night) -> None:
    end(night(), losses=(30.0, 10.0, 20.0))
    grow()
    prior = prior_of(night(start="none"))
    assert (prior["start"], len(prior["trials"])) == ([], 3)


def test_trials_outside_of_the_constraints_are_not_reused(night) -> None:
    first = night()
    with Study.opened(first.store, first.name) as study:
        for loss, latency in ((10.0, 90.0), (20.0, 30.0)):
            tell(study, replace(evaluation(loss), constraints={"latency_us": latency}))
        study.set_state("complete")
    grow()
    prior = prior_of(night(constraint=["latency_us<=50"]))
    assert [trial["loss"] for trial in prior["trials"]] == [20.0]


@pytest.fixture
def asked(night) -> Callable[..., PreparedStudy]:
    """A series with a study that has ended."""
    end(night(metric="auroc", positive="yes"))
    return night


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "error"}, "metric"),
        ({"target": "colour"}, "target"),
        ({"positive": "no"}, "positive"),
        ({"test_size": 0.3}, "test-size"),
        ({"group": "patient", "drop": None}, "group"),
        ({"test": "test.parquet"}, "test"),
        ({"input": "stored"}, "input"),
        ({"study": "n-1"}, "study"),
    ],
)
def test_another_question_is_refused(asked, options, words) -> None:
    with pytest.raises(BadInput, match=words):
        asked(**options)
    assert action(asked(metric="auroc", positive="yes")) == ("skip", "n-1")  # it is not locked


def test_an_omitted_option_has_the_value_of_the_series(asked) -> None:
    grow()
    again = asked()
    assert (again.plan.metric, again.options.positive) == ("auroc", "yes")


def test_names_of_studies_have_room_for_their_number(night) -> None:
    with pytest.raises(BadInput, match="90"):
        night(series="n" * 91)
    study = night(series="n" * 90).name
    assert StudyOptions.parse({"study": study}).study == study


def test_another_kind_of_data_is_refused(asked) -> None:
    with pytest.raises(BadInput, match="kind"):
        asked("cohort:demo", target=None, drop=None, space=None, method=None)


def test_data_without_columns_of_the_champion_is_refused(night) -> None:
    first = night()
    end(first)
    make_champion(first)
    frame = pd.read_csv("train.csv")
    frame.drop(columns="colour").to_csv("train.csv", index=False)
    with pytest.raises(BadInput, match=r"champion n-1.*colour"):
        night()


def test_two_runs_of_a_series_at_once_are_refused(prepared, night) -> None:
    running = prepared("train.csv", **GIVEN)
    with pytest.raises(SeriesBusy, match="'n'"):
        night()
    running.release()
    assert action(night()) == ("resume", "n-1")


def test_a_retried_flow_run_continues_its_study(night) -> None:
    first = night()
    end(first)
    plan = first.plan.to_json() | {"flow_run_id": "f"}
    Ledger(first.store.database).update_study("n-1", settings=plan)
    grow()
    given = {**dict.fromkeys(OPTIONS), "data": "train.csv", **GIVEN}
    again = prepare_study(given, flow_run_id="f")
    again.release()
    assert action(again) == ("resume", "n-1")


def test_folds_of_events_look_forward_in_all_studies_or_in_none() -> None:
    known = Question(kind="events", predicts="classes", metric="error", looks_forward=True)
    assert known.completed("n", StudyOptions()).gap == 0.0
    assert known.completed("n", StudyOptions(gap=5.0)).gap == 5.0
    with pytest.raises(BadInput, match="another question"):
        replace(known, looks_forward=False).completed("n", StudyOptions(gap=5.0))


@pytest.mark.parametrize(
    "options", [{"if_unchanged": "skip"}, {"promotion": "always"}, {"margin": 0.0}]
)
def test_options_of_series_need_one(prepared, options) -> None:
    with pytest.raises(BadInput, match="--series"):
        prepared("train.csv", **{**GIVEN, **options, "series": None})


def test_studies_of_a_removed_series_keep_their_names(night) -> None:
    first = night()
    end(first)
    with closing(LockedSeries(first.store, "n")) as locked:
        locked.delete()
    assert action(night()) == ("start", "n-2")


def texts(n: int, *names: str) -> pd.DataFrame:
    """The first n rows of the table, with a free text of each name."""
    whole = pd.concat([pd.read_csv("train.csv"), pd.read_parquet("test.parquet")])
    notes = {name: [f"{name} on day {i} for {i * i} tests" for i in range(n)] for name in names}
    return whole[:n].reset_index(drop=True).assign(**notes)


def n_words(prepared: PreparedStudy) -> dict[str, int]:
    return dict(load_dataset(prepared.store, prepared.plan.problem.dataset).texts)


def test_hashed_words_of_texts_stay_the_same_as_rows_grow(night, monkeypatch) -> None:
    """On many rows a text has fewer hashed words, and each of them is part of a row's id."""
    monkeypatch.setattr(schema, "_HASHED_CELLS", 8_000)  # 53 words per text on 150 rows
    whole = texts(150, "note")
    whole[:110].to_csv("train.csv", index=False)
    first = night()
    end(first)
    whole.to_csv("train.csv", index=False)
    second = night()
    assert last_run(second).changes == Changes(rows_added=40)
    assert n_words(first)["note"] == n_words(second)["note"] == 8_000 // 110
    end(second)
    second.store.records.release("n-2", [second.plan.problem.records[0]])
    load_dataset.cache_clear()
    assert action(night(trials=9)) == ("resume", "n-2")  # the file is read as on that night


def test_texts_that_come_later_share_what_is_left(night, monkeypatch) -> None:
    monkeypatch.setattr(schema, "_HASHED_CELLS", 8_000)
    whole = texts(150, "first", "second", "third")
    whole[:110].drop(columns=["first", "second", "third"]).to_csv("train.csv", index=False)
    end(night())
    whole[:110].drop(columns=["second", "third"]).to_csv("train.csv", index=False)
    end(second := night())
    whole.to_csv("train.csv", index=False)
    end(third := night())
    whole.drop(columns="first").to_csv("train.csv", index=False)
    end(night())
    whole.to_csv("train.csv", index=False)
    assert n_words(second)["first"] == 72
    assert n_words(third) == n_words(second) | {"second": 16, "third": 16}
    assert n_words(night())["first"] == 72  # although it was away for a night


def test_a_column_of_texts_keeps_its_kind(night) -> None:
    """On other rows, categories may look like free texts, and the other way round."""
    few = [f"text {i % 90} of few" for i in range(150)]
    diverse = texts(150, "note")["note"]
    whole = texts(150)
    whole[:110].assign(note=few[:110], code=diverse[:110]).to_csv("train.csv", index=False)
    end(first := night())
    whole.assign(note=diverse, code=few).to_csv("train.csv", index=False)
    second = night()
    assert (n_words(first)["note"], n_words(first)["code"]) == (0, 128)
    assert n_words(second) == n_words(first)


def test_the_event_on_changed_data_names_the_study_before(prepared, night, monkeypatch) -> None:
    end(night())
    grow()
    sent = []
    monkeypatch.setattr(next_study, "send_event", lambda *_, **payload: sent.append(payload))
    second = prepared("train.csv", **GIVEN)
    send_changes(second)
    assert [(e["study"], e["former"], e["rows_added"]) for e in sent] == [("n-2", "n-1", 20)]
    second.release()
    send_changes(night())  # it is resumed
    assert len(sent) == 1
