import numpy as np
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    History,
    Query,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()


def query(seed: int, **fidelity) -> Query:
    return Query(sample_configuration(SPACE, np.random.default_rng(seed)), **fidelity)


def test_the_incumbent_is_the_best_on_all_rows_and_of_equals_the_first() -> None:
    history = History()
    for number, (loss, subset) in enumerate([(5.0, 1.0), (3.0, 1.0), (3.0, 1.0), (1.0, 0.5)]):
        history.record(told(number, query(number, subset=subset), loss))
    history.record(told(4, query(4), None))
    assert history.incumbent == history[1]
    assert history.losses.tolist() == [5.0, 3.0, 3.0, 1.0]
    assert [t.number for t in history.failed] == [4]
