"""The gate on subsets."""

import json
from collections.abc import Sequence
from math import log

from subset_worlds import ROWS, configuration
from worlds import told

from prefect_tune.optimizers import History, Query
from prefect_tune.optimizers.methods.fabolas.gate import (
    Prediction,
    decisions_of,
    is_open,
    skills_of,
)
from prefect_tune.optimizers.methods.fabolas.subsets import Sizes

SURE = 0.1
OUTCOMES = (0.0, 1.5, -1.2, 0.8, -0.6, 1.1, -1.4, 0.3, 1.3, -0.9)
"""Of full evaluations in the order of asking, with a spread of 1."""


def skills(errors: Sequence[float]) -> list[float]:
    """Skills if full evaluations come out so far from their predictions, but the first has none."""
    predictions = {i: Prediction("", OUTCOMES[i] + e, SURE) for i, e in enumerate(errors, start=1)}
    return skills_of(predictions, dict(enumerate(OUTCOMES[: len(errors) + 1])), 1.0)


def test_the_gate_closes_on_several_misses() -> None:
    assert all(is_open(skills([0.05] * n)) for n in range(8))
    assert not is_open(skills([0.9, -0.8, 1.0]))
    assert is_open(skills([9.0]))
    assert is_open(skills([0.05, 0.05, 0.05, 9.0]))
    assert not is_open(skills([0.05, 0.05, *[9.0] * 4]))


def test_verdicts_know_nothing_of_what_came_out_later() -> None:
    errors = [0.15, 0.3, 0.1, 0.4, 0.2, 0.1]
    for n in range(1, len(errors)):
        assert skills(errors[:n]) == skills(errors)[:n]
    assert skills_of({1: Prediction("", 3.8, 0.4)}, {0: 0.0, 1: 3.0}, 1.0)[0] > 1.5


def test_a_vague_prediction_has_no_skill() -> None:
    outcomes = {0: 0.0, 1: 3.0}
    assert skills_of({1: Prediction("", 3.0, 0.8)}, outcomes, 1.0) == [0.0]
    assert skills_of({1: Prediction("", 3.0, 0.6)}, outcomes, 1.0)[0] > 1.0


def test_predictions_come_back_from_a_memo_rounded_but_never_to_nothing() -> None:
    first = Prediction("verify", -1.25, 0.5)
    memo = json.loads(json.dumps({"full": {"7": first.to_json()}}))
    assert Prediction.all_of(memo) == {7: first}
    assert Prediction.all_of({}) == {}
    kept = Prediction("search", 1 / 3, 2e-11 / 3).to_json()
    assert kept == ["search", 0.333333333, 6.66666667e-12]


def test_confirmations_that_disagree_do_so_in_the_unit_that_was_learned() -> None:
    memo = {"full": {"0": Prediction("confirm", log(2.0), 0.6).to_json()}}
    disagree = []
    for loss in (0.1, 0.3, 2.0, 4.5, 9.0):
        history = History()
        history.record(told(0, Query(configuration(0.5)), loss))
        (made,) = decisions_of(history, Sizes.of(ROWS), memo, 0.25)["confirmations"]
        disagree.append(made["disagrees"])
    assert disagree == [True, True, False, False, True]
