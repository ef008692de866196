import numpy as np
from worlds import mixed_space, told

from prefect_tune.optimizers import Constraint, Evaluation, History, Query, Trial
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
