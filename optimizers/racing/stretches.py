"""The stretches in which a configuration runs: a part of the rows, one fold, and all of it."""

from dataclasses import dataclass, replace

from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.trials.objective import Objective

__all__ = ["LARGE", "Stretch", "is_large", "stretches_of"]

LARGE = 20_000
"""Training rows above which a part of them is looked at first."""
_LOOK = 10_000
"""Rows that a look has at least; FLAML 2.7 starts with as many."""
_LOOK_RAREST = 100
"""Rows that it has at least of the rarest class, where all rows have so many."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """How much of a configuration is run.

    Attributes:
        subset: Share of the training rows.
        folds: How many of the folds; None for all.
    """

    subset: float = 1.0
    folds: int | None = None

    def of(self, whole: Query) -> Query:
        """Return the query of this stretch of a whole evaluation."""
        return replace(whole, subset=self.subset, folds=self.folds)

    def fits(self, query: Query) -> bool:
        """Return whether a query asks for so much."""
        return (query.subset, query.folds) == (self.subset, self.folds)


def is_large(objective: Objective) -> bool:
    """Return whether there are so many rows that a part of them is looked at first."""
    return _share(objective) < 1


def stretches_of(objective: Objective) -> tuple[Stretch, ...]:
    """Return what a configuration runs one after another, the whole evaluation last.

    First one fold. On more than 20,000 training rows, before it that fold on a part of them: the
    smallest 2^-k of the rows that has 10,000, and 100 of the rarest class.

    Args:
        objective: Knows the folds and the rows.

    Raises:
        ValueError: If there is nothing to begin with but the whole evaluation.
    """
    is_split = objective.n_folds is None or objective.n_folds > 1
    folds = (Stretch(folds=1),) if is_split else ()
    share = _share(objective)
    look = (Stretch(share, 1 if is_split else None),) if share < 1 else ()
    if not look and not folds:
        raise ValueError(
            f"a race needs 2 folds or more, or more than {LARGE:,} training rows; there is "
            f"{objective.n_folds} fold"
        )
    return (*look, *folds, Stretch())


def _share(objective: Objective) -> float:
    """Return the share of the rows to look at first; 1 where all of them are."""
    n_rows = objective.n_rows or 0
    if n_rows <= LARGE:
        return 1.0
    share, rarest = 1.0, objective.n_rarest if objective.n_classes else None
    while share * n_rows / 2 >= _LOOK and (rarest is None or share * rarest / 2 >= _LOOK_RAREST):
        share /= 2
    return share
