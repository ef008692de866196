"""Declaration of `--method mtbo`."""

from dataclasses import dataclass

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.fabolas.options import ReferenceOptions
from prefect_tune.optimizers.methods.fabolas.rendering import size_lines

__all__ = ["MTBO", "TwoTaskOptions"]


@dataclass(frozen=True)
class TwoTaskOptions(ReferenceOptions):
    """Options of `--method mtbo`.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations on the subset before the process is asked.
        share: Share of the rows that is the auxiliary task.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise ValueError(f"share must be between 0 and 1; got {self.share}")


MTBO = Method(
    name="mtbo",
    purpose="a Gaussian process over all rows and one subset of them as two tasks; what Fabolas "
    "is compared with",
    implementation="prefect_tune.optimizers.methods.mtbo.mtbo:TwoTasks",
    options=TwoTaskOptions,
    fidelities=frozenset({"subset"}),
    draws_on_cost=True,
    compared_by_default=False,
    render_decisions=size_lines,
)
