from typing import Any, ClassVar

from contracts.optimizer import OptimizerContract


class TestTwoTasks(OptimizerContract):
    method = "mtbo"
    options: ClassVar[dict[str, Any]] = {"inference": "map"}
    n_planted = 3
