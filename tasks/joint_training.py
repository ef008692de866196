"""Training the model of a query in all its folds side by side, epoch by epoch.

The best epoch is that of the folds' mean loss, so no fold can be trained to its end before the
others. A fold that is ahead, because its checkpoint is, waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from prefect_tune.tasks.iterative_node import IterativeNode

__all__ = ["LearningCurves", "train_together"]

CHECKPOINT_SECONDS = 30.0
"""After so long a checkpoint is written in passing: all that an accident can cost."""


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """How a model learned.

    Attributes:
        folds: Per fold, the loss on its held-out rows after each epoch; equally many. Empty for a
            refit.
    """

    folds: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of the folds' losses after each epoch."""
        return tuple(sum(losses) / len(losses) for losses in zip(*self.folds, strict=True))

    @property
    def best_epoch(self) -> int:
        """The epoch of the least mean loss, from 1; the first of equals."""
        return int(np.argmin(self.mean)) + 1


def train_together(nodes: Sequence[IterativeNode], begin: Callable[[int], None]) -> LearningCurves:
    """Train models of one recipe to their target, from their checkpoints.

    Where numbers are no longer finite in one fold, all end at the epoch before it.

    Args:
        nodes: One per fold.
        begin: Is told the number of the fold that is worked on.

    Raises:
        Exception: What the estimator or metric raises; if a fold diverges in its first epoch too.
    """
    first = nodes[0]
    if not first.fold.context.use_cache or all(node.is_there for node in nodes):
        return _trained(nodes, begin)
    # Whoever wants the same model, to whichever epoch, waits and then finds the checkpoints.
    with first.fold.store.leases.turn(f"training {first.training_key}", lambda _: None):
        for node in nodes:
            node.look_up()
        return _trained(nodes, begin)


def _trained(nodes: Sequence[IterativeNode], begin: Callable[[int], None]) -> LearningCurves:
    for node in nodes:
        begin(node.fold.number)
        node.resume()
    kept = perf_counter()
    while (done := min(node.epochs for node in nodes)) < nodes[0].target:
        stops = nodes[0].stops_after
        to = min((done // stops + 1) * stops, nodes[0].target)
        for node in nodes:
            if node.epochs < to:
                begin(node.fold.number)
                node.advance(to)
        if any(node.trouble for node in nodes):
            break
        best = _best_epoch(nodes)
        for node in nodes if nodes[0].is_judged else ():
            node.hold_best(best)
        if perf_counter() - kept > CHECKPOINT_SECONDS and to < nodes[0].target:
            for node in nodes:
                node.keep_in_passing(best)
            kept = perf_counter()
    best = _best_epoch(nodes)
    for node in nodes:
        begin(node.fold.number)
        node.mend()
        node.keep_best(best)
        node.keep()
        node.finish()
    return _curves(nodes)


def _curves(nodes: Sequence[IterativeNode]) -> LearningCurves:
    common = min(len(node.curve) for node in nodes)
    folds = tuple(node.curve[:common] for node in nodes)
    return LearningCurves(folds)


def _best_epoch(nodes: Sequence[IterativeNode]) -> int:
    """Return the best epoch so far; of a refit, the last."""
    if not nodes[0].is_judged:
        return min(node.epochs for node in nodes)
    return _curves(nodes).best_epoch
