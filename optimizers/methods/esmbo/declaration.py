"""Declaration of `--method esmbo`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.esmbo.rendering import ensemble_lines
from prefect_tune.optimizers.options import check_options
from prefect_tune.optimizers.trials.bootstraps import Bootstraps
from prefect_tune.optimizers.trials.objective import FailureCost

__all__ = ["ESMBO", "EsmboOptions", "HistoriesOptions"]


@dataclass(frozen=True)
class HistoriesOptions:
    """Options of the bootstraps.

    Attributes:
        n_histories: N, bootstraps of the held-out examples, each with a history of its own; 1 for
            one history of all examples, which is plain search.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
    """

    n_histories: int = 30
    share: float = 0.5

    def __post_init__(self) -> None:
        check_options(self)
        if self.n_histories < 1:
            raise ValueError(f"n_histories must be >= 1; got {self.n_histories}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be in [0, 1]; got {self.share}")
        if not self.share and self.n_histories > 1:
            raise ValueError(
                f"without draws (share 0) all histories are alike: n_histories must be 1; got "
                f"{self.n_histories}"
            )

    @property
    def bootstraps(self) -> Bootstraps:
        """Those that evaluations are to have the risks of; one alone is of all examples."""
        return Bootstraps(self.n_histories, self.share if self.n_histories > 1 else 0.0)


@dataclass(frozen=True)
class EsmboOptions(HistoriesOptions):
    """Options of `--method esmbo`.

    Attributes:
        n_histories: N, bootstraps of the held-out examples, each with a history of its own; 1 for
            one history of all examples, which is plain search.
        share: Draws of each bootstrap, as a share of the examples; 0 to draw none.
        n_startup: Random configurations before the process is asked.
        kernel: How pipelines are compared.
        failure_cost: What a failed trial counts as.
    """

    n_startup: int = 5
    kernel: Literal["one_hot", "conditional"] = "one_hot"
    failure_cost: FailureCost = "worst"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_startup < 1:
            raise ValueError(f"n_startup must be >= 1; got {self.n_startup}")


ESMBO = Method(
    name="esmbo",
    purpose="searches for the members of an ensemble: each trial is the best guess of one of many "
    "bootstraps of the held-out examples (Lacoste et al. 2014)",
    implementation="prefect_tune.optimizers.methods.esmbo.esmbo:Esmbo",
    options=EsmboOptions,
    compared_by_default=False,
    ensemble="agnostic",
    render_decisions=ensemble_lines,
)
