"""Search spaces: ordered steps, each a choice of algorithms with hyperparameters of their own."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product
from math import prod
from typing import Any, Literal

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.naming import UnknownName

__all__ = ["Path", "Space", "Step", "order_step"]

Path = tuple[str, ...]
"""The ids of the algorithms chosen, one per searched step, in order."""

_MOST_ORDERED = 4
"""Steps that may change places with each other: 24 orders."""


@dataclass(frozen=True, eq=False)
class Step:
    """One stage of a pipeline and the algorithms that can fill it.

    Attributes:
        name: Also the name of its Prefect task, for instance `rescale`.
        algorithms: The choices, in the order of their columns in a one-hot path.
        fixed: True for a step that always runs and leaves nothing to choose; it is not part of a
            configuration and not counted.
    """

    name: str
    algorithms: tuple[Algorithm, ...]
    fixed: bool = False

    def __post_init__(self) -> None:
        ids = [a.id for a in self.algorithms]
        if not ids:
            raise ValueError(f"step {self.name!r} has no algorithm; give it at least one")
        doubled = {i for i in ids if ids.count(i) > 1}
        if doubled:
            raise ValueError(f"step {self.name!r} has two algorithms called {min(doubled)!r}")
        if self.fixed and (len(ids) > 1 or self.algorithms[0].n_hyperparameters):
            raise ValueError(
                f"step {self.name!r} is fixed, so it takes one algorithm without hyperparameters; "
                f"it has {len(ids)} with {self.algorithms[0].n_hyperparameters} in the first"
            )

    @property
    def orders(self) -> tuple[str, ...]:
        """The steps whose order this one chooses; empty for all but those of `order_step`."""
        return self.algorithms[0].order

    def algorithm(self, algorithm_id: str) -> Algorithm:
        """The algorithm of that id.

        Raises:
            UnknownName: If the step has none of that id.
        """
        for algorithm in self.algorithms:
            if algorithm.id == algorithm_id:
                return algorithm
        known = [a.id for a in self.algorithms]
        raise UnknownName(f"algorithm of step {self.name!r}:", algorithm_id, known)


def order_step(*steps: str, name: str = "order") -> Step:
    """A step that chooses in which order others run (o_ik of Liu, Ram et al. 2020, appendix 6).

    It stands directly in front of them in a space. Its algorithms are the permutations. Of orders
    that differ only in where steps do nothing, one can run.

    Args:
        steps: Names of two to four steps in their default order, in which they stand in the space.
        name: What the step itself is called.

    Raises:
        ValueError: If they are fewer, more, or one is named twice.
    """
    if not 2 <= len(steps) <= _MOST_ORDERED or len(set(steps)) < len(steps):
        raise ValueError(
            f"step {name!r} orders 2 to {_MOST_ORDERED} different steps; got {', '.join(steps)}"
        )
    ids = {order: "_before_".join(order).replace(" ", "_") for order in permutations(steps)}
    return Step(name, tuple(Algorithm(id=i, order=order) for order, i in ids.items()))


@dataclass(frozen=True, eq=False)
class Space:
    """Ordered steps; a pipeline takes one algorithm of each.

    Attributes:
        name: What `--space` calls it.
        steps: All steps, fixed ones included, in the order they run.
        forbidden: Pairs `((step, algorithm), (step, algorithm))` of searched steps, in which the
            second may not run directly after the first. Pairs that cannot run because sparse data
            would reach an algorithm that takes dense data only need not be listed: flags say so.
        data: The kind of data set the first step takes.
        target: What the last step predicts: classes or numbers.
    """

    name: str
    steps: tuple[Step, ...]
    forbidden: frozenset[tuple[tuple[str, str], tuple[str, str]]] = frozenset()
    data: Literal["table", "events"] = "table"
    target: Literal["classes", "numbers"] = "classes"

    def __post_init__(self) -> None:
        names = [s.name for s in self.steps]
        doubled = {n for n in names if names.count(n) > 1}
        if doubled:
            raise ValueError(f"space {self.name!r} has two steps called {min(doubled)!r}")
        if not self.searched:
            raise ValueError(f"space {self.name!r} has no searched step, so nothing to tune")
        for first, second in self.forbidden:
            for step, algorithm in (first, second):
                self.step(step).algorithm(algorithm)
        for position in range(len(self.steps)):
            self._check_order(position)
        if next(self.paths(), None) is None:
            raise ValueError(f"space {self.name!r} has no path that can run")

    @cached_property
    def searched(self) -> tuple[Step, ...]:
        """The steps that leave something to choose."""
        return tuple(s for s in self.steps if not s.fixed)

    def step(self, name: str) -> Step:
        """The step of that name.

        Raises:
            UnknownName: If the space has none of that name.
        """
        for step in self.steps:
            if step.name == name:
                return step
        raise UnknownName(f"step of space {self.name!r}:", name, [s.name for s in self.steps])

    @property
    def n_paths(self) -> int:
        """Size of the full product of algorithms, as the papers count."""
        return prod(len(s.algorithms) for s in self.searched)

    @cached_property
    def n_feasible_paths(self) -> int:
        """How many of them can run."""
        return sum(1 for _ in self.paths())

    @property
    def n_hyperparameters(self) -> int:
        """Hyperparameters of all algorithms together."""
        return sum(a.n_hyperparameters for s in self.searched for a in s.algorithms)

    def paths(self) -> Iterator[Path]:
        """Every path that can run, the first step most significant."""
        for path in product(*([a.id for a in s.algorithms] for s in self.searched)):
            if self.is_feasible(path):
                yield path

    def is_feasible(self, path: Path) -> bool:
        """Whether that path can run.

        It cannot with a forbidden pair, with sparse data where dense is needed, or when another
        order of the steps makes the same pipeline and comes first.
        """
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
        return self._is_first_order(path)

    def pipeline(self, path: Path) -> tuple[tuple[Step, Algorithm], ...]:
        """What runs, in the order that it runs; fixed steps included, those of `order_step` not.

        Raises:
            UnknownName: If a step has no such algorithm.
            ValueError: If the path has another length than there are searched steps.
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

    def _is_first_order(self, path: Path) -> bool:
        """Whether no earlier permutation has those steps that do something in the same order."""
        if not self._has_orders:
            return True
        pipeline = self.pipeline(path)
        idle = {step.name for step, algorithm in pipeline if algorithm.is_idle}
        ran = [step.name for step, _ in pipeline]
        for step in self.steps:
            if not step.orders:
                continue
            order = tuple(name for name in ran if name in step.orders)
            working = [name for name in order if name not in idle]
            declared = [s.name for s in self.steps if s.name in step.orders]
            alike = (
                other
                for other in permutations(declared)
                if [name for name in other if name not in idle] == working
            )
            if next(alike) != order:
                return False
        return True

    def _check_order(self, position: int) -> None:
        """Raises ValueError if steps that the one there orders do not stand directly behind it."""
        step = self.steps[position]
        n = len(step.orders)
        behind = self.steps[position + 1 : position + 1 + n]
        names = [s.name for s in behind]
        if sorted(names) != sorted(step.orders):
            raise ValueError(
                f"step {step.name!r} of space {self.name!r} orders {', '.join(step.orders)}, which "
                f"must stand directly behind it; there are {', '.join(names) or 'none'}"
            )
        unmoved = [s.name for s in behind if s.fixed or s.orders or s is self.steps[-1]]
        if unmoved:
            raise ValueError(
                f"step {unmoved[0]!r} of space {self.name!r} cannot change places: it is fixed, "
                "orders others, or is the last step, which predicts"
            )

    def restricted_to(self, algorithms: Mapping[str, Collection[str]]) -> "Space":
        """The part of it with only some of the algorithms, by the name of each searched step.

        Raises:
            ValueError: If a step keeps no algorithm, or no path that can run is left.
        """
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
        """All that makes it what it is, as JSON values."""
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
        """SHA-256 of `describe()`: two spaces with the same digest are the same space."""
        text = json.dumps(self.describe(), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
