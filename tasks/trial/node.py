"""Nodes: the rows of a fold, and each step of a fold with its key and cached result.

Matrices are read or computed only when a later node needs them. In a chain of cached nodes, only
the last node is read, so earlier nodes may already be evicted. A model with epochs is trained side
by side in all folds of a query, because the best epoch minimizes the mean loss over folds. A
checkpoint is an ordinary cached step result: the model and its learning curve. The key of a
checkpoint contains no target epoch, trial or study, so any later request for more epochs finds the
checkpoint. Superseded checkpoints are evicted first.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import predictions_record, prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.forward_split import times_of
from prefect_tune.tasks.data.split import REFIT, nested_subset
from prefect_tune.tasks.fitting.epochs import Checkpoint, EpochTraining, Iterative
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model, fit_transformer
from prefect_tune.tasks.fitting.recipe import MatrixSummary, Recipe, step_seed
from prefect_tune.tasks.fitting.stopping import (
    StoppingRows,
    UndefinedLoss,
    can_stop,
    fit_until_flat,
    rounds_in,
)
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.shared_blocks import SharedBlocks

_STOPPING_SHARE, _MOST_STOPPING = 0.1, 10_000
"""Fraction, and largest number, of the training rows that decide when boosted trees stop."""
_MOST_STOPPING_SHARE = 0.25
"""Largest fraction of the rows in whole groups; with more, boosted trees do not stop early."""


@dataclass(frozen=True)
class Fold:
    """Data, study and store of a fold.

    Memory must suffice for `n_rows_in_all` training rows. `looks_forward` states whether held-out
    rows are newer than training rows.
    """

    number: int
    dataset: Dataset
    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    context: StudyContext
    store: ArtifactStore
    origin: Mapping[str, Any]
    n_rows_in_all: int | None = None
    looks_forward: bool = False

    def data(self, train: Any, held_out: Any) -> FoldData:
        """Return the training and held-out data of an algorithm in this fold."""
        dataset = self.dataset
        return FoldData(
            train,
            held_out,
            dataset.labels[self.training],
            dataset.learned_classes,
            self.context.memory_limit_bytes,
            self.n_rows_in_all,
            self.context.most_threads,
        )

    def stopping(self, seed: int) -> StoppingRows | None:
        """Draw the training rows that decide when boosted trees stop, at most 10,000.

        The draw is stratified and keeps groups together. If folds look forward in time, the rows
        are the newest instead. Rows of a class, with their groups, stay in training if fewer than
        half of the class would. Returns None if too many rows would be drawn, because groups are
        large.
        """
        dataset, rows = self.dataset, self.training
        share = min(_STOPPING_SHARE, _MOST_STOPPING / len(rows))
        are_kept = np.zeros(len(rows), dtype=np.bool_)
        groups = None if self.looks_forward or dataset.groups is None else dataset.groups[rows]
        if self.looks_forward:
            by_time = np.argsort(times_of(dataset)[rows], kind="stable")
            are_kept[by_time[-round(share * len(rows)) :]] = True
        else:
            rng = np.random.default_rng(seed)
            are_kept[nested_subset(dataset.strata[rows], groups, share, rng)] = True
        _, stratum, counts = np.unique(
            dataset.strata[rows], return_inverse=True, return_counts=True
        )
        are_kept &= (np.bincount(stratum[are_kept], minlength=len(counts)) <= counts / 2)[stratum]
        if groups is not None:  # groups with rows of a rare class return to training
            are_kept &= ~np.isin(groups, groups[~are_kept])
        if not are_kept.any() or are_kept.mean() > _MOST_STOPPING_SHARE:
            return None
        metric, y = self.context.problem.find_metric(), dataset.y[rows[are_kept]]

        def loss(predictions: Predictions) -> float:
            try:
                return metric.loss(y, predictions, len(dataset.classes))
            except Exception as error:  # any class, because the metric may be the user's
                raise UndefinedLoss from error

        return StoppingRows(are_kept, loss, self.context.training_seconds)


def summary_of_rows(dataset: Dataset, n_rows: int) -> MatrixSummary:
    """Summarize rows of a data set before the first step."""
    X = dataset.X
    if not isinstance(X, EventRows):
        return MatrixSummary(n_rows, dataset.n_features, "frame")
    return MatrixSummary(
        n_rows, dataset.n_features, "pickle", has_parents=any(X.parents().values())
    )


class FoldRows:
    """The rows of a fold before the first step: the start of the chain of nodes."""

    key = ""
    hit = False
    steps: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.summary: MatrixSummary | None = summary_of_rows(fold.dataset, len(fold.training))
        self._blocks: SharedBlocks | None = None

    def part(self, name: str) -> Any:
        """Return the training or held-out rows; events include the blocks shared by trials."""
        fold = self.fold
        positions = fold.training if name == "train" else fold.held_out
        rows = fold.dataset.rows(positions)
        if not isinstance(rows, EventRows) or not fold.context.use_cache:
            return rows
        if self._blocks is None:
            assert isinstance(fold.dataset.X, EventRows)  # noqa: S101 - some of its rows are
            n_training = fold.n_rows_in_all or len(fold.training)
            self._blocks = SharedBlocks(fold.store, fold.dataset.X, fold.context, n_training)
        return replace(rows, positions=positions, shared=self._blocks)

    def release(self) -> None:
        """Release blocks of events. Rows belong to the data set and need no release."""
        if self._blocks is not None:
            self._blocks.release()
            self._blocks = None


class Node:
    """One step of one fold; `schedule` contains further properties that determine the result.

    Attributes:
        key: Cache key of the step result.
        hit: Whether the cache served the node; None before the lookup.
        seconds: Time needed to compute the node.
        held_out_seconds: Part of `seconds` spent on held-out rows; 0 if the cache served the node.
        load_seconds: Time spent on reading the node.
        earlier_seconds: Time spent by earlier trials on input other than the parent, such as
            checkpoints.
        rounds: Number of rounds found by early stopping, known with the predictions; otherwise
            None.
    """

    def __init__(
        self,
        parent: "FoldRows | Node",
        step: str,
        how: Recipe,
        *,
        is_model: bool,
        schedule: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.fold: Fold = parent.fold
        self.parent, self.step, self.is_model = parent, step, is_model
        self.recipe = how
        self.seed = step_seed(self.fold.context.problem.seed, step, self.fold.number)
        self.steps: tuple[Mapping[str, Any], ...] = (
            *parent.steps,
            {"step": step, **self.recipe.to_json(self.seed), **schedule},
        )
        self.lineage = {**self.fold.origin, "steps": list(self.steps)}
        self.key = prefix_key(self.lineage)
        self.hit: bool | None = None
        self.seconds = self.held_out_seconds = self.load_seconds = self.earlier_seconds = 0.0
        self._made: Made | None = None
        self._entry: Entry | None = None
        self._predictions: tuple[str, Predictions] | None = None
        self._linked = ""
        self.rounds: int | None = None

    @property
    def summary(self) -> MatrixSummary | None:
        """Summary of the output matrix; None until the node has been computed once."""
        if self._made is not None:
            return MatrixSummary(**self._made.summary)
        return MatrixSummary(**self._entry.summary) if self._entry else None

    @property
    def is_cached(self) -> bool:
        """Whether the cache can serve the node."""
        return self._has_entry and self._has_record()

    @property
    def _has_entry(self) -> bool:
        return self._entry is not None and self._entry.is_present

    @property
    def predictions_key(self) -> str:
        """Cache key of the held-out predictions."""
        return self.key

    @property
    def record(self) -> str:
        """Name of the record with the held-out predictions."""
        return predictions_record(self.predictions_key)

    @property
    def is_linked(self) -> bool:
        """Whether this trial wrote the record of predictions, thereby linking it to the study."""
        return self._linked == self.record

    @property
    def cached_keys(self) -> list[str]:
        """Keys of the node's cached results."""
        return [self.key] if self.is_cached else []

    def look_up(self) -> None:
        """Look up the node in the cache."""
        if self.fold.context.use_cache:
            self._entry = self.fold.store.index.entries([self.key]).get(self.key)

    def serve(self) -> None:
        """Mark the node as served by the cache without reading it."""
        assert self._entry is not None  # noqa: S101 - ensured by the caller
        self.hit, self.seconds = True, self._entry.cost_seconds
        if self._entry.is_present:
            self.fold.store.index.count_hit(self._entry)

    def obtain(self) -> None:
        """Read the node from the cache, or compute it unless another worker is doing so."""
        if self.fold.context.use_cache:
            if self._has_entry and not self._has_record() and self._predict_as_kept():
                self.serve()
                return
            self._entry, self._made = self.fold.store.get_or_make(
                self._new_entry(), self.lineage, self._make, self._has_record, is_missed=True
            )
            self.seconds = self._entry.cost_seconds
        else:
            self._made = self._make()
            self.seconds = self._made.seconds
        self.hit = self._made is None

    def part(self, name: str) -> Any:
        """Return one part of the node, read from the cache or recomputed."""
        if self._made is None or name not in self._made.parts:
            read = self._read(name)
            if read is None:
                self._made = self._make()
                if self.hit:  # the cache lost the node: count a miss, and store it again
                    self.hit, self.seconds = False, self._made.seconds
                    self.fold.store.index.usage.count_miss(self.step)
                    self._entry = self.fold.store.write(self._new_entry(), self._made, self.lineage)
            else:
                kept = self._made.parts if self._made else {}
                self._made = Made({**kept, **read}, self._entry.summary, self.seconds)  # type: ignore[union-attr]
        return self._made.parts[name]

    def predictions(self) -> Predictions:
        """Return a model's held-out predictions, read at most once per trial."""
        if self._predictions is None or self._predictions[0] != self.record:
            try:
                self._read_predictions()
            except RecordDamaged:
                self._predict_again()
        assert self._predictions is not None  # noqa: S101 - read or made above
        return self._predictions[1]

    def release(self) -> None:
        """Release the matrices, but not the estimator."""
        if self._made is not None and "estimator" in self._made.parts:
            self._made = replace(self._made, parts={"estimator": self._made.parts["estimator"]})
        elif self._entry is not None:
            self._made = None

    def cost(self) -> StepCost:
        """Return the cost of this step in this fold."""
        return StepCost(
            self.step,
            self.fold.number,
            self.seconds,
            self.load_seconds,
            bool(self.hit),
            self.key,
            0.0 if self.hit else self.held_out_seconds,
        )

    def _new_entry(self) -> Entry:
        return Entry(
            key=self.key,
            parent=self.parent.key or None,
            study=self.fold.context.study,
            step=self.step,
            algorithm=self.recipe.algorithm,
            fold=self.fold.number,
        )

    def _read(self, name: str) -> Mapping[str, Any] | None:
        if self._entry is None or not self._has_entry or name not in self._entry.parts:
            return None
        started = perf_counter()
        read = self.fold.store.read(self._entry, [name])
        self.load_seconds += perf_counter() - started
        return read

    def _has_record(self) -> bool:
        return not self.is_model or self.fold.store.records.exists(self.record)

    def _make(self) -> Made:
        data = self.fold.data(self.parent.part("train"), self.parent.part("held_out"))
        if not self.is_model:
            made = fit_transformer(self.recipe, self.seed, data)
        else:
            made, predictions = self._fitted_model(data)
            self._record(predictions, made.parts["estimator"])
        self.held_out_seconds = made.held_out_seconds
        self.parent.release()
        return made

    def _fitted_model(self, data: FoldData) -> tuple[Made, Predictions]:
        stopping = self.fold.stopping(self.seed) if can_stop(self.recipe) else None
        if stopping is not None:
            with suppress(UndefinedLoss):
                return fit_until_flat(self.recipe, self.seed, data, stopping)
        return fit_model(self.recipe, self.seed, data)

    def _predict_again(self) -> None:
        if not self._predict_as_kept():
            self._made = self._make()

    def _predict_as_kept(self) -> bool:
        """Predict with the cached model; return False if the model is no longer cached."""
        read = self._read("estimator")
        if read is None:
            return False
        classes, name = self.fold.dataset.learned_classes, self.recipe.algorithm
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings are off, as during fitting
            held_out = self.parent.part("held_out")
            predictions = predictions_of(read["estimator"], held_out, classes, name=name)
            self._record(predictions, read["estimator"])
        self.parent.release()
        return True

    def _read_predictions(self) -> None:
        parts = self.fold.store.records.get(self.record)
        self._predictions = self.record, Predictions(parts["label"], parts.get("score"))
        self.rounds = int(parts["rounds"][0]) if "rounds" in parts else None

    def _record(self, predictions: Predictions, estimator: Any = None) -> None:
        """Store held-out predictions, and keep a copy exactly as it would be read back."""
        parts = {"label": canonical(predictions.label.copy())}  # a model may reuse the array
        if predictions.score is not None:
            parts["score"] = canonical(predictions.score.copy())
        self.rounds = None if estimator is None else rounds_in(self.recipe, estimator)
        if self.rounds is not None:
            parts["rounds"] = np.array([self.rounds])
        self.fold.store.records.put(self.record, parts, self.fold.context.study)
        self._predictions = self.record, Predictions(parts["label"], parts.get("score"))
        self._linked = self.record


class IterativeNode(Node):
    """A model of one fold, trained in epochs up to `target` (see `train_folds`).

    Attributes:
        seconds: Training time in this evaluation or, if the cache served the model, in all epochs.
        curve: Loss on the held-out rows after each epoch. Empty for a refit, because its held-out
            rows are the test rows, and no choice may depend on test rows.
        trouble: Reason why training cannot continue; None if it can.
        resumed_from: Number of epochs of the checkpoint from which training resumed.
        best_epoch: Epoch whose predictions are used.
        trains_at_once: Whether a single fit adds the trees or rounds of all epochs.
        metric: Metric of the curve; set before training.
    """

    metric: Metric

    def __init__(
        self, parent: FoldRows | Node, step: str, how: Recipe, iterative: Iterative, *, target: int
    ) -> None:
        context = parent.fold.context
        self.has_curve, self.trains_at_once = parent.fold.number != REFIT, bool(iterative.rounds)
        self.of_epochs = context.epochs or target
        schedule: dict[str, Any] = {"iterative": iterative.rounds or "passes"}
        if iterative.rounds:  # an epoch is a fraction of the rounds, not a pass over the rows
            schedule["of_epochs"] = self.of_epochs
        if self.has_curve:
            schedule["curve"] = [context.problem.metric, context.problem.positive]
        super().__init__(parent, step, how, is_model=True, schedule=schedule)
        self.target, self._iterative = target, iterative
        self.training_key, self._training_lineage = self.key, self.lineage
        self.epochs = self.resumed_from = 0
        self.best_epoch = target
        self.curve: tuple[float, ...] = ()
        self.trouble: Exception | None = None
        self._checkpoints: dict[int, Entry] = {}
        self._training: EpochTraining | None = None
        self._best_pass: tuple[int, Predictions] | None = None
        self._recovery_epoch = 0
        self._is_served = True
        self._identify(target)

    @property
    def is_cached(self) -> bool:
        """Whether the checkpoint of the target epoch is cached."""
        return self.target in self._checkpoints

    @property
    def cached_keys(self) -> list[str]:
        """Key of the latest cached checkpoint; empty if there is none."""
        return [self._key_after(max(self._checkpoints))] if self._checkpoints else []

    @property
    def predictions_key(self) -> str:
        """Key of the held-out predictions after the best epoch."""
        return self._key_after(self.best_epoch)

    def look_up(self) -> None:
        """Look up all checkpoints of up to `target` epochs in one query."""
        if self.fold.context.use_cache:
            keys = {self._key_after(epochs): epochs for epochs in range(1, self.target + 1)}
            entries = self.fold.store.index.entries(list(keys))
            self._checkpoints = {keys[k]: e for k, e in entries.items() if e.is_present}

    def serve(self) -> None:
        """Do nothing, because the best epoch depends on all folds and `train_folds` finds it."""

    obtain = serve

    def resume(self) -> None:
        """Resume from the latest readable checkpoint that does not exceed the target."""
        if (start := self._latest(self.target, "curve")) is not None:
            self.epochs = self.resumed_from = start.epochs
            self.curve, self.earlier_seconds = start.curve, start.seconds
            self.fold.store.index.count_hit(self._checkpoints[start.epochs])

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last epoch with finite numbers."""
        if self._training is None:
            self._training = self._trained(to)
            self.earlier_seconds = self._training.earlier_seconds
        else:
            self._train(self._training, to)
        self.epochs, self.trouble = self._training.good_epochs, self._training.trouble
        self.curve = tuple(self._training.curve)

    def keep_predictions(self, best: int) -> None:
        """Keep the predictions of the last pass if it is the best so far."""
        if self._training is None or self.trains_at_once or not self.has_curve:
            return
        if best == self.epochs and (found := self._training.predictions(best)) is not None:
            self._best_pass = best, found

    def rewind(self) -> None:
        """Return to the last good epoch if training cannot continue."""
        if self.trouble is not None:
            self._training = self._trained(self.epochs)

    def save(self, best: int, *, is_done: bool) -> None:
        """Store the predictions of the best epoch, and a checkpoint of the current epoch."""
        if self.has_curve or is_done:  # in a refit, only the final predictions are read
            self.best_epoch = best
            if not self.is_linked and not (best <= self.resumed_from and self._has_record()):
                self._record(self._predicted(best))
        if self._training is None or not self.fold.context.use_cache:
            return
        former, self._recovery_epoch = self._recovery_epoch, 0 if is_done else self.epochs
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
            self._made = self._made_by(self._training)
            if self.has_curve and self.epochs in self._checkpoints:
                with suppress(ValueError):  # raised for a training above the budget
                    _LIVE[self.key] = self._training
            self._training = None
        self.release()
        self.parent.release()

    def _key_after(self, epochs: int) -> str:
        return prefix_key({"training": self.training_key, "epochs": epochs})

    def _identify(self, epochs: int) -> None:
        """Set the key and lineage for the checkpoint after `epochs` epochs."""
        self.key = self._key_after(epochs)
        more = {"training": self.training_key, "epochs": epochs}
        self.lineage = {**self._training_lineage, **more}

    def _latest(self, most: int, *names: str) -> Checkpoint | None:
        """Return the latest readable checkpoint up to epoch `most`, and the requested parts."""
        for epochs in sorted((n for n in self._checkpoints if n <= most), reverse=True):
            entry, started = self._checkpoints[epochs], perf_counter()
            read = self.fold.store.read(entry, names)
            self.load_seconds += perf_counter() - started
            if read is not None:
                curve = tuple(read["curve"].tolist())
                return Checkpoint(epochs, read.get("estimator"), curve, entry.cost_seconds)
            del self._checkpoints[epochs]
        return None

    def _train(self, training: EpochTraining, to: int) -> None:
        before, self._is_served = training.seconds, False
        training.advance(to)
        self.seconds += training.seconds - before

    def _trained(self, epochs: int) -> EpochTraining:
        """Return an `EpochTraining` after `epochs` epochs, resumed from the latest checkpoint."""
        done = max((n for n in self._checkpoints if n <= epochs), default=0)
        if (training := _LIVE.pop(self._key_after(done), None)) is None:
            training = self._begun(epochs)
        else:
            training.earlier_seconds += training.seconds
            training.seconds = 0.0
            training.data = replace(training.data, most_threads=self.fold.context.most_threads)
        if training.epochs < epochs:
            self.resumed_from = min(self.resumed_from, training.epochs)
            self._train(training, epochs)
        return training

    def _begun(self, most: int) -> EpochTraining:
        """Return an `EpochTraining` of at most `most` epochs, resumed if possible."""
        fold, start = self.fold, self._latest(most, "curve", "estimator")
        y, n_classes = fold.dataset.y[fold.held_out], len(fold.dataset.classes)
        training = EpochTraining(
            self.recipe,
            self._iterative,
            self.seed,
            fold.data(self.parent.part("train"), self.parent.part("held_out")),
            epochs=self.of_epochs,
            loss=(lambda p: self.metric.loss(y, p, n_classes)) if self.has_curve else None,
            start=start,
        )
        self.seconds += training.seconds
        return training

    def _made_by(self, training: EpochTraining) -> Made:
        checkpoint = training.checkpoint()
        parts = {"estimator": checkpoint.estimator, "curve": canonical(np.array(checkpoint.curve))}
        assert self.parent.summary is not None  # noqa: S101 - the parent is finished
        return Made(parts, self.parent.summary.to_json(), checkpoint.seconds, ("estimator",))

    def _make(self) -> Made:
        """Retrain, because the checkpoint was evicted after the lookup."""
        training, self.earlier_seconds = self._trained(self.epochs), 0.0
        self.parent.release()
        return self._made_by(training)

    def _predicted(self, epoch: int) -> Predictions:
        """Return the predictions of an epoch, retraining up to this epoch if necessary."""
        found = None
        if self._best_pass is not None and self._best_pass[0] == epoch:
            found = self._best_pass[1]
        elif self._training is not None:
            found = self._training.predictions(epoch)
        if found is None:
            again = self._trained(self.epochs if self.trains_at_once else epoch)
            found = again.predictions(epoch)
        assert found is not None  # noqa: S101 - training has reached that epoch
        return found

    def _has_record(self) -> bool:
        """Return whether the predictions can be read, which was not checked earlier."""
        try:
            self._read_predictions()
        except RecordDamaged:
            return False
        return True

    def _predict_again(self) -> None:
        self._record(self._predicted(self.best_epoch))


_LIVE: LRUCache[str, EpochTraining] = LRUCache(8_000_000, attrgetter("data.n_cells"))
"""The training runs of this process by the key of the last checkpoint, up to a number of values. A
training run in memory continues without reading rows and checkpoints again."""
CHECKPOINT_SECONDS = 30.0
"""Interval between checkpoints, and thus the longest training time lost in a crash."""


@dataclass(frozen=True, slots=True)
class LearningCurves:
    """Held-out loss after each epoch, by fold; all curves have equal lengths, 0 for a refit."""

    folds: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, nodes: Sequence[IterativeNode]) -> "LearningCurves":
        """Return the curves of all folds, up to the last epoch that all folds have reached."""
        common = min(len(node.curve) for node in nodes)
        return cls(tuple(node.curve[:common] for node in nodes))

    @property
    def mean(self) -> tuple[float, ...]:
        """Loss after each epoch, averaged over the folds."""
        return tuple(sum(losses) / len(losses) for losses in zip(*self.folds, strict=True))

    @property
    def best_epoch(self) -> int:
        """Epoch with the lowest mean loss, counted from 1; ties go to the first."""
        return int(np.argmin(self.mean)) + 1


def train_folds(nodes: Sequence[IterativeNode], begin: Callable[[int], None]) -> LearningCurves:
    """Train the models of all folds to the target epoch, resuming from checkpoints.

    If numbers become infinite in one fold, all folds end at the preceding epoch. If numbers become
    infinite in the first epoch, an error is raised, like any error of the estimator or metric.
    `begin` is called with the number of each fold before work on the fold starts.
    """
    fold, name = nodes[0].fold, f"training {nodes[0].training_key}"
    if not fold.context.use_cache or all(node.is_cached for node in nodes):
        return _trained(nodes, begin)
    # Other trials that need the same model wait and then find the checkpoints.
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
    if not nodes[0].has_curve:
        return min(node.epochs for node in nodes)
    return LearningCurves.of(nodes).best_epoch
