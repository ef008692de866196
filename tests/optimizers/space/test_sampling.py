from collections import Counter

import numpy as np
from worlds import mixed_space

from prefect_tune.optimizers.space.sampling import sample_configuration

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
