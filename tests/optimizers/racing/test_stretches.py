"""What a configuration runs one after another."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers import Objective, Query
from prefect_tune.optimizers.racing.rules import LARGE, Stretch, stretches_of
from prefect_tune.optimizers.space.configuration import default_configuration

SPACE = mixed_space()
FOLD, WHOLE = Stretch(folds=1), Stretch()


@pytest.mark.parametrize("n_rows", [None, 100, LARGE])
def test_on_few_rows_one_fold_comes_before_all_of_them(n_rows) -> None:
    assert stretches_of(Objective(n_rows=n_rows, n_folds=3)) == (FOLD, WHOLE)


@pytest.mark.parametrize(
    ("n_rows", "share"),
    [(20_001, 1 / 2), (39_999, 1 / 2), (40_000, 1 / 4), (80_000, 1 / 8), (1_300_000, 1 / 128)],
)
def test_on_many_rows_that_fold_on_a_part_of_10_000_or_more_comes_first(n_rows, share) -> None:
    parts = stretches_of(Objective(n_rows=n_rows, n_folds=3))
    assert parts == (Stretch(share, 1), FOLD, WHOLE)


def test_a_part_has_enough_rows_of_the_rarest_class() -> None:
    objective = Objective(n_rows=80_000, n_folds=3, n_classes=2, n_rarest=400)
    assert stretches_of(objective)[0].subset == 1 / 4
    assert stretches_of(replace(objective, n_rarest=150)) == (FOLD, WHOLE)
    assert stretches_of(replace(objective, n_classes=0))[0].subset == 1 / 8


def test_of_a_hold_out_part_rows_alone_can_be_fewer() -> None:
    assert stretches_of(Objective(n_rows=80_000, n_folds=1)) == (Stretch(1 / 8), WHOLE)
    with pytest.raises(ValueError, match="more than 20,000 training rows; there is 1 fold"):
        stretches_of(Objective(n_rows=LARGE, n_folds=1))


@given(st.integers(1, 10**8), st.integers(2, 20), st.integers(1, 10**6))
def test_stretches_rise_to_the_whole_and_each_is_told_from_the_others(n_rows, n_folds, rare):
    objective = Objective(n_rows=n_rows, n_folds=n_folds, n_classes=2, n_rarest=min(rare, n_rows))
    parts = stretches_of(objective)
    query = Query(default_configuration(SPACE, next(SPACE.paths())))
    queries = [part.of(query) for part in parts]
    assert queries[-1] == query
    assert [[part.fits(q) for part in parts].index(True) for q in queries] == [*range(len(parts))]
    assert all(a.subset * n_rows <= b.subset * n_rows for a, b in pairwise(parts))
    assert parts[0].subset * n_rows >= min(n_rows, 10_000)
