"""Nested, stratified subsets of rows, the fidelity of `Query.subset`."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS

__all__ = ["nested_subset"]


def nested_subset(
    strata: NDArray[np.int32],
    groups: NDArray[np.int64] | None,
    share: float,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Return the positions of a subset, in order.

    Groups stand in one order, drawn at random. Of each class so many are taken from its beginning,
    among those that have rows of the class, that the class has its share of rows. So for equal
    draws the subset of a smaller share lies within that of a larger one, and of a class whose
    groups have rows of no other, at most one group is taken beyond its share. Where groups have
    rows of several classes, there may be more.

    Args:
        strata: Class or stratum of each row, shape (n,).
        groups: Group of each row, whose rows stay together, shape (n,); None for rows by
            themselves.
        share: Share of the rows of each class to take, in (0, 1]; at least `ROWS_PER_CLASS` rows.
        rng: Draws the order.
    """
    names = np.arange(len(strata)) if groups is None else groups
    units, unit = np.unique(names, return_inverse=True)
    priority = rng.permutation(len(units))
    is_taken = np.zeros(len(units), dtype=bool)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        members = members[np.argsort(priority[unit[members]])]
        wanted = max(ROWS_PER_CLASS, round(share * len(members)))
        is_taken[unit[members[:wanted]]] = True
    return np.flatnonzero(is_taken[unit])
