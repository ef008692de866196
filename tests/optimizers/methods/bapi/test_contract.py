"""BAPI keeps the contract of all methods, and so does its variant."""

from dataclasses import replace
from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract

from prefect_tune.optimizers import Objective


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
