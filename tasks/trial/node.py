"""A fold's rows, and one step of a fold: its key, and how its parts are made, stored and served.

Matrices are read or made only when a later node needs them. Only the last of a chain of cached
nodes is read, and an evicted node is not recomputed if a later one is cached.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.artifacts import ArtifactStore, Made
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import predictions_record, prefix_key
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model, fit_transformer
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import Recipe, step_seed
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.shared_blocks import SharedBlocks


@dataclass(frozen=True)
class Fold:
    """Data, study and store of a fold; memory must suffice for `n_rows_in_all` training rows."""

    number: int
    dataset: Dataset
    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    context: StudyContext
    store: ArtifactStore
    origin: Mapping[str, Any]
    n_rows_in_all: int | None = None

    def data(self, train: Any, held_out: Any) -> FoldData:
        """Return the data an algorithm learns from and is judged on."""
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


def summary_of_rows(dataset: Dataset, n_rows: int) -> MatrixSummary:
    """Summarise some rows of a data set before any step."""
    X = dataset.X
    if not isinstance(X, EventRows):
        return MatrixSummary(n_rows, dataset.n_features, "frame")
    return MatrixSummary(n_rows, dataset.n_features, "pickle", has_parents=X.has_parents)


class FoldRows:
    """The rows of a fold before any step, at the start of its chain."""

    key = ""
    hit = False
    steps: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.summary: MatrixSummary | None = summary_of_rows(fold.dataset, len(fold.training))
        self._blocks: SharedBlocks | None = None

    def matrices(self) -> tuple[Any, Any]:
        """Return the training and held-out rows."""
        return self.part("train"), self.part("held_out")

    def part(self, name: str) -> Any:
        """Return the training or the held-out rows."""
        return self._rows(self.fold.training if name == "train" else self.fold.held_out)

    def release(self) -> None:
        """Drop blocks of events; the rows belong to the data set."""
        if self._blocks is not None:
            self._blocks.release()
            self._blocks = None

    def _rows(self, positions: NDArray[np.intp]) -> Any:
        """Return some rows; events come with the blocks that trials share."""
        rows, fold = self.fold.dataset.rows(positions), self.fold
        if not isinstance(rows, EventRows) or not fold.context.use_cache:
            return rows
        if self._blocks is None:
            assert isinstance(fold.dataset.X, EventRows)  # noqa: S101 - some of its rows are
            n_training = fold.n_rows_in_all or len(fold.training)
            self._blocks = SharedBlocks(fold.store, fold.dataset.X, fold.context, n_training)
        return replace(rows, positions=positions, shared=self._blocks)


class Node:
    """One step of one fold; `schedule` has all else that determines the result.

    Attributes:
        key: Prefix key.
        hit: Whether the cache served the node; None before the lookup.
        seconds: Time to make the node once.
        held_out_seconds: Part of `seconds` spent on the held-out rows; 0 if served.
        load_seconds: Time spent reading it.
        earlier_seconds: Time earlier trials spent on its input other than the parent.
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
        self.seconds = self.held_out_seconds = 0.0
        self.load_seconds = 0.0
        self.earlier_seconds = 0.0
        self._made: Made | None = None
        self._entry: Entry | None = None
        self._predictions: tuple[str, Predictions] | None = None
        self._linked = ""

    @property
    def summary(self) -> MatrixSummary | None:
        """Summary of the output matrix; None until the node has been made once."""
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
        """Key of the held-out predictions."""
        return self.key

    @property
    def record(self) -> str:
        """Record id of the held-out predictions."""
        return predictions_record(self.predictions_key)

    @property
    def is_linked(self) -> bool:
        """Whether this trial wrote the record of its predictions, which linked it to the study."""
        return self._linked == self.record

    @property
    def cached_keys(self) -> list[str]:
        """Keys of the node's cached artifacts."""
        return [self.key] if self.is_cached else []

    def look_up(self) -> None:
        """Look up the node in the cache."""
        if self.fold.context.use_cache:
            self._entry = self.fold.store.index.entries([self.key]).get(self.key)

    def serve(self) -> None:
        """Mark the node as served, without reading it."""
        assert self._entry is not None  # noqa: S101 - ensured by the caller
        self.hit, self.seconds = True, self._entry.cost_seconds
        if self._entry.is_present:
            self.fold.store.index.count_hit(self._entry)

    def obtain(self) -> None:
        """Read the node from the cache or make it; the first worker to need it makes it."""
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

    def matrices(self) -> tuple[Any, Any]:
        """Return the training and the held-out matrix."""
        return self.part("train"), self.part("held_out")

    def part(self, name: str) -> Any:
        """Return one part, read from the cache or recomputed."""
        if self._made is None or name not in self._made.parts:
            read = self._read(name)
            if read is None:
                self._made = self._make()
                if self.hit:  # expected to be served, so it is a miss and stored again
                    self.hit, self.seconds = False, self._made.seconds
                    self.fold.store.index.usage.count_miss(self.step)
                    self._entry = self.fold.store.write(self._new_entry(), self._made, self.lineage)
            else:
                kept = self._made.parts if self._made else {}
                self._made = Made({**kept, **read}, self._entry.summary, self.seconds)  # type: ignore[union-attr]
        return self._made.parts[name]

    def predictions(self) -> Predictions:
        """Return a model's predictions of the held-out rows, read at most once per trial."""
        if self._predictions is None or self._predictions[0] != self.record:
            try:
                self._read_predictions()
            except RecordDamaged:
                self._predict_again()
        assert self._predictions is not None  # noqa: S101 - read or made above
        return self._predictions[1]

    def release(self) -> None:
        """Release the matrices; the estimator stays."""
        if self._made is not None and "estimator" in self._made.parts:
            self._made = replace(self._made, parts={"estimator": self._made.parts["estimator"]})
        elif self._entry is not None:
            self._made = None

    def cost(self) -> StepCost:
        """Return the cost of the step."""
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
            cost_seconds=0.0,
            summary={},
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
        data = self.fold.data(*self.parent.matrices())
        if not self.is_model:
            made = fit_transformer(self.recipe, self.seed, data)
        else:
            made, predictions = fit_model(self.recipe, self.seed, data)
            self._record(predictions)
        self.held_out_seconds = made.held_out_seconds
        self.parent.release()
        return made

    def _predict_again(self) -> None:
        if not self._predict_as_kept():
            self._made = self._make()

    def _predict_as_kept(self) -> bool:
        """Predict with the cached model; return whether the cache has it."""
        read = self._read("estimator")
        if read is None:
            return False
        classes, name = self.fold.dataset.learned_classes, self.recipe.algorithm
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in the fit
            held_out = self.parent.part("held_out")
            self._record(predictions_of(read["estimator"], held_out, classes, name=name))
        self.parent.release()
        return True

    def _read_predictions(self) -> None:
        parts = self.fold.store.records.get(self.record)
        self._predictions = self.record, Predictions(parts["label"], parts.get("score"))

    def _record(self, predictions: Predictions) -> None:
        """Store predictions of the held-out rows, and keep them as a reader would get them."""
        parts = {"label": canonical(predictions.label.copy())}  # a model may reuse its array
        if predictions.score is not None:
            parts["score"] = canonical(predictions.score.copy())
        self.fold.store.records.put(self.record, parts, self.fold.context.study)
        self._predictions = self.record, Predictions(parts["label"], parts.get("score"))
        self._linked = self.record
