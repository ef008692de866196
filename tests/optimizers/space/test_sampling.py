from collections import Counter

import numpy as np
import pytest
from worlds import finite_space, mixed_space

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


def test_a_new_configuration_is_none_of_those_asked_for_until_all_were() -> None:
    space, rng = finite_space(), np.random.default_rng(0)
    asked = set()
    for _ in range(5):
        configuration = new_configuration(space, asked, rng)
        assert configuration not in asked
        asked.add(configuration)
    with pytest.raises(SpaceExhausted, match="finite"):
        new_configuration(space, asked, rng)


def test_a_new_configuration_may_be_wanted_of_one_path() -> None:
    rng = np.random.default_rng(0)
    drawn = {new_configuration(SPACE, set(), rng, ("unit", "tree")) for _ in range(9)}
    assert {c.path for c in drawn} == {("unit", "tree")}
    depths = set()
    for _ in range(50):
        configuration = new_configuration(SPACE, depths, rng, ("unit", "tree"))
        depths.add(configuration)
    assert len(depths) == 50  # those that are seldom drawn too
    with pytest.raises(SpaceExhausted):
        new_configuration(SPACE, depths, rng, ("unit", "tree"))


def test_forbidden_values_are_not_drawn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        values = dict(sample_configuration(finite_space(), rng, ("grid",))["model"].values)
        assert values != {"a": "y", "b": 2}
