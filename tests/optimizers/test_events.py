"""Events as the ledger keeps them, and what replaying them comes to."""

import json

import numpy as np
import pytest
from worlds import mixed_space, told

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Constraint,
    ConstraintsMeasured,
    Event,
    Objective,
    Query,
    RandomSearch,
    Retried,
    Told,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()
QUERY = Query(sample_configuration(SPACE, np.random.default_rng(0)))
EVENTS: tuple[Event, ...] = (
    Asked(0, QUERY, Budget(0, 5, 1.5, 30.0, 0.25, 4, (0.125, 0.125))),
    Told(told(0, QUERY, None)),
    Retried(0),
    Told(told(0, QUERY, 3.0)),
    ConstraintsMeasured(0, {"size": 2.0}),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_an_event_survives_json(event: Event) -> None:
    document = json.loads(json.dumps(event.to_json()))
    assert type(event).from_json(document, SPACE) == event


def test_kinds_are_the_words_of_the_ledger() -> None:
    assert [event.kind for event in EVENTS] == ["ask", "tell", "retry", "tell", "measure"]


def test_replay_takes_each_kind_of_event() -> None:
    optimizer = RandomSearch(SPACE, 0, Objective(constraints=(Constraint("size", 1.0),)))
    replay(optimizer, EVENTS[:2], {"theta": [1.0]})
    assert [t.number for t in optimizer.history.failed] == [0]
    replay(optimizer, EVENTS[2:3])
    assert [t.number for t in optimizer.history.pending] == [0]
    replay(optimizer, EVENTS[3:])
    assert optimizer.history.incumbent is None
    assert optimizer.history.nearest_infeasible == optimizer.history[0]
    assert optimizer.memo == {"theta": [1.0]}


def test_only_the_last_ask_is_given_the_memo() -> None:
    optimizer, given = RandomSearch(SPACE, 0), []
    optimizer._restore = given.append
    asks = [Asked(number, QUERY, Budget()) for number in range(3)]
    replay(optimizer, asks, {"theta": [2.0]})
    assert given == [{"theta": [2.0]}]


def test_an_event_of_0_1_has_its_memo_and_less_of_a_budget() -> None:
    document = Asked(0, QUERY, Budget()).to_json() | {"memo": {"phase": 1}}
    for later in ("n_workers", "last_ask_seconds"):
        del document["budget"][later]
    event = Asked.from_json(document, SPACE)
    assert event == Asked(0, QUERY, Budget(), {"phase": 1})
    optimizer = RandomSearch(SPACE, 0)
    replay(optimizer, [event])
    assert optimizer.memo == {"phase": 1}
