from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract


class TestFabolas(OptimizerContract):
    method = "fabolas"
    options: ClassVar[dict[str, Any]] = {"n_first": 3, "inference": "map"}
    n_planted = 4


class TestFabolasOfThePaper(OptimizerContract):
    method = "fabolas"
    options: ClassVar[dict[str, Any]] = {"n_first": 3, "variant": "paper", "inference": "map"}
    # Divergence over cost ends on the smallest subset, whatever that tells (sheet, 1.6).
    n_planted = 1
    margin = -100.0
    margin_share = 0.0
