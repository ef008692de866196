import json
from typing import Any, ClassVar

import numpy as np
import pytest
from contracts.optimizer import OptimizerContract
from flash_worlds import counted_space, planted_loss
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Event,
    Jopt,
    Objective,
    Query,
    Told,
    Trial,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration


class TestJopt(OptimizerContract):
    method = "jopt"
    n_planted = 4


class TestJoptConditional(OptimizerContract):
    method = "jopt"
    options: ClassVar[dict[str, Any]] = {"kernel": "conditional"}
    n_planted = 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_startup": 0}, "n_startup must be >= 1"),
        ({"kernel": "linear"}, "kernel must be one_hot or conditional"),
        ({"failure_cost": "zero"}, "failure_cost must be bound or worst or chance"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Jopt(mixed_space(), 0, Objective(), **options)


def test_with_many_observations_and_two_workers_replay_fits_when_the_unbroken_study_does() -> None:
    space, loss_of = counted_space((2, 2)), planted_loss((2, 2), 0)
    rng = np.random.default_rng(0)
    events: list[Event] = []
    for number in range(66):
        query = Query(sample_configuration(space, rng))
        events += [
            Asked(number, query, Budget()),
            Told(told(number, query, loss_of(query))),
        ]
    unbroken = Jopt(space, 0, Objective())
    replay(unbroken, events)
    fitted, pending = [], []
    for number in range(66, 76):
        query = unbroken.ask(Budget())
        assert unbroken.memo is not None
        fitted.append(unbroken.memo["fitted"])
        events.append(Asked(number, query, Budget(), json.loads(json.dumps(unbroken.memo))))
        pending.append(Trial(number, query))
        if len(pending) == 2:
            for trial in pending:
                ended = told(trial.number, trial.query, loss_of(trial.query))
                unbroken.tell(ended)
                events.append(Told(ended))
            pending = []
    assert fitted == [66, 66, 66, 66, 70, 70, 70, 70, 74, 74]
    resumed = Jopt(space, 0, Objective())
    replay(resumed, events)
    assert resumed.ask(Budget()) == unbroken.ask(Budget())


def test_memos_of_studies_begun_before_are_read() -> None:
    optimizer = Jopt(mixed_space(), 0, Objective(), n_startup=2)
    for number in range(4):
        optimizer.tell(told(number, optimizer.ask(Budget()), float(number)))
    assert optimizer.memo is not None
    theta = optimizer.memo["theta"]
    optimizer._restore({"theta": theta})
    optimizer.ask(Budget())
    assert optimizer.memo["fitted"] == 4


def test_where_a_query_is_under_way_no_other_is_asked_for() -> None:
    space = counted_space((1,), 1)
    apart = []
    for seed in range(6):
        optimizer = Jopt(space, seed, Objective(), n_startup=6)
        for number in range(6):
            query = optimizer.ask(Budget())
            x = float(dict(query.configuration["step0"].values)["h0"])
            optimizer.tell(told(number, query, 10 + 50 * (x - 0.3) ** 2))
        pair = [optimizer.ask(Budget()).configuration["step0"].values[0][1] for _ in range(2)]
        apart.append(abs(float(pair[0]) - float(pair[1])))
    assert np.median(apart) > 0.005


def test_what_a_failure_counts_as_changes_what_is_asked_for() -> None:
    asked = []
    for failure_cost in ("worst", "bound"):
        options = {"n_startup": 6, "failure_cost": failure_cost}
        optimizer = Jopt(counted_space((1,), 1), 0, Objective(), **options)
        for number in range(6):
            query = optimizer.ask(Budget())
            x = float(dict(query.configuration["step0"].values)["h0"])
            optimizer.tell(told(number, query, None if x > 0.5 else 10 + x))
        asked.append(optimizer.ask(Budget()))
    assert asked[0] != asked[1]
