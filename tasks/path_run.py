"""Running a path step by step on every fold, reusing the prefixes that are there (FLASH, §5.1).

Each step of each fold is a node that knows its key, its facts, and how it is made. Matrices are
read or made only when a later node needs them, so of a chain of cached nodes only the last is
read, and one that was evicted is not made again when a later one is still there. What a node hands
on is in canonical form whether it was made, read, or never kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice, Query
from prefect_tune.optimizers.space.space import Step
from prefect_tune.optimizers.trials.trial import StepCost
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.key import prefix_key
from prefect_tune.storage.record_ids import predictions_record
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore, Made
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.fitting.facts import Facts
from prefect_tune.tasks.fitting.fitting import (
    FoldData,
    fit_model,
    fit_transformer,
    recipe,
    step_seed,
)
from prefect_tune.tasks.objective.metric import Predictions
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.worker.trial_limits import note_step

__all__ = ["Node", "Prefix", "StepFailed", "StepOutcome"]

_LONGEST_PIN_SECONDS = 3600.0
"""After this the pins of a trial whose worker died hold nothing any more."""


class StepFailed(Exception):  # noqa: N818 - it says what happened
    """A step could not be done; the reason is chained as its cause."""

    def __init__(self, step: str, fold: int) -> None:
        super().__init__(f"step {step!r} failed in fold {fold}")
        self.step, self.fold = step, fold


class StepOutcome:
    """What a step hands to the next one's task: references, never matrices.

    A plain class, so that Prefect can tell which task run it came from.
    """

    __slots__ = ("__weakref__", "keys", "n_cached")

    def __init__(self, keys: tuple[str, ...], n_cached: int) -> None:
        self.keys, self.n_cached = keys, n_cached

    @property
    def is_cached(self) -> bool:
        """Whether every fold was served."""
        return self.n_cached == len(self.keys)


@dataclass(frozen=True)
class _Fold:
    """What all nodes of one fold share."""

    number: int
    dataset: Dataset
    training: NDArray[np.intp]
    held_out: NDArray[np.intp]
    context: StudyContext
    store: ArtifactStore
    origin: Mapping[str, Any]

    def data(self, train: Any, held_out: Any) -> FoldData:
        """What an algorithm learns from, with its classes."""
        dataset = self.dataset
        return FoldData(
            train,
            held_out,
            dataset.labels[self.training],
            np.array(dataset.classes),
            self.context.memory_limit_bytes,
        )


class _Rows:
    """The rows of a fold before any step; where every chain of nodes begins."""

    key = ""
    hit = False
    steps: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, fold: _Fold) -> None:
        self.fold = fold
        kind = "pickle" if isinstance(fold.dataset.X, EventRows) else "frame"
        self.facts: Facts | None = Facts(len(fold.training), fold.dataset.n_features, kind)

    def matrices(self) -> tuple[Any, Any]:
        """Training and held-out rows."""
        dataset = self.fold.dataset
        return dataset.rows(self.fold.training), dataset.rows(self.fold.held_out)

    def release(self) -> None:
        """Nothing is held."""


class Node:
    """What one step makes of one fold.

    Args:
        parent: The node that it is made from; its facts must be known.
        step: Name of the step.
        algorithm: The algorithm, which makes something.
        choice: The values of its hyperparameters.
        balanced: Whether a step before asked for balanced class weights.
        is_model: Whether it predicts.

    Attributes:
        key: Prefix key.
        hit: Whether it was served; None before it was looked for.
        seconds: Time to make it, once.
        load_seconds: Time spent reading it.
    """

    def __init__(
        self,
        parent: "_Rows | Node",
        step: str,
        algorithm: Algorithm,
        choice: Choice,
        *,
        balanced: bool,
        is_model: bool,
    ) -> None:
        assert parent.facts is not None  # noqa: S101 - the caller's duty
        self.fold: _Fold = parent.fold
        self.parent, self.step, self.is_model = parent, step, is_model
        facts = replace(parent.facts, n_classes=len(self.fold.dataset.classes))
        self.recipe = recipe(algorithm, choice, facts, balanced=balanced)
        self.seed = step_seed(self.fold.context.problem.seed, step, self.fold.number)
        self.steps: tuple[Mapping[str, Any], ...] = (
            *parent.steps,
            {"step": step, **self.recipe.to_json(self.seed)},
        )
        self.lineage = {**self.fold.origin, "steps": list(self.steps)}
        self.key = prefix_key(self.lineage)
        self.record = predictions_record(self.key)
        self.hit: bool | None = None
        self.seconds = 0.0
        self.load_seconds = 0.0
        self._made: Made | None = None
        self._entry: Entry | None = None
        if self.fold.context.use_cache:
            self._entry = self.fold.store.index.entries([self.key]).get(self.key)

    @property
    def facts(self) -> Facts | None:
        """Facts of what it hands on; None while it was never made."""
        if self._made is not None:
            return Facts(**self._made.facts)
        return Facts(**self._entry.facts) if self._entry else None

    @property
    def is_there(self) -> bool:
        """Whether it can be served."""
        return self._entry is not None and self._entry.is_present and self._has_record()

    def serve(self) -> None:
        """Count it as served, without reading it."""
        assert self._entry is not None  # noqa: S101 - the caller's duty
        self.hit, self.seconds = True, self._entry.cost_seconds
        if self._entry.is_present:
            self.fold.store.index.uses.count_hit(self._entry)

    def obtain(self) -> None:
        """Have it served, or made by whoever needs it first."""
        if self.fold.context.use_cache:
            self._entry, self._made = self.fold.store.get_or_make(
                self._new_entry(), self.lineage, self._make, self._has_record
            )
            self.seconds = self._entry.cost_seconds
        else:
            self._made = self._make()
            self.seconds = self._made.seconds
        self.hit = self._made is None

    def matrices(self) -> tuple[Any, Any]:
        """Training and held-out matrix."""
        return self.part("train"), self.part("held_out")

    def part(self, name: str) -> Any:
        """One part, read where it is kept, else made again."""
        if self._made is None or name not in self._made.parts:
            read = self._read(name)
            if read is None:
                self._made = self._make()
                self._keep_again()
            else:
                kept = self._made.parts if self._made else {}
                self._made = Made({**kept, **read}, self._entry.facts, self.seconds)  # type: ignore[union-attr]
        return self._made.parts[name]

    def predictions(self) -> Predictions:
        """A model's predictions of the held-out rows."""
        try:
            parts = self.fold.store.records.get(self.record)
        except RecordDamaged:
            self._made = self._make()
            parts = self.fold.store.records.get(self.record)
        return Predictions(parts["label"], parts.get("score"))

    def release(self) -> None:
        """Let go of the matrices; the estimator stays."""
        if self._made is not None and "estimator" in self._made.parts:
            self._made = replace(self._made, parts={"estimator": self._made.parts["estimator"]})
        elif self._entry is not None:
            self._made = None

    def cost(self) -> StepCost:
        """What it took."""
        return StepCost(
            self.step, self.fold.number, self.seconds, self.load_seconds, bool(self.hit), self.key
        )

    def _keep_again(self) -> None:
        """Count and keep what was to be served, and had to be made after all."""
        if self.hit and self._made is not None:
            self.hit, self.seconds = False, self._made.seconds
            self.fold.store.index.uses.count_miss(self.step)
            self._entry = self.fold.store.write(self._new_entry(), self._made, self.lineage)

    def _new_entry(self) -> Entry:
        """What the index is to know of it, before it is made."""
        return Entry(
            key=self.key,
            parent=self.parent.key or None,
            study=self.fold.context.study,
            step=self.step,
            algorithm=self.recipe.algorithm,
            fold=self.fold.number,
            cost_seconds=0.0,
            facts={},
        )

    def _read(self, name: str) -> Mapping[str, Any] | None:
        if self._entry is None or not self._entry.is_present or name not in self._entry.parts:
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
            parts = {"label": predictions.label}
            if predictions.score is not None:
                parts["score"] = np.ascontiguousarray(predictions.score)
            self.fold.store.records.put(self.record, parts, self.fold.context.study)
        self.parent.release()
        return made


class _Chain:
    """The nodes of one fold, one after the other."""

    def __init__(self, fold: _Fold, steps: Sequence[tuple[Step, Algorithm, Choice]]) -> None:
        self._steps = steps
        self.tip: _Rows | Node = _Rows(fold)
        self.nodes: list[Node] = []
        self._is_balanced = False
        self._planned: dict[int, Node] = {}
        self._deepest = -1
        self._plan()

    def run(self, position: int) -> None:
        """Do the step at a position; the steps before it must have been done."""
        _, algorithm, _ = self._steps[position]
        self._is_balanced |= bool(algorithm.class_weights)
        if algorithm.passes_on:
            return
        node = self._planned.get(position) or self._node(self.tip, position, self._is_balanced)
        if position <= self._deepest:
            node.serve()
        else:
            node.obtain()
        self.nodes.append(node)
        self.tip = node

    def is_served(self, position: int) -> bool:
        """Whether nothing has to be made at a position."""
        return position <= self._deepest or self._steps[position][1].passes_on

    def planned_keys(self) -> list[str]:
        """Keys of what is there and will be served or read."""
        return [node.key for node in self._planned.values() if node.is_there]

    def _plan(self) -> None:
        """Follow the chain as far as facts are known, and find the last node that is there."""
        tip, is_balanced = self.tip, False
        for position, (_, algorithm, _) in enumerate(self._steps):
            is_balanced |= bool(algorithm.class_weights)
            if algorithm.passes_on:
                continue
            if tip.facts is None:
                return
            tip = self._planned[position] = self._node(tip, position, is_balanced)
            if tip.is_there:
                self._deepest = position

    def _node(self, parent: "_Rows | Node", position: int, is_balanced: bool) -> Node:
        step, algorithm, choice = self._steps[position]
        is_model = position == len(self._steps) - 1
        return Node(parent, step.name, algorithm, choice, balanced=is_balanced, is_model=is_model)


class Prefix:
    """A query on its way through the steps of its space, all folds side by side.

    Args:
        context: The study it belongs to.
        query: What to run.
        folds: Numbers of the folds to run; None for all of cross-validation.

    Attributes:
        steps: Per step that runs, in order, its declaration and the algorithm and values chosen.
    """

    def __init__(
        self, context: StudyContext, query: Query, folds: Sequence[int] | None = None
    ) -> None:
        problem = context.problem
        self.context, self.query = context, query
        self.store = open_store(context.store)
        self.dataset = load_dataset(self.store, problem.dataset)
        self.split = load_split(self.store, problem.split)
        self.folds = tuple(range(self.split.n_folds) if folds is None else folds)
        space = problem.find_space()
        choices = dict(query.configuration.choices)
        self.steps = tuple(
            (step, algorithm, choices.get(step.name, Choice(algorithm.id)))
            for step, algorithm in space.pipeline(query.configuration.path)
        )
        self._chains = [_Chain(self._fold(number), self.steps) for number in self.folds]

    def run(self, position: int) -> StepOutcome:
        """Do one step in every fold; the steps before it must have been done.

        Raises:
            StepFailed: If it cannot be done in one of them.
        """
        for number, chain in zip(self.folds, self._chains, strict=True):
            note_step(self.steps[position][0].name, number)
            try:
                chain.run(position)
            except Exception as error:
                raise StepFailed(self.steps[position][0].name, number) from error
        return StepOutcome(
            tuple(chain.tip.key for chain in self._chains),
            sum(bool(chain.tip.hit) for chain in self._chains),
        )

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Have what this query will be served stay in the cache while it runs."""
        keys = [key for chain in self._chains for key in chain.planned_keys()]
        owner = f"trial {uuid4().hex}"
        if keys:
            self.store.index.pins.set(keys, owner, _LONGEST_PIN_SECONDS)
        try:
            yield
        finally:
            if keys:
                self.store.index.pins.release(owner)

    def is_served(self, position: int) -> bool:
        """Whether a step will be served in every fold, as far as is known before it runs."""
        return all(chain.is_served(position) for chain in self._chains)

    def nodes(self, fold: int) -> tuple[Node, ...]:
        """What was made or served in a fold so far, in order."""
        return tuple(self._chains[self.folds.index(fold)].nodes)

    def costs(self) -> tuple[StepCost, ...]:
        """What each step of each fold took so far, step by step."""
        return tuple(
            node.cost()
            for nodes in zip(*(c.nodes for c in self._chains), strict=False)
            for node in nodes
        )

    def _fold(self, number: int) -> _Fold:
        problem, query = self.context.problem, self.query
        return _Fold(
            number=number,
            dataset=self.dataset,
            training=self.split.training(
                number, self.dataset.strata, query.subset, query.subset_draw
            ),
            held_out=self.split.held_out(number),
            context=self.context,
            store=self.store,
            origin={
                "dataset": problem.dataset,
                "split": problem.split,
                "fold": number,
                "subset": query.subset,
                "subset_draw": query.subset_draw if query.subset < 1 else 0,
                **({"cache_area": self.context.cache_area} if self.context.cache_area else {}),
            },
        )
