"""Variants and races keep what their options can break; a benchmark says how good they are."""

from contracts.methods import RACED, RACED_ON_MANY_ROWS, VARIANTS_OF_PATHS, VARIANTS_OF_PROCESSES
from contracts.optimizer import (
    Case,
    HeedlessContract,
    OptimizerContract,
    VariantContract,
    each,
    run,
)
from worlds import mixed_space

from prefect_tune.optimizers import Asked


@each({**VARIANTS_OF_PATHS, **VARIANTS_OF_PROCESSES})
class TestVariants(VariantContract):
    pass


@each({"random": RACED["random"], "random on many rows": RACED_ON_MANY_ROWS["random"]})
class TestRace(OptimizerContract, HeedlessContract):
    def test_it_asks_for_less_than_everything_only_in_its_fidelities(self, case: Case) -> None:
        events = run(case.make(mixed_space()), 24)
        queries = [event.query for event in events if isinstance(event, Asked)]
        on_part = {(1 / 8, 1)} if case is RACED_ON_MANY_ROWS["random"] else set()
        assert {(query.subset, query.folds) for query in queries} == {*on_part, (1, 1), (1, None)}
        assert all(query.epochs is None for query in queries)


@each({name: case for name, case in RACED.items() if name != "random"})
class TestRacedMethods(VariantContract):
    pass


@each({name: case for name, case in RACED_ON_MANY_ROWS.items() if name != "random"})
class TestOnManyRows(VariantContract):
    pass
