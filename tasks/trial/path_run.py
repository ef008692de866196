"""The run of a query through the steps of its path, in all folds side by side (FLASH, §5.1).

Each fold has a chain of nodes; the cache serves all nodes up to the last cached node.
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
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.fitting.epochs import training_of
from prefect_tune.tasks.fitting.recipe import MatrixSummary, Recipe, recipe, with_rounds
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.sandbox.child import StepBegun, StepDone, report, report_fold
from prefect_tune.tasks.trial.node import (
    Fold,
    FoldRows,
    IterativeNode,
    LearningCurves,
    Node,
    train_folds,
)
from prefect_tune.tasks.user_code import exits_as_errors

_LONGEST_PIN_SECONDS = 3600.0
"""Time after which a trial's pins expire if the trial's worker dies."""


class StepFailed(Exception):  # noqa: N818 - reads as an outcome
    """A step failed; the exception's cause gives the reason."""

    def __init__(self, step: str, fold: int) -> None:
        super().__init__(f"step {step!r} failed in fold {fold}")
        self.step, self.fold = step, fold


def error_line(error: BaseException) -> str:
    """Return the type and first line of an error, with passwords masked."""
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])


PathStep = tuple[Step, Algorithm, Choice]
"""Declaration, algorithm and values of a step."""


def recipe_at(
    steps: Sequence[PathStep], position: int, summary: MatrixSummary, dataset: Dataset
) -> Recipe:
    """Return the recipe of the step at a position, given a summary of its input."""
    _, algorithm, choice = steps[position]
    is_balanced = any(before.class_weights for _, before, _ in steps[: position + 1])
    summary = replace(summary, n_classes=len(dataset.classes))
    return recipe(algorithm, choice, summary, balanced=is_balanced)


class PathRun:
    """The run of a query through the steps of its path, in all folds side by side.

    If `folds` is None, the cross-validation folds of the query are used. If `holds_out` is true,
    held-out rows are also transformed and predicted.

    Attributes:
        steps: Declaration, algorithm and values of each running step, in order.
        learning: Learning curves of the model, set after its step has run; None without epochs.
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
        self.folds = tuple(range(query.folds or self.split.n_folds) if folds is None else folds)
        choices = dict(query.configuration.choices)
        pipeline = (space or problem.find_space()).pipeline(query.configuration.path)
        self.steps = tuple((s, a, choices.get(s.name, Choice(a.id))) for s, a in pipeline)
        if query.rounds is not None:
            step, algorithm, choice = self.steps[-1]
            algorithm, choice = with_rounds(algorithm, choice, query.rounds)
            self.steps = (*self.steps[:-1], (step, algorithm, choice))
        self.learning: LearningCurves | None = None
        epochs = query.epochs or context.epochs
        self._chains = {n: _Chain(self._fold(n), self.steps, epochs) for n in self.folds}

    @cached_property
    def metric(self) -> Metric:
        """Metric of the problem."""
        return self.context.problem.find_metric()

    def run_all(self) -> None:
        """Run and report all steps in all folds; may raise `StepFailed`."""
        for position in range(len(self.steps)):
            self.run(position)

    def run(self, position: int) -> None:
        """Run and report one step in all folds, after all earlier steps; may raise `StepFailed`."""
        step, algorithm, _ = self.steps[position]
        number = self.folds[0]

        def begin(fold: int) -> None:
            nonlocal number
            number = fold
            report_fold(step.name, fold, self.costs)

        report(StepBegun(step.name, algorithm.id, self.is_served(position)))
        try:
            with exits_as_errors():
                for fold, chain in self._chains.items():
                    begin(fold)
                    chain.run(position)
                last = [
                    chain.nodes[-1] if chain.nodes else chain.rows
                    for chain in self._chains.values()
                ]
                if trained := [node for node in last if isinstance(node, IterativeNode)]:
                    for node in trained:
                        node.metric = self.metric
                    self.learning = train_folds(trained, begin)
        except BaseException as error:
            report(StepDone(problem=error_line(error)))
            if isinstance(error, Exception):
                raise StepFailed(step.name, number) from error
            raise
        report(StepDone(tuple(node.key for node in last), sum(bool(node.hit) for node in last)))

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Pin the cached step results of this query during the body."""
        keys, owner = self._cached_keys(), f"trial {uuid4().hex}"
        if keys:
            self.store.index.pins.set(keys, owner, _LONGEST_PIN_SECONDS)
        try:
            yield
        finally:
            if keys:
                self.store.index.pins.release(owner)

    def pin(self, owner: str, seconds: float) -> None:
        """Pin all step results used or computed by this query; drop the owner's earlier pins."""
        made = [node.key for chain in self._chains.values() for node in chain.nodes]
        self.store.index.pins.set([*self._cached_keys(), *made], owner, seconds)

    def _cached_keys(self) -> list[str]:
        known = [node for chain in self._chains.values() for node in chain.known.values()]
        return [key for node in known for key in node.cached_keys]

    def is_served(self, position: int) -> bool:
        """Return whether the cache is expected to serve a step in all folds."""
        is_passed = self.steps[position][1].is_passthrough
        return is_passed or all(position <= c.last_cached for c in self._chains.values())

    def nodes(self, fold: int) -> tuple[Node, ...]:
        """Return the nodes of a fold that have run so far, in order."""
        return tuple(self._chains[fold].nodes)

    def node_at(self, fold: int, position: int) -> Node | None:
        """Return the node of the step at a position, even if the step has not run yet.

        Returns None if the step does nothing or the key of the node is still unknown.
        """
        return self._chains[fold].node_at(position)

    def costs(self) -> tuple[StepCost, ...]:
        """Return the costs of the steps and folds that have run, step by step."""
        by_step = zip_longest(*(chain.nodes for chain in self._chains.values()))
        return tuple(n.cost() for nodes in by_step for n in nodes if n and n.hit is not None)

    def fold(self, number: int) -> Fold:
        """Return a fold with the training and held-out rows of this query."""
        return self._chains[number].rows.fold

    def _fold(self, number: int) -> Fold:
        problem, query, split = self.context.problem, self.query, self.split
        strata, groups = self.dataset.strata, self.dataset.groups
        judged = np.empty(0, dtype=np.intp)
        if self._holds_out:
            judged = split.evaluated_rows(number, strata, query.held_out, groups)
        return Fold(
            number=number,
            dataset=self.dataset,
            training=split.training(number, strata, query.subset, query.subset_draw, groups),
            held_out=judged,
            context=self.context,
            store=self.store,
            n_rows_in_all=split.n_training(number),
            looks_forward=split.gap_seconds is not None,
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


class _Chain:
    """The nodes of one fold: `nodes` that have run, and `known` nodes by position.

    The cache serves all positions up to `last_cached`.
    """

    def __init__(self, fold: Fold, steps: Sequence[PathStep], epochs: int | None) -> None:
        self.rows, self._steps, self._epochs = FoldRows(fold), steps, epochs
        self.known: dict[int, Node] = {}
        self.nodes: list[Node] = []
        found = [self.node_at(position) for position in range(len(steps))]
        cached = [position for position, node in enumerate(found) if node and node.is_cached]
        self.last_cached = max(cached, default=-1)

    def run(self, position: int) -> None:
        node = self.node_at(position)
        if node is None:  # the step does nothing
            return
        if position <= self.last_cached:
            node.serve()
        else:
            node.obtain()
        self.nodes.append(node)

    def node_at(self, position: int) -> Node | None:
        if position in self.known or self._steps[position][1].is_passthrough:
            return self.known.get(position)
        before = [p for p in range(position) if not self._steps[p][1].is_passthrough]
        parent = self.node_at(before[-1]) if before else self.rows
        if parent is None or parent.summary is None:
            return None
        how = recipe_at(self._steps, position, parent.summary, parent.fold.dataset)
        step, is_model = self._steps[position][0].name, position == len(self._steps) - 1
        if self._epochs or parent.fold.number == REFIT:
            how = replace(how, rounds="")
        iterative = training_of(how) if is_model and self._epochs else None
        problem = parent.fold.context.problem  # the metric and the seed decide the rounds
        stopping = {"stopping": [problem.metric, problem.positive, problem.seed]}
        node = (
            IterativeNode(parent, step, how, iterative, target=self._epochs)
            if iterative and self._epochs
            else Node(parent, step, how, is_model=is_model, schedule=stopping if how.rounds else {})
        )
        node.look_up()
        self.known[position] = node
        return node
