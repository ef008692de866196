"""Bootstraps of the held-out examples: how many an evaluation has risks in, and of which size."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Bootstraps", "bootstraps_of"]


@dataclass(frozen=True, slots=True)
class Bootstraps:
    """Resamples of the held-out examples, the same for all trials of a study.

    Attributes:
        n: How many.
        share: Draws with replacement in each, as a share of the examples; 0 to draw none and count
            each example once, so that a risk is the loss.

    Raises:
        ValueError: If a number is out of range.
    """

    n: int
    share: float

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"there is at least 1 bootstrap; got {self.n}")
        if not 0 <= self.share <= 1:
            raise ValueError(f"the share of a bootstrap must be in [0, 1]; got {self.share}")


def bootstraps_of(options: Any) -> Bootstraps | None:
    """Return the bootstraps that the options of a method ask for; None if they speak of none."""
    found: Bootstraps | None = getattr(options, "bootstraps", None)
    return found
