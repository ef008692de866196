from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract


class TestEntropySearch(OptimizerContract):
    method = "es"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3
