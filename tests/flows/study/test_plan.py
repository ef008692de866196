"""A study's plan in JSON, and what each trial may take by it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.flows.study.ensemble_rule import ENSEMBLE_KINDS, EnsembleRule
from prefect_tune.flows.study.plan import Execution, StopRule, StudyPlan
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.quantity import Quantity, QuantityBound
from prefect_tune.tasks.problem import Problem

names = st.text(min_size=1, max_size=8)
seconds = st.none() | st.floats(0.1, 1e6)
counts = st.none() | st.integers(1, 10**6)
quantities = st.builds(
    Quantity, names, names, st.lists(st.floats(0, 99), max_size=3).map(tuple), names, names
)
plans = st.builds(
    StudyPlan,
    source=st.builds(
        Source, names, target=st.none() | names, drop=st.lists(names, max_size=2).map(tuple)
    ),
    data_name=names,
    problem=st.builds(
        Problem, names, names, names, names, names, st.integers(0, 9), names, st.integers(0, 1)
    ),
    folds=counts,
    holdout=seconds,
    test_size=seconds,
    positive=st.none() | names,
    chance_loss=seconds,
    method=names,
    options=st.dictionaries(names, st.integers() | names, max_size=2),
    stop_rule=st.builds(StopRule, counts, seconds),
    trial_seconds=seconds,
    trial_memory_bytes=counts,
    bounds=st.lists(st.builds(QuantityBound, quantities, st.floats(0, 9)), max_size=2).map(tuple),
    quantity_digests=st.dictionaries(names, names, max_size=2),
    ensemble=st.none()
    | st.builds(EnsembleRule.parse, st.integers(1) | st.sampled_from(ENSEMBLE_KINDS)),
    use_cache=st.booleans(),
    flow_run_id=st.none() | names,
    execution=st.builds(Execution, counts, st.none() | names),
)
PLAN = StudyPlan(
    source=Source("data.csv"),
    data_name="data",
    problem=Problem("d", "s", "flash", "x", "error", 0),
    folds=3,
    holdout=None,
    test_size=0.2,
    positive=None,
    chance_loss=50.0,
    method="flash",
)


def stored(plan: StudyPlan) -> StoredStudy:
    """The plan as the ledger gives it back."""
    settings, problem = (json.loads(json.dumps(d.to_json())) for d in (plan, plan.problem))
    return StoredStudy("study", 0.0, "new", problem, settings, {}, 0.0)


@given(plans)
def test_a_plan_comes_back_from_the_ledger_as_it_went_in(plan) -> None:
    assert StudyPlan.from_stored(stored(plan), plan.execution) == plan


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(None, None), (1, EnsembleRule("single")), (8, EnsembleRule("greedy", 8))],
)
def test_a_plan_that_names_a_size_or_no_ensemble_is_read_as_it_was_meant(kept, expected) -> None:
    study = stored(PLAN)
    study.settings["ensemble"] = kept
    assert StudyPlan.from_stored(study).ensemble == expected


def test_where_trials_run_is_not_kept() -> None:
    plan = replace(PLAN, execution=Execution(3, "tcp://there:8786", "misses"))
    assert "tcp" not in json.dumps(plan.to_json())
    assert StudyPlan.from_stored(stored(plan)).execution == Execution()


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (PLAN, 900.0),
        (replace(PLAN, stop_rule=StopRule(trials=5)), 900.0),
        (replace(PLAN, stop_rule=StopRule(seconds=600.0)), 60.0),
        (replace(PLAN, stop_rule=StopRule(seconds=20.0)), 10.0),
        (replace(PLAN, stop_rule=StopRule(seconds=86_400.0)), 900.0),
        (replace(PLAN, stop_rule=StopRule(seconds=600.0), trial_seconds=7.0), 7.0),
    ],
)
def test_a_trial_may_take_a_tenth_of_the_time_within_limits(plan, expected) -> None:
    assert plan.trial_limits().seconds == expected


def test_memory_is_shared_by_the_workers_of_this_machine_alone() -> None:
    alone = replace(PLAN, execution=Execution(workers=1)).trial_limits().memory_bytes
    shared = replace(PLAN, execution=Execution(workers=4)).trial_limits().memory_bytes
    assert alone == pytest.approx(4 * shared, abs=4)
    elsewhere = replace(PLAN, execution=Execution(dask="tcp://there:8786"))
    assert elsewhere.trial_limits().memory_bytes is None
    assert replace(PLAN, trial_memory_bytes=10**9).trial_limits().memory_bytes == 10**9
