"""Trials, outcomes, histories, constraints, budgets and ensembles."""

from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from worlds import evaluation, mixed_space, recorded, told, told_history

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Trial,
    TrialState,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.history import (
    best_frequencies,
    frequencies_of_few,
    imputed_losses,
    relative_losses,
    trials_affordable,
)
from prefect_tune.optimizers.trials.objective import violation

SPACE = mixed_space()


def query(seed: int, **fidelity) -> Query:
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def test_worker_deaths_are_counted_separately_and_reset_by_a_retry() -> None:
    trial = Trial(0, query(0)).started().waiting().started().died()
    assert (trial.attempts, trial.deaths, trial.state) == (2, 1, TrialState.WAITING)
    failed = trial.started().died().failed(Failure(FailureKind.CRASHED, "it died"))
    assert (failed.deaths, failed.retried().deaths) == (2, 0)


def test_refit_uses_all_rows_and_the_best_number_of_epochs() -> None:
    outcome = replace(evaluation(1.0), curve=(3.0, 1.0, 2.0), best_epoch=2)
    assert Trial(0, query(0)).completed(outcome).refit_query == query(0, epochs=2)
    assert Trial(0, query(0)).completed(evaluation(1.0)).refit_query == query(0)
    part = Trial(1, query(0, epochs=3, subset=0.5, folds=1))
    assert part.completed(outcome).state == TrialState.STOPPED
    assert part.completed(outcome).refit_query == query(0, epochs=2)
    rising = replace(outcome, curve=(3.0, 2.0, 1.0), best_epoch=3)
    assert part.completed(rising).refit_query == query(0)
    measured = replace(rising, constraints={"model_size_bytes": 7.0})
    assert part.completed(measured).refit_query == query(0, epochs=3)


def test_incumbent_is_feasible_and_the_nearest_infeasible_trial_is_known() -> None:
    history = History([Constraint("latency_us", 10.0)])
    for number, (loss, latency) in enumerate([(1.0, 30.0), (5.0, 9.0), (2.0, 11.0), (4.0, 10.0)]):
        outcome = Evaluation(loss, constraints={"latency_us": latency})
        history.record(Trial(number, query(number)).started().completed(outcome))
    assert history.incumbent == history[3]
    assert history.nearest_infeasible == history[2]


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


@settings(max_examples=40)
@given(st.lists(CHANGES, max_size=40), st.integers(0, 3), st.integers(0, 6))
def test_history_equals_a_scan_of_all_trials_after_any_changes(happened, best, last) -> None:
    history, trials = History([LIMIT]), dict[int, Trial]()
    for change in happened:
        trial = changed(*change)
        history.record(trial)
        trials[trial.number] = trial
    assert list(history) == list(trials.values())
    in_order = [trials[number] for number in sorted(trials)]
    for state in ("complete", "stopped", "failed"):
        alike = tuple(t for t in in_order if t.state == state)
        assert getattr(history, state) == alike
        assert history.count(TrialState(state)) == len(alike)
    assert history.pending == tuple(t for t in in_order if not t.is_told)
    assert history.asked == {t.query.configuration for t in in_order}
    for asked in history.asked:
        mine = [t for t in history if t.query.configuration == asked]
        assert list(history.trials_of(asked)) == mine
    feasible = [t for t in history.complete if history.violation(t) <= 0]
    ranked = sorted(feasible, key=lambda t: (t.loss, t.number))
    assert history.incumbent == next(iter(ranked), None)
    ended = [t for t in history if t.state in ("complete", "failed")]
    chosen = *ranked[:best], *ended[max(len(ended) - last, 0) :], *history.pending
    abridged = [t.number for t in history.abridged(best, last)]
    assert abridged == sorted({t.number for t in chosen})


@pytest.mark.parametrize(
    ("bound", "measured", "excess"),
    [(10, {"size": 5}, -0.5), (10, {"size": 25}, 1.5), (0, {"size": 0}, 0), (0, {"size": 3}, 3),
     (10, {"size": nan}, inf), (10, {}, inf)],
)  # fmt: skip
def test_excess_is_relative_to_the_bound_and_the_largest_excess_counts(
    bound, measured, excess
) -> None:
    assert Constraint("size", bound).excess(measured) == excess
    constraints = (Constraint("size", bound), Constraint("time", 2))
    assert violation(constraints, {**measured, "time": 1.9}) == pytest.approx(max(excess, -0.05))


QUERY = Query(default_configuration(SPACE, ("unit", "svm")))
BAYES = Query(default_configuration(SPACE, ("unit", "bayes")))


@pytest.mark.parametrize(
    ("rule", "objective", "expected"),
    [
        ("bound", Objective(), 100.0),
        ("bound", Objective(upper=float("inf")), 30.0),
        ("worst", Objective(), 30.0),
    ],
)
def test_imputed_loss_of_a_failed_trial_follows_the_chosen_rule(rule, objective, expected) -> None:
    history = told_history((QUERY, loss) for loss in (20.0, None, 30.0))
    trials, losses = imputed_losses(history, objective, rule)
    assert [t.number for t in trials] == [0, 1, 2]
    assert losses.tolist() == [20.0, expected, 30.0]


def test_logarithms_are_of_the_distance_from_the_lower_bound_of_the_loss() -> None:
    """Relative losses without a lower bound are distances from the lowest loss."""
    for losses, ratios in (([-3.0, 4.0], [0, 2]), ([5.0, 5.0], [0, 0])):
        found = relative_losses(np.array(losses), Objective(lower=-np.inf), is_log=True)
        assert found.tolist() == ratios
    losses = np.array([10.0, 12.0, 60.0])
    found = relative_losses(losses, Objective(lower=10.0), is_log=True)
    assert found == pytest.approx(np.log([0.01, 1.01, 25.01]))


def history_of(*seconds: float) -> History:
    """Return trials that took these seconds."""
    trials = (Trial(n, BAYES).completed(evaluation(1.0, cost)) for n, cost in enumerate(seconds))
    return recorded(*trials)


@pytest.mark.parametrize(
    ("budget", "seconds", "expected"),
    [
        (Budget(), (1.0,) * 9, None),
        (Budget(trials_left=7), (), 7),
        (Budget(trials_left=7), (1.0,) * 3, 10),
        (Budget(seconds_left=10.0, n_workers=2), (1.0,) * 4, None),
        (Budget(seconds_left=10.0, n_workers=2), (9.0, 9.0, 2.0, 2.0, 2.0), 10),
        (Budget(seconds_left=10.0, n_workers=2, ask_seconds=15.0), (9.0, 9.0, 2.0, 2.0, 2.0), 7),
        (Budget(seconds_left=-3.0), (2.0,) * 5, 5),
        (Budget(trials_left=2, seconds_left=10.0), (2.0,) * 5, 7),
    ],
)
def test_affordable_trials_follow_the_tightest_limit(budget, seconds, expected) -> None:
    assert trials_affordable(budget, history_of(*seconds)) == expected


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        (Budget(), 1.0),
        (Budget(trials_spent=30, trials_left=10), 0.25),
        (Budget(seconds_spent=10.0, seconds_left=30.0), 0.75),
        (Budget(trials_spent=30, trials_left=10, seconds_spent=10.0, seconds_left=30.0), 0.25),
        (Budget(trials_left=0), 0.0),
        (Budget(seconds_spent=10.0, seconds_left=-2.0), 0.0),
    ],
)
def test_remaining_share_follows_the_limit_reached_first(budget, share) -> None:
    assert budget.share_left == pytest.approx(share)


LOSSES = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=float)
"""Of three models on four examples, shape (4, 3)."""
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 8))
RISKS = arrays(np.float64, SHAPES, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def test_best_frequencies_share_ties_as_in_the_worked_example() -> None:
    weights = np.array([[2, 1, 1, 0], [0, 1, 2, 1], [1, 1, 1, 1]]) / 4
    risks = (weights @ LOSSES).T
    assert risks == pytest.approx(np.array([[0.25, 0.5, 0.5], [0.5, 0, 0.25], [0.25, 0.75, 0.5]]))
    assert best_frequencies(risks) == pytest.approx([1 / 6, 2 / 3, 1 / 6])
    assert best_frequencies(np.array([[0.3], [0.1 + 0.2]])).tolist() == [0.5, 0.5]  # rounding


def test_all_resamples_give_the_exact_posterior() -> None:
    drawn = [np.bincount(d, minlength=4) / 4 for d in product(range(4), repeat=4)]
    expected = [0.191406, 0.617188, 0.191406]
    assert best_frequencies((np.array(drawn) @ LOSSES).T) == pytest.approx(expected, abs=1e-6)


@given(RISKS, st.sampled_from([1e-15, 0.1, 100.0, 1e12]))
def test_unit_of_losses_does_not_change_frequencies(risks: np.ndarray, slope: float) -> None:
    assert best_frequencies(slope * risks) == pytest.approx(best_frequencies(risks))


def test_first_member_has_the_least_risk_and_later_members_complement_earlier_members():
    risks = np.array([[0.3, 0.3, 0.3, 0.3], [0.0, 0.9, 0.9, 0.9], [0.9, 0.2, 0.2, 0.9]])
    assert frequencies_of_few(risks, 1) == pytest.approx([1, 0, 0])
    assert frequencies_of_few(risks, 2) == pytest.approx([0.5, 0, 0.5])
    assert frequencies_of_few(risks, 3) == pytest.approx([0.25, 0.25, 0.5])
    ties = np.array([[0.3, 0.3, 0.3, 0.3], [0.3, 0.3, 0.3, 0.9], [0.2, 0.2, 0.9, 0.9]])
    assert frequencies_of_few(ties, 2) == pytest.approx([0.5, 0, 0.5])  # a tie is half a win
