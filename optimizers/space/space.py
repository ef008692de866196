"""Search spaces: ordered steps; a pipeline takes one algorithm of each."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.equal_paths import (
    check_ignored,
    check_order,
    in_chosen_order,
    is_first_of_equal_orders,
    n_canonical,
    with_idle_steps,
    with_ignored_idle,
)
from prefect_tune.optimizers.space.wording import UnknownName

Path = tuple[str, ...]
"""Ids of the chosen algorithms, one per searched step, in order."""


@dataclass(frozen=True, eq=False)
class Space:
    """Ordered steps; a pipeline takes one algorithm of each.

    Attributes:
        steps: All steps, fixed ones included, in the order they run.
        forbidden: Pairs `((step, algorithm), (step, algorithm))` of searched steps whose second may
            not directly follow the first. Pairs that send sparse data to an algorithm for dense
            data only are forbidden by flags and need not be listed.
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
            check_order(self.name, self.steps, position)
        check_ignored(self.name, self.steps)
        if next(self.paths(), None) is None:
            raise ValueError(f"space {self.name!r} has no path that can run")

    @cached_property
    def searched(self) -> tuple[Step, ...]:
        """The steps with a choice."""
        return tuple(s for s in self.steps if not s.fixed)

    def step(self, name: str) -> Step:
        """Return the step of that name, or raise `UnknownName`."""
        for step in self.steps:
            if step.name == name:
                return step
        raise UnknownName(f"step of space {self.name!r}:", name, [s.name for s in self.steps])

    @cached_property
    def n_paths(self) -> int:
        """Size of the full product of algorithms, as in the papers; equal paths count once."""
        if self.has_ignored:
            return n_canonical(self.searched)
        return prod(len(s.algorithms) for s in self.searched)

    @cached_property
    def n_feasible_paths(self) -> int:
        """Number of runnable paths."""
        return sum(1 for _ in self.paths())

    @property
    def n_hyperparameters(self) -> int:
        """Number of hyperparameters of all algorithms."""
        return sum(a.n_hyperparameters for s in self.searched for a in s.algorithms)

    def paths(self) -> Iterator[Path]:
        """Yield every runnable path; the last step varies fastest."""
        for path in product(*([a.id for a in s.algorithms] for s in self.searched)):
            if self.is_feasible(path):
                yield path

    def is_feasible(self, path: Path) -> bool:
        """Return whether the path can run.

        It cannot if it has a forbidden pair, sends sparse data to an algorithm that needs dense
        data, or is not the canonical one of several equal paths.
        """
        if self.has_ignored and self.settled(path) != path:
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
        """Return the steps that run, in order, with fixed steps and without steps of `order_step`.

        Raises `UnknownName` for an unknown algorithm, `ValueError` for a path of another length.
        """
        if len(path) != len(self.searched):
            raise ValueError(
                f"a path of space {self.name!r} has {len(self.searched)} algorithms "
                f"({', '.join(s.name for s in self.searched)}); got {len(path)}: {path}"
            )
        chosen = iter(path)
        pairs = [(s, s.algorithms[0] if s.fixed else s.algorithm(next(chosen))) for s in self.steps]
        return in_chosen_order(pairs) if self._has_orders else tuple(pairs)

    def canonical(self, path: Path) -> Path:
        """Return the canonical path equal to this one, or raise `UnknownName`."""
        if not self.has_ignored:
            return path
        return tuple(a.id for a in with_ignored_idle(self.searched, self.algorithms(path)))

    def settled(self, path: Path) -> Path:
        """Return the canonical path nearest to one combined step by step, or raise `UnknownName`.

        Steps with an `only_ignored` choice that are not ignored get their plainest algorithm.
        """
        if not self.has_ignored:
            return path
        settled = with_ignored_idle(self.searched, self.algorithms(path), settle=True)
        return tuple(a.id for a in settled)

    @cached_property
    def has_ignored(self) -> bool:
        """Whether an algorithm ignores a step, so that different choices make equal paths."""
        algorithms = (a for s in self.searched for a in s.algorithms)
        return any(a.ignores or a.only_ignored for a in algorithms)

    def algorithms(self, path: Path) -> tuple[Algorithm, ...]:
        """Return the algorithm of each searched step, or raise `UnknownName`."""
        return tuple(s.algorithm(a) for s, a in zip(self.searched, path, strict=True))

    @cached_property
    def _has_orders(self) -> bool:
        return any(step.orders for step in self.steps)

    def restricted_to(self, algorithms: Mapping[str, Collection[str]]) -> "Space":
        """Return the part with some algorithms of each searched step, by name.

        Steps that one of them ignores keep an idle choice. A `ValueError` is raised if a step keeps
        no algorithm, or no path can run.
        """
        algorithms = with_idle_steps(self.searched, algorithms)
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
        """Return all that defines it, as JSON values."""
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
