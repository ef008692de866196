"""A query on its way through the steps of its path, in all folds side by side (FLASH, §5.1).

Each fold has a chain of nodes, served up to the deepest cached node.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from uuid import uuid4

import numpy as np

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Choice, Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.masking import masked
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.fitting.epochs import training_of
from prefect_tune.tasks.fitting.recipe import recipe
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.sandbox.reports import StepBegun, StepDone, report, report_fold
from prefect_tune.tasks.trial.epochs import IterativeNode, LearningCurves, train_folds
from prefect_tune.tasks.trial.node import Fold, FoldRows, Node
from prefect_tune.tasks.user_code import exits_as_errors


class FoldRun:
    """The nodes of one fold in order; `epochs` limits an iterative model, None fits it at once."""

    def __init__(
        self, fold: Fold, steps: Sequence[tuple[Step, Algorithm, Choice]], epochs: int | None = None
    ) -> None:
        self._steps, self._epochs = steps, epochs
        self.last_node: FoldRows | Node = FoldRows(fold)
        self.nodes: list[Node] = []
        self._is_balanced = False
        self._planned: dict[int, Node] = {}
        self._last_cached = -1
        self._plan()

    def run(self, position: int) -> None:
        """Run the step at a position, after the steps before it."""
        _, algorithm, _ = self._steps[position]
        self._is_balanced |= bool(algorithm.class_weights)
        if algorithm.is_passthrough:
            return
        node = self._planned.get(position) or self._node(
            self.last_node, position, self._is_balanced
        )
        if position <= self._last_cached:
            node.serve()
        else:
            node.obtain()
        self.nodes.append(node)
        self.last_node = node

    def is_served(self, position: int) -> bool:
        """Return whether the cache serves the step at a position."""
        return position <= self._last_cached or self._steps[position][1].is_passthrough

    def node_at(self, position: int) -> Node | None:
        """Return the node at a position, run or not.

        None if the step passes its input through, or if the node's key is not known yet.
        """
        if self._steps[position][1].is_passthrough:
            return None
        before = [algorithm for _, algorithm, _ in self._steps[: position + 1]]
        n_before = sum(not algorithm.is_passthrough for algorithm in before[:-1])
        if n_before < len(self.nodes):
            return self.nodes[n_before]
        if position in self._planned:
            return self._planned[position]
        if n_before > len(self.nodes) or self.last_node.summary is None:
            return None
        return self._node(self.last_node, position, any(a.class_weights for a in before))

    def planned_keys(self) -> list[str]:
        """Return the keys of cached artifacts that will be served or read."""
        return [key for node in self._planned.values() for key in node.cached_keys]

    def _plan(self) -> None:
        """Plan as far as summaries are known, and find the last cached node."""
        tip, is_balanced = self.last_node, False
        for position, (_, algorithm, _) in enumerate(self._steps):
            is_balanced |= bool(algorithm.class_weights)
            if algorithm.is_passthrough:
                continue
            if tip.summary is None:
                return
            tip = self._planned[position] = self._node(tip, position, is_balanced)
            if tip.is_cached:
                self._last_cached = position

    def _node(self, parent: FoldRows | Node, position: int, is_balanced: bool) -> Node:
        step, algorithm, choice = self._steps[position]
        assert parent.summary is not None  # noqa: S101 - ensured by the caller
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


_LONGEST_PIN_SECONDS = 3600.0
"""Pins of a trial expire after this time if its worker died."""


class StepFailed(Exception):  # noqa: N818 - reads as an outcome
    """A step failed; the reason is chained as its cause."""

    def __init__(self, step: str, fold: int) -> None:
        super().__init__(f"step {step!r} failed in fold {fold}")
        self.step, self.fold = step, fold


def error_line(error: BaseException) -> str:
    """Return kind and first line of an error, with passwords masked."""
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])


class PathRun:
    """A query under way through the steps of its path, in all folds side by side.

    `folds` of None stands for the query's cross-validation folds. With `holds_out`, held-out rows
    are transformed and predicted.

    Attributes:
        steps: Declaration, algorithm and values of each step that runs, in order.
        learning: Learning curves of the model, once it has run; None if it was fitted at once.

    Raises:
        ValueError: If the query names all folds by number, or has more epochs than a full training.
    """

    def __init__(
        self,
        context: StudyContext,
        query: Query,
        folds: Sequence[int] | None = None,
        *,
        holds_out: bool = True,
        space: Space | None = None,
    ) -> None:
        problem = context.problem
        self.context, self.query, self._holds_out = context, query, holds_out
        self.store = open_store(context.store)
        self.dataset = load_dataset(self.store, problem.dataset)
        self.split = load_split(self.store, problem.split)
        first, n_folds = query.folds, self.split.n_folds
        if folds is None and first is not None and first >= n_folds:
            text = f"a query of the first {first} of {n_folds} folds: use folds=None for all folds"
            raise ValueError(text)
        self.folds = tuple(range(first or n_folds) if folds is None else folds)
        choices = dict(query.configuration.choices)
        pipeline = (space or problem.find_space()).pipeline(query.configuration.path)
        self.steps = tuple((s, a, choices.get(s.name, Choice(a.id))) for s, a in pipeline)
        epochs = self._epochs()
        self._fold_runs = [FoldRun(self._fold(number), self.steps, epochs) for number in self.folds]
        self.learning: LearningCurves | None = None

    @cached_property
    def metric(self) -> Metric:
        """The problem's metric."""
        return self.context.problem.find_metric()

    def run_all(self) -> None:
        """Run all steps in every fold, and report each; raises StepFailed."""
        for position in range(len(self.steps)):
            self.run(position)

    def run(self, position: int) -> None:
        """Run one step in every fold, after the steps before it, and report it; or StepFailed."""
        step, algorithm, _ = self.steps[position]
        report(StepBegun(step.name, algorithm.id, self.is_served(position)))
        try:
            self._run(position)
        except BaseException as error:
            report(StepDone(problem=error_line(error.__cause__ or error)))
            raise
        nodes = [fold_run.last_node for fold_run in self._fold_runs]
        report(StepDone(tuple(node.key for node in nodes), sum(bool(node.hit) for node in nodes)))

    def _run(self, position: int) -> None:
        for number, fold_run in zip(self.folds, self._fold_runs, strict=True):
            report_fold(self.steps[position][0].name, number, self.costs)
            try:
                with exits_as_errors():
                    fold_run.run(position)
            except Exception as error:
                raise StepFailed(self.steps[position][0].name, number) from error
        if position == len(self.steps) - 1:
            self._train()

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Pin the cached artifacts of this query during the body."""
        keys, owner = self._planned_keys(), f"trial {uuid4().hex}"
        if keys:
            self.store.index.pins.set(keys, owner, _LONGEST_PIN_SECONDS)
        try:
            yield
        finally:
            if keys:
                self.store.index.pins.release(owner)

    def pin(self, owner: str, seconds: float) -> None:
        """Pin artifacts that this query uses or has made, instead of the owner's previous pins."""
        made = [node.key for fold_run in self._fold_runs for node in fold_run.nodes]
        self.store.index.pins.set([*self._planned_keys(), *made], owner, seconds)

    def _planned_keys(self) -> list[str]:
        return [key for fold_run in self._fold_runs for key in fold_run.planned_keys()]

    def is_served(self, position: int) -> bool:
        """Return whether the cache serves every fold, as far as is known before the step runs."""
        return all(fold_run.is_served(position) for fold_run in self._fold_runs)

    def nodes(self, fold: int) -> tuple[Node, ...]:
        """Return the nodes of a fold that were made or served so far, in order."""
        return tuple(self._fold_runs[self.folds.index(fold)].nodes)

    def node_at(self, fold: int, position: int) -> Node | None:
        """Return the node of a step, whether it has run or not; see `FoldRun.node_at`."""
        return self._fold_runs[self.folds.index(fold)].node_at(position)

    def costs(self) -> tuple[StepCost, ...]:
        """Return the costs of finished steps and folds, step by step."""
        by_step = zip_longest(*(fold_run.nodes for fold_run in self._fold_runs))
        return tuple(n.cost() for nodes in by_step for n in nodes if n and n.hit is not None)

    def _train(self) -> None:
        nodes = [
            fold_run.last_node
            for fold_run in self._fold_runs
            if isinstance(fold_run.last_node, IterativeNode)
        ]
        if not nodes:
            return
        for node in nodes:
            node.is_alone, node.metric = self.query.folds is not None, self.metric
        step, worked_on = self.steps[-1][0].name, [self.folds[0]]

        def begin(fold: int) -> None:
            worked_on.append(fold)
            report_fold(step, fold, self.costs)

        try:
            with exits_as_errors():
                self.learning = train_folds(nodes, begin)
        except Exception as error:
            raise StepFailed(step, worked_on[-1]) from error

    def _epochs(self) -> int | None:
        """Return the epochs to train, None to fit at once; ValueError beyond a full training."""
        full, asked = self.context.epochs, self.query.epochs
        if asked is not None and (full is None or asked > full):
            has = f"has {full}" if full else "has none, as models are fitted at once"
            raise ValueError(f"a query of {asked} epochs: a full training of the study {has}")
        return asked or full

    def _fold(self, number: int) -> Fold:
        problem, query, split = self.context.problem, self.query, self.split
        strata, groups = self.dataset.strata, self.dataset.groups
        judged = np.empty(0, dtype=np.intp)
        if self._holds_out:
            judged = split.judged(number, strata, query.held_out, groups)
        return Fold(
            number=number,
            dataset=self.dataset,
            training=split.training(number, strata, query.subset, query.subset_draw, groups),
            held_out=judged,
            context=self.context,
            store=self.store,
            n_rows_in_all=split.n_training(number),
            origin={
                "dataset": problem.dataset,
                "split": problem.split,
                "fold": number,
                "subset": query.subset,
                "subset_draw": query.subset_draw if query.subset < 1 else 0,
                **({} if self._holds_out else {"held_out": "nothing"}),
                **({"held_out": query.held_out} if query.held_out < 1 else {}),
                **({"code": problem.behind.nonce} if problem.behind.nonce else {}),
                **({"cache_area": self.context.cache_area} if self.context.cache_area else {}),
            },
        )
