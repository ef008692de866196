from typing import Any, ClassVar

import numpy as np
from contracts.optimizer import OptimizerContract
from subset_worlds.problems import BEST, ROWS, Twin, ask_and_tell, cube, position, trial

from prefect_tune.optimizers import Budget, make_optimizer


class TestExpectedImprovement(OptimizerContract):
    method = "ei"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3


def test_it_asks_for_full_evaluations_where_improvement_is_expected() -> None:
    optimizer = make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"})
    queries = ask_and_tell(optimizer, Twin(), 14)
    assert all(q.is_full for q in queries)
    late = [abs(position(q)[0] - BEST) for q in queries[8:]]
    assert np.median(late) < 0.05  # 0.25 if they were anywhere
    assert optimizer.incumbent == optimizer.history.incumbent
    assert not optimizer.can_go_on


def test_queries_under_way_are_not_asked_for_again() -> None:
    optimizer = make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"})
    ask_and_tell(optimizer, Twin(), 8)
    queries = [optimizer.ask(Budget(n_workers=3)) for _ in range(3)]
    places = sorted(position(q)[0] for q in queries)
    assert min(np.diff(places)) > 0
    for number, query in enumerate(queries, start=8):
        optimizer.tell(trial(number, query, *Twin()(query)))
    assert not optimizer.history.pending
