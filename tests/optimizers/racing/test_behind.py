import pytest
from worlds import finite_space

from prefect_tune.optimizers import Evaluation, History, Query, Trial
from prefect_tune.optimizers.racing.rules import is_behind, is_behind_on_part, margin
from prefect_tune.optimizers.space.configuration import default_configuration

INCUMBENT = Evaluation(20.0, (16.0, 20.0, 24.0))
ANY = Query(default_configuration(finite_space(), ("one",)))


def history_of(*losses: tuple[float, ...]) -> History:
    """The incumbent, and others that ran all folds."""
    history = History()
    evaluations = [INCUMBENT, *(Evaluation(sum(x) / len(x), x) for x in losses)]
    for number, evaluation in enumerate(evaluations):
        history.record(Trial(number, ANY).completed(evaluation))
    return history


THREE = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0), (20.0, 22.0, 24.0))
"""Differences 0 1 2, 3 3 3 and 4 2 0: variances 1, 0 and 4."""


def first(loss: float) -> Evaluation:
    return Evaluation(loss, (loss,))


def test_the_margin_is_the_standard_deviation_of_a_difference_seen_on_one_fold() -> None:
    spread = ((1 + 0 + 4) / 3) ** 0.5
    assert margin(INCUMBENT, THREE) == pytest.approx(spread * (2 / 3) ** 0.5)


def test_behind_is_who_is_worse_on_the_same_fold_by_more_than_the_margin() -> None:
    assert margin(INCUMBENT, THREE) == pytest.approx(1.054, abs=1e-3)
    assert not is_behind(first(17.0), INCUMBENT, THREE)
    assert is_behind(first(17.1), INCUMBENT, THREE)  # though the incumbent's mean is 20


def test_whose_differences_do_not_spread_need_no_margin() -> None:
    history = history_of((17.0, 21.0, 25.0), (18.0, 22.0, 26.0), (19.0, 23.0, 27.0))
    assert not is_behind(first(16.0), INCUMBENT, history)
    assert is_behind(first(16.1), INCUMBENT, history)


def test_before_three_others_are_known_the_incumbents_worst_fold_counts() -> None:
    history = history_of((16.0, 21.0, 26.0), (19.0, 23.0, 27.0))
    assert margin(INCUMBENT, history) is None
    assert not is_behind(first(24.0), INCUMBENT, history)
    assert is_behind(first(24.1), INCUMBENT, history)


def test_on_a_part_the_margin_is_how_far_looks_were_off_by_what_more_rows_change_too() -> None:
    """Three that looked 1 worse and were 3, 3 and 3: they do not spread, and were 2 off."""
    known = [(1.0, 3.0)] * 3
    assert not is_behind_on_part(2.0, INCUMBENT, known)
    assert is_behind_on_part(2.1, INCUMBENT, known)


def test_on_a_part_the_spread_of_the_incumbents_folds_counts_before_three_others_are_known() -> (
    None
):
    known = [(1.0, 3.0)] * 2
    assert not is_behind_on_part(8.0, INCUMBENT, known)
    assert is_behind_on_part(8.1, INCUMBENT, known)


def test_of_a_hold_out_part_nothing_is_behind_before_three_others_are_known() -> None:
    alone = Evaluation(20.0, (20.0,))
    assert not is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 2)
    assert is_behind_on_part(80.0, alone, [(1.0, 1.0)] * 3)
