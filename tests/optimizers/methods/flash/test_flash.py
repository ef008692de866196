"""FLASH's phases, their lengths, and the steps that all paths share."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    ask_and_tell,
    counted_space,
    events_space,
    has_found,
    ignoring_space,
    one_hot_paths,
    planted,
    told,
    told_history,
)

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Encoding,
    Flash,
    Objective,
    Query,
    Racing,
    Told,
    replay,
)
from prefect_tune.optimizers.methods.declarations import FlashOptions
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.flash import phase_lengths, subspace_of
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.tasks.catalogue.spaces import space_named


def by_path(optimizer: Flash) -> Callable[[Query], float]:
    """The loss of a trial is the number of its path."""
    paths = list(optimizer.space.paths())
    return lambda query: float(paths.index(query.configuration.path)) + 1


def test_the_benchmark_world_of_the_paper() -> None:
    """After thirty D-optimal picks, with losses and log seconds that are sums over algorithms."""
    optimizer = Flash(counted_space(BENCHMARK), 0, Objective(), variant="paper")
    paths, one_hot = list(optimizer.space.paths()), one_hot_paths(BENCHMARK)
    losses = 20 + one_hot @ np.array([((7 * c) % 33) / 4 for c in range(33)])
    seconds = np.exp(1 + one_hot @ np.array([((5 * c) % 33) / 20 for c in range(33)]))
    picks: list[int] = []
    for number in range(60):
        if number < 30:
            query = Query(default_configuration(optimizer.space, paths[FIRST_THIRTY[number]]))
            replay(optimizer, [Asked(number, query, Budget())])
        else:
            query = optimizer.ask(Budget())
        picks.append(i := paths.index(query.configuration.path))
        optimizer.tell(told(number, query, float(losses[i]), float(seconds[i])))
    assert picks[30:35] == [329, 262, 686, 216, 548]
    assert len(set(picks[30:])) >= 25
    optimizer.ask(Budget())
    kept = optimizer.decisions["subspace"].values()
    assert all(a in ids for a, ids in zip(paths[238], kept, strict=True))


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
def test_phases_follow_one_another_and_proposals_stay_in_the_subspace(options) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), r=2, **options)
    late = ask_and_tell(optimizer, by_path(optimizer), 20)[12:]
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (6, 6, 3)
    part = optimizer.space.restricted_to(decisions["subspace"])
    assert {query.configuration.path for query in late} <= set(part.paths())


def test_phase_one_begins_with_every_model_on_plain_data() -> None:
    optimizer = Flash(space_named("flash"), 0, Objective())
    paths = [query.configuration.path for query in ask_and_tell(optimizer, by_path(optimizer), 30)]
    models = [a.id for a in optimizer.space.searched[-1].algorithms]
    assert paths[: len(models)] == [("none", "none", "none", model) for model in models]
    assert {path[2] for path in paths} == {a.id for a in optimizer.space.searched[2].algorithms}
    one_hot = np.array([Encoding(optimizer.space).one_hot(path) for path in paths])
    assert np.linalg.matrix_rank(one_hot) == 30  # all effects can be told apart


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
def test_while_nothing_completes_it_goes_through_the_paths(options: dict[str, Any]) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), **options)
    asked = ask_and_tell(optimizer, lambda _: None, 24)
    counts = Counter(query.configuration.path for query in asked)
    assert set(counts.values()) == {2}  # of 12 paths


@pytest.mark.parametrize(("n_rows", "counts"), [(20_000, True), (20_001, False)])
def test_where_partial_runs_take_equally_long_no_cost_counts(n_rows: int, counts: bool) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(n_rows=n_rows, n_folds=3))
    Racing(optimizer)
    steps = optimizer.space.steps
    optimizer._decided.subspace = {step.name: [a.id for a in step.algorithms] for step in steps}
    assert (optimizer._log_cost() is not None) == counts


def test_a_path_under_way_is_not_taken_again_though_it_is_the_best() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", n_prune=9)
    ask_and_tell(optimizer, by_path(optimizer), 9)
    assert optimizer.decisions["phase"] == 2
    twin, other, third = (optimizer.ask(Budget()).configuration.path for _ in range(3))
    assert len({twin, other, third}) == 3


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


@pytest.mark.slow
def test_phases_shrink_to_two_fifths_of_a_small_budget_and_say_so_once() -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    ask_and_tell(optimizer, by_path(optimizer), 16, 16, seconds_left=1e6)
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (5, 3, 3)
    (note,) = decisions["notes"]
    assert "5 + 3" in note


def test_known_configurations_come_first_and_count_in_the_first_phase() -> None:
    space = counted_space((4, 5, 5))
    optimizer = Flash(space, 0, Objective())
    known = [default_configuration(space, path) for path in list(space.paths())[:8]]
    optimizer.begin_with(known)
    asked = ask_and_tell(optimizer, by_path(optimizer), 14, 100)
    decisions = optimizer.decisions
    assert [query.configuration for query in asked][:8] == known
    assert (decisions["n_known"], decisions["n_init"], decisions["n_prune"]) == (8, 8, 2)


PAPER = FlashOptions(variant="paper")


@pytest.mark.parametrize(
    ("options", "n_trials", "n_known", "lengths"),
    [
        (FlashOptions(), None, 0, (12, 12)),  # the rank of the paths
        (FlashOptions(), None, 16, (16, 4)),
        (FlashOptions(), 30, 0, (6, 6)),
        (FlashOptions(), 10, 0, (5, 2)),  # each model is seen in half of it
        (FlashOptions(n_init=3), None, 0, (3, 12)),
        (FlashOptions(n_init=5, n_prune=0), 5, 0, (5, 0)),
        (FlashOptions(n_init=5, n_prune=0), 2, 0, (2, 0)),
        (PAPER, 20, 0, (10, 10)),
        (PAPER, 30, 16, (12, 12)),
        (PAPER, 1, 0, (1, 1)),
    ],
)
def test_lengths_are_the_rank_of_the_paths_unless_given(options, n_trials, n_known, lengths):
    table = PathTable(counted_space((4, 5, 5)), 0)
    assert phase_lengths(options, table, n_trials, n_known=n_known) == lengths


@pytest.mark.parametrize(
    ("paths", "keep", "kept"),
    [
        ([("a3", "a1"), ("a0", "a1")], 0.0, (["a0", "a3"], ["a1"])),
        ([("a0", "a1")], 0.5, (["a0", "a1", "a2"], ["a0", "a1", "a2"])),
        ([("a0", "a1")], 0.75, (["a0", "a1", "a2", "a3"], ["a0", "a1", "a2", "a3"])),
        ([("a0", "a1")], 0.01, (["a0", "a1", "a2"], ["a0", "a1", "a2"])),  # two all the same
    ],
)
def test_the_subspace_has_the_best_paths_and_the_best_share_of_each_step(paths, keep, kept) -> None:
    space = counted_space((4, 4))
    losses = {("a3", "a3"): 30.0, ("a2", "a0"): 20.0, ("a1", "a2"): 10.0, ("a0", "a2"): None}
    history = told_history(
        (Query(default_configuration(space, path)), loss) for path, loss in losses.items()
    )
    found = subspace_of(space, paths, history, keep)
    assert (found["step0"], found["step1"]) == kept


def test_a_sub_space_holds_what_does_nothing_for_models_that_ignore_steps() -> None:
    space = ignoring_space()
    kept = subspace_of(space, [("mean", "unit", "none", "svm")], History())
    assert kept == {"impute": ["mean"], "scale": ["unit"], "select": ["none"], "model": ["svm"]}
    history = History()
    both = [("mean", "unit", "none", "svm"), ("none", "none", "none", "tree")]
    kept = subspace_of(space, both, history)
    part = space.restricted_to(kept)
    assert set(both) <= set(part.paths())


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize(("family", "kind"), [("sum", "linear"), ("average", "trees")])
def test_the_aggregation_of_a_family_is_found_with_the_kind_of_model_that_it_suits(
    family: str, kind: str, seed: int
) -> None:
    assert has_found(Flash, family, kind, seed, 24)


def test_first_runs_have_the_values_that_look_best_for_their_kind_and_nothing_is_settled() -> None:
    optimizer = Flash(events_space(), 0, Objective())
    loss_of = planted(optimizer.space, "average", "trees", 0)
    ask_and_tell(optimizer, loss_of, 8, 100)
    n, late = 8, {}
    while "subspace" not in optimizer.decisions:
        query = optimizer.ask(Budget(trials_left=100 - n))
        value = dict(query.configuration["construct"].values)["aggregation"]
        late.setdefault(query.configuration.path[-1], value)
        # Averages turn out bad for trees after all.
        loss = 60.0 if n >= 12 and value == "average" else loss_of(query)
        optimizer.tell(told(n, query, loss))
        n += 1
    assert late["forest"] == "average" != late["svm"]
    shown = {c["step"]: c for c in optimizer.decisions["shared_values"]["trees"]}
    assert shown["construct"]["hyperparameters"]["aggregation"] != "average"


@pytest.mark.parametrize(
    ("n_all", "options", "most"), [(10, {}, 3), (20, {}, 6), (100, {}, 6), (100, {"n_init": 6}, 3)]
)
def test_varying_shared_values_takes_a_bounded_share_of_the_trials(n_all, options, most) -> None:
    optimizer = Flash(events_space(), 0, Objective(), **options)
    ask_and_tell(optimizer, planted(optimizer.space, "sum", "linear", 0), min(n_all, 16), n_all)
    assert (optimizer.memo or {})["n_varied"] == most


@pytest.mark.parametrize("n", [5, 11])
def test_a_search_of_shared_values_is_resumed_where_it_was(n: int) -> None:
    space = events_space()
    first, second = Flash(space, 3, Objective()), Flash(space, 3, Objective())
    ask_and_tell(first, planted(space, "sum", "trees", 3), n, 30)
    told = [(Asked(t.number, t.query, Budget()), Told(t)) for t in first.history]
    replay(second, [event for pair in told for event in pair], first.memo)
    budget = Budget(trials_left=30 - n)
    assert second.ask(budget) == first.ask(budget)
    assert second.decisions == first.decisions
