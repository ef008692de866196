import numpy as np
import pytest
from worlds import mixed_space

from prefect_tune.optimizers import Configuration, Query
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()


def drawn(seed: int) -> Configuration:
    return sample_configuration(SPACE, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("fidelity", "message"),
    [
        ({"subset": 0.0}, r"share of the rows in \(0, 1\]; got 0.0"),
        ({"subset": 1.5}, "got 1.5"),
        ({"subset_draw": -1}, "must be >= 0; got -1"),
        ({"epochs": 0}, "must be >= 1, or None for to the end; got 0"),
        ({"folds": 0}, "must be >= 1, or None for all; got 0"),
    ],
)
def test_a_fidelity_out_of_range_is_refused(fidelity, message) -> None:
    with pytest.raises(ValueError, match=message):
        Query(drawn(0), **fidelity)
