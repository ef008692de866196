import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from contracts.optimizer import OptimizerContract
from flash_worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    additive_log_seconds,
    additive_losses,
    counted_space,
    run_one_by_one,
    steps_of,
)
from worlds import evaluation, mixed_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Encoding,
    Flash,
    Objective,
    Query,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.tasks.catalogue.spaces import space_named


class TestFlash(OptimizerContract):
    method = "flash"


class TestFlashWithTpe(OptimizerContract):
    method = "flash"
    options: ClassVar[dict[str, Any]] = {"phase3": "tpe", "n_init": 3, "n_prune": 3}


class TestFlashOfThePaper(OptimizerContract):
    method = "flash"
    options: ClassVar[dict[str, Any]] = {"variant": "paper", "n_init": 4, "n_prune": 4}
    # Every second ask is random, and hyperparameters of Phases 1 and 2 are drawn: in worlds of 12
    # paths that is random search, and all there is to prove is that it is no worse by a point.
    margin = -1.0
    margin_share = 0.0


def benchmark_world(options: Mapping[str, Any]) -> tuple[Flash, list[int]]:
    """The thirty picks from path 0, then thirty more asked for, in the deterministic world."""
    space = counted_space(BENCHMARK)
    optimizer = Flash(space, 0, Objective(), **options)
    paths = list(space.paths())
    losses, seconds = additive_losses(), np.exp(additive_log_seconds())
    picks: list[int] = []
    for number in range(60):
        if number < 30:
            query = Query(default_configuration(space, paths[FIRST_THIRTY[number]]))
            replay(optimizer, [Asked(number, query, Budget())])
        else:
            query = optimizer.ask(Budget())
        i = paths.index(query.configuration.path)
        outcome = evaluation(float(losses[i]), float(seconds[i]))
        optimizer.tell(Trial(number, query).started().completed(outcome))
        picks.append(i)
    return optimizer, picks


def test_the_benchmark_world_of_the_paper() -> None:
    optimizer, picks = benchmark_world({"variant": "paper"})
    assert picks[30:35] == [329, 262, 686, 216, 548]
    assert len(set(picks[30:])) >= 25
    optimizer.ask(Budget())
    decisions = optimizer.decisions
    best = default_configuration(optimizer.space, list(optimizer.space.paths())[238]).path
    assert all(a in ids for a, ids in zip(best, decisions["subspace"].values(), strict=True))
    ranked = [tuple(entry["path"]) for entry in decisions["ranking"]]
    assert ranked[0] == best
    assert len(ranked) == 10
    for path in ranked:
        assert all(a in ids for a, ids in zip(path, decisions["subspace"].values(), strict=True))


def test_without_xi_the_papers_phase_two_stays_with_few_paths() -> None:
    _, picks = benchmark_world({"variant": "paper", "xi": 0.0})
    assert 238 in picks[30:]
    assert len(set(picks[30:])) <= 3


def test_with_the_defaults_pruning_keeps_the_best_path_of_an_additive_world() -> None:
    optimizer, picks = benchmark_world({})
    assert 238 in picks[30:]
    assert len(set(picks)) == 60  # no path twice
    optimizer.ask(Budget())
    best = list(optimizer.space.paths())[238]
    subspace = optimizer.decisions["subspace"]
    assert all(a in ids for a, ids in zip(best, subspace.values(), strict=True))


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
def test_phases_follow_one_another_and_proposals_stay_in_the_subspace(
    options: dict[str, Any],
) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), r=2, **options)
    run_one_by_one(optimizer, 20)
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (6, 6, 3)
    late = [t.query.configuration.path for t in list(optimizer.history)[12:]]
    assert all(
        a in ids for p in late for a, ids in zip(p, decisions["subspace"].values(), strict=True)
    )
    assert json.loads(json.dumps(decisions)) == decisions


def test_phase_one_begins_with_every_model_on_plain_data() -> None:
    optimizer = Flash(space_named("flash"), 0, Objective())
    paths = [query.configuration.path for query in run_one_by_one(optimizer, 30)]
    models = [a.id for a in optimizer.space.searched[-1].algorithms]
    assert paths[: len(models)] == [("none", "none", "none", model) for model in models]
    assert {path[2] for path in paths} == {a.id for a in optimizer.space.searched[2].algorithms}
    one_hot = np.array([Encoding(optimizer.space).one_hot(path) for path in paths])
    assert np.linalg.matrix_rank(one_hot) == 30  # all effects can be told apart


@pytest.mark.parametrize("options", [{}, {"n_init": 4}, {"variant": "paper"}])
def test_while_nothing_completes_it_goes_through_the_paths(options: dict[str, Any]) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), **options)
    for number in range(24):
        optimizer.tell(told(number, optimizer.ask(Budget()), None))
    counts = Counter(t.query.configuration.path for t in optimizer.history)
    assert set(counts.values()) == {2}  # of 12 paths


def test_many_pending_queries_are_for_different_paths() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), n_init=2)
    paths = {optimizer.ask(Budget()).configuration.path for _ in range(12)}
    assert len(paths) == 12


def test_phase_one_runs_defaults_and_covers_every_algorithm() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective())
    queries = run_one_by_one(optimizer, 6)
    for query in queries:
        assert query.configuration == default_configuration(
            optimizer.space, query.configuration.path
        )
    seen = {(s, c.algorithm) for q in queries for s, c in q.configuration.choices}
    assert len(seen) == 7


def test_without_pruning_phase_three_has_the_whole_space() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), pruning=False)
    run_one_by_one(optimizer, 8)
    assert optimizer.decisions["phase"] == 3
    assert optimizer.decisions["n_subspace_paths"] == 12
    assert "ranking" not in optimizer.decisions


def test_more_paths_wanted_than_there_are_keeps_all_and_says_so() -> None:
    optimizer = Flash(counted_space((2, 2)), 0, Objective(), r=50)
    run_one_by_one(optimizer, 8)
    assert optimizer.decisions["n_subspace_paths"] == 4
    assert "r is 50, and the paths are 4" in optimizer.decisions["notes"][0]


@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 1), (1, 6)])
@pytest.mark.parametrize("phase3", ["smac", "tpe"])
def test_the_smallest_graphs_are_searched(counts: tuple[int, ...], phase3: str) -> None:
    optimizer = Flash(counted_space(counts), 0, Objective(), phase3=phase3)
    assert len({q.configuration for q in run_one_by_one(optimizer, 18)}) == 18


@pytest.mark.parametrize("cost", ["steps", "total", "none"])
@pytest.mark.parametrize("loss", [None, 0.0, 7.0])
def test_failures_equal_losses_and_costs_of_zero_raise_nothing(
    cost: str, loss: float | None
) -> None:
    optimizer = Flash(counted_space((3, 3)), 0, Objective(), cost=cost)
    for number in range(14):
        query = optimizer.ask(Budget(trials_left=14 - number, seconds_left=10.0))
        trial = Trial(number, query).started()
        if loss is None:
            optimizer.tell(told(number, query, None))
        else:
            optimizer.tell(trial.completed(evaluation(loss, 0.0)))
    assert len(optimizer.history) == 14


def test_a_batch_of_pending_queries_takes_different_paths() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective())
    run_one_by_one(optimizer, 7)
    assert optimizer.decisions["phase"] == 2
    asked = [optimizer.ask(Budget()).configuration.path for _ in range(4)]
    assert len(set(asked)) == 4


def test_a_path_under_way_is_not_taken_again_though_it_is_the_best() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", xi=0.0, n_prune=9)
    run_one_by_one(optimizer, 9)
    assert optimizer.decisions["phase"] == 2
    twin, other, third = (optimizer.ask(Budget()).configuration.path for _ in range(3))
    assert len({twin, other, third}) == 3
    alone = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", xi=0.0, n_prune=9)
    run_one_by_one(alone, 9)
    paths = []
    for number in range(9, 12):
        query = alone.ask(Budget())
        paths.append(query.configuration.path)
        alone.tell(told(number, query, 1.0))
    assert paths == [twin] * 3  # it is the best, and told each time it is asked for again


def test_in_phase_two_the_default_variant_runs_each_path_once() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), n_prune=6)
    paths = [q.configuration.path for q in run_one_by_one(optimizer, 12)]
    assert len(set(paths)) == 12


def test_the_path_of_the_incumbent_is_in_the_subspace_whatever_the_model_says() -> None:
    """Two steps fit each other: the best path is one that no sum of effects would choose."""
    losses = {("a1", "a1"): 1.0, ("a0", "a1"): 60.0, ("a1", "a0"): 60.0, ("a0", "a0"): 20.0}
    for options, is_kept in (({}, True), ({"variant": "paper"}, False)):
        optimizer = Flash(
            counted_space((3, 3)), 0, Objective(), r=1, n_init=9, n_prune=0, keep=0.0, **options
        )
        paths = list(optimizer.space.paths())
        rng = np.random.default_rng(0)
        for number, path in enumerate(paths):
            query = Query(default_configuration(optimizer.space, path))
            loss = losses.get(path, 15.0 + float(rng.random()))
            replay(optimizer, [Asked(number, query, Budget()), Told(told(number, query, loss))])
        optimizer.ask(Budget())
        subspace = optimizer.decisions["subspace"]
        is_inside = "a1" in subspace["step0"] and "a1" in subspace["step1"]
        assert is_inside == is_kept


def test_the_better_half_of_each_step_stays_whatever_the_linear_model_says() -> None:
    optimizer = Flash(counted_space((4, 4)), 0, Objective(), r=1, n_init=8, n_prune=8)
    run_one_by_one(optimizer, 17)
    decided = optimizer.decisions
    assert {step: set(ids) >= {"a0", "a1"} for step, ids in decided["subspace"].items()} == {
        "step0": True, "step1": True,
    }  # fmt: skip
    assert decided["n_subspace_paths"] < 16
    paper = Flash(counted_space((4, 4)), 0, Objective(), r=1, n_init=8, n_prune=8, variant="paper")
    run_one_by_one(paper, 17)
    assert paper.decisions["n_subspace_paths"] == 1


def phase_two_seconds(cost: str, seed: int) -> float:
    """Seconds of twelve runs of Phase 2 where the middle step is dear, and its prefix cached."""
    optimizer = Flash(counted_space((4, 4, 4)), seed, Objective(), cost=cost, n_init=10, n_prune=12)
    seen: set[str] = set()
    spent = 0.0
    for number in range(22):
        query = optimizer.ask(Budget())
        outcome = steps_of(query, seen, {f"step1.a{j}": 30.0 for j in range(4)})
        optimizer.tell(Trial(number, query).started().completed(outcome))
        spent += outcome.cost_seconds if number >= 10 else 0.0
    return spent


def test_paths_that_share_what_is_cached_are_preferred() -> None:
    steps, total, none = (
        sum(phase_two_seconds(cost, seed) for seed in range(3))
        for cost in ("steps", "total", "none")
    )
    assert steps < 0.5 * min(total, none)


@pytest.mark.parametrize("seed", range(3))
def test_an_expensive_path_of_the_design_waits_until_the_others_ran(seed: int) -> None:
    optimizer = Flash(counted_space((2, 3)), seed, Objective(), n_init=6)
    seen: set[str] = set()
    order = []
    for number in range(6):
        query = optimizer.ask(Budget())
        order.append(query.configuration.path)
        outcome = steps_of(query, seen, {"step1.a2": 500.0})
        optimizer.tell(Trial(number, query).started().completed(outcome))
    assert len(set(order)) == 6
    # All models run first; of the other three paths the one with the dear model is the last.
    assert [path[1] for path in order[:3]] == ["a0", "a1", "a2"]
    assert order[5][1] == "a2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"r": 0}, "r must be >= 1; got 0"),
        ({"n_init": 0}, "n_init must be >= 1"),
        ({"n_prune": 2.5}, "n_prune must be a whole number; got 2.5"),
        ({"n_init": True}, "n_init must be a whole number; got True"),
        ({"xi": "abc"}, "xi must be a number; got 'abc'"),
        ({"ridge": float("inf")}, "ridge must be a finite number"),
        ({"xi": -1.0}, "xi must be >= 0"),
        ({"ridge": 0.0}, "ridge must be > 0"),
        ({"phase3": "bohb"}, "phase3 must be smac or tpe; got 'bohb'"),
        ({"variant": None}, "variant must be default or paper"),
        ({"failure_cost": "none"}, "failure_cost must be bound or worst or chance"),
        ({"pruning": "no"}, "pruning must be true or false"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Flash(mixed_space(), 0, Objective(), **options)


def test_a_share_of_phase_three_may_look_outside_of_the_subspace() -> None:
    space = counted_space((4, 5, 5))
    optimizer = Flash(space, 0, Objective(), n_init=4, n_prune=4, r=1, keep=0.0, outside=0.5)
    queries = run_one_by_one(optimizer, 40, Budget(trials_left=40))
    inside = optimizer.decisions["subspace"]
    is_outside = [
        any(choice.algorithm not in inside[step] for step, choice in q.configuration.choices)
        for q in queries[8:]
    ]
    assert 0.2 < sum(is_outside) / len(is_outside) <= 0.6
