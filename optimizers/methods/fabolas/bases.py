"""Basis functions of the size of a subset (Fabolas, section 4; sheet, 1.3)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis

__all__ = ["COST", "FULL", "LOG_LOSS", "PAPER_LOSS", "RAW_LOSS", "TASKS"]

Array = NDArray[np.floating[Any]]


def _columns(*columns: Array) -> Array:
    return np.column_stack(columns)


LOG_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), 1 - s, s**3),
    lambda s: _columns(np.zeros_like(s), -np.ones_like(s), 3 * s**2),
    trend=(1.0, 4.0, 0.02),
)
"""A loss that falls as a power of the rows is linear in s when both are logarithms; s^3 is what
only results near s = 1 can tell."""

RAW_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), (1 - s) ** 2, s**3),
    lambda s: _columns(np.zeros_like(s), -2 * (1 - s), 3 * s**2),
    trend=(1.0, 4.0, 0.02),
)

PAPER_LOSS = Basis(
    lambda s: _columns(np.ones_like(s), (1 - s) ** 2),
    lambda s: _columns(np.zeros_like(s), -2 * (1 - s)),
    trend=(0.0, 0.0),
)
"""As the paper has it: (1, (1 - s)^2), and no curve that all configurations share."""

COST = Basis(
    lambda s: _columns(np.ones_like(s), s),
    lambda s: _columns(np.zeros_like(s), np.ones_like(s)),
    trend=(1.0, 4.0),
)
"""Of ln seconds, so that seconds are a power of the rows."""

TASKS = Basis(
    lambda s: _columns((s == 1).astype(float), (s < 1).astype(float)),
    lambda s: np.zeros((len(s), 2)),
    trend=(0.0, 0.0),
)
"""Two tasks, all rows and one subset, correlated freely (Swersky et al. 2013)."""

FULL = Basis(
    lambda s: np.ones((len(s), 1)),
    lambda s: np.zeros((len(s), 1)),
    trend=(0.0,),
)
"""All rows alone: s is not looked at."""
