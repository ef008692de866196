"""Options of the methods that halve: what they grow, and how fast."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.options import check_options

__all__ = ["BracketOptions"]


@dataclass(frozen=True)
class BracketOptions:
    """Options of a method of brackets.

    Attributes:
        fidelity: What a rung has more of than the one below: epochs, subset or folds; by default
            epochs, or a subset of many rows, or folds, whichever the study can have.
        eta: One in so many of a rung goes on to the next, which has so many times as much.
        n_rungs: Most rungs; as many as its epochs or folds allow by default, up to 4 of subsets.
    """

    fidelity: Literal["epochs", "subset", "folds"] | None = None
    eta: int = 3
    n_rungs: int | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.eta < 2:
            raise ValueError(f"eta must be >= 2; got {self.eta}")
        if self.n_rungs is not None and self.n_rungs < 2:
            raise ValueError(f"n_rungs must be >= 2; got {self.n_rungs}")
