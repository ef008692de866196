from typing import Any, ClassVar

import numpy as np
from contracts.optimizer import OptimizerContract
from subset_worlds.problems import ROWS, Twin, ask_and_tell, cube, position

from prefect_tune.optimizers import Query, make_optimizer
from prefect_tune.optimizers.methods.fabolas.references import EntropySearch


class TestEntropySearch(OptimizerContract):
    method = "es"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3


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
