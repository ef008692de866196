"""Phase 1: which paths come first, and which wait."""

import numpy as np
from flash_worlds import counted_space, steps_of

from prefect_tune.optimizers import History, Objective, Query, Space, Trial
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.phases import initial_design, rest_of_design
from prefect_tune.optimizers.methods.flash.scores import PathModels
from prefect_tune.optimizers.space.configuration import default_configuration

SPACE = counted_space((3, 3))
DESIGN = [0, 4, 8, 1, 2, 3, 5, 6, 7]


def models(options: FlashOptions, space: Space = SPACE) -> PathModels:
    return PathModels(space, 0, Objective(), options, {})


def after_three(dear: float) -> History:
    """The first three of the design have run; the second model takes some seconds."""
    history, seen, paths = History(), set[str](), list(SPACE.paths())
    for number, i in enumerate(DESIGN[:3]):
        query = Query(default_configuration(SPACE, paths[i]))
        outcome = steps_of(query, seen, {"step1.a1": dear})
        history.record(Trial(number, query).started().completed(outcome))
    return history


def left(dear: float, **options: object) -> list[int]:
    given = FlashOptions(**options).resolved()  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    return rest_of_design(DESIGN, given, models(given), after_three(dear), rng)


def test_dear_paths_wait_until_the_others_have_run() -> None:
    assert left(0.1) == [1, 2, 3, 5, 6, 7]
    assert left(500.0) == [2, 3, 5, 6, 1, 7]


def test_of_dear_paths_the_cheaper_one_comes_first() -> None:
    given = FlashOptions().resolved()
    history, seen, paths = History(), set[str](), list(SPACE.paths())
    seconds = {"step1.a1": 500.0, "step1.a2": 90.0}
    for number, i in enumerate([0, 3, 4, 6, 8]):
        query = Query(default_configuration(SPACE, paths[i]))
        outcome = steps_of(query, seen, seconds)
        history.record(Trial(number, query).started().completed(outcome))
    design = [0, 3, 4, 6, 8, 1, 7, 2, 5]
    rest = rest_of_design(design, given, models(given), history, np.random.default_rng(0))
    assert rest == [2, 5, 1, 7]


def test_without_costs_nothing_waits() -> None:
    assert left(500.0, cost="none") == [1, 2, 3, 5, 6, 7]


def test_after_the_design_paths_asked_for_least_come_first() -> None:
    given = FlashOptions().resolved()
    rng = np.random.default_rng(0)
    rest = rest_of_design(DESIGN[:3], given, models(given), after_three(1.0), rng)
    assert set(rest[:6]) == {1, 2, 3, 5, 6, 7}
    assert set(rest[6:]) == {0, 4, 8}


def test_a_path_that_stands_twice_in_the_design_runs_twice() -> None:
    given = FlashOptions(cost="none").resolved()
    rng = np.random.default_rng(0)
    assert rest_of_design([0, 0, 4, 8], given, models(given), after_three(1.0), rng) == [0]


def test_the_design_has_the_length_of_the_rank_or_the_one_given() -> None:
    rng = np.random.default_rng(0)
    given = FlashOptions().resolved()
    assert len(initial_design(given, models(given).table, rng)) == 5
    short = FlashOptions(n_init=2).resolved()
    assert len(initial_design(short, models(short).table, rng)) == 2


def test_plain_first_begins_with_one_path_per_model() -> None:
    given = FlashOptions().resolved()
    table = models(given).table
    assert initial_design(given, table, np.random.default_rng(0))[:3] == table.plain
    paper = FlashOptions(variant="paper").resolved()
    starts = {initial_design(paper, table, np.random.default_rng(s))[0] for s in range(20)}
    assert len(starts) > 3
