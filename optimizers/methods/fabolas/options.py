"""Options of Fabolas and of the methods that it is compared with."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.options import check_options

__all__ = ["FabolasOptions", "ReferenceOptions", "SurrogateOptions"]


@dataclass(frozen=True)
class SurrogateOptions:
    """Options of a method with this family's Gaussian process.

    Attributes:
        inference: Whether the most likely parameters of the process are taken (map), or some are
            drawn (ensemble), which takes four times as long and finds nothing better sooner.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "map"
    n_samples: int = 8
    n_first: int = 10

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("n_samples", "n_first"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")


@dataclass(frozen=True)
class ReferenceOptions(SurrogateOptions):
    """Options of the methods that Fabolas is compared with.

    Attributes:
        inference: Whether parameters of the process are drawn (ensemble), as the paper has it, or
            the most likely ones are taken (map), which takes a quarter of the time.
        n_samples: Draws of them.
        n_first: Random configurations before the process is asked.
    """

    inference: Literal["ensemble", "map"] = "ensemble"
    n_first: int = 5


@dataclass(frozen=True)
class FabolasOptions(SurrogateOptions):
    """Options of `--method fabolas`.

    Attributes:
        inference: Whether the most likely parameters of the process are taken (map), or some are
            drawn (ensemble), which takes four times as long and finds nothing better sooner.
        n_samples: Draws of them.
        n_first: Random configurations that begin on the smallest subset; half of them go on.
        variant: default, or paper for the published acquisition, bases, inference, incumbent and
            first points, which do worse.
        subset_draws: Independent subsets of each size that trials are given in turn.
        subset_folds: Folds that subsets of an eighth of the rows and less are evaluated on; 0 for
            all.
        verify_every: Asks without a full evaluation after which the predicted best may get one,
            once subsets have proved their worth and took a quarter of its time; 0 for none before
            the end.
        gate: Whether subsets are given up when they tell nothing of the full data.
        n_confirmed: Predicted best configurations that are evaluated on all rows at the end.
    """

    variant: Literal["default", "paper"] = "default"
    subset_draws: int = 1
    subset_folds: int = 1
    verify_every: int = 9
    gate: bool = True
    n_confirmed: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset_draws < 1:
            raise ValueError(f"subset_draws must be >= 1; got {self.subset_draws}")
        for name in ("subset_folds", "verify_every", "n_confirmed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be >= 0; got {getattr(self, name)}")
