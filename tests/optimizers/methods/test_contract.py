"""Every method keeps the contract of all methods."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from contracts.methods import ALL, METHODS_OF_PATHS, METHODS_OF_PROCESSES
from contracts.optimizer import (
    Case,
    HeedlessContract,
    OptimizerContract,
    each,
    heedless_of_cost,
    margins_over_random,
    run,
)
from processes import run_python
from worlds import mixed_space

from prefect_tune.optimizers import METHODS, Budget
from prefect_tune.optimizers.events import event_document

TESTS = Path(__file__).parents[2]


@each(METHODS_OF_PATHS)
class TestMethods(OptimizerContract):
    pass


@each(heedless_of_cost({**METHODS_OF_PATHS, **METHODS_OF_PROCESSES}))
class TestMethodsHeedlessOfCost(HeedlessContract):
    pass


def planted(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    return each({name: case for name, case in cases.items() if case.planted})


@pytest.mark.slow
@planted({**METHODS_OF_PATHS, **METHODS_OF_PROCESSES})
def test_it_is_better_than_random_on_planted_worlds(case: Case) -> None:
    margins = margins_over_random(case)
    assert margins.mean() >= case.planted.margin
    assert (margins > 0).mean() >= case.planted.share


def test_every_method_keeps_it() -> None:
    assert {**METHODS_OF_PATHS, **METHODS_OF_PROCESSES}.keys() == METHODS.keys()


def asked_by_all() -> dict[str, object]:
    """What each method and variant asks for first."""
    return {
        name: [event_document(event) for event in run(case.make(mixed_space()), 10)]
        for name, case in ALL.items()
    }


@pytest.mark.slow
def test_another_process_with_another_hash_seed_asks_the_same() -> None:
    program = (
        f"import json, sys; sys.path[:0] = {[str(TESTS), str(Path(__file__).parent)]!r}\n"
        "from test_contract import asked_by_all; print(json.dumps(asked_by_all()))"
    )
    variables = {"PYTHONHASHSEED": "77", "PATH": "", "OMP_NUM_THREADS": "1"}
    assert json.loads(run_python(program, env=variables)) == json.loads(json.dumps(asked_by_all()))


def test_random_search_asks_for_nothing_twice_while_there_is_something_new() -> None:
    optimizer = METHODS_OF_PATHS["random"].make(mixed_space())
    asked = [optimizer.ask(Budget()).configuration for _ in range(300)]
    assert len(set(asked)) == 300
    assert {c.path for c in asked} == set(mixed_space().paths())
