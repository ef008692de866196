"""Every method keeps the contract of all methods."""

from dataclasses import replace
from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract
from worlds import mixed_space

from prefect_tune.optimizers import Budget, Objective


class TestRandomSearch(OptimizerContract):
    method = "random"
    margin = 0.0  # it is what the others are compared with
    margin_share = 0.0

    def test_nothing_is_asked_for_twice_while_there_is_something_new(self) -> None:
        optimizer = self.make(mixed_space())
        asked = [optimizer.ask(Budget()).configuration for _ in range(300)]
        assert len(set(asked)) == 300
        assert {c.path for c in asked} == set(mixed_space().paths())


class TestErs(OptimizerContract):
    method = "ers"
    margin = 0.0  # its configurations are those of random search
    margin_share = 0.0


class BapiContract(OptimizerContract):
    """The models of the suite's spaces that train in epochs: of each space at least one."""

    method = "bapi"
    objective: ClassVar[Objective] = replace(
        OptimizerContract.objective,
        iterative=frozenset({"svm", "tree", "grid", "one", "any", "a0", "a1", "a2"}),
    )


class TestBapi(BapiContract):
    # It is better there as well, and takes half a minute.
    test_it_is_better_than_random_on_planted_worlds = None


class TestBapiOfFewLooks(BapiContract):
    options: ClassVar[dict[str, Any]] = {"p": 0.34, "n_first": 9}
    n_planted = 4
    planted_work = 20.0


class TestBapiOfThePaper(BapiContract):
    options: ClassVar[dict[str, Any]] = {"variant": "paper"}
    test_it_is_better_than_random_on_planted_worlds = None


class TestFabolas(OptimizerContract):
    method = "fabolas"
    options: ClassVar[dict[str, Any]] = {"n_first": 3, "inference": "map", "subset_folds": 0}
    n_planted = 4
    planted_work = 20.0


class TestFabolasOfThePaper(OptimizerContract):
    method = "fabolas"
    options: ClassVar[dict[str, Any]] = {"n_first": 3, "variant": "paper"}
    # Divergence over cost ends on the smallest subset, whatever that tells (sheet, 1.6).
    test_it_is_better_than_random_on_planted_worlds = None


class TestFabolasByDefault(OptimizerContract):
    method = "fabolas"
    test_it_is_better_than_random_on_planted_worlds = None
