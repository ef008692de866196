import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.flows.study.replayed import StudyTotals, StudyTrials
from prefect_tune.optimizers import Evaluation, Failure, Query, StepCost, Trial
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

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


def trial(number: int, state: str) -> Trial:
    waiting = Trial(number, QUERIES[number % len(QUERIES)])
    if state == "waiting":
        return waiting
    if state == "running":
        return waiting.started()
    if state == "failed":
        return waiting.started().failed(
            Failure(FailureKind.ERROR, "no", cost_seconds=0.25, steps=STEPS[:1])
        )
    return waiting.started().ended(Evaluation(1.0, cost_seconds=3.0, steps=STEPS))


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(STATES)), max_size=30))
def test_sums_are_those_of_adding_up_whatever_happened_before(happened) -> None:
    trials, expected = StudyTrials(), dict[int, Trial]()
    for number, state in happened:
        trials.keep(trial(number, state))
        expected[number] = trial(number, state)
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
