import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space, told

from prefect_tune.optimizers import Constraint, Evaluation, History, Query, Trial, TrialState
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()


def query(seed: int, **fidelity) -> Query:
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def test_the_incumbent_is_the_best_full_trial_and_of_equals_the_first() -> None:
    history = History()
    for number, loss in enumerate([5.0, 3.0, 3.0]):
        history.record(told(number, query(number), loss))
    for number, less in enumerate([{"subset": 0.5}, {"folds": 2}, {"epochs": 3}], start=3):
        history.record(told(number, query(number, **less), 1.0))
    history.record(told(6, query(6), None))
    assert history.incumbent == history[1]
    assert history.losses.tolist() == [5.0, 3.0, 3.0]
    assert [t.number for t in history.stopped] == [3, 4, 5]
    assert [t.number for t in history.failed] == [6]


def test_a_configuration_joins_its_stretches() -> None:
    history = History()
    for number, (seed, epochs) in enumerate([(0, 2), (1, 2), (0, 6), (0, None)]):
        history.record(told(number, query(seed, epochs=epochs), 1.0))
    assert [t.number for t in history.stretches(query(0).configuration)] == [0, 2, 3]


def test_the_incumbent_meets_the_constraints_and_what_is_nearest_to_them_is_known() -> None:
    history = History([Constraint("latency_us", 10.0)])
    for number, (loss, latency) in enumerate([(1.0, 30.0), (5.0, 9.0), (2.0, 11.0), (4.0, 10.0)]):
        outcome = Evaluation(loss, constraints={"latency_us": latency})
        history.record(Trial(number, query(number)).started().completed(outcome))
    assert history.incumbent == history[3]
    assert history.nearest_infeasible == history[2]


def test_what_was_asked_for_is_pending_until_it_is_told() -> None:
    history = History()
    history.record(Trial(0, query(0)))
    history.record(Trial(1, query(1)).started())
    history.record(told(2, query(2), None))
    history.record(told(3, query(3, folds=1), 2.0))
    assert [t.number for t in history.pending] == [0, 1]
    history.record(told(0, query(0), 2.0))
    assert [t.number for t in history.pending] == [1]
    assert history.asked == {query(i).configuration for i in range(4)}


LIMIT = Constraint("latency_us", 10.0)
CHANGES = st.tuples(
    st.integers(0, 9),
    st.sampled_from(["asked", "failed", "stopped", "complete", "slow"]),
    st.sampled_from([1.0, 2.0, 3.0]),
)


def changed(number: int, state: str, loss: float) -> Trial:
    if state == "stopped":
        return told(number, query(number % 4, folds=1), loss)
    asked = Trial(number, query(number % 4))
    if state == "asked":
        return asked
    if state == "failed":
        return told(number, query(number % 4), None)
    latency = 20.0 if state == "slow" else 5.0
    return asked.started().completed(Evaluation(loss, constraints={"latency_us": latency}))


@given(st.lists(CHANGES, max_size=40))
def test_whatever_happened_it_says_what_looking_at_all_trials_says(happened) -> None:
    history, trials = History([LIMIT]), dict[int, Trial]()
    for change in happened:
        trial = changed(*change)
        history.record(trial)
        trials[trial.number] = trial
    assert list(history) == list(trials.values())
    for state in ("complete", "stopped", "failed"):
        alike = tuple(t for t in trials.values() if t.state == state)
        assert getattr(history, state) == alike
        assert history.count(TrialState(state)) == len(alike)
    assert history.pending == tuple(t for t in trials.values() if not t.is_told)
    assert history.asked == {t.query.configuration for t in trials.values()}
    feasible = [t for t in history.complete if history.violation(t) <= 0]
    assert history.incumbent == min(feasible, key=lambda t: (t.loss, t.number), default=None)


@given(st.lists(CHANGES, max_size=40), st.integers(0, 3), st.integers(0, 6))
def test_an_abridged_history_has_the_best_the_last_and_the_pending(happened, best, last) -> None:
    history = History([LIMIT])
    for change in happened:
        history.record(changed(*change))
    abridged = history.abridged(best, last)
    feasible = [t for t in history.complete if history.violation(t) <= 0]
    ranked = sorted(feasible, key=lambda t: (t.loss, t.number))
    ended = [t for t in history if t.state in ("complete", "failed")]
    chosen = {t.number for t in (*ranked[:best], *ended[len(ended) - last :], *history.pending)}
    if last > len(ended):
        chosen |= {t.number for t in ended}
    assert list(abridged) == [t for t in history if t.number in chosen]


def test_a_history_finds_its_incumbent_again_when_it_is_tried_again() -> None:
    history = History()
    for number, loss in enumerate([2.0, 1.0, 3.0]):
        history.record(told(number, query(number), loss))
    history.record(Trial(1, query(1)))
    assert history.incumbent == history[0]
    assert history.losses == pytest.approx([2.0, 3.0])
