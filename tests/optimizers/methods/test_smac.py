"""SMAC: the forest, its candidates and its proposals."""

import numpy as np
import pytest
from flash_worlds import counted_space
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from worlds import mixed_space, told, told_history

from prefect_tune.optimizers import Budget, Configuration, History, Objective, Query, Smac, Trial
from prefect_tune.optimizers.methods.smac import ForestSearch, ForestSettings
from prefect_tune.optimizers.models.forest import RandomForest
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates

PERCENT = Objective(chance=50.0)


def search_of(space, proposed=None, objective=PERCENT, **options) -> ForestSearch:
    given = {"n_startup": 1, "random_share": 0.0, **options}
    return ForestSearch(space, objective, ForestSettings(**{"n_startup": 10, **given}), proposed)


def line(x: float, y: float = 0.5) -> Query:
    """A query of a space of one path and two numbers."""
    values = [{"h0": x, "h1": y}]
    return Query(Configuration.of(counted_space((1,), 2), ("a0",), values))


def valley(n: int = 40) -> History:
    """Losses of one number, least at 0.3."""
    rng = np.random.default_rng(0)
    return told_history((line(x, y), 5 + 50 * abs(x - 0.3)) for x, y in rng.random((n, 2)))


def first_numbers(search: ForestSearch, history: History, n: int = 12) -> NDArray[np.float64]:
    asked = (search.propose(history, np.random.default_rng(i))[0].configuration for i in range(n))
    return np.array([float(dict(c["step0"].values)["h0"]) for c in asked])


@pytest.mark.slow
def test_proposals_lie_where_losses_were_small() -> None:
    found = first_numbers(search_of(counted_space((1,), 2)), valley())
    assert np.abs(found - 0.3).max() < 0.15


def test_a_pending_query_is_taken_to_have_given_the_mean() -> None:
    history = told_history([(line(0.0), 2.0), (line(0.1), 10.0), (line(0.2), 30.0)])
    history.record(Trial(3, line(0.9)))
    search = search_of(counted_space((1,), 2), is_log=False)
    observed, targets, best = search._observed(history)
    assert targets.tolist() == [2.0, 10.0, 30.0, 14.0]
    assert observed.units[:, 0].tolist() == [0.0, 0.1, 0.2, 0.9]
    assert best == 2.0


def test_failures_have_the_loss_of_the_rule_and_are_not_the_best() -> None:
    history = told_history([(line(0.1), None), (line(0.2), 70.0)])
    search = search_of(counted_space((1,), 2), is_log=False, failure_cost="bound")
    _, targets, best = search._observed(history)
    assert targets.tolist() == [100.0, 70.0]
    assert best == 70.0


def test_the_forest_is_fitted_to_logarithms_of_the_distance_from_the_least_loss() -> None:
    history = told_history([(line(0.0), 2.0), (line(0.1), 20.0), (line(0.2), 40.0)])
    _, targets, best = search_of(counted_space((1,), 2))._observed(history)
    assert targets == pytest.approx(np.log([2.2, 20.2, 40.2]))
    assert best == targets[0]


@pytest.mark.slow
def test_of_two_equal_candidates_the_cheap_one_is_asked_for_first() -> None:
    """Both numbers are as good below as above 0.5; above costs more."""
    places = np.random.default_rng(0).random((40, 2))
    history = told_history(
        (line(x, y), 5 + 50 * min(abs(x - 0.2), abs(x - 0.8))) for x, y in places
    )

    def log_cost(candidates: Candidates, features: NDArray[np.float64]) -> NDArray[np.float64]:
        assert features.shape == (len(candidates), 1 + 2)
        return 20.0 * (candidates.units[:, 0] > 0.5)

    search = search_of(counted_space((1,), 2))
    asked = [search.propose(history, np.random.default_rng(i), log_cost)[0] for i in range(12)]
    assert all(dict(q.configuration["step0"].values)["h0"] < 0.5 for q in asked)


def test_local_search_climbs_to_the_top() -> None:
    """In six numbers no random candidate is near it."""
    search = search_of(counted_space((1,), 6))
    rng = np.random.default_rng(0)

    def score(candidates: Candidates) -> NDArray[np.float64]:
        return -((candidates.units - 0.4) ** 2).sum(axis=1)

    starts = search.candidates.sample(10, rng)
    first = score(starts)
    visited, scores = search._climb(starts, first, score, rng)
    assert scores == pytest.approx(score(visited))
    assert scores.max() > 0.1 * first.max()
    assert scores[:10] == pytest.approx(first)


@pytest.mark.slow
def test_local_search_starts_at_the_best_observed() -> None:
    """Some proposals have kept numbers of the one good configuration, to the last digit."""
    space, history, rng = counted_space((1,), 6), History(), np.random.default_rng(0)
    for number in range(60):
        query = Query(sample_configuration(space, rng))
        history.record(told(number, query, 50.0 + rng.random()))
    peak = sample_configuration(space, rng)
    history.record(told(60, Query(peak), 1.0))
    kept = set(peak["step0"].values)
    search = search_of(space)
    asked = [search.propose(history, np.random.default_rng(i))[0].configuration for i in range(12)]
    assert sum(not kept.isdisjoint(c["step0"].values) for c in asked) >= 3


def test_only_the_part_that_may_be_proposed_is() -> None:
    space, history, rng = counted_space((3, 3), 1), History(), np.random.default_rng(0)
    for number in range(30):
        query = Query(sample_configuration(space, rng))
        is_outside = query.configuration.path[0] == "a0"
        history.record(told(number, query, 1.0 if is_outside else 40.0 + rng.random()))
    part = space.restricted_to({"step0": ["a1", "a2"], "step1": ["a0", "a1", "a2"]})
    search = search_of(space, part)
    asked = [search.propose(history, np.random.default_rng(i))[0].configuration for i in range(12)]
    assert {c.path[0] for c in asked} <= {"a1", "a2"}


@pytest.mark.slow
def test_the_prior_is_drawn_from_in_the_share_given_and_until_so_many_have_ended() -> None:
    history = valley(3)

    def is_from_the_prior(search: ForestSearch, seed: int) -> bool:
        rng = np.random.default_rng(seed)
        rng.random()  # what decides
        drawn = new_configuration(search.proposed, history.asked, rng)
        asked, _ = search.propose(history, np.random.default_rng(seed))
        return asked.configuration == drawn

    space = counted_space((1,), 2)
    shares = [
        np.mean([is_from_the_prior(search_of(space, random_share=s), i) for i in range(40)])
        for s in (0.0, 0.3, 1.0)
    ]
    assert shares[0] == 0
    assert shares[1] == pytest.approx(0.3, abs=0.15)
    assert shares[2] == 1
    assert is_from_the_prior(search_of(space, n_startup=4), 0)
    assert not is_from_the_prior(search_of(space, n_startup=3), 0)


def test_the_first_query_is_a_path_with_its_defaults() -> None:
    space = mixed_space()
    firsts = [Smac(space, seed).ask(Budget()).configuration for seed in range(12)]
    assert all(c == default_configuration(space, c.path) for c in firsts)
    assert len({c.path for c in firsts}) > 2


def fitted(X, y, n_trees=10, **given) -> RandomForest:
    usual = {"min_samples_split": 2, "max_features": 1.0, "seed": 0}
    return RandomForest(X, y, n_trees=n_trees, **{**usual, **given})  # type: ignore[arg-type]


def test_mean_comes_from_the_trees_and_variance_from_their_leaves() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 5)), rng.random(80)
    forest = RandomForestRegressor(10, min_samples_split=20, random_state=3).fit(X, y)
    mean, deviation = fitted(X, y, min_samples_split=20, seed=3).predict(X)
    assert mean == pytest.approx(forest.predict(X))
    for row in range(5):
        means, variances = [], []
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            inside = tree.apply(X[drawn]) == tree.apply(X[[row]])
            means.append(y[drawn][inside].mean())
            variances.append(y[drawn][inside].var())
        assert deviation[row] ** 2 == pytest.approx(np.var(means) + np.mean(variances))


def test_forests_leave_a_deviation_and_split_no_node_of_few_rows() -> None:
    _, deviation = fitted(np.zeros((4, 2)), np.ones(4), n_trees=3).predict(np.zeros((2, 2)))
    assert deviation == pytest.approx(1e-5)
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    whole = fitted(X, y, min_samples_split=9).predict(X)[0]
    assert np.ptp(whole) == 0
    assert np.ptp(fitted(X, y, min_samples_split=3).predict(X)[0]) > 3


def test_splits_are_chosen_among_a_share_of_the_columns() -> None:
    """Of ten columns one decides: it is always split first where all are looked at."""
    X = np.random.default_rng(0).random((40, 10))
    y = 1.0 * (X[:, 0] > 0.5)

    def n_split_first(max_features: float) -> int:
        forest = fitted(X, y, 20, max_features=max_features)
        return sum(int(tree.feature[0]) == 0 for tree in forest._trees)

    assert n_split_first(1.0) == 20
    assert 0 < n_split_first(0.3) < 15


def test_trees_are_as_many_as_asked_for_of_other_rows_and_of_the_seed() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 2)), rng.random(30)
    forest = fitted(X, y, 7)
    assert len(forest._trees) == 7
    assert len({float(tree.value[0, 0, 0]) for tree in forest._trees}) == 7
    at = rng.random((5, 2))
    assert np.array_equal(forest.predict(at)[0], fitted(X, y, 7).predict(at)[0])
    assert not np.array_equal(forest.predict(at)[0], fitted(X, y, 7, seed=1).predict(at)[0])
