"""A study's plan, and what follows from its trials: counts, order, limits, explanations."""

import json
from dataclasses import replace
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flow_studies import changed, plan
from hypothesis import given
from hypothesis import strategies as st
from source_tree import classes_with
from worlds import evaluation, mixed_space, recorded

from prefect_tune.flows.ending.final_model import (
    most_frequent_failure,
    nearest_miss,
)
from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.options.values import ENSEMBLE_KINDS, EnsembleRule
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.search import TimeLimit
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.progress import StudyTotals
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.optimizers import (
    Budget,
    Choice,
    Configuration,
    Constraint,
    Evaluation,
    Failure,
    Objective,
    Query,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem

names = st.text(min_size=1, max_size=8)


seconds = st.none() | st.floats(0.1, 1e6)


counts = st.none() | st.integers(1, 10**6)


quantities = st.builds(
    Quantity, names, names, st.lists(st.floats(0, 99), max_size=3).map(tuple), names, names
)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": names, "texts": st.lists(names, max_size=2).map(tuple), "whole": counts,
    "number": seconds, "switch": st.booleans(), "choice": st.booleans(),
    "assignments": st.dictionaries(names, st.integers() | names, max_size=2),
}  # fmt: skip
"""By the form of an option."""
WRITTEN: dict[str, st.SearchStrategy[Any]] = {
    "constraint": st.lists(st.builds(QuantityBound, quantities, st.floats(0, 9)), max_size=2).map(
        tuple
    ),
    **dict.fromkeys(("budget", "trial_timeout", "gap"), seconds),
    "promotion": st.sampled_from(["better", "always", "never"]),
    "splits": st.sampled_from(["auto", "ignore"]),
    "decimal": st.sampled_from([None, "point", "comma"]),
    "trial_memory": counts,
    "ensemble": st.none()
    | st.builds(EnsembleRule.parse, st.integers(1) | st.sampled_from(ENSEMBLE_KINDS)),
}
plans = st.builds(
    StudyPlan,
    options=st.builds(
        StudyOptions,
        **{
            name: WRITTEN.get(name, VALUES[one.kind])
            for name, one in OPTIONS.items()
            if one.is_stored
        },
        study=st.just("study"),
    ),
    data_name=names,
    problem=st.builds(
        Problem, names, names, names, names, names, st.integers(0, 9), names, st.integers(0, 1)
    ),
    chance_loss=seconds,
    predicts=st.sampled_from([None, "classes", "numbers"]),
    aside=st.lists(names, max_size=2).map(tuple),
    start_configurations=st.lists(st.dictionaries(names, names, max_size=1), max_size=2).map(tuple),
    flow_run_id=st.none() | names,
)


PLAN = plan(chance_loss=50.0)


def stored(plan: StudyPlan) -> StoredStudy:
    """The plan as the ledger gives it back."""
    settings, problem = (json.loads(json.dumps(d.to_json())) for d in (plan, plan.problem))
    return StoredStudy("study", 0.0, "new", problem, settings, {}, 0.0)


def test_of_all_that_is_written_as_json_a_plan_and_its_ensemble_are_read_back() -> None:
    shown = {"ExplainedTrial", "Exported"}
    read_back = {
        "Standings", "StudyOptions",
        "StudyFacts", "StudyPlan", "StudyView", "TrialView",
    }  # fmt: skip
    assert classes_with("to_json", "flows") - shown == read_back


@pytest.mark.slow
@given(plans)
def test_a_plan_comes_back_from_the_ledger_as_it_went_in(plan) -> None:
    assert StudyPlan.from_stored(stored(plan)) == plan


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (PLAN, 900.0),
        (changed(PLAN, trials=5), 900.0),
        (changed(PLAN, budget=600.0), 60.0),
        (changed(PLAN, budget=20.0), 10.0),
        (changed(PLAN, budget=86_400.0), 900.0),
        (changed(PLAN, budget=600.0, trial_timeout=7.0), 7.0),
    ],
)
def test_a_trial_may_take_a_tenth_of_the_time_within_limits(plan, expected) -> None:
    assert plan.trial_limits().seconds == expected


def test_memory_is_shared_by_the_workers_of_this_machine_alone() -> None:
    alone = changed(PLAN, workers=1).trial_limits().memory_bytes
    shared = changed(PLAN, workers=4).trial_limits().memory_bytes
    assert alone == pytest.approx(4 * shared, abs=4)
    elsewhere = changed(PLAN, dask="tcp://there:8786")
    assert elsewhere.trial_limits().memory_bytes is None
    assert changed(PLAN, trial_memory=10**9).trial_limits().memory_bytes == 10**9


CONFIGURATION = default_configuration(mixed_space(), ("unit", "svm"))


@st.composite
def trials(draw: st.DrawFn) -> list[Trial]:
    made = []
    for number in range(draw(st.integers(0, 8))):
        less = draw(st.sampled_from(({}, {"subset": 0.5}, {"folds": 1}, {"epochs": 2})))
        trial = Trial(number, Query(CONFIGURATION, **less))
        match draw(st.sampled_from(("waiting", "running", "complete", "complete", "failed"))):
            case "running":
                trial = trial.started()
            case "failed":
                trial = trial.started().failed(Failure(FailureKind.ERROR, "why", cost_seconds=0.5))
            case "complete":
                quantities = draw(
                    st.dictionaries(
                        st.sampled_from(("size", "time")), st.sampled_from((0.0, 9.0, 25.0, nan))
                    )
                )
                loss = draw(st.sampled_from((1.0, 2.0, 3.0)))
                trial = trial.started().completed(
                    Evaluation(loss, cost_seconds=1.5, constraints=quantities)
                )
        made.append(trial)
    return made


@pytest.mark.slow
@given(trials())
def test_a_document_says_what_the_trial_says(made) -> None:
    for trial in made:
        document = TrialView(trial.to_json())
        assert document.state is trial.state
        assert document.cost_seconds == trial.cost_seconds
        assert document.configuration == trial.query.configuration.to_json()
        assert set(document.quantities) == set(
            trial.evaluation.constraints if trial.evaluation else ()
        )
        if trial.evaluation:
            assert -inf < document.loss == trial.loss


QUERIES = [
    Query(sample_configuration(mixed_space(), np.random.default_rng(seed)), folds=folds)
    for seed in range(3)
    for folds in (None, 1)
]


STEPS = (
    StepCost("scale", 0, 2.0, 0.5, hit=True, key="a"),
    StepCost("model", 0, 4.0, 0.0, hit=False, key="b"),
)


STATES = ["waiting", "running", "ended", "failed"]


def trial_in(number: int, state: str) -> Trial:
    waiting = Trial(number, QUERIES[number % len(QUERIES)])
    if state == "waiting":
        return waiting
    if state == "running":
        return waiting.started()
    if state == "failed":
        return waiting.started().failed(
            Failure(FailureKind.ERROR, "no", cost_seconds=0.25, steps=STEPS[:1])
        )
    return waiting.started().completed(Evaluation(1.0, cost_seconds=3.0, steps=STEPS))


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(STATES)), max_size=30))
def test_running_sums_equal_adding_up_whatever_happened_before(happened) -> None:
    trials, expected = StudyTrials(), dict[int, Trial]()
    for number, state in happened:
        trials.keep(trial_in(number, state))
        expected[number] = trial_in(number, state)
    assert dict(trials) == expected
    told = [t for t in expected.values() if t.is_told]
    n_complete = sum(t.state == "complete" for t in told)
    n_ended = sum(t.evaluation is not None for t in told)
    n_failed = len(told) - n_ended
    assert trials.totals == StudyTotals(
        told=len(told),
        failed=n_failed,
        stopped=n_ended - n_complete,
        cost_seconds=3.0 * n_ended + 0.25 * n_failed,
        cache_hits=len(told),
        seconds_saved=1.5 * len(told),
    )
    waiting = [n for n, t in sorted(expected.items()) if t.state == "waiting"]
    assert [t.number for t in trials.waiting] == waiting
    assert trials.configurations == {t.query.configuration for t in expected.values()}


QUERY = Query(Configuration((("fit model", Choice("tree")),)))


def failed(number: int, message: str, step: str | None = None) -> Trial:
    return Trial(number, QUERY).started().failed(Failure(FailureKind.ERROR, message, step=step))


def complete(number: int, **measured: float) -> Trial:
    return Trial(number, QUERY).started().completed(Evaluation(1.0, constraints=measured))


def study(trials: list[Trial], *constraints: Constraint) -> Any:
    history = recorded(*trials, constraints=constraints)
    found = {trial.number: trial for trial in trials}
    optimizer = SimpleNamespace(history=history)
    return SimpleNamespace(trials=found, optimizer=optimizer, incumbent=history.incumbent)


def test_the_same_failure_with_other_numbers_is_the_same_reason() -> None:
    trials = [
        failed(0, "needs 3.5 GB", "fit model"),
        failed(1, "singular", "fit model"),
        failed(2, "needs 12 GB", "fit model"),
    ]
    text = most_frequent_failure(study(trials))
    assert all(part in text for part in ("3 trials", "2 of them", "fit model: needs 3.5 GB"))


def test_the_nearest_trial_is_named_with_all_that_it_exceeds() -> None:
    bounds = (Constraint("latency_us", 10.0), Constraint("size", 5.0))
    trials = [complete(0, latency_us=90.0, size=1.0), complete(1, latency_us=12.0)]
    text = nearest_miss(study([trials[0]], *bounds))
    assert all(part in text for part in ("trial 0", "latency_us 90", "allowed: 10"))
    text = nearest_miss(study([trials[1]], *bounds))
    assert all(part in text for part in ("latency_us 12", "allowed: 10", "size not measured"))


def test_no_note_if_a_trial_meets_all_constraints_or_none_is_complete() -> None:
    bound = Constraint("size", 5.0)
    assert nearest_miss(study([complete(0, size=4.0)], bound)) == ""
    assert nearest_miss(study([failed(0, "no")], bound)) == ""


STEP = "fit model"


def trial(number: int, model: str, loss: float = 0.0, seconds: float = 1.0, **query: int) -> Trial:
    """A trial of a configuration of its own."""
    choices = (("scale", Choice("standard")), (STEP, Choice(model, (("x", number),))))
    came = replace(evaluation(loss), cost_uncached_seconds=seconds, fold_losses=(loss,))
    return Trial(number, Query(Configuration(choices), **query)).completed(came)


@pytest.mark.parametrize("kind", ["full", "partial", "failed"])
def test_full_trials_come_first_then_those_on_more(kind) -> None:
    history = History()
    trials = [trial(0, "a", 1.0, folds=1), trial(1, "b", 9.0, folds=2), trial(2, "c", 5.0, folds=2)]
    if kind == "full":
        trials.append(trial(3, "d", 20.0))
    for each in trials:
        history.record(Trial(each.number, each.query))
        history.record(each)
    if kind == "failed":  # the configuration of the best one later failed in full
        again = Trial(3, Query(trials[2].query.configuration))
        history.record(again)
        history.record(again.failed(Failure(FailureKind.ERROR, "no")))
    expected = {"full": [3, 2, 1, 0], "partial": [2, 1, 0], "failed": [1, 0, 2]}[kind]
    assert [t.number for t in (*history.best(9), *history.partial)] == expected
    assert history.best_partial is not None
    assert history.best_partial.number == {"failed": 1}.get(kind, 2)


DRAWN = Query(sample_configuration(mixed_space(), np.random.default_rng(0)))


NEXT = Trial(99, DRAWN)


def finished(seconds: float, query: Query = DRAWN) -> Trial:
    """A trial whose steps took so long."""
    names = ("scale", "model")
    steps = tuple(StepCost(name, 0, seconds / 2, 0.0, hit=False, key="") for name in names)
    return Trial(0, query).started().completed(Evaluation(1.0, (1.0,), seconds, seconds, steps))


def limit_after(
    *trials: Trial,
    most: float = 900.0,
    is_adaptive: bool = True,
) -> TimeLimit:
    costs = Costs(mixed_space(), Objective(n_rows=64_000, n_held_out=32_000, n_folds=1))
    for trial in trials:
        costs.tell(trial)
    return TimeLimit(costs, most, is_adaptive=is_adaptive)


BUDGET = Budget(seconds_left=120.0, n_workers=2)


def test_the_first_trial_of_a_model_may_take_its_share_of_the_seconds_left() -> None:
    models = 3
    assert limit_after().seconds(NEXT, BUDGET) == 120.0 / models
    assert limit_after().seconds(NEXT, replace(BUDGET, seconds_left=3.0)) == 5.0
    assert limit_after().seconds(NEXT, Budget()) == 900.0


def test_later_trials_may_take_what_is_predicted_three_deviations_up() -> None:
    limit = limit_after(*[finished(20.0)] * 30)
    seconds = limit.seconds(NEXT, BUDGET)
    assert 16.0 < seconds < 60.0
    half = limit.seconds(Trial(99, replace(DRAWN, subset=0.5)), BUDGET)
    assert half < 0.7 * seconds
    assert limit_after(*[finished(800.0)] * 30).seconds(NEXT, Budget()) == 900.0


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(BUDGET, 15.0), (replace(BUDGET, seconds_left=9.0), 5.0), (Budget(), 30.0)],
    ids=["a quarter of the time left", "the least", "without a budget"],
)
def test_no_limit_is_very_short(budget, expected) -> None:
    assert limit_after(*[finished(0.01)] * 30).seconds(NEXT, budget) == expected


def test_a_limit_of_the_users_stays() -> None:
    limit = limit_after(*[finished(0.1)] * 20, most=7.0, is_adaptive=False)
    assert limit.seconds(NEXT, BUDGET) == limit.of_user == 7.0
    assert limit_after().of_user is None


def test_a_trial_that_failed_has_more_time_when_it_is_run_again() -> None:
    assert limit_after().seconds(NEXT.started(), BUDGET) == 2.5 * 900.0


def test_a_part_of_a_training_may_take_what_is_left() -> None:
    part = Trial(99, replace(DRAWN, epochs=3))
    assert limit_after(*[finished(0.1)] * 20).seconds(part, BUDGET) == 60.0  # of each worker


def test_a_look_is_cut_soon_after_it_should_have_ended() -> None:
    """Of 600 worker-seconds a look should take a sixtieth; a quarter of the time left is 75 s."""
    budget = replace(BUDGET, seconds_left=600.0)
    limit, look = limit_after(*[finished(0.1)] * 20), Trial(99, replace(DRAWN, subset=0.5))
    assert limit.seconds(NEXT, budget) == 30.0
    assert limit.seconds(look, budget) == 15.0


def test_models_that_were_never_seen_have_a_pilot_on_many_rows() -> None:
    assert limit_after().pilot_seconds(NEXT, BUDGET) == 40.0
    user = replace(BUDGET, trial_seconds=3.0)
    assert limit_after().pilot_seconds(NEXT, user) == 3.0
    few = Trial(99, replace(DRAWN, subset=1 / 8))
    assert limit_after().pilot_seconds(few, BUDGET) is None
    assert limit_after(finished(1.0)).pilot_seconds(NEXT, BUDGET) is None
    assert limit_after().pilot_seconds(NEXT, Budget()) is None  # which may take any time
    assert limit_after().pilot_seconds(NEXT.started(), BUDGET) is None
