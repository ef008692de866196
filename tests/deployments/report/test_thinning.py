"""Thinned clouds keep what matters."""

from itertools import pairwise

from prefect_tune.deployments.report.plots import thinned


def test_few_points_are_all_shown_but_for_those_without_a_value() -> None:
    assert thinned([3.0, None, 1.0, float("nan"), 2.0]) == [0, 2, 4]


def test_of_many_the_extremes_and_what_is_to_be_kept_are_shown() -> None:
    values = [50.0] * 10_001
    values[4_321], values[8_765] = 1.0, 99.0
    shown = thinned(values, keep={1_234, 20_000}, most=100)
    assert {1_234, 4_321, 8_765} <= set(shown)
    assert 100 <= len(shown) <= 103
    assert shown == sorted(shown)


def test_the_others_are_evenly_chosen() -> None:
    shown = thinned([float(n % 7) for n in range(1_000)], most=10)
    gaps = [b - a for a, b in pairwise(shown)]
    assert max(gaps) == 100
