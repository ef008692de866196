"""A limit on the time that fitting the members of an ensemble takes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FitLimit"]


@dataclass(frozen=True)
class FitLimit:
    """Seconds that members may take together.

    Attributes:
        seconds: That each of n candidates takes, shape (n,).
        most: That members may take; the first one may always be a member.
    """

    seconds: NDArray[np.float64]
    most: float

    def of(self, candidates: Sequence[int] | NDArray[np.intp]) -> "FitLimit":
        """Return the same of some candidates only, in their order."""
        return FitLimit(self.seconds[candidates], self.most)

    def may_join(self, members: Collection[int]) -> NDArray[np.bool_]:
        """Return which candidates may be picked beside members, shape (n,); members always may."""
        chosen = sorted(set(members))
        within: NDArray[np.bool_] = self.seconds[chosen].sum() + self.seconds <= self.most
        within[chosen] = True
        return within

    def kept(self, order: Iterable[int]) -> list[int]:
        """Return those of some candidates, in their order, that fit in beside those before them."""
        members: list[int] = []
        for candidate in order:
            if not members or self.may_join(members)[candidate]:
                members.append(candidate)
        return members
