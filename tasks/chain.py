"""The nodes of one fold, one after the other, and the deepest of them that the cache has."""

from collections.abc import Sequence
from dataclasses import replace

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.tasks.fitting.iterative import training_of
from prefect_tune.tasks.fitting.recipe import recipe
from prefect_tune.tasks.iterative_node import IterativeNode
from prefect_tune.tasks.node import Fold, FoldRows, Node

__all__ = ["Chain"]


class Chain:
    """The nodes of one fold, one after the other.

    Args:
        fold: The fold.
        steps: Per step, its declaration and the algorithm and values chosen.
        epochs: How far to train an iterative model; None to fit it at once.
    """

    def __init__(
        self,
        fold: Fold,
        steps: Sequence[tuple[Step, Algorithm, Choice]],
        epochs: int | None = None,
    ) -> None:
        self._steps, self._epochs = steps, epochs
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

    def node_at(self, position: int) -> Node | None:
        """Return the node of a position, whether it has run or not.

        None where the step hands on what it was given, and where it is not known to what: what is
        before it has neither run here nor ever been kept.
        """
        if self._steps[position][1].is_passthrough:
            return None
        before = [algorithm for _, algorithm, _ in self._steps[: position + 1]]
        n_before = sum(not algorithm.is_passthrough for algorithm in before[:-1])
        if n_before < len(self.nodes):
            return self.nodes[n_before]
        if position in self._planned:
            return self._planned[position]
        if n_before > len(self.nodes) or self.tip.summary is None:
            return None
        return self._node(self.tip, position, any(a.class_weights for a in before))

    def planned_keys(self) -> list[str]:
        """Return the keys of what is cached and will be served or read."""
        return [key for node in self._planned.values() for key in node.keys_there]

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
        assert parent.summary is not None  # noqa: S101 - the caller's duty
        summary = replace(parent.summary, n_classes=len(parent.fold.dataset.classes))
        how = recipe(algorithm, choice, summary, balanced=is_balanced)
        is_model = position == len(self._steps) - 1
        iterative = training_of(how) if is_model and self._epochs is not None else None
        node = (
            IterativeNode(parent, step.name, how, iterative, target=self._epochs)
            if iterative and self._epochs
            else Node(parent, step.name, how, is_model=is_model)
        )
        node.look_up()
        return node
