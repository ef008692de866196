"""Fabolas keeps the contract of all methods, with its options as they are and with others."""

from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract


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
