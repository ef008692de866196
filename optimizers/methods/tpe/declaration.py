"""Declaration of `--method tpe`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.options import check_options
from prefect_tune.optimizers.trials.objective import FailureCost

__all__ = ["TPE", "TpeOptions"]


@dataclass(frozen=True)
class TpeOptions:
    """Options of `--method tpe`.

    Attributes:
        n_startup: Random configurations before the densities are fitted.
        n_candidates: Values drawn of each density, of which the best is taken.
        joint: What has one density together: `choices`, the algorithms of all steps (Optuna's
            default since version 5); `groups`, these and hyperparameters that are active together
            (its `group`); or `nothing` (its default before).
        failure_cost: What a failed trial counts as.
        n_known: Of more trials than this, densities are fitted on so many: the best quarter, and
            the last ones told. An ask takes no longer then, however many there are.
    """

    n_startup: int = 10
    n_candidates: int = 24
    joint: Literal["choices", "groups", "nothing"] = "groups"
    failure_cost: FailureCost = "worst"
    n_known: int = 500

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_startup", "n_candidates", "n_known"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")


TPE = Method(
    name="tpe",
    purpose="densities of good and bad choices and values (Optuna's sampler); cheap to ask, for "
    "many short trials",
    implementation="prefect_tune.optimizers.methods.tpe.tpe:Tpe",
    is_raced=True,
    ensemble="auto",
    options=TpeOptions,
)
