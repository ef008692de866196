"""SMAC: forest, candidates and proposals."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from worlds import counted_space, mixed_space, told, told_history

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    History,
    Objective,
    Prior,
    PriorTrial,
    Query,
    Smac,
    Space,
    Trial,
)
from prefect_tune.optimizers.methods.smac import ForestSearch, ForestSettings
from prefect_tune.optimizers.models.forest import RandomForest
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import new_configuration, sample_configuration
from prefect_tune.optimizers.space.vectors import Candidates


def search_of(space: Space, **options: Any) -> ForestSearch:
    given = {"n_startup": 1, "random_share": 0.0, **options}
    return ForestSearch(space, Objective(chance=50.0), ForestSettings(**given))


def line(x: float, y: float = 0.5) -> Query:
    """Return a query of a space with one path and two numbers."""
    values = [{"h0": x, "h1": y}]
    return Query(Configuration.of(counted_space((1,), 2), ("a0",), values))


def valley(n: int, *bottoms: float) -> History:
    """Return losses that depend on the first of two numbers, with minima at `bottoms`."""
    places = np.random.default_rng(0).random((n, 2))
    losses = (5 + 50 * min(abs(x - bottom) for bottom in bottoms) for x, _ in places)
    return told_history((line(x, y), loss) for (x, y), loss in zip(places, losses, strict=True))


@pytest.mark.slow
def test_proposals_lie_where_losses_are_small() -> None:
    search, history = search_of(counted_space((1,), 2)), valley(40, 0.3)
    for seed in range(6):
        query, _ = search.propose(history, np.random.default_rng(seed))
        assert dict(query.configuration["step0"].values)["h0"] == pytest.approx(0.3, abs=0.15)


@pytest.mark.parametrize(
    ("losses", "options", "targets", "best"),
    [
        # What is under way is taken to have given the mean.
        ([2.0, 10.0, 30.0], {"is_log": False}, [0.2, 1.0, 3.0, 1.4], 0.2),
        ([None, 75.0, 75.0], {"is_log": False, "failure_cost": "bound"}, [4 / 3, 1, 1, 10 / 9], 1),
        (
            [2.0, 20.0, 40.0],
            {},
            np.log([0.11, 1.01, 2.01, (0.11 * 1.01 * 2.01) ** (1 / 3)]),
            np.log(0.11),
        ),
    ],
)
def test_forest_targets_follow_the_options(losses, options, targets, best) -> None:
    history = told_history((line(0.1 * i), loss) for i, loss in enumerate(losses))
    history.record(Trial(3, line(0.9)))
    observed, found, least = search_of(counted_space((1,), 2), **options)._observed(history)
    assert observed.units[:, 0] == pytest.approx([0.0, 0.1, 0.2, 0.9])
    assert found == pytest.approx(np.array(targets))
    assert least == pytest.approx(best)


def test_older_results_come_first_with_their_weights(monkeypatch) -> None:
    search, history, seen = search_of(counted_space((1,), 2)), valley(3, 0.3), []
    history.prior = Prior(tuple(PriorTrial(line(x).configuration, 20.0) for x in (0.1, 0.2)))
    fitted = search._fitted
    monkeypatch.setattr(search, "_fitted", lambda *given: seen.append(given[3]) or fitted(*given))
    search.propose(history, np.random.default_rng(0))
    assert seen[0].tolist() == [0.3, 0.3, 1.0, 1.0, 1.0]


def test_local_search_finds_the_maximum() -> None:
    """With six numbers, no random candidate is near the top."""
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
def test_local_search_starts_at_the_best_observed_configuration() -> None:
    """Some proposals share exact numbers with the single good configuration."""
    space, history, rng = counted_space((1,), 6), History(), np.random.default_rng(0)
    for number in range(60):
        query = Query(sample_configuration(space, rng))
        history.record(told(number, query, 50.0 + rng.random()))
    peak = sample_configuration(space, rng)
    history.record(told(60, Query(peak), 1.0))
    kept = set(peak["step0"].values)
    search = search_of(space)
    asked = [search.propose(history, np.random.default_rng(i))[0].configuration for i in range(8)]
    assert sum(not kept.isdisjoint(c["step0"].values) for c in asked) >= 2


def test_given_share_of_configurations_is_drawn_from_the_prior() -> None:
    history, space = valley(3, 0.3), counted_space((1,), 2)

    def is_from_the_prior(seed: int, **options: Any) -> bool:
        search, rng = search_of(space, **options), np.random.default_rng(seed)
        rng.random()  # what decides
        drawn = new_configuration(search.proposed, history.asked, rng)
        asked, _ = search.propose(history, np.random.default_rng(seed))
        return asked.configuration == drawn

    shares = [
        np.mean([is_from_the_prior(i, random_share=s) for i in range(20)]) for s in (0.3, 1.0)
    ]
    assert shares == [pytest.approx(0.3, abs=0.2), 1]
    assert is_from_the_prior(0, n_startup=4)
    assert not is_from_the_prior(0, n_startup=3)


def test_first_query_is_a_path_with_default_values() -> None:
    space = mixed_space()
    firsts = [Smac(space, seed).ask(Budget()).configuration for seed in range(12)]
    assert all(c == default_configuration(space, c.path) for c in firsts)
    assert len({c.path for c in firsts}) > 2


def test_forest_mean_comes_from_the_trees_and_variance_from_the_leaves() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((80, 5)), rng.random(80)
    forest = RandomForestRegressor(10, min_samples_split=20, random_state=3).fit(X, y)
    mean, deviation = RandomForest(X, y, n_trees=10, seed=3, min_samples_split=20).predict(X)
    assert mean == pytest.approx(forest.predict(X))
    for row in range(5):
        means, variances = [], []
        for tree, drawn in zip(forest.estimators_, forest.estimators_samples_, strict=True):
            inside = tree.apply(X[drawn]) == tree.apply(X[[row]])
            means.append(y[drawn][inside].mean())
            variances.append(y[drawn][inside].var())
        assert deviation[row] ** 2 == pytest.approx(np.var(means) + np.mean(variances))
    for equal in (np.ones(80), 1 + 1e-15 * np.arange(80)):
        _, deviation = RandomForest(X, equal, n_trees=3, seed=0).predict(X)
        assert deviation == pytest.approx(1e-5)
