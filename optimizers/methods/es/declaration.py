"""Declaration of `--method es`."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import SurrogateOptions
from prefect_tune.optimizers.methods.fabolas.rendering import size_lines

__all__ = ["ES", "EntropyOptions"]


@dataclass(frozen=True)
class EntropyOptions(SurrogateOptions):
    """Options of `--method es`.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "ensemble"
    n_first: int = 5


ES = Method(
    name="es",
    purpose="entropy search on all rows, by the Gaussian process of Fabolas; what that is "
    "compared with",
    implementation="prefect_tune.optimizers.methods.es.es:EntropySearch",
    options=EntropyOptions,
    draws_on_cost=False,
    compared_by_default=False,
    render_decisions=size_lines,
)
