"""Whether subsets tell anything of the full data, judged by what was predicted with them."""

from collections.abc import Mapping
from dataclasses import dataclass

from prefect_tune.optimizers.methods.fabolas.observations import LossScale, Observations
from prefect_tune.optimizers.methods.fabolas.predictions import Prediction

__all__ = ["Gate"]


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict on subsets.

    Attributes:
        evidence: ln of how much likelier outcomes were with subsets than without.
        n_judged: Full evaluations that were judged.
    """

    evidence: float
    n_judged: int

    @property
    def is_open(self) -> bool:
        """Whether subsets are asked for."""
        return True

    @classmethod
    def of(
        cls, predictions: Mapping[int, Prediction], seen: Observations, scale: LossScale
    ) -> "Gate":
        """Judge the predictions that were made before the evaluations."""
        return cls(0.0, 0)
