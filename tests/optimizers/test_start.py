"""Known configurations to begin with: the first asks of any method that runs them whole."""

import numpy as np
import pytest
from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import (
    METHODS,
    Asked,
    Budget,
    Configuration,
    Optimizer,
    Query,
    Racing,
    Reason,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACE = mixed_space()
WHOLE = [name for name, method in METHODS.items() if not method.fidelities]
PARTS = [name for name, method in METHODS.items() if method.fidelities]


def known(n: int = 4) -> list[Configuration]:
    rng = np.random.default_rng(7)
    return [sample_configuration(SPACE, rng) for _ in range(n)]


def made(method: str) -> Optimizer:
    return make_optimizer(method, SPACE, 0, OptimizerContract.objective)


@pytest.mark.parametrize("method", WHOLE)
def test_they_are_asked_for_first_and_the_method_goes_on_from_them(method) -> None:
    optimizer, contract = made(method), OptimizerContract()
    optimizer.begin_with([*known(), known()[0]])
    events = contract.run(optimizer, 12)
    asked = [event.query for event in events if isinstance(event, Asked)]
    assert asked[:4] == [Query(configuration) for configuration in known()]
    assert len({query.configuration for query in asked}) == 12


@pytest.mark.parametrize("method", WHOLE)
def test_a_study_is_resumed_with_what_it_began_with(method) -> None:
    contract = OptimizerContract()
    for n in (2, 7):
        unbroken, resumed = made(method), made(method)
        unbroken.begin_with(known())
        events = contract.run(unbroken, n)
        resumed.begin_with(known())
        replay(resumed, events, unbroken.memo)
        assert contract.run(resumed, 4, first=n) == contract.run(unbroken, 4, first=n)


@pytest.mark.parametrize("method", PARTS)
def test_a_method_that_chooses_how_much_to_run_says_that_it_takes_none(method) -> None:
    with pytest.raises(ValueError, match=f"'{method}' cannot begin with known configurations"):
        made(method).begin_with(known())


def test_it_is_too_late_once_something_was_asked_for() -> None:
    optimizer = made("random")
    optimizer.ask(Budget())
    with pytest.raises(ValueError, match="1 trials were asked for already"):
        optimizer.begin_with(known())


def test_they_race_like_all_others() -> None:
    racing = Racing(made("random"))
    racing.begin_with(known(2), "portfolio")
    assert racing.ask(Budget()) == Query(known(2)[0])
    assert racing.ask(Budget()) == Query(known(2)[1], folds=1)
    assert racing.reason == Reason("portfolio", "2nd of 2 known configurations")


def test_which_of_them_an_ask_is_for_is_its_reason_and_then_the_method_has_its_own() -> None:
    optimizer = made("random")
    optimizer.begin_with(known(2))
    said = []
    for _ in range(3):
        optimizer.ask(Budget())
        said.append(optimizer.reason)
    assert said == [
        Reason("known configurations", "1st of 2 known configurations"),
        Reason("known configurations", "2nd of 2 known configurations"),
        Reason("random", "drawn from the whole space"),
    ]
