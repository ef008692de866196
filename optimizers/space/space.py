"""Search spaces: ordered steps, with one algorithm of each step in a pipeline.

If several paths define the same pipeline, one of the paths is canonical. A step may choose the
running order of the steps that follow. Among orders that differ only in steps that do nothing, the
first is canonical. Algorithms may ignore earlier steps, which then do nothing, regardless of their
choice.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product
from typing import Any, Literal

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.algorithm import Algorithm, Step

_MOST_ORDERED = 4
"""Largest number of steps in an `order_step`. Four steps have 24 orders."""

Pipeline = tuple[tuple[Step, Algorithm], ...]
"""Steps with their algorithms, in running order."""


def order_step(*steps: str, name: str = "order") -> Step:
    """Return a step that chooses the order of others (o_ik of Liu, Ram et al. 2020, appendix 6).

    In a space, the new step must directly precede the `steps` to order. The algorithms of the new
    step are the permutations of `steps`.

    Args:
        steps: Two to four distinct names of steps, in their default order.
        name: Name of the new step.

    Raises:
        ValueError: If `steps` contains too few names, too many names or duplicates.
    """
    if not 2 <= len(steps) <= _MOST_ORDERED or len(set(steps)) < len(steps):
        raise ValueError(
            f"step {name!r} must order 2 to {_MOST_ORDERED} different steps; got {', '.join(steps)}"
        )
    ids = {order: "_before_".join(order).replace(" ", "_") for order in permutations(steps)}
    return Step(name, tuple(Algorithm(id=i, order=order) for order, i in ids.items()))


def is_first_of_equal_orders(pipeline: Pipeline, steps: Sequence[Step]) -> bool:
    """Return whether a pipeline has the first of the orders that differ only in no-op steps."""
    idle = {step.name for step, algorithm in pipeline if algorithm.is_idle}
    for ordering in (step for step in steps if step.orders):
        order = tuple(step.name for step, _ in pipeline if step.name in ordering.orders)
        working = [name for name in order if name not in idle]
        declared = permutations(s.name for s in steps if s.name in ordering.orders)
        if order != next(o for o in declared if [n for n in o if n not in idle] == working):
            return False
    return True


def closed_under_passthrough(
    steps: Sequence[Step], kept: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return the algorithms in `kept` by step, and add no-op choices for ignored steps."""
    closed = {step.name: set(kept[step.name]) for step in steps}
    for step in reversed(steps):
        for algorithm in step.algorithms:
            for name in algorithm.ignores if algorithm.id in closed[step.name] else ():
                idle = next(s.idle for s in steps if s.name == name)
                closed[name] |= {idle.id} if idle else set()
    return closed


Path = tuple[str, ...]
"""Ids of the chosen algorithms, one per searched step, in order."""


@dataclass(frozen=True, eq=False)
class Space:
    """Ordered steps, with one algorithm of each step in a pipeline.

    Attributes:
        name: Name of the space.
        steps: All steps in running order, including fixed steps.
        forbidden: Pairs `((step, algorithm), (step, algorithm))` of searched steps in which the
            second algorithm may not directly follow the first. Pairs that pass sparse data to an
            algorithm for dense data are forbidden by flags and need not be listed.
        data: Kind of data: a table, or patient events.
        target: Kind of target: classes (classification) or numbers (regression).
    """

    name: str
    steps: tuple[Step, ...]
    forbidden: frozenset[tuple[tuple[str, str], tuple[str, str]]] = frozenset()
    data: Literal["table", "events"] = "table"
    target: Literal["classification", "regression"] = "classification"

    def __post_init__(self) -> None:
        names = [s.name for s in self.steps]
        doubled = {n for n in names if names.count(n) > 1}
        if doubled:
            raise ValueError(f"space {self.name!r} has two steps named {min(doubled)!r}")
        if not self.searched:
            raise ValueError(f"space {self.name!r} has fixed steps only, so nothing can be tuned")
        for first, second in self.forbidden:
            for step_name, algorithm_id in (first, second):
                self.step(step_name).algorithm(algorithm_id)
        for position, step in enumerate(self.steps):
            behind = self.steps[position + 1 : position + 1 + len(step.orders)]
            ordered = [s.name for s in behind if not (s.fixed or s.orders or s is self.steps[-1])]
            if sorted(ordered) != sorted(step.orders):
                raise ValueError(
                    f"step {step.name!r} of space {self.name!r} orders the steps "
                    f"{', '.join(step.orders)}; these steps must follow directly, be searched, "
                    "order no other steps, and not be the last step"
                )
            before = {s.name: s for s in self.steps[:position]}
            for algorithm in step.algorithms:
                who = f"algorithm {algorithm.id!r} of step {step.name!r} of space {self.name!r}"
                if algorithm.only_ignored and not algorithm.is_idle:
                    raise ValueError(f"{who} is declared only_ignored but changes the pipeline")
                for name in algorithm.ignores:
                    if name not in before:
                        raise UnknownName(f"step in `ignores` of {who}:", name, before)
                    ignored = before[name]
                    if ignored.fixed or ignored.orders or ignored.idle is None:
                        raise ValueError(
                            f"{who} ignores step {name!r}, which must be searched, order no steps "
                            'and have a choice that does nothing, such as Algorithm(id="none")'
                        )
        if next(self.paths(), None) is None:
            raise ValueError(f"space {self.name!r} has no path that can run")

    @cached_property
    def searched(self) -> tuple[Step, ...]:
        """The steps that are not fixed."""
        return tuple(s for s in self.steps if not s.fixed)

    def step(self, name: str) -> Step:
        """Return the step with a name, or raise UnknownName."""
        for step in self.steps:
            if step.name == name:
                return step
        raise UnknownName(f"step of space {self.name!r}:", name, [s.name for s in self.steps])

    @cached_property
    def n_paths(self) -> int:
        """Number of combinations of all steps' algorithms, as in the papers.

        Paths that are equal because of ignored steps count once.
        """
        ways = Counter({frozenset[str](): 1})  # choices for the later steps, by ignored steps
        for step in reversed(self.searched):
            longer: Counter[frozenset[str]] = Counter()
            free = [a for a in step.algorithms if not a.only_ignored]
            for ignored, n in ways.items():
                for algorithm in [step.idle] if step.name in ignored else free:
                    longer[ignored.union(algorithm.ignores if algorithm else ())] += n
            ways = longer
        return ways.total()

    @cached_property
    def n_feasible_paths(self) -> int:
        """Number of runnable paths."""
        return sum(1 for _ in self.paths())

    @property
    def n_hyperparameters(self) -> int:
        """Number of hyperparameters of all algorithms."""
        return sum(a.n_hyperparameters for s in self.searched for a in s.algorithms)

    def paths(self) -> Iterator[Path]:
        """Yield every runnable path. The last step varies fastest."""
        for path in product(*([a.id for a in s.algorithms] for s in self.searched)):
            if self.is_feasible(path):
                yield path

    def is_feasible(self, path: Path) -> bool:
        """Return whether a path can run.

        A path cannot run if it has a forbidden pair, sends sparse data to an algorithm that needs
        dense data, or is not the canonical path of its pipeline.
        """
        if self.has_ignored and self.canonical_path(path) != path:
            return False
        pipeline = self.pipeline(path)
        named = [(step.name, algorithm.id) for step, algorithm in pipeline if not step.fixed]
        if any(pair in self.forbidden for pair in pairwise(named)):
            return False
        is_sparse = False
        for _, algorithm in pipeline:
            if is_sparse and not algorithm.flags.accepts_sparse:
                return False
            if algorithm.flags.output != "same":
                is_sparse = algorithm.flags.output == "sparse"
        return not self._has_orders or is_first_of_equal_orders(pipeline, self.steps)

    def pipeline(self, path: Path) -> tuple[tuple[Step, Algorithm], ...]:
        """Return the steps of a path in running order, with their algorithms.

        Fixed steps are included, but steps made by `order_step` are not. Raises UnknownName for an
        unknown algorithm, and ValueError for a path of the wrong length.
        """
        if len(path) != len(self.searched):
            raise ValueError(
                f"a path of space {self.name!r} has {len(self.searched)} algorithms "
                f"({', '.join(s.name for s in self.searched)}); got {len(path)}: {path}"
            )
        chosen = iter(path)
        pairs = [(s, s.algorithms[0] if s.fixed else s.algorithm(next(chosen))) for s in self.steps]
        if not self._has_orders:
            return tuple(pairs)
        pipeline = [pair for pair in pairs if not pair[1].order]
        place = {step.name: i for i, (step, _) in enumerate(pipeline)}
        for order in (algorithm.order for _, algorithm in pairs if algorithm.order):
            first = min(place[name] for name in order)
            pipeline[first : first + len(order)] = [pipeline[place[name]] for name in order]
        return tuple(pipeline)

    @cached_property
    def _has_orders(self) -> bool:
        return any(step.orders for step in self.steps)

    def canonical_path(self, path: Path, *, settle: bool = True) -> Path:
        """Return the canonical path of the same pipeline, or raise UnknownName.

        An `only_ignored` algorithm cannot run in a step that is not ignored. If `settle`, such an
        algorithm is replaced with the simplest algorithm of the step, which gives a different
        pipeline.
        """
        if not self.has_ignored:
            return path
        chosen, ignored = list(self.algorithms(path)), set[str]()
        for k in reversed(range(len(chosen))):  # ignored steps cannot ignore other steps
            step = self.searched[k]
            if step.name in ignored and step.idle is not None:
                chosen[k] = step.idle
            elif settle and chosen[k].only_ignored:
                chosen[k] = step.simplest
            ignored.update(chosen[k].ignores)
        return tuple(a.id for a in chosen)

    @cached_property
    def has_ignored(self) -> bool:
        """Whether any algorithm ignores a step, so that different choices give equal paths."""
        algorithms = (a for s in self.searched for a in s.algorithms)
        return any(a.ignores or a.only_ignored for a in algorithms)

    def algorithms(self, path: Path) -> tuple[Algorithm, ...]:
        """Return the algorithms of a path, one per searched step, or raise UnknownName."""
        return tuple(s.algorithm(a) for s, a in zip(self.searched, path, strict=True))

    def restricted_to(self, algorithms: Mapping[str, Collection[str]]) -> "Space":
        """Return the space restricted to the given algorithms of each searched step.

        Steps that any of the algorithms ignores also keep a choice that does nothing. Raises
        ValueError if a step keeps no algorithm or no path can run.
        """
        algorithms = closed_under_passthrough(self.searched, algorithms)
        steps = tuple(
            s
            if s.fixed
            else replace(s, algorithms=tuple(a for a in s.algorithms if a.id in algorithms[s.name]))
            for s in self.steps
        )
        left = {(s.name, a.id) for s in steps for a in s.algorithms}
        forbidden = frozenset(pair for pair in self.forbidden if left.issuperset(pair))
        return replace(self, steps=steps, forbidden=forbidden)

    def describe(self) -> dict[str, Any]:
        """Return everything that defines the space, as JSON values."""
        return {
            "name": self.name,
            "data": self.data,
            "target": self.target,
            "steps": [
                {
                    "name": s.name,
                    "fixed": s.fixed,
                    "algorithms": [a.describe() for a in s.algorithms],
                }
                for s in self.steps
            ],
            "forbidden": sorted(self.forbidden),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 hash of `describe()`. Spaces with equal digests are identical."""
        text = json.dumps(self.describe(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
