"""Training of a model in epochs, in all folds of a query side by side.

Folds advance together, because the best epoch minimises their mean loss. A checkpoint is an
ordinary artifact: the model and its curve. Its key has no target epoch, trial or study, so any
later request for more epochs finds it. Superseded checkpoints are evicted first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from prefect_tune.storage.artifacts import Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.split import REFIT
from prefect_tune.tasks.fitting.epochs import Checkpoint, EpochTraining, Iterative
from prefect_tune.tasks.fitting.recipe import Recipe
from prefect_tune.tasks.objective.metric import Metric, Predictions
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
        trains_at_once: Whether one fit adds the trees or rounds of all epochs.
        metric: Metric of the curve; set before training.
    """

    metric: Metric

    def __init__(
        self, parent: FoldRows | Node, step: str, how: Recipe, iterative: Iterative, *, target: int
    ) -> None:
        context = parent.fold.context
        self.is_judged, self.trains_at_once = parent.fold.number != REFIT, bool(iterative.rounds)
        self.of_epochs = context.epochs or target
        schedule: dict[str, Any] = {"iterative": iterative.rounds or "passes"}
        if iterative.rounds:  # an epoch is a share of the rounds, or else a pass over the rows
            schedule["of_epochs"] = self.of_epochs
        if self.is_judged:
            schedule["curve"] = [context.problem.metric, context.problem.positive]
        super().__init__(parent, step, how, is_model=True, schedule=schedule)
        self.target, self._iterative = target, iterative
        self.training_key, self._training_lineage = self.key, self.lineage
        self.epochs = self.resumed_from = 0
        self.best_epoch = target
        self.curve: tuple[float, ...] = ()
        self.trouble: Exception | None = None
        self.is_alone = False
        self._checkpoints: dict[int, Entry] = {}
        self._training: EpochTraining | None = None
        self._history: dict[int, Predictions] = {}
        self._passing = 0
        self._is_served = True
        self._identify(target)

    @property
    def is_cached(self) -> bool:
        """Whether the cache has the checkpoint at the target."""
        return self.target in self._checkpoints

    @property
    def cached_keys(self) -> list[str]:
        """Key of the checkpoint to resume from; empty if there is none."""
        return [self._key_after(max(self._checkpoints))] if self._checkpoints else []

    @property
    def predictions_key(self) -> str:
        """Key of the held-out predictions after the best epoch."""
        return self._key_after(self.best_epoch)

    def look_up(self) -> None:
        """Look up the checkpoints of up to `target` epochs in one query."""
        if self.fold.context.use_cache:
            keys = {self._key_after(epochs): epochs for epochs in range(1, self.target + 1)}
            entries = self.fold.store.index.entries(list(keys))
            self._checkpoints = {keys[k]: e for k, e in entries.items() if e.is_present}

    def serve(self) -> None:
        """Do nothing; `train_folds` trains the model, because the best epoch needs all folds."""

    obtain = serve

    def resume(self) -> None:
        """Resume from the latest readable checkpoint that does not exceed the target."""
        if (start := self._latest(self.target, "curve", "history")) is not None:
            self.epochs = self.resumed_from = start.epochs
            self.curve, self.earlier_seconds = start.curve, start.seconds
            self.fold.store.index.count_hit(self._checkpoints[start.epochs])

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last epoch before numbers are no longer finite."""
        if self._training is None:
            self._training = self._trained(to)
            self.earlier_seconds = self._training.earlier_seconds
        else:
            self._train(self._training, to)
        self.epochs, self.trouble = self._training.good_epochs, self._training.trouble
        self.curve = tuple(self._training.curve)

    def keep_predictions(self, best: int) -> None:
        """Keep the predictions of the best pass; of all if later folds may change which is best."""
        if self._training is None or self.trains_at_once or not self.is_judged:
            return
        if (found := self._training.predictions(self.epochs)) is not None:
            self._history[self.epochs] = found
        if not self._keeps_all:
            self._history = {n: found for n, found in self._history.items() if n == best}

    def rewind(self) -> None:
        """Return to the last epoch before the trouble."""
        if self.trouble is not None:
            self._training = self._trained(self.epochs)

    def save(self, best: int, *, is_done: bool) -> None:
        """Store the predictions of the best epoch, and a checkpoint to recover from a crash."""
        if self.is_judged or is_done:  # a refit's earlier predictions are never read
            self._save_predictions(best)
        if self._training is None or not self.fold.context.use_cache:
            return
        former, self._passing = self._passing, 0 if is_done else self.epochs
        if self.epochs not in self._checkpoints:
            self._identify(self.epochs)
            made = self._made_by(self._training)
            kept = self.fold.store.write(self._new_entry(), made, self.lineage)
            if kept.is_present:
                self._checkpoints[self.epochs] = kept
        if former != self.epochs and former in self._checkpoints:
            self.fold.store.forget(self._checkpoints.pop(former))

    def finish(self) -> None:
        """Release the matrices and record the cost."""
        self._identify(self.epochs)
        self._entry, self.hit = self._checkpoints.get(self.epochs), self._is_served
        if self.hit:
            self.seconds = self._entry.cost_seconds if self._entry else 0.0
        elif self.fold.context.use_cache:
            self.fold.store.index.usage.count_miss(self.step)
        if self._training is not None:
            self._made, self._training = self._made_by(self._training), None
        self.release()
        self.parent.release()

    @property
    def _keeps_all(self) -> bool:
        n_bytes = 8 * len(self.fold.held_out) * (len(self.fold.dataset.classes) + 1)
        return self.is_alone and n_bytes * self.of_epochs <= _MOST_HISTORY_BYTES

    def _key_after(self, epochs: int) -> str:
        return prefix_key({"training": self.training_key, "epochs": epochs})

    def _identify(self, epochs: int) -> None:
        """Take the key and lineage of the checkpoint after some epochs."""
        self.key = self._key_after(epochs)
        more = {"training": self.training_key, "epochs": epochs}
        self.lineage = {**self._training_lineage, **more}

    def _latest(self, most: int, *names: str) -> Checkpoint | None:
        """Return the latest readable checkpoint of up to `most` epochs, with the named parts."""
        for epochs in sorted((n for n in self._checkpoints if n <= most), reverse=True):
            entry, started = self._checkpoints[epochs], perf_counter()
            read = self.fold.store.read(entry, [name for name in names if name in entry.parts])
            self.load_seconds += perf_counter() - started
            if read is not None:
                self._history |= read.get("history", {})
                curve = tuple(read["curve"].tolist())
                return Checkpoint(epochs, read.get("estimator"), curve, entry.cost_seconds)
            del self._checkpoints[epochs]
        return None

    def _train(self, training: EpochTraining, to: int) -> None:
        before, self._is_served = training.seconds, False
        training.advance(to)
        self.seconds += training.seconds - before

    def _trained(self, epochs: int) -> EpochTraining:
        """Return a training at an epoch, resumed from the latest checkpoint before it."""
        fold, start = self.fold, self._latest(epochs, "curve", "history", "estimator")
        y, n_classes = fold.dataset.y[fold.held_out], len(fold.dataset.classes)
        training = EpochTraining(
            self.recipe,
            self._iterative,
            self.seed,
            fold.data(*self.parent.matrices()),
            epochs=self.of_epochs,
            loss=(lambda p: self.metric.loss(y, p, n_classes)) if self.is_judged else None,
            start=start,
        )
        self.seconds += training.seconds
        if training.epochs < epochs:
            self.resumed_from = min(self.resumed_from, training.epochs)
            self._train(training, epochs)
        return training

    def _made_by(self, training: EpochTraining) -> Made:
        checkpoint = training.checkpoint()
        parts = {"estimator": checkpoint.estimator, "curve": canonical(np.array(checkpoint.curve))}
        if self._keeps_all and self._history:
            parts["history"] = self._history
        assert self.parent.summary is not None  # noqa: S101 - the parent is finished
        return Made(parts, self.parent.summary.to_json(), checkpoint.seconds, ("estimator",))

    def _make(self) -> Made:
        """Train again, because the checkpoint was evicted since it was looked up."""
        training, self.earlier_seconds = self._trained(self.epochs), 0.0
        self.parent.release()
        return self._made_by(training)

    def _save_predictions(self, best: int) -> None:
        self.best_epoch = best
        if not self.is_linked and not (best <= self.resumed_from and self._has_record()):
            self._record(self._predicted(best))

    def _predicted(self, epoch: int) -> Predictions:
        """Return the predictions of an epoch, retraining up to it if necessary."""
        found = self._history.get(epoch)
        if found is None and self._training is not None:
            found = self._training.predictions(epoch)
        if found is None:
            again = self._trained(self.epochs if self.trains_at_once else epoch)
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


CHECKPOINT_SECONDS = 30.0
"""Interval between checkpoints of passes: the most that a crash can cost."""


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """Held-out loss after each epoch, by fold, all of one length; empty for a refit."""

    folds: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, nodes: Sequence[IterativeNode]) -> "LearningCurves":
        """Return the curves of all folds, as far as all are trained."""
        common = min(len(node.curve) for node in nodes)
        return cls(tuple(node.curve[:common] for node in nodes))

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
    fold, name = nodes[0].fold, f"training {nodes[0].training_key}"
    if not fold.context.use_cache or all(node.is_cached for node in nodes):
        return _trained(nodes, begin)
    # Other trials that need the same model, at any epoch, wait and then find the checkpoints.
    with fold.store.leases.turn(name, lambda _: None):
        for node in nodes:
            node.look_up()
        return _trained(nodes, begin)


def _trained(nodes: Sequence[IterativeNode], begin: Callable[[int], None]) -> LearningCurves:
    for node in nodes:
        begin(node.fold.number)
        node.resume()
    target, saved = nodes[0].target, perf_counter()
    while (done := min(node.epochs for node in nodes)) < target:
        to = target if nodes[0].trains_at_once else done + 1
        for node in nodes:
            if node.epochs < to:
                begin(node.fold.number)
                node.advance(to)
        if any(node.trouble for node in nodes):
            break
        best, is_late = _best_epoch(nodes), perf_counter() - saved > CHECKPOINT_SECONDS
        for node in nodes:
            node.keep_predictions(best)
            if is_late and to < target:
                node.save(best, is_done=False)
        saved = perf_counter() if is_late else saved
    best = _best_epoch(nodes)
    for node in nodes:
        begin(node.fold.number)
        node.rewind()
        node.save(best, is_done=True)
        node.finish()
    return LearningCurves.of(nodes)


def _best_epoch(nodes: Sequence[IterativeNode]) -> int:
    if not nodes[0].is_judged:
        return min(node.epochs for node in nodes)
    return LearningCurves.of(nodes).best_epoch
