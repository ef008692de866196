"""What Fabolas is compared with: improvement, entropy search and two tasks."""

from dataclasses import replace

import numpy as np
import pytest
from subset_worlds.problems import BEST, ROWS, Twin, ask_and_tell, cube, position

from prefect_tune.optimizers import Query, make_optimizer
from prefect_tune.optimizers.methods.fabolas.fabolas import EntropySearch


def test_it_asks_for_full_evaluations_where_improvement_is_expected() -> None:
    optimizer = make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"})
    queries = ask_and_tell(optimizer, Twin(), 14)
    assert all(q.is_full for q in queries)
    late = [abs(position(q)[0] - BEST) for q in queries[8:]]
    assert np.median(late) < 0.05  # 0.25 if they were anywhere
    assert optimizer.incumbent == optimizer.history.incumbent
    assert not optimizer.can_go_on


def queries_of(factor: float) -> list[Query]:
    """What is asked for where those on the right cost e^factor of those on the left."""
    optimizer = make_optimizer("es", cube(), 0, ROWS, {"inference": "map"})

    def outcome(query: Query) -> tuple[float | None, float]:
        return Twin()(query)[0], float(np.exp(factor * position(query)[0]))

    return ask_and_tell(optimizer, outcome, 10)


def test_it_asks_for_full_evaluations_alone_and_cost_does_not_matter() -> None:
    queries = queries_of(0.0)
    assert all(q.is_full for q in queries)
    assert len({q.configuration for q in queries}) == len(queries)
    assert queries_of(8.0) == queries


def test_it_goes_by_information_and_not_by_improvement() -> None:
    made = make_optimizer("es", cube(), 0, ROWS, {"inference": "map"})
    assert isinstance(made, EntropySearch)
    assert made.recipe.acquisition == "gain"
    assert made.sizes.is_single
    by_gain = queries_of(0.0)
    by_improvement = ask_and_tell(
        make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"}), Twin(), 10
    )
    assert by_gain[:5] == by_improvement[:5]  # the first ones are random
    assert by_gain[5:] != by_improvement[5:]
    # Improvement is sought near the best, information to both sides of it.
    spread = [np.std([position(q)[0] for q in qs[6:]]) for qs in (by_gain, by_improvement)]
    assert spread[0] > spread[1]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.25, 0.125])
def test_it_begins_on_the_subset_and_asks_for_that_and_all_rows_alone(share: float) -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"inference": "map", "share": share})
    queries = ask_and_tell(optimizer, Twin(), 16)
    assert {q.subset for q in queries[:5]} == {share}
    assert {q.subset for q in queries} == {share, 1.0}


def test_without_a_row_in_the_subset_all_rows_are_asked_for() -> None:
    options = {"inference": "map", "share": 0.01}
    optimizer = make_optimizer("mtbo", cube(), 0, replace(ROWS, n_rows=20), options)
    assert all(q.is_full for q in ask_and_tell(optimizer, Twin(), 8))
    assert not optimizer.can_go_on
