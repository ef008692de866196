import numpy as np
from worlds import mixed_space, told

from prefect_tune.optimizers import History, Objective, Query
from prefect_tune.optimizers.methods.tpe.declaration import TpeOptions
from prefect_tune.optimizers.methods.tpe.parzen_search import ParzenSearch
from prefect_tune.optimizers.space.sampling import sample_configuration


def test_two_trials_of_one_configuration_are_two_observations() -> None:
    space, history = mixed_space(), History()
    query = Query(sample_configuration(space, np.random.default_rng(0)))
    history.record(told(0, query, 1.0))
    history.record(told(1, query, 90.0))
    search = ParzenSearch(space, Objective(), TpeOptions())
    seen = search._study(history).get_trials()
    assert [(t.number, t.value) for t in seen] == [(0, 1.0), (1, 90.0)]
