import pytest
from flash_worlds import (
    counted_space,
    run_one_by_one,
)
from worlds import evaluation, told

from prefect_tune.optimizers import (
    Budget,
    Flash,
    Objective,
    Trial,
)
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.phases import (
    PhaseLengths,
    phase_lengths,
    wanted_lengths,
)
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.tasks.catalogue.spaces import space_named


@pytest.mark.parametrize(
    "budget", [Budget(trials_left=16), Budget(trials_left=16, seconds_left=1e6)]
)
def test_phases_shrink_to_two_fifths_of_a_small_budget_and_say_so_once(budget: Budget) -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    run_one_by_one(optimizer, 16, budget)
    decisions = optimizer.decisions
    assert (decisions["n_init"], decisions["n_prune"], decisions["phase"]) == (5, 3, 3)
    assert len(decisions["notes"]) == 1
    assert "phases of 12 + 12; they are 5 + 3" in decisions["notes"][0]


def test_phases_shrink_with_the_trials_that_the_seconds_left_can_hold() -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    for number in range(20):
        query = optimizer.ask(Budget(seconds_spent=number, seconds_left=20.0 - number))
        optimizer.tell(told(number, query, 5.0 + number))
    assert (optimizer.decisions["n_init"], optimizer.decisions["n_prune"]) == (5, 4)


def test_slow_first_trials_of_workers_that_import_do_not_shorten_the_phases() -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
    left = 20.0
    for number in range(20):
        query = optimizer.ask(Budget(seconds_left=left))
        seconds = 4.0 if number < 2 else 0.5
        left -= seconds
        optimizer.tell(Trial(number, query).started().completed(evaluation(5.0, seconds)))
    assert optimizer.decisions["n_init"] + optimizer.decisions["n_prune"] > 8


def test_half_of_a_very_small_budget_is_for_seeing_the_models() -> None:
    optimizer = Flash(space_named("flash"), 0, Objective())
    queries = run_one_by_one(optimizer, 12, Budget(trials_left=12))
    assert optimizer.decisions["n_init"] == 6
    assert len({q.configuration.path[-1] for q in queries[:6]}) == 6


def test_lengths_given_by_the_user_are_kept_while_the_budget_holds_them() -> None:
    optimizer = Flash(counted_space((4, 5, 5)), 0, Objective(), n_init=6, n_prune=5)
    run_one_by_one(optimizer, 13, Budget(trials_left=13))
    assert (optimizer.decisions["n_init"], optimizer.decisions["n_prune"]) == (6, 5)
    assert optimizer.decisions["notes"] == []


def test_the_time_that_asks_take_shortens_the_phases() -> None:
    lengths = {}
    for each in (0.0, 2.0):
        optimizer = Flash(counted_space((4, 5, 5)), 0, Objective())
        for number in range(20):
            left = Budget(seconds_left=30.0 - number, ask_seconds=each * number)
            optimizer.tell(told(number, optimizer.ask(left), 5.0 + number))
        lengths[each] = optimizer.decisions["n_init"] + optimizer.decisions["n_prune"]
    assert lengths[2.0] < lengths[0.0]


def test_known_configurations_stand_for_the_design_where_they_are_many() -> None:
    table, options = PathTable(counted_space((4, 5, 5)), 0, {}), FlashOptions().resolved()
    assert wanted_lengths(options, table, n_known=5) == PhaseLengths(12, 12)
    assert wanted_lengths(options, table, n_known=6) == PhaseLengths(6, 1)
    assert wanted_lengths(options, table, n_known=16) == PhaseLengths(16, 4)
    assert wanted_lengths(FlashOptions(n_prune=7).resolved(), table, 16) == PhaseLengths(16, 7)


def test_a_search_that_begins_with_known_configurations_comes_to_its_last_phase_sooner() -> None:
    space = counted_space((4, 5, 5))
    optimizer = Flash(space, 0, Objective())
    known = [default_configuration(space, path) for path in list(space.paths())[:8]]
    optimizer.begin_with(known)
    run_one_by_one(optimizer, 14, Budget(trials_left=100))
    decisions = optimizer.decisions
    assert [t.query.configuration for t in optimizer.history][:8] == known
    assert (decisions["n_known"], decisions["n_init"], decisions["n_prune"]) == (8, 8, 2)
    assert optimizer.method.render_decisions(decisions)[0] == (
        "flash began with 8 known pipelines and 2 by expected improvement per second"
    )


def test_phases_shrink_in_proportion_and_never_to_nothing() -> None:
    wanted = PhaseLengths(12, 6)
    assert wanted.shrunk(None) == wanted
    assert wanted.shrunk(18) == wanted
    assert wanted.shrunk(9) == PhaseLengths(6, 3)
    assert wanted.shrunk(9, least=8) == PhaseLengths(8, 3)
    assert wanted.shrunk(1) == PhaseLengths(1, 1)
    assert PhaseLengths(5, 0).shrunk(2) == PhaseLengths(2, 0)


def test_lengths_are_the_rank_of_the_paths_unless_given() -> None:
    table = PathTable(counted_space((4, 5, 5)), 0, {})
    assert wanted_lengths(FlashOptions().resolved(), table) == PhaseLengths(12, 12)
    given = FlashOptions(n_init=3, pruning=False).resolved()
    assert wanted_lengths(given, table) == PhaseLengths(3, 0)
    paper = FlashOptions(variant="paper").resolved()
    assert phase_lengths(paper, table, 20) == PhaseLengths(10, 10)
    assert phase_lengths(paper, table, 30, n_known=16) == PhaseLengths(12, 12)
    assert phase_lengths(FlashOptions().resolved(), table, 30) == PhaseLengths(6, 6)
    assert phase_lengths(FlashOptions().resolved(), table, 10) == PhaseLengths(5, 2)
