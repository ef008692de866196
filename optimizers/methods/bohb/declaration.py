"""Declaration of `--method bohb`."""

from dataclasses import dataclass

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.halving.options import BracketOptions
from prefect_tune.optimizers.methods.halving.rendering import bracket_lines

__all__ = ["BOHB", "BohbOptions"]


@dataclass(frozen=True)
class BohbOptions(BracketOptions):
    """Options of `--method bohb`.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
        random_share: Share of the new configurations that are drawn from the prior (rho).
        good_share: Share of a rung's results that counts as good, but at least one more of them
            than a configuration has numbers and choices.
        n_samples: Draws around the good ones, of which the best is taken (N_s; the paper: 64,
            no better on recorded curves and worse where many paths differ).
        bandwidth_factor: How much wider than the density of the good ones is drawn (b_w).
    """

    random_share: float = 1 / 3
    good_share: float = 0.15
    n_samples: int = 24
    bandwidth_factor: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"random_share must be in [0, 1]; got {self.random_share}")
        if not 0 < self.good_share < 1:
            raise ValueError(f"good_share must be in (0, 1); got {self.good_share}")
        if self.n_samples < 1:
            raise ValueError(f"n_samples must be >= 1; got {self.n_samples}")
        if self.bandwidth_factor <= 0:
            raise ValueError(f"bandwidth_factor must be > 0; got {self.bandwidth_factor}")


BOHB = Method(
    name="bohb",
    purpose="Hyperband that begins with what resembles the best so far; for iterative models, "
    "large data and many workers",
    implementation="prefect_tune.optimizers.methods.bohb.bohb:Bohb",
    options=BohbOptions,
    honours_constraints=True,
    fidelities=frozenset({"epochs", "subset", "folds"}),
    compared_by_default=False,
    render_decisions=bracket_lines,
)
