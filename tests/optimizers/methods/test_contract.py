"""Contract tests of every method."""

import json
from pathlib import Path

import pytest
from contracts.methods import ALL, BRIEF, WHOLE
from contracts.optimizer import BriefContract, Case, OptimizerContract, each, run
from processes import run_python
from worlds import mixed_space

from prefect_tune.optimizers import METHODS, Asked, Optimizer, Racing, Space
from prefect_tune.optimizers.events import event_document

TESTS = Path(__file__).parents[2]


@each(WHOLE)
class TestWhole(OptimizerContract):
    pass


@each(BRIEF)
class TestBrief(BriefContract):
    pass


class Raced(Case):
    """A method with a race of its configurations."""

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        return Racing(super().make(space, seed))


@each({"random": Raced("random")})
class TestRace(OptimizerContract):
    def test_queries_lie_in_the_space_and_use_only_declared_fidelities(self, case: Case) -> None:
        events = run(case.make(mixed_space()), 24)
        queries = [event.query for event in events if isinstance(event, Asked)]
        assert {(query.subset, query.folds) for query in queries} == {(1, 1), (1, None)}


def test_every_method_has_contract_tests() -> None:
    assert ALL.keys() == METHODS.keys()


def asked_by_all() -> dict[str, object]:
    """Return the first proposals of each method in the default tier."""
    return {
        name: [event_document(event) for event in run(case.make(mixed_space()), 10)]
        for name, case in ALL.items()
        if case.tier != "full"
    }


@pytest.mark.slow
def test_proposals_are_the_same_in_another_process_with_another_hash_seed() -> None:
    program = (
        f"import json, sys; sys.path[:0] = {[str(TESTS), str(Path(__file__).parent)]!r}\n"
        "from test_contract import asked_by_all; print(json.dumps(asked_by_all()))"
    )
    variables = {"PYTHONHASHSEED": "77", "PATH": "", "OMP_NUM_THREADS": "1"}
    assert json.loads(run_python(program, env=variables)) == json.loads(json.dumps(asked_by_all()))
