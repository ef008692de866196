"""Groups of rows, by the values of a column or by intervals of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.tasks.data.split import Split

__all__ = ["absent_groups", "groups_of"]


def groups_of(
    column: "pd.Series[Any]", bins: Sequence[float]
) -> tuple[NDArray[np.intp], list[str]]:
    """Return the group of each row, -1 for none, shape (n,), and the groups' names.

    Args:
        column: Its values are the groups, in their order; missing ones are in none.
        bins: Rising edges, between which lie the groups instead; the last edge is in the last one.
    """
    if not bins:
        numbers, found = pd.factorize(column, sort=True)
        return numbers, [str(value) for value in found]
    values, edges = column.astype(float).to_numpy(), np.array(bins)
    is_in = (values >= edges[0]) & (values <= edges[-1])
    numbers = np.where(is_in, np.minimum(np.digitize(values, edges) - 1, len(edges) - 2), -1)
    held, numbers[is_in] = np.unique(numbers[is_in], return_inverse=True)
    return numbers, [f"{bins[i]:g} to {bins[i + 1]:g}" for i in held]


def absent_groups(
    column: "pd.Series[Any]", bins: Sequence[float], split: Split
) -> tuple[dict[str, list[int]], int]:
    """Return the folds that hold out no row of a group, by group; and the fewest of a fold."""
    numbers, names = groups_of(column, bins)
    held = [set(numbers[split.held_out(fold)].tolist()) - {-1} for fold in range(split.n_folds)]
    absent = {
        name: [fold for fold, groups in enumerate(held) if i not in groups]
        for i, name in enumerate(names)
    }
    return {name: folds for name, folds in absent.items() if folds}, min(map(len, held))
