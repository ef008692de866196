"""FLASH's phases, their lengths, and the steps that all paths share."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flash_worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    additive_log_seconds,
    additive_losses,
    counted_space,
    run_one_by_one,
)
from shared_worlds import FAMILIES, KINDS, events_space, has_found, planted, run_planted
from worlds import evaluation, ignoring_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Configuration,
    Encoding,
    Flash,
    Objective,
    Query,
    Racing,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.methods.declarations import FlashOptions
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.flash import phase_lengths, subspace_of
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.history import History
from prefect_tune.tasks.catalogue.spaces import space_named


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


@pytest.mark.parametrize("options", [{}, {"variant": "paper"}])
def test_phases_follow_one_another_and_proposals_stay_in_the_subspace(options) -> None:
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


@pytest.mark.parametrize(("n_rows", "counts"), [(20_000, True), (20_001, False)])
def test_where_partial_runs_take_equally_long_no_cost_counts(n_rows: int, counts: bool) -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(n_rows=n_rows, n_folds=3))
    Racing(optimizer)
    steps = optimizer.space.steps
    optimizer._decided.subspace = {step.name: [a.id for a in step.algorithms] for step in steps}
    assert (optimizer._log_cost() is not None) == counts


def test_a_path_under_way_is_not_taken_again_though_it_is_the_best() -> None:
    optimizer = Flash(counted_space((3, 4)), 0, Objective(), variant="paper", n_prune=9)
    run_one_by_one(optimizer, 9)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget", [Budget(trials_left=16), Budget(trials_left=16, seconds_left=1e6)]
)
def test_phases_shrink_to_two_fifths_of_a_small_budget_and_say_so_once(budget: Budget) -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    run_one_by_one(optimizer, 16, budget)
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (5, 3, 3)
    assert len(decisions["notes"]) == 1
    assert "5 + 3" in decisions["notes"][0]


def test_half_of_a_very_small_budget_is_for_seeing_the_models() -> None:
    optimizer = Flash(space_named("flash"), 0, Objective())
    queries = run_one_by_one(optimizer, 12, Budget(trials_left=12))
    assert optimizer.decisions["n_init"] == 6
    assert len({q.configuration.path[-1] for q in queries[:6]}) == 6


def test_a_search_that_begins_with_known_configurations_comes_to_its_last_phase_sooner() -> None:
    space = counted_space((4, 5, 5))
    optimizer = Flash(space, 0, Objective())
    known = [default_configuration(space, path) for path in list(space.paths())[:8]]
    optimizer.begin_with(known)
    run_one_by_one(optimizer, 14, Budget(trials_left=100))
    decisions = optimizer.decisions
    assert [t.query.configuration for t in optimizer.history][:8] == known
    assert (decisions["n_known"], decisions["n_init"], decisions["n_prune"]) == (8, 8, 2)
    assert "8 known pipelines" in next(iter(optimizer.method.render_decisions(decisions)))


def test_lengths_are_the_rank_of_the_paths_unless_given() -> None:
    table = PathTable(counted_space((4, 5, 5)), 0)
    default = FlashOptions()
    assert phase_lengths(default, table, None) == (12, 12)
    assert phase_lengths(FlashOptions(n_init=3), table, None) == (3, 12)
    given = FlashOptions(n_init=5, n_prune=0)
    assert [phase_lengths(given, table, n) for n in (None, 5, 2, 1)] == [
        (5, 0),
        (5, 0),
        (2, 0),
        (1, 0),
    ]
    paper = FlashOptions(variant="paper")
    assert phase_lengths(paper, table, 20) == (10, 10)
    assert phase_lengths(paper, table, 30, n_known=16) == (12, 12)
    assert phase_lengths(paper, table, 1) == (1, 1)
    assert phase_lengths(default, table, 30) == (6, 6)
    assert phase_lengths(default, table, 10) == (5, 2)
    assert phase_lengths(default, table, None, n_known=16) == (16, 4)


def test_a_sub_space_holds_what_does_nothing_for_models_that_ignore_steps() -> None:
    space = ignoring_space()
    kept = subspace_of(space, [("mean", "unit", "none", "svm")], History())
    assert kept == {"impute": ["mean"], "scale": ["unit"], "select": ["none"], "model": ["svm"]}
    history = History()
    both = [("mean", "unit", "none", "svm"), ("none", "none", "none", "tree")]
    kept = subspace_of(space, both, history)
    part = space.restricted_to(kept)
    assert set(both) <= set(part.paths())


CHOICE = {"algorithm": "count", "hyperparameters": {"weight": "none"}}


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_aggregation_of_each_family_is_found_with_the_kind_of_model_that_it_suits(
    kind: str, family: str, seed: int
) -> None:
    assert has_found(Flash, family, kind, seed, 24)


def test_the_first_trials_vary_shared_values_on_two_kinds_of_models() -> None:
    optimizer = Flash(events_space(), 0, Objective())
    run_planted(optimizer, planted(optimizer.space, "sum", "linear", 0), 10, n_all=100)
    asked = [t.query.configuration for t in optimizer.history]
    assert [c.path[-1] for c in asked[:8]] == ["ridge", "boosting"] * 4
    for model in ("ridge", "boosting"):
        values = [dict(c["construct"].values) for c in asked[:8] if c.path[-1] == model]
        assert {v["aggregation"] for v in values} == set(FAMILIES)
    assert asked[8].path[-1] not in {"ridge", "boosting"}


def test_first_runs_have_the_values_that_look_best_for_their_kind_and_nothing_is_settled() -> None:
    space = events_space()
    optimizer = Flash(space, 0, Objective())
    loss_of = planted(space, "average", "trees", 0)
    run_planted(optimizer, loss_of, 8, n_all=100)
    n, late = 8, []
    while "subspace" not in optimizer.decisions:
        query = optimizer.ask(Budget(trials_left=100 - n))
        late.append(query.configuration)
        # Averages turn out bad for trees after all.
        is_late = n >= 12 and dict(query.configuration["construct"].values)
        loss = 60.0 if is_late and is_late["aggregation"] == "average" else loss_of(query)
        optimizer.tell(told(n, query, loss))
        n += 1
    forest = next(c for c in late if c.path[-1] == "forest")
    linear = next(c for c in late if c.path[-1] == "svm")
    assert dict(forest["construct"].values)["aggregation"] == "average"
    assert dict(linear["construct"].values)["aggregation"] != "average"
    shown = {c["step"]: c for c in optimizer.decisions["shared_values"]["trees"]}
    assert shown["construct"]["hyperparameters"]["aggregation"] != "average"
    (line,) = (x for x in optimizer.method.render_decisions(optimizer.decisions) if "trees:" in x)
    assert "aggregate" in line


@pytest.mark.parametrize(
    ("n_all", "options", "most"), [(10, {}, 3), (20, {}, 6), (100, {}, 6), (100, {"n_init": 6}, 3)]
)
def test_varying_shared_values_takes_a_bounded_share_of_the_trials(n_all, options, most) -> None:
    optimizer = Flash(events_space(), 0, Objective(), **options)
    loss_of = planted(optimizer.space, "sum", "linear", 0)
    reasons = []
    for number in range(min(n_all, 16)):
        query = optimizer.ask(Budget(trials_left=n_all - number))
        reasons.append(optimizer.reason.phase if optimizer.reason else "")
        optimizer.tell(told(number, query, loss_of(query)))
    assert reasons.count("shared values") == most + 2  # and twice with default values
    assert (optimizer.memo or {})["n_varied"] == most
    if "n_init" in options:
        assert optimizer.decisions["n_init"] == 6


def test_after_known_configurations_only_what_they_did_not_try_is_varied() -> None:
    space = events_space()
    optimizer = Flash(space, 0, Objective())
    path = ("aggregate", "unit", "none", "svm")
    known = []
    for family, frequency in zip(FAMILIES, (2, 3, 5, 5), strict=True):
        document = default_configuration(space, path).to_json()
        document["construct"]["hyperparameters"] = {
            "aggregation": family, "min_frequency": frequency
        }  # fmt: skip
        known.append(Configuration.from_json(document, space))
    others = (p for p in space.paths() if p[-1] == "bayes")
    known += [default_configuration(space, p) for p in others]
    optimizer.begin_with(known)
    loss_of = planted(space, "sum", "linear", 0)
    run_planted(optimizer, loss_of, len(known) + 6, n_all=60)
    asked = [t.query.configuration for t in optimizer.history][len(known) :]
    assert [c.path[-1] for c in asked[:4]] == ["boosting"] * 4
    assert optimizer.decisions["n_init"] == len(known) + 4
    assert optimizer.decisions["phase"] == 2


@pytest.mark.parametrize("n", [1, 5, 11, 17])
def test_a_resumed_search_asks_for_what_the_first_one_would(n: int) -> None:
    space = events_space()
    first = Flash(space, 3, Objective())
    events = run_planted(first, planted(space, "sum", "trees", 3), n, n_all=30)
    second = Flash(space, 3, Objective())
    replay(
        second, [replace(e, memo=None) if isinstance(e, Asked) else e for e in events], first.memo
    )
    budget = Budget(trials_left=30 - n)
    assert second.ask(budget) == first.ask(budget)
    assert second.decisions == first.decisions


def test_phase_three_tunes_shared_values_with_all_others() -> None:
    optimizer = Flash(events_space(), 0, Objective(), n_init=1, n_prune=0)
    loss_of = planted(optimizer.space, "average", "trees", 0)
    run_planted(optimizer, loss_of, 24, n_all=100)
    tuned = list(optimizer.history)[2:]
    values = {t.query.configuration["construct"].values for t in tuned}
    assert {dict(v)["aggregation"] for v in values} == set(FAMILIES)
    assert {dict(v)["min_frequency"] for v in values} == {2, 3, 4, 5}


OF_PAPER = """
power none boosting sum 2, unit some neighbours sum 2, none none bayes average 2,
none some svm count 4, power some bayes sum 3, unit none forest count 5, none some ridge binary 3,
unit some boosting count 2, unit none svm average 5, power none neighbours count 4,
power some forest average 5, power none ridge average 3, none none forest count 5,
power some svm sum 3, unit some bayes sum 3, none some boosting average 5,
none none neighbours binary 2, unit none ridge average 4
"""


def test_the_papers_variant_asks_for_what_it_always_did() -> None:
    """As recorded before shared values were searched."""
    space = events_space()
    optimizer = Flash(space, 0, Objective(), variant="paper")
    run_planted(optimizer, planted(space, "average", "trees", 0), 18, n_all=100)
    asked = [t.query.configuration for t in optimizer.history]
    written = [
        " ".join([*c.path[1:], *(str(value) for _, value in c["construct"].values)]) for c in asked
    ]
    assert written == " ".join(OF_PAPER.split()).split(", ")
