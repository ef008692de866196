"""Declaration of `--method ei`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import SurrogateOptions
from prefect_tune.optimizers.methods.fabolas.rendering import size_lines

__all__ = ["EI", "ImprovementOptions"]


@dataclass(frozen=True)
class ImprovementOptions(SurrogateOptions):
    """Options of `--method ei`.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "ensemble"
    n_first: int = 5


EI = Method(
    name="ei",
    purpose="expected improvement on all rows, by the Gaussian process of Fabolas; what that is "
    "compared with",
    implementation="prefect_tune.optimizers.methods.ei.ei:ExpectedImprovement",
    options=ImprovementOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)
