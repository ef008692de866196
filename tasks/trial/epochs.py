"""Training of a model in epochs, in all folds of a query side by side.

The best epoch is that of the folds' mean loss, so no fold is trained to its end before the others.
A fold whose checkpoint is further on waits for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.fitting.iterative import Iterative
from prefect_tune.tasks.fitting.recipe import Recipe
from prefect_tune.tasks.fitting.training import Checkpoint, EpochTraining
from prefect_tune.tasks.objective.metric import Metric, Predictions
from prefect_tune.tasks.trial.checkpoints import Checkpoints
from prefect_tune.tasks.trial.node import FoldRows, Node

_MOST_HISTORY_BYTES = 64_000_000
"""Predictions of all epochs that would be larger are not kept; they are made again if needed."""


class IterativeNode(Node):
    """A model of one fold that trains in epochs, led by `train_together`.

    Args:
        parent: The node that it is made from.
        step: Name of the step.
        how: The recipe of the model.
        iterative: How it trains in epochs.
        target: How many epochs to train.

    Attributes:
        seconds: Time that this stretch took; of one that was served, all its epochs.
        epochs: Epochs done.
        curve: Loss on the held-out rows after each of them. Empty for the refit: its held-out rows
            are the test rows, on which nothing may be chosen.
        trouble: Why it cannot go on; None if it can.
        resumed_from: Epochs that its checkpoint had.
        best_epoch: The epoch whose predictions count.
        is_alone: Whether folds that are trained later may find another epoch to be the best, so
            that the predictions of all epochs are kept.
        metric: Metric of the curve; set before training.
    """

    metric: Metric

    def __init__(
        self, parent: FoldRows | Node, step: str, how: Recipe, iterative: Iterative, *, target: int
    ) -> None:
        context = parent.fold.context
        self.is_judged = parent.fold.number != REFIT
        self.of_epochs = context.epochs or target
        schedule: dict[str, Any] = {"iterative": iterative.rounds or "passes"}
        if iterative.rounds:  # an epoch is a share of them; a pass is a pass
            schedule["of_epochs"] = self.of_epochs
        if self.is_judged:
            schedule["curve"] = [context.problem.metric, context.problem.positive]
        super().__init__(parent, step, how, is_model=True, schedule=schedule)
        self.target, self._iterative = target, iterative
        self.training_key = self.key
        self._checkpoints = Checkpoints(self.fold.store, self._new_entry(), self.lineage)
        self.key = self._checkpoints.key_after(target)
        self.epochs = self.resumed_from = 0
        self.best_epoch = target
        self.curve: tuple[float, ...] = ()
        self.trouble: Exception | None = None
        self.is_alone = False
        self._start: Checkpoint | None = None
        self._training: EpochTraining | None = None
        self._before = 0.0  # seconds that training to where `_training` began once took
        self._estimator: Any = None
        self._held: tuple[int, Predictions | None] = (0, None)
        self._passing = 0
        self._is_served = True

    @property
    def is_there(self) -> bool:
        """Whether the cache has the checkpoint at its target."""
        return self.target in self._checkpoints.found

    @property
    def keys_there(self) -> list[str]:
        """Key of the checkpoint that it will go on from, if there is one."""
        found = self._checkpoints.found
        return [self._checkpoints.key_after(max(found))] if found else []

    @property
    def predictions_key(self) -> str:
        """Key of the held-out predictions after its best epoch."""
        return self._checkpoints.key_after(self.best_epoch)

    @property
    def stops_after(self) -> int:
        """Epochs that are trained at once: one pass, or a fifth of all rounds."""
        return max(1, -(-self.of_epochs // 5)) if self._iterative.rounds else 1

    def look_up(self) -> None:
        """Look up its checkpoints."""
        if self.fold.context.use_cache:
            self._checkpoints.look_up(self.target)

    def serve(self) -> None:
        """Leave it to `train_together`: the best epoch is that of all folds together."""

    def obtain(self) -> None:
        """Leave it to `train_together`."""

    def resume(self) -> None:
        """Stand at the largest checkpoint at or below the target."""
        self._start = self._checkpoints.largest(self.target, unless=self.target)
        if self._start is not None:
            self.epochs = self.resumed_from = self._start.epochs
            self.curve = self._start.curve
            self.earlier_seconds = self._checkpoints.seconds_until(self.epochs)
            self._checkpoints.count_hit(self.epochs)

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last one before the numbers are no longer finite."""
        if self._training is None:
            self._training, self._before = self._begun(self._start)
            self.seconds += self._training.seconds
        self._train(self._training, to)
        self.epochs, self.trouble = self._training.good_epochs, self._training.trouble
        self.curve = tuple(self._training.curve)

    def mend(self) -> None:
        """Stand at the last epoch before the trouble again."""
        if self.trouble is not None:
            self._training, self._before = self._trained(self.epochs)

    def hold_best(self, epoch: int) -> None:
        """Hold the predictions after an epoch if it is the last one and they would be lost."""
        if self._training is not None and self.epochs == epoch and not self._iterative.rounds:
            self._held = (epoch, self._training.predictions(epoch))

    def keep_best(self, epoch: int) -> None:
        """Keep the predictions after the best epoch, as a record."""
        self.best_epoch = epoch
        if self.is_linked:
            return
        held, predictions = self._held
        if held != epoch or predictions is None:
            if epoch <= self.resumed_from and self._has_record():
                return
            predictions = self._predicted(epoch)
        self._record(predictions)
        self._held = (0, None)

    def keep(self, *, in_passing: bool = False) -> None:
        """Keep a checkpoint of where it stands.

        Args:
            in_passing: Whether training goes on at once, so that it is for accidents alone.
        """
        former, self._passing = self._passing, self.epochs if in_passing else 0
        if self._training is None or not self.fold.context.use_cache:
            return
        assert self.parent.summary is not None  # noqa: S101 - it was made
        if self.epochs not in self._checkpoints.found:
            seconds = self._before + self._training.seconds
            summary = self.parent.summary.to_json()
            self._checkpoints.keep(self._training.checkpoint(), summary, seconds)
        if former and former != self.epochs:
            self._checkpoints.forget(former)

    def keep_in_passing(self, best: int) -> None:
        """Keep where it stands, and its predictions after the best epoch, in case of accidents."""
        if self.is_judged:  # of a refit, nobody reads the predictions before the last
            self.keep_best(best)
        self.keep(in_passing=True)

    def finish(self) -> None:
        """Let go of the matrices; say what it took."""
        self.key = self._checkpoints.key_after(self.epochs)
        self.load_seconds = self._checkpoints.load_seconds
        self.hit = self._is_served
        if self.hit:
            self.seconds = self._checkpoints.seconds_until(self.epochs)
        elif self.fold.context.use_cache:
            self.fold.store.index.usage.count_miss(self.step)
        if self._training is not None:
            self._estimator, self._training = self._training.estimator, None
        self.parent.release()

    def part(self, name: str) -> Any:
        """Return the model after the last epoch."""
        assert name == "estimator"  # noqa: S101 - it has no other
        if self._estimator is None:
            self._estimator = self._read_or_trained()
            self.load_seconds = self._checkpoints.load_seconds
        return self._estimator

    def _read_or_trained(self) -> Any:
        """Return the model; trained and kept again if it was evicted after it was looked up."""
        found = self._checkpoints.largest(self.epochs)
        if found is not None and found.epochs == self.epochs:
            return found.estimator
        if self.hit:
            self.hit, self.seconds = False, 0.0
            self.fold.store.index.usage.count_miss(self.step)
        self._training, self._before = self._trained(self.epochs)
        self.earlier_seconds = self._before
        self.keep()
        estimator, self._training = self._training.estimator, None
        self.parent.release()
        return estimator

    def _predicted(self, epoch: int) -> Predictions:
        """Return the predictions after an epoch, by training up to it again if need be."""
        if self._training is not None:
            found = self._training.predictions(epoch)
        else:
            found = self._checkpoints.predictions(self.epochs, epoch)
        if found is None:
            again, _ = self._trained(self.epochs if self._iterative.rounds else epoch)
            found = again.predictions(epoch)
        assert found is not None  # noqa: S101 - it stands at that epoch
        return found

    def _has_record(self) -> bool:
        """Return whether the predictions can be read; they decide nothing, so nobody else looks."""
        try:
            self._read_predictions()
        except RecordDamaged:
            return False
        return True

    def _predict_again(self) -> None:
        self._record(self._predicted(self.best_epoch))

    def _trained(self, epochs: int) -> tuple[EpochTraining, float]:
        """Return the training at an epoch, from the largest checkpoint at or below it.

        Returns:
            The training, and the seconds that training to its checkpoint once took.
        """
        start = self._checkpoints.largest(epochs)
        training, before = self._begun(start)
        if (done := start.epochs if start else 0) < epochs:
            self.seconds += training.seconds
            self._train(training, epochs)
            self.resumed_from = min(self.resumed_from, done)
        return training, before

    def _begun(self, start: Checkpoint | None) -> tuple[EpochTraining, float]:
        """Return a training from a checkpoint, and the seconds that training to it once took."""
        fold = self.fold
        y, n_classes = fold.dataset.y[fold.held_out], len(fold.dataset.classes)
        training = EpochTraining(
            self.recipe,
            self._iterative,
            self.seed,
            fold.data(*self.parent.matrices()),
            epochs=self.of_epochs,
            loss=(lambda p: self.metric.loss(y, p, n_classes)) if self.is_judged else None,
            start=start,
            keeps_history=self.is_alone
            and 8 * len(y) * (n_classes + 1) * self.of_epochs <= _MOST_HISTORY_BYTES,
        )
        return training, self._checkpoints.seconds_until(start.epochs) if start else 0.0

    def _train(self, training: EpochTraining, to: int) -> None:
        before, self._is_served = training.seconds, False
        training.advance(to)
        self.seconds += training.seconds - before


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
