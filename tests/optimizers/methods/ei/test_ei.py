from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract


class TestExpectedImprovement(OptimizerContract):
    method = "ei"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3
