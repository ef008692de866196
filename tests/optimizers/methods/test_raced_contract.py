"""Every method keeps its promises when its configurations race."""

from dataclasses import replace

from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Asked, Optimizer, Racing, Space


class RacedContract(OptimizerContract):
    """A race with the method in it; folds are its only fidelity.

    How good it is, a benchmark says; that no hash enters, the method's own suite.
    """

    test_it_is_better_than_random_on_planted_worlds = None  # type: ignore[assignment]
    test_another_process_with_another_hash_seed_asks_the_same = None  # type: ignore[assignment]

    def make(self, space: Space, seed: int = 0) -> Optimizer:
        return Racing(super().make(space, seed))

    def test_it_asks_for_less_than_everything_only_in_its_fidelities(self) -> None:
        events = self.run(self.make(mixed_space()), 12)
        queries = [event.query for event in events if isinstance(event, Asked)]
        assert {query.folds for query in queries} == {1, None}
        assert all(query.subset == 1 and query.epochs is None for query in queries)


class TestRacedFlash(RacedContract):
    method = "flash"


class TestRacedAdmm(RacedContract):
    method = "admm"


class TestRacedSmac(RacedContract):
    method = "smac"


class TestRacedTpe(RacedContract):
    method = "tpe"


class TestRacedRandomSearch(RacedContract):
    method = "random"


class ManyRows(RacedContract):
    """On more rows than are looked at first."""

    objective = replace(RacedContract.objective, n_rows=90_000, n_rarest=30_000)

    def test_it_asks_for_less_than_everything_only_in_its_fidelities(self) -> None:
        events = self.run(self.make(mixed_space()), 24)
        queries = [event.query for event in events if isinstance(event, Asked)]
        assert {(query.subset, query.folds) for query in queries} == {(1 / 8, 1), (1, 1), (1, None)}
        assert all(query.epochs is None for query in queries)


class TestFlashOnManyRows(ManyRows):
    method = "flash"


class TestTpeOnManyRows(ManyRows):
    method = "tpe"
