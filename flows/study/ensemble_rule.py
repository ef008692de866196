"""How a study ends: in a single trial's model, or in an ensemble of its trials.

Light to import: it is a part of a study's plan.
"""

from dataclasses import dataclass
from typing import Literal, Self, get_args

EnsembleKind = Literal["single", "greedy", "agnostic", "auto"]
ENSEMBLE_KINDS: tuple[EnsembleKind, ...] = get_args(EnsembleKind)


@dataclass(frozen=True, slots=True)
class EnsembleRule:
    """How the final model of a study is made of its trials.

    Attributes:
        kind: `single` for the best trial alone; `greedy` for picks one by one, with replacement, by
            their held-out predictions (Caruana et al. 2004); `agnostic` for the trials that are
            best in bootstraps of the held-out rows (Lacoste et al. 2014); `auto` for that of the
            three which is best on held-out rows.
        size: Most picks of a greedy ensemble; None for as many as that takes by itself.
    """

    kind: EnsembleKind
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ValueError(f"an ensemble has at least 1 pick; got {self.size}")

    @classmethod
    def parse(cls, value: int | str) -> Self:
        """Return the rule that a whole number of picks or the word for a kind stands for.

        >>> EnsembleRule.parse("8")
        EnsembleRule(kind='greedy', size=8)
        >>> EnsembleRule.parse(1).kind
        'single'

        Raises:
            ValueError: If it is neither.
        """
        kinds = {str(kind): kind for kind in ENSEMBLE_KINDS}
        if isinstance(value, str) and value in kinds:
            return cls(kinds[value])
        try:
            size = int(value)
        except ValueError:
            size = None
        if (
            size is None
            or isinstance(value, bool)
            or (not isinstance(value, str) and size != value)
        ):
            raise ValueError("neither a number of picks nor a kind of ensemble")
        return cls("single") if size == 1 else cls("greedy", size)

    def to_json(self) -> int | str:
        """Return what `parse` takes, as a JSON value."""
        return self.kind if self.size is None else self.size
