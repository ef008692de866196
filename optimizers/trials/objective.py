"""The objective, as far as a method may know it."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.space.fidelity import ROWS_PER_CLASS
from prefect_tune.optimizers.trials.constraint import Constraint

__all__ = ["FailureCost", "Objective"]

FailureCost = Literal["bound", "worst", "chance"]
"""What a failed trial counts as: the metric's upper bound, the worst finished loss, or chance."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric, the constraints and the size of the data, as far as a method may know them.

    Attributes:
        metric: Name of the metric.
        unit: Unit of the loss, for instance "percent".
        lower: Smallest loss possible; -inf when there is none.
        upper: Largest loss possible; inf when there is none.
        chance: Loss of guessing without features; None when not known.
        constraints: Limits on quantities besides the loss.
        n_rows: Training rows of the smallest fold; None, like what follows, when not known.
        n_held_out: Held-out rows of the smallest fold.
        n_classes: Classes; 0 when numbers are predicted.
        n_rarest: Training rows of the rarest class in the smallest fold.
        n_folds: Folds of a full evaluation.
        epochs: Epochs of a full training (t_max); None when models are fitted at once.
        iterative: Ids of the model algorithms that train in epochs.
    """

    metric: str = "error"
    unit: str = "percent"
    lower: float = 0.0
    upper: float = 100.0
    chance: float | None = None
    constraints: tuple[Constraint, ...] = ()
    n_rows: int | None = None
    n_held_out: int | None = None
    n_classes: int | None = None
    n_rarest: int | None = None
    n_folds: int | None = None
    epochs: int | None = None
    iterative: frozenset[str] = frozenset()

    @property
    def smallest_subset(self) -> float | None:
        """Least share of the training rows that has two of each class; None when not known.

        Of numbers, two of each of their strata, which have about equally many rows.
        """
        if self.n_rows is None or self.n_classes is None or self.n_rarest is None:
            return None
        if self.n_classes:
            return min(ROWS_PER_CLASS * self.n_classes / self.n_rows, 1.0)
        return min(ROWS_PER_CLASS / self.n_rarest, 1.0)

    def check_subset(self, subset: float) -> None:
        """Raise if a share of the training rows is too small to learn from.

        Raises:
            ValueError: Says what would serve.
        """
        smallest = self.smallest_subset
        if smallest is not None and subset < smallest:
            of_each = f"each of {self.n_classes} classes" if self.n_classes else "each stratum"
            raise ValueError(
                f"a subset of {subset:.3g} of {self.n_rows} training rows is less than "
                f"{ROWS_PER_CLASS} rows of {of_each}; subsets from {smallest:.3g} on serve"
            )
