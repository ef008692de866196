from dataclasses import replace
from typing import Any, ClassVar

import pytest
from contracts.optimizer import OptimizerContract
from subset_worlds.problems import ROWS, Twin, ask_and_tell, cube

from prefect_tune.optimizers import make_optimizer
from prefect_tune.optimizers.methods.fabolas.declaration import TwoTaskOptions


class TestTwoTasks(OptimizerContract):
    method = "mtbo"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3
    planted_work = 20.0


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


def test_the_best_by_prediction_are_confirmed_on_all_rows() -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"inference": "map"})
    ask_and_tell(optimizer, Twin(), 5, trials_left=5)
    confirmed = ask_and_tell(optimizer, Twin(), 3, trials_left=0)
    assert all(q.is_full for q in confirmed)
    assert optimizer.incumbent == optimizer.history.incumbent


@pytest.mark.parametrize("share", [0.0, 1.0, -0.25])
def test_a_share_that_is_no_subset_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"share must be between 0 and 1; got {share}"):
        TwoTaskOptions(share=share)


def test_the_auxiliary_task_is_of_the_share_that_is_asked_for() -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"share": 0.01, "inference": "map"})
    shares = [query.subset for query in ask_and_tell(optimizer, Twin(is_good=True), 9)]
    assert set(shares) == {0.01, 1.0}
    assert shares[:5] == [0.01] * 5
