"""Many configurations at once as arrays, for surrogates that score thousands of them per ask."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidates"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """n candidates.

    Attributes:
        algorithms: Which algorithm each searched step takes, counted within the step, shape (n, K).
        units: Positions in [0, 1] of all hyperparameters, active or not, shape (n, d).
    """

    algorithms: NDArray[np.intp]
    units: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.algorithms)

    def __getitem__(self, rows: Any) -> "Candidates":
        return Candidates(self.algorithms[rows], self.units[rows])

    def joined(self, *others: "Candidates") -> "Candidates":
        """Return these and others, in order."""
        parts = (self, *others)
        return Candidates(
            np.concatenate([p.algorithms for p in parts]), np.concatenate([p.units for p in parts])
        )
