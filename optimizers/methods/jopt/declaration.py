"""Declaration of `--method jopt`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.options import check_options
from prefect_tune.optimizers.trials.objective import FailureCost

__all__ = ["JOPT", "JoptOptions"]


@dataclass(frozen=True)
class JoptOptions:
    """Options of `--method jopt`.

    Attributes:
        n_startup: Random configurations before the process is asked.
        kernel: How pipelines are compared.
        failure_cost: What a failed trial counts as.
    """

    n_startup: int = 10
    kernel: Literal["one_hot", "conditional"] = "one_hot"
    failure_cost: FailureCost = "worst"

    def __post_init__(self) -> None:
        check_options(self)
        if self.n_startup < 1:
            raise ValueError(f"n_startup must be >= 1; got {self.n_startup}")


JOPT = Method(
    name="jopt",
    purpose="one Gaussian process over all paths and hyperparameters; what ADMM is compared with",
    implementation="prefect_tune.optimizers.methods.jopt.jopt:Jopt",
    options=JoptOptions,
    compared_by_default=False,
)
