"""Phase 3: tuning what was not pruned."""

from typing import Any

import numpy as np
import pytest
from flash_worlds import counted_space, steps_of
from worlds import told

from prefect_tune.optimizers import (
    History,
    Objective,
    Query,
    Trial,
)
from prefect_tune.optimizers.methods.declarations import SmacOptions
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE
from prefect_tune.optimizers.methods.flash.tuning import Tuning
from prefect_tune.optimizers.methods.smac import ForestSearch
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = counted_space((2, 2))
SECONDS = {"step0.a0": 1e4, "step0.a1": 8.0, "step1.a0": 0.01, "step1.a1": 2.0}


def tuning(**options: Any) -> Tuning:
    given = FlashOptions(**options).resolved()
    return Tuning(SPACE, SPACE, Objective(), given, PathCost(SPACE, list(SPACE.paths())))


def history_of(n: int) -> History:
    history, seen, rng = History(), set[str](), np.random.default_rng(0)
    for number in range(n):
        query = Query(sample_configuration(SPACE, rng))
        outcome = steps_of(query, seen, SECONDS)
        history.record(Trial(number, query).started().completed(outcome))
    return history


def test_the_cost_of_a_candidate_does_not_depend_on_those_beside_it() -> None:
    candidates = CandidateSpace(SPACE)
    drawn = candidates.sample(60, np.random.default_rng(1))
    log_cost = tuning()._log_cost(history_of(8), candidates, 0.5)
    assert log_cost is not None
    together = log_cost(drawn, candidates.features(drawn))
    for row in range(60):
        one = drawn[[row]]
        assert log_cost(one, candidates.features(one)) == pytest.approx(together[[row]])


def test_no_candidate_is_cheaper_than_a_share_of_a_run() -> None:
    candidates, history = CandidateSpace(SPACE), history_of(8)
    typical = PathCost(SPACE, list(SPACE.paths())).typical_seconds(history)
    cheap = candidates.encode([sample_configuration(SPACE, np.random.default_rng(2), ("a1", "a0"))])
    log_cost = tuning()._log_cost(history, candidates, 1.0)
    assert log_cost is not None
    cost = log_cost(cheap, candidates.features(cheap))
    assert cost == pytest.approx([np.log(LEAST_SHARE * typical)])


def asked_for(n: int, **options: Any) -> list[tuple[str, ...]]:
    """Proposals where the losses of all are equal and what the first step does takes seconds."""
    search, history = tuning(**options), History()
    rng = np.random.default_rng(3)
    seen: set[str] = set()
    for number in range(n):
        query = (
            Query(sample_configuration(SPACE, rng))
            if number < 12
            else search.propose(history, np.random.default_rng([3, number]))[0]
        )
        outcome = steps_of(query, seen, {"step0.a0": 60.0, "step0.a1": 0.5})
        history.record(Trial(number, query).started().completed(outcome))
    return [t.query.configuration.path for t in history][12:]


def test_of_equal_improvement_the_cheap_one_is_asked_for_first() -> None:
    cheap = [path[0] == "a1" for path in asked_for(42, cost_power=1.0)]
    whatever = [path[0] == "a1" for path in asked_for(42, cost_power=0.0)]
    assert sum(cheap) >= 20
    assert sum(whatever) < sum(cheap) - 4


@pytest.mark.parametrize("phase3", ["smac", "tpe"])
def test_failures_count_as_the_option_says(phase3: str) -> None:
    """With the worst finished loss a part that fails is avoided."""
    search, history = tuning(phase3=phase3), History()
    for number in range(40):
        query, _ = search.propose(history, np.random.default_rng([4, number]))
        loss = None if query.configuration.path[0] == "a0" else 10.0 + number % 3
        history.record(told(number, query, loss))
    late = [t.query.configuration.path[0] for t in history][15:]
    assert late.count("a0") < 10


def test_the_papers_forest_is_that_of_its_time() -> None:
    search = tuning(variant="paper")._inside
    assert isinstance(search, ForestSearch)
    assert search.options == SmacOptions(
        n_startup=1,
        min_samples_split=10,
        max_features=5 / 6,
        random_share=0.5,
        failure_cost="bound",
        is_log=False,
    )
    default = tuning()._inside
    assert isinstance(default, ForestSearch)
    assert default.options == SmacOptions(n_startup=1, failure_cost="worst")


def test_inside_only_the_subspace_is_proposed_though_all_trials_teach() -> None:
    part = SPACE.restricted_to({"step0": ["a1"], "step1": ["a0", "a1"]})
    given = FlashOptions().resolved()
    search = Tuning(SPACE, part, Objective(), given, PathCost(SPACE, list(SPACE.paths())))
    history = history_of(12)
    paths = {
        search.propose(history, np.random.default_rng(s))[0].configuration.path for s in range(12)
    }
    assert {path[0] for path in paths} == {"a1"}


@pytest.mark.parametrize(("outside", "least", "most"), [(0.0, 0, 0), (0.5, 3, 17)])
def test_a_share_of_proposals_may_lie_outside(outside: float, least: int, most: int) -> None:
    part = SPACE.restricted_to({"step0": ["a1"], "step1": ["a0", "a1"]})
    given = FlashOptions(outside=outside, cost_power=0.0).resolved()
    search = Tuning(SPACE, part, Objective(), given, PathCost(SPACE, list(SPACE.paths())))
    history = history_of(12)
    paths = [
        search.propose(history, np.random.default_rng(s))[0].configuration.path for s in range(20)
    ]
    assert least <= sum(path[0] == "a0" for path in paths) <= most
