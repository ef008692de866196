"""The limit on what members take to fit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.tasks.ensembling.choosing import FitLimit

SECONDS = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


@given(SECONDS, st.floats(0.0, 20.0))
def test_what_is_kept_fits_in_and_the_first_one_always_is(seconds, most) -> None:
    limit = FitLimit(np.array(seconds), most)
    kept = limit.kept(range(len(seconds)))
    assert kept[0] == 0
    assert len(kept) == 1 or sum(seconds[i] for i in kept) <= most + 1e-9
    for left_out in set(range(len(seconds))) - set(kept):
        before = [i for i in kept if i < left_out]
        assert sum(seconds[i] for i in before) + seconds[left_out] > most


def test_a_member_is_fitted_once_however_often_it_is_picked() -> None:
    limit = FitLimit(np.array([2.0, 1.0, 1.5]), 3.2)
    assert limit.may_join([0, 0, 0]).tolist() == [True, True, False]
    assert limit.may_join([0, 1]).tolist() == [True, True, False]


def test_of_some_candidates_it_is_the_same_in_their_order() -> None:
    limit = FitLimit(np.array([1.0, 2.0, 4.0]), 5.0).of([2, 0])
    assert limit.seconds.tolist() == [4.0, 1.0]
    assert limit.most == 5.0
