"""Training of a model in epochs, in all folds of a query side by side.

Folds advance together, because the best epoch minimises their mean loss.
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
"""Predictions of all epochs beyond this size are not stored, but recomputed if needed."""


class IterativeNode(Node):
    """A model of one fold that trains in epochs up to `target`, driven by `train_folds`.

    Attributes:
        seconds: Training time of this evaluation; of all epochs if the cache served the model.
        curve: Loss on the held-out rows after each epoch. Empty for a refit, whose held-out rows
            are the test rows: no choice may depend on them.
        trouble: Reason training cannot continue; None if it can.
        resumed_from: Epochs of the checkpoint that training resumed from.
        best_epoch: Epoch whose predictions count.
        is_alone: Whether later folds may change the best epoch, so all predictions are stored.
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
        if iterative.rounds:  # an epoch is a share of the rounds, or else a pass over the rows
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
        self._before = 0.0  # seconds it took to train up to where `_training` started
        self._estimator: Any = None
        self._held: tuple[int, Predictions | None] = (0, None)
        self._passing = 0
        self._is_served = True

    @property
    def is_cached(self) -> bool:
        """Whether the cache has the checkpoint at the target."""
        return self.target in self._checkpoints.found

    @property
    def cached_keys(self) -> list[str]:
        """Key of the checkpoint to resume from; empty if there is none."""
        found = self._checkpoints.found
        return [self._checkpoints.key_after(max(found))] if found else []

    @property
    def predictions_key(self) -> str:
        """Key of the held-out predictions after the best epoch."""
        return self._checkpoints.key_after(self.best_epoch)

    @property
    def stops_after(self) -> int:
        """Epochs trained at a time: one pass, or a fifth of all rounds."""
        return max(1, -(-self.of_epochs // 5)) if self._iterative.rounds else 1

    def look_up(self) -> None:
        """Look up the checkpoints."""
        if self.fold.context.use_cache:
            self._checkpoints.look_up(self.target)

    def serve(self) -> None:
        """Do nothing; `train_folds` decides, because the best epoch depends on all folds."""

    def obtain(self) -> None:
        """Do nothing; `train_folds` trains the model."""

    def resume(self) -> None:
        """Resume from the latest checkpoint that does not exceed the target."""
        self._start = self._checkpoints.largest(self.target, unless=self.target)
        if self._start is not None:
            self.epochs = self.resumed_from = self._start.epochs
            self.curve = self._start.curve
            self.earlier_seconds = self._checkpoints.seconds_until(self.epochs)
            self._checkpoints.count_hit(self.epochs)

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last epoch before numbers are no longer finite."""
        if self._training is None:
            self._training, self._before = self._begun(self._start)
            self.seconds += self._training.seconds
        self._train(self._training, to)
        self.epochs, self.trouble = self._training.good_epochs, self._training.trouble
        self.curve = tuple(self._training.curve)

    def rewind(self) -> None:
        """Return to the last epoch before the trouble."""
        if self.trouble is not None:
            self._training, self._before = self._trained(self.epochs)

    def buffer_predictions(self, epoch: int) -> None:
        """Buffer the predictions of an epoch if it is the last one and they would be lost."""
        if self._training is not None and self.epochs == epoch and not self._iterative.rounds:
            self._held = (epoch, self._training.predictions(epoch))

    def save_predictions(self, epoch: int) -> None:
        """Store the predictions of the best epoch as a record."""
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

    def save_checkpoint(self, *, in_passing: bool = False) -> None:
        """Store a checkpoint; `in_passing` if training continues at once and may crash."""
        former, self._passing = self._passing, self.epochs if in_passing else 0
        if self._training is None or not self.fold.context.use_cache:
            return
        assert self.parent.summary is not None  # noqa: S101 - the parent is finished
        if self.epochs not in self._checkpoints.found:
            seconds = self._before + self._training.seconds
            summary = self.parent.summary.to_json()
            self._checkpoints.save(self._training.checkpoint(), summary, seconds)
        if former and former != self.epochs:
            self._checkpoints.forget(former)

    def save_recovery_point(self, best: int) -> None:
        """Store a checkpoint and the predictions of the best epoch, to recover from a crash."""
        if self.is_judged:  # a refit's earlier predictions are never read
            self.save_predictions(best)
        self.save_checkpoint(in_passing=True)

    def finish(self) -> None:
        """Release the matrices and record the cost."""
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
        assert name == "estimator"  # noqa: S101 - the only part
        if self._estimator is None:
            self._estimator = self._read_or_trained()
            self.load_seconds = self._checkpoints.load_seconds
        return self._estimator

    def _read_or_trained(self) -> Any:
        """Return the model, retrained if it was evicted since it was looked up."""
        found = self._checkpoints.largest(self.epochs)
        if found is not None and found.epochs == self.epochs:
            return found.estimator
        if self.hit:
            self.hit, self.seconds = False, 0.0
            self.fold.store.index.usage.count_miss(self.step)
        self._training, self._before = self._trained(self.epochs)
        self.earlier_seconds = self._before
        self.save_checkpoint()
        estimator, self._training = self._training.estimator, None
        self.parent.release()
        return estimator

    def _predicted(self, epoch: int) -> Predictions:
        """Return the predictions of an epoch, retraining up to it if necessary."""
        if self._training is not None:
            found = self._training.predictions(epoch)
        else:
            found = self._checkpoints.predictions(self.epochs, epoch)
        if found is None:
            again, _ = self._trained(self.epochs if self._iterative.rounds else epoch)
            found = again.predictions(epoch)
        assert found is not None  # noqa: S101 - training has reached that epoch
        return found

    def _has_record(self) -> bool:
        """Return whether the predictions can be read; no earlier decision has needed them."""
        try:
            self._read_predictions()
        except RecordDamaged:
            return False
        return True

    def _predict_again(self) -> None:
        self._record(self._predicted(self.best_epoch))

    def _trained(self, epochs: int) -> tuple[EpochTraining, float]:
        """Return the training at an epoch, and the seconds up to the checkpoint it started from."""
        start = self._checkpoints.largest(epochs)
        training, before = self._begun(start)
        if (done := start.epochs if start else 0) < epochs:
            self.seconds += training.seconds
            self._train(training, epochs)
            self.resumed_from = min(self.resumed_from, done)
        return training, before

    def _begun(self, start: Checkpoint | None) -> tuple[EpochTraining, float]:
        """Return a training resumed from a checkpoint, and the seconds training up to it took."""
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
"""Interval between checkpoints during training: the most that a crash can cost."""


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """Held-out loss after each epoch, by fold, all of one length; empty for a refit."""

    folds: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean loss of the folds after each epoch."""
        return tuple(sum(losses) / len(losses) for losses in zip(*self.folds, strict=True))

    @property
    def best_epoch(self) -> int:
        """Epoch with the least mean loss, counted from 1; the first wins a tie."""
        return int(np.argmin(self.mean)) + 1


def train_folds(nodes: Sequence[IterativeNode], begin: Callable[[int], None]) -> LearningCurves:
    """Train models of one recipe to their target, resuming from their checkpoints.

    If numbers are no longer finite in one fold, all folds end at the epoch before; divergence in
    the first epoch is an error, like any error of the estimator or metric. `begin` is called with
    the number of each fold before work on it starts.
    """
    first = nodes[0]
    if not first.fold.context.use_cache or all(node.is_cached for node in nodes):
        return _trained(nodes, begin)
    # Other trials that need the same model, at any epoch, wait and then find the checkpoints.
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
            node.buffer_predictions(best)
        if perf_counter() - kept > CHECKPOINT_SECONDS and to < nodes[0].target:
            for node in nodes:
                node.save_recovery_point(best)
            kept = perf_counter()
    best = _best_epoch(nodes)
    for node in nodes:
        begin(node.fold.number)
        node.rewind()
        node.save_predictions(best)
        node.save_checkpoint()
        node.finish()
    return _curves(nodes)


def _curves(nodes: Sequence[IterativeNode]) -> LearningCurves:
    common = min(len(node.curve) for node in nodes)
    folds = tuple(node.curve[:common] for node in nodes)
    return LearningCurves(folds)


def _best_epoch(nodes: Sequence[IterativeNode]) -> int:
    if not nodes[0].is_judged:
        return min(node.epochs for node in nodes)
    return _curves(nodes).best_epoch
