"""The nodes of one fold, one after the other, and the deepest of them that the cache has."""

from collections.abc import Sequence

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.optimizers.space.step import Step
from prefect_tune.tasks.fold import Fold, FoldRows
from prefect_tune.tasks.node import Node

__all__ = ["Chain"]


class Chain:
    """The nodes of one fold, one after the other."""

    def __init__(self, fold: Fold, steps: Sequence[tuple[Step, Algorithm, Choice]]) -> None:
        self._steps = steps
        self.tip: FoldRows | Node = FoldRows(fold)
        self.nodes: list[Node] = []
        self._is_balanced = False
        self._planned: dict[int, Node] = {}
        self._deepest = -1
        self._plan()

    def run(self, position: int) -> None:
        """Run the step at a position, after those before it."""
        _, algorithm, _ = self._steps[position]
        self._is_balanced |= bool(algorithm.class_weights)
        if algorithm.is_passthrough:
            return
        node = self._planned.get(position) or self._node(self.tip, position, self._is_balanced)
        if position <= self._deepest:
            node.serve()
        else:
            node.obtain()
        self.nodes.append(node)
        self.tip = node

    def is_served(self, position: int) -> bool:
        """Return whether nothing has to be made at a position."""
        return position <= self._deepest or self._steps[position][1].is_passthrough

    def planned_keys(self) -> list[str]:
        """Return the keys of what is cached and will be served or read."""
        return [node.key for node in self._planned.values() if node.is_there]

    def _plan(self) -> None:
        """Plan as far as summaries are known, and find the last node in the cache."""
        tip, is_balanced = self.tip, False
        for position, (_, algorithm, _) in enumerate(self._steps):
            is_balanced |= bool(algorithm.class_weights)
            if algorithm.is_passthrough:
                continue
            if tip.summary is None:
                return
            tip = self._planned[position] = self._node(tip, position, is_balanced)
            if tip.is_there:
                self._deepest = position

    def _node(self, parent: FoldRows | Node, position: int, is_balanced: bool) -> Node:
        step, algorithm, choice = self._steps[position]
        is_model = position == len(self._steps) - 1
        return Node(parent, step.name, algorithm, choice, balanced=is_balanced, is_model=is_model)
