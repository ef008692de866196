"""Declaration of `--method halving`."""

from dataclasses import dataclass

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.halving.options import BracketOptions
from prefect_tune.optimizers.methods.halving.rendering import bracket_lines

__all__ = ["HALVING", "HalvingOptions"]


@dataclass(frozen=True)
class HalvingOptions(BracketOptions):
    """Options of `--method halving`.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
        n: Configurations of a bracket; by default so many that one is left on the last rung.
    """

    n: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n is not None and self.n < 1:
            raise ValueError(f"n must be >= 1; got {self.n}")


HALVING = Method(
    name="halving",
    purpose="random configurations at a fraction of the cost, of which the best go on; for many "
    "workers, and where little tells much",
    implementation="prefect_tune.optimizers.methods.halving.halving:Halving",
    options=HalvingOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)
