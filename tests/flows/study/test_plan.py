"""The plan of a study, and results of its trials: counts, order, time limits, damage."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flow_studies import changed, plan
from hypothesis import given
from hypothesis import strategies as st
from worlds import evaluation, mixed_space

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.search import TimeLimit
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.study.progress import StudyTotals
from prefect_tune.flows.study.replayed import StudyTrials
from prefect_tune.optimizers import Budget, Evaluation, Failure, Objective, Query, StepCost, Trial
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.ledger import StoredStudy

PLAN = plan(chance_loss=50.0)


def test_trial_may_take_a_tenth_of_the_time_within_limits() -> None:
    for options, expected in (
        ({"trials": 5}, 900.0),
        ({"budget": 600.0}, 60.0),
        ({"budget": 20.0}, 10.0),
        ({"budget": 86_400.0}, 900.0),
        ({"budget": 600.0, "trial_timeout": 7.0}, 7.0),
    ):
        assert changed(PLAN, **options).trial_limits().seconds == expected


def test_memory_is_shared_only_by_workers_of_this_machine() -> None:
    alone = changed(PLAN, workers=1).trial_limits().memory_bytes
    shared = changed(PLAN, workers=4).trial_limits().memory_bytes
    assert alone == pytest.approx(4 * shared, abs=4)
    elsewhere = changed(PLAN, dask="tcp://there:8786")
    assert elsewhere.trial_limits().memory_bytes is None
    assert changed(PLAN, trial_memory=10**9).trial_limits().memory_bytes == 10**9


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
NO = Failure(FailureKind.ERROR, "no", cost_seconds=0.25, steps=STEPS[:1])


def trial_in(number: int, state: str) -> Trial:
    waiting = Trial(number, QUERIES[number % len(QUERIES)])
    if state == "waiting":
        return waiting
    if state == "running":
        return waiting.started()
    if state == "failed":
        return waiting.started().failed(NO)
    return waiting.started().completed(Evaluation(1.0, cost_seconds=3.0, steps=STEPS))


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(STATES)), max_size=30))
def test_running_totals_equal_sums_over_all_trials(happened) -> None:
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
        partial=n_ended - n_complete,
        cost_seconds=3.0 * n_ended + 0.25 * n_failed,
        cache_hits=len(told),
        seconds_saved=1.5 * len(told),
    )
    waiting = [n for n, t in sorted(expected.items()) if t.state == "waiting"]
    assert [t.number for t in trials.waiting] == waiting
    assert trials.configurations == {t.query.configuration for t in expected.values()}


@pytest.mark.parametrize(
    ("kind", "order"), [("full", [3, 2, 1, 0]), ("partial", [2, 1, 0]), ("failed", [1, 0, 2])]
)
def test_full_trials_rank_first_followed_by_trials_on_more_folds(kind, order) -> None:
    """In the case `failed`, the best partial configuration later failed on all folds."""
    drawn = [Query(sample_configuration(mixed_space(), np.random.default_rng(n))) for n in range(4)]
    parts = ((0, 1.0, 1), (1, 9.0, 2), (2, 5.0, 2))
    told = [
        Trial(n, replace(drawn[n], folds=f)).completed(replace(evaluation(loss), fold_losses=()))
        for n, loss, f in parts
    ]
    if kind == "full":
        told.append(Trial(3, drawn[3]).completed(evaluation(20.0)))
    if kind == "failed":
        told.append(Trial(3, drawn[2]).failed(NO))
    history = History()
    for trial in told:
        history.record(Trial(trial.number, trial.query))
        history.record(trial)
    assert [t.number for t in (*history.best(9), *history.partial)] == order
    assert history.best_partial is not None
    assert history.best_partial.number == (1 if kind == "failed" else 2)


DRAWN = Query(sample_configuration(mixed_space(), np.random.default_rng(0)))
NEXT = Trial(99, DRAWN)
BUDGET = Budget(seconds_left=120.0, n_workers=2)


def limit_after(seconds: float = 0.0, n: int = 0, *, of_user: float | None = None) -> TimeLimit:
    """Return the time limit after `n` trials that took `seconds` each."""
    costs = Costs(mixed_space(), Objective(n_rows=64_000, n_held_out=32_000, n_folds=1))
    steps = tuple(
        StepCost(name, 0, seconds / 2, 0.0, hit=False, key="") for name in ("scale", "model")
    )
    came = Evaluation(1.0, (1.0,), seconds, seconds, steps)
    for _ in range(n):
        costs.tell(Trial(0, DRAWN).started().completed(came))
    return TimeLimit(costs, of_user or 900.0, is_adaptive=of_user is None)


@pytest.mark.parametrize(
    ("limit", "trial", "budget", "expected"),
    [
        (limit_after(), NEXT, BUDGET, 40.0),  # its share of three models
        (limit_after(), NEXT, replace(BUDGET, seconds_left=3.0), 5.0),
        (limit_after(), NEXT, Budget(), 900.0),
        (limit_after(800.0, 30), NEXT, Budget(), 900.0),
        (limit_after(0.01, 30), NEXT, BUDGET, 15.0),  # a quarter of the time left
        (limit_after(0.01, 30), NEXT, replace(BUDGET, seconds_left=9.0), 5.0),
        (limit_after(0.01, 30), NEXT, Budget(), 30.0),
        (limit_after(0.1, 20, of_user=7.0), NEXT, BUDGET, 7.0),
        (limit_after(), NEXT.started(), BUDGET, 2.5 * 900.0),
        (limit_after(0.1, 20), Trial(99, replace(DRAWN, epochs=3)), BUDGET, 60.0),  # of each worker
        # Of 600 worker-seconds a look should take a sixtieth, and may take half as much again.
        (limit_after(0.1, 20), NEXT, replace(BUDGET, seconds_left=600.0), 30.0),
        (
            limit_after(0.1, 20),
            Trial(99, replace(DRAWN, subset=0.5)),
            replace(BUDGET, seconds_left=600.0),
            15.0,
        ),
    ],
)
def test_time_limit_is_a_budget_share_and_later_a_prediction(
    limit, trial, budget, expected
) -> None:
    assert limit.seconds(trial, budget) == expected


def test_later_trials_are_limited_to_the_prediction_plus_three_deviations() -> None:
    limit = limit_after(20.0, 30)
    seconds = limit.seconds(NEXT, BUDGET)
    assert 16.0 < seconds < 60.0
    assert limit.seconds(Trial(99, replace(DRAWN, subset=0.5)), BUDGET) < 0.7 * seconds


@pytest.mark.parametrize(
    ("limit", "trial", "budget", "expected"),
    [
        (limit_after(), NEXT, BUDGET, 40.0),
        (limit_after(), NEXT, replace(BUDGET, trial_seconds=3.0), 3.0),
        (limit_after(), Trial(99, replace(DRAWN, subset=1 / 8)), BUDGET, None),
        (limit_after(1.0, 1), NEXT, BUDGET, None),
        (limit_after(), NEXT, Budget(), None),  # which may take any time
        (limit_after(), NEXT.started(), BUDGET, None),
    ],
)
def test_unseen_model_gets_a_pilot_fit_on_many_rows(limit, trial, budget, expected) -> None:
    assert limit.pilot_seconds(trial, budget) == expected


@pytest.mark.parametrize(
    ("limit", "limit_seconds", "expected"),
    [
        (limit_after(0.1, 20), 50.0, 20.0),  # a third of the 60 s left for each worker
        (limit_after(0.1, 20), 10.0, 8.5),  # most of the time limit
        (limit_after(20.0, 30), 50.0, 30.0),  # 1.5 times the prediction
    ],
)
def test_training_may_take_a_third_of_the_time_left_or_more_as_predicted(
    limit, limit_seconds, expected
) -> None:
    allowed = limit.training_seconds(NEXT, BUDGET, limit_seconds)
    assert allowed == pytest.approx(expected, rel=0.15)


def test_damaged_trial_or_plan_is_reported_with_study_and_place() -> None:
    document: dict[str, Any] = NEXT.started().completed(evaluation(1.0)).to_json()
    for field, value, place in (
        ("loss", "long", "loss"), ("steps", [{"step": "x"}], "required field"),
        ("curve", None, "curve"),
    ):  # fmt: skip
        broken = document | {"evaluation": document["evaluation"] | {field: value}}
        with pytest.raises(DatabaseDamaged, match=place), documents_of("s"):
            TrialView(broken).checked()
    with pytest.raises(DatabaseDamaged, match="study s"), documents_of("s"):
        Trial.from_json(document | {"attempts": "once"}, mixed_space())
    documents = {"problem": PLAN.problem.to_json(), "settings": PLAN.to_json()}
    for part, damage in (
        ("problem", {"seed": "none"}),
        ("settings", {"options": {"folds": "three"}}),
        ("settings", {"chance_loss": "low"}),
    ):
        damaged = json.loads(json.dumps(documents))
        damaged[part].update(damage)
        stored = StoredStudy("study", 0.0, "new", result={}, seconds=0.0, **damaged)
        with pytest.raises(DatabaseDamaged, match="study study"):
            StudyPlan.from_stored(stored)
