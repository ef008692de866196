import numpy as np
from worlds import mixed_space, ordered_space

from prefect_tune.optimizers.paths.step_seconds import RunningOrder
from prefect_tune.optimizers.space.candidate_space import CandidateSpace


def test_steps_run_as_they_are_declared_where_nothing_chooses_their_order() -> None:
    order = RunningOrder(mixed_space())
    assert order.is_declared
    assert order.of(("unit", "svm")) == (0, 1)


def test_the_chosen_order_is_that_of_the_pipeline() -> None:
    order = RunningOrder(ordered_space())
    assert not order.is_declared
    assert order.of(("b_before_c_before_a", "scale", "power", "power", "tree")) == (2, 3, 1, 4)


def test_places_of_many_paths_are_those_of_each() -> None:
    space = ordered_space()
    order, candidates = RunningOrder(space), CandidateSpace(space)
    drawn = candidates.sample(80, np.random.default_rng(0))
    places = order.places(drawn.algorithms)
    for row, algorithms in enumerate(drawn.algorithms):
        path = tuple(s.algorithms[a].id for s, a in zip(space.searched, algorithms, strict=True))
        expected = [-1] * 5
        for place, k in enumerate(order.of(path)):
            expected[k] = place
        assert places[row].tolist() == expected
