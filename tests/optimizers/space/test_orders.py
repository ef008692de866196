from itertools import product

import pytest
from worlds import ordered_space

from prefect_tune.optimizers import Space


def test_steps_run_in_the_order_that_was_chosen() -> None:
    space = ordered_space()
    path = ("c_before_a_before_b", "scale", "power", "none", "tree")
    assert not space.is_feasible(path)
    path = ("b_before_c_before_a", "scale", "power", "power", "tree")
    assert space.is_feasible(path)
    assert [s.name for s, _ in space.pipeline(path)] == ["b", "c", "a", "model"]
    assert [a.id for _, a in space.pipeline(path)] == ["power", "power", "scale", "tree"]
    assert space.n_paths == 6 * 27 * 2


@pytest.mark.parametrize("n", [2, 3, 4])
def test_of_orders_that_make_one_pipeline_exactly_one_can_run(n: int) -> None:
    space = ordered_space(n)

    def working(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        pipeline = space.pipeline(path)
        return tuple((s.name, a.id) for s, a in pipeline if not a.is_idle)

    every = list(product(*([a.id for a in s.algorithms] for s in space.searched)))
    can_run = [working(path) for path in space.paths()]
    assert len(can_run) == len(set(can_run))
    assert set(can_run) == {working(path) for path in every}


def test_what_may_not_follow_is_told_by_the_order_that_runs() -> None:
    steps = ordered_space(2).steps
    space = Space("x", steps, frozenset({(("b", "scale"), ("a", "power"))}))
    paths = [p for p in space.paths() if p[1:] == ("power", "scale", "tree")]
    assert paths == [("a_before_b", "power", "scale", "tree")]
