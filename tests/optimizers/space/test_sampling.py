from collections import Counter

import numpy as np
import pytest
from worlds import finite_space, mixed_space

from prefect_tune.optimizers.space.configuration import Configuration, is_allowed
from prefect_tune.optimizers.space.sampling import (
    SpaceExhausted,
    new_configuration,
    sample_configuration,
)

SPACE = mixed_space()


def test_values_are_spread_evenly_over_their_range() -> None:
    """log10 C is uniform on [-3, 3]: mean 0, sd 1.73; of 400 draws the mean errs by 0.087."""
    draws = [
        dict(sample_configuration(SPACE, np.random.default_rng(i), ("unit", "svm"))["model"].values)
        for i in range(400)
    ]
    logs = np.log10([float(d["C"]) for d in draws])
    assert abs(logs.mean()) < 0.44  # five standard errors
    assert logs.min() < -2.7
    assert logs.max() > 2.7


def test_paths_that_can_run_are_drawn_equally_often() -> None:
    """Of 1000 draws, each of 5 paths gets 200, with a standard deviation of 12.6."""
    rng = np.random.default_rng(1)
    counts = Counter(sample_configuration(SPACE, rng).path for _ in range(1000))
    assert len(counts) == 5
    assert all(abs(count - 200) < 63 for count in counts.values())  # five of them


def test_values_that_are_forbidden_together_are_not_drawn() -> None:
    space, rng = finite_space(), np.random.default_rng(0)
    drawn = [sample_configuration(space, rng, ("grid",)) for _ in range(100)]
    assert len(set(drawn)) == 3
    assert all(is_allowed(space, c) for c in drawn)


def test_what_was_asked_for_is_not_drawn_again_until_nothing_is_left() -> None:
    space, asked, rng = finite_space(), set[Configuration](), np.random.default_rng(0)
    for n in range(1, 6):
        asked.add(new_configuration(space, asked, rng))
        assert len(asked) == n
    with pytest.raises(SpaceExhausted, match=r"'finite' .* \(5\)"):
        new_configuration(space, asked, rng)


def test_a_path_may_be_exhausted_before_its_space() -> None:
    space, rng = finite_space(), np.random.default_rng(0)
    only = new_configuration(space, set(), rng, ("one",))
    with pytest.raises(SpaceExhausted):
        new_configuration(space, {only}, rng, ("one",))
    assert new_configuration(space, {only}, rng).path != ("one",)
