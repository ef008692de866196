"""Queries: a configuration and the fidelity at which to evaluate it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.fidelity import is_full
from prefect_tune.optimizers.space.space import Space

__all__ = ["Query"]


@dataclass(frozen=True, slots=True)
class Query:
    """A configuration and the fidelity at which to evaluate it.

    Attributes:
        configuration: What to evaluate.
        subset: Share of the training rows to train on, in (0, 1].
        subset_draw: Which of the independent families of nested subsets.
        epochs: How far to train an iterative model, counted from its start; None for to the end.
        folds: How many of the folds, from the first; None for all.
    """

    configuration: Configuration
    subset: float = 1.0
    subset_draw: int = 0
    epochs: int | None = None
    folds: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.subset <= 1:
            raise ValueError(f"subset must be a share of the rows in (0, 1]; got {self.subset}")
        if self.subset_draw < 0:
            raise ValueError(f"subset_draw must be >= 0; got {self.subset_draw}")
        if self.epochs is not None and self.epochs < 1:
            raise ValueError(f"epochs must be >= 1, or None for to the end; got {self.epochs}")
        if self.folds is not None and self.folds < 1:
            raise ValueError(f"folds must be >= 1, or None for all; got {self.folds}")

    @property
    def is_full(self) -> bool:
        """Whether it is the whole evaluation: all rows, all folds, all epochs."""
        return is_full(self.subset, self.folds, self.epochs)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; `folds` only where they are not all."""
        document: dict[str, Any] = {
            "configuration": self.configuration.to_json(),
            "subset": self.subset,
            "subset_draw": self.subset_draw,
            "epochs": self.epochs,
        }
        return document if self.folds is None else {**document, "folds": self.folds}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read what `to_json` wrote, checked against a space."""
        return cls(
            Configuration.from_json(document["configuration"], space),
            float(document["subset"]),
            int(document["subset_draw"]),
            document["epochs"],
            document.get("folds"),
        )
