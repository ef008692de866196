from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract
from simulation import Outcome, Simulation, share_to_do
from worlds import mixed_space

from prefect_tune.optimizers import Hyperband, Objective, Query


class TestHyperband(OptimizerContract):
    method = "hyperband"


class TestHyperbandBySubsets(OptimizerContract):
    method = "hyperband"
    options: ClassVar[dict[str, Any]] = {"fidelity": "subset", "n_rungs": 3}


def test_a_round_costs_the_epochs_of_the_table_and_each_is_trained_once() -> None:
    objective = Objective(epochs=50, iterative=frozenset({"tree"}))
    optimizer = Hyperband(mixed_space(), 0, objective)
    epochs = 0.0

    def outcome(query: Query) -> Outcome:
        nonlocal epochs
        epochs += 50 * share_to_do(query, optimizer)
        return float(len(query.configuration.canonical) % 13), 1.0

    Simulation(optimizer, outcome, trials=27 + 12 + 6 + 4).run()
    assert round(epochs) == 673
    at = [t.query.epochs for t in optimizer.history]
    assert [at.count(e) for e in (2, 6, 17, None)] == [27, 9 + 12, 3 + 4 + 6, 1 + 1 + 2 + 4]
