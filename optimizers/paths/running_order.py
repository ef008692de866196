"""The order in which the steps of a path run, where that is a choice."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.space import Path, Space

__all__ = ["RunningOrder"]


class RunningOrder:
    """Says of any path which searched steps run, and in which order.

    Args:
        space: The space.

    Attributes:
        is_declared: Whether all paths run all searched steps in the order declared.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._position = {s.name: k for k, s in enumerate(space.searched)}
        self._choosing = [k for k, s in enumerate(space.searched) if s.orders]
        self.is_declared = not self._choosing
        self._known: dict[Path, tuple[int, ...]] = {}

    def of(self, path: Path) -> tuple[int, ...]:
        """Return positions of searched steps as they run, those that choose an order left out."""
        chosen = tuple(path[k] for k in self._choosing)
        if chosen not in self._known:
            pipeline = self._space.pipeline(path)
            ran = tuple(self._position[s.name] for s, _ in pipeline if not s.fixed)
            self._known[chosen] = ran
        return self._known[chosen]

    def places(self, algorithms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return at which place each step of paths runs, -1 for those that do not, shape (n, K).

        Args:
            algorithms: Which algorithm each searched step takes, shape (n, K).
        """
        steps = self._space.searched
        places = np.full(algorithms.shape, -1, dtype=np.intp)
        orders, rows = np.unique(algorithms[:, self._choosing], axis=0, return_inverse=True)
        for i in range(len(orders)):
            of_order = np.flatnonzero(rows.reshape(-1) == i)
            first = algorithms[of_order[0]]
            path = tuple(s.algorithms[a].id for s, a in zip(steps, first, strict=True))
            for place, k in enumerate(self.of(path)):
                places[of_order, k] = place
        return places
