"""Declaration of `--method smac`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.options import check_options
from prefect_tune.optimizers.trials.objective import FailureCost

__all__ = ["SMAC", "SmacOptions"]


@dataclass(frozen=True)
class SmacOptions:
    """Options of `--method smac`.

    Forest and improvement are by default those of SMAC3's facade for hyperparameters; its facade
    for the configuration of algorithms has 3 runs and five sixths of the columns, and no logarithm.

    Attributes:
        n_startup: Random configurations before the forest is asked.
        n_trees: Trees of the forest.
        min_samples_split: Runs that a node of a tree needs to be split.
        max_features: Share of the columns that a split is chosen among.
        random_share: Share of the asks that draw from the prior instead.
        failure_cost: What a failed trial counts as.
        is_log: Fit the forest to the logarithm of the loss, where the metric has a lower bound.
        improvement: Of what improvement is expected where the forest predicts logarithms: of the
            loss itself (Hutter et al. 2009), or of its logarithm.
    """

    n_startup: int = 10
    n_trees: int = 10
    min_samples_split: int = 2
    max_features: float = 1.0
    random_share: float = 0.2
    failure_cost: FailureCost = "worst"
    is_log: bool = True
    improvement: Literal["loss", "logarithm"] = "loss"

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_startup", "n_trees"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")
        if self.min_samples_split < 2:
            raise ValueError(f"min_samples_split must be >= 2; got {self.min_samples_split}")
        if not 0 < self.max_features <= 1:
            raise ValueError(f"max_features must be in (0, 1]; got {self.max_features}")
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"random_share must be in [0, 1]; got {self.random_share}")


SMAC = Method(
    name="smac",
    purpose="a random forest over the whole conditional space; when hyperparameters matter as much "
    "as algorithms",
    implementation="prefect_tune.optimizers.methods.smac.smac:Smac",
    is_raced=True,
    ensemble="auto",
    options=SmacOptions,
)
