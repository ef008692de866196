"""Search spaces: ordered steps, each a choice of algorithms with hyperparameters of their own.

A space is data. It names estimators by dotted path and never imports them, so that everything here
stays free of the libraries it talks about.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import Any, Literal

from ConfigSpace import ConfigurationSpace
from ConfigSpace.hyperparameters import Constant

from prefect_tune.optimizers.naming import UnknownName

__all__ = ["Algorithm", "Flags", "Path", "Space", "Step"]

Path = tuple[str, ...]
"""The ids of the algorithms chosen, one per searched step, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What an estimator can take and what it does.

    Attributes:
        accepts_sparse: Whether it runs on sparse matrices.
        densify_when: Hyperparameter and value with which it needs dense data after all; sparse data
            is then written out just before it.
        needs_nonnegative: Whether it fails on negative numbers, always or with that value of that
            hyperparameter; they are then set to 0 just before it.
        output: Layout of what it hands on: that of its input, always dense, or always sparse.
        weights: How class weights reach it: a constructor argument `class_weight`, an argument
            `sample_weight` of `fit`, or not at all.
        stochastic: Whether it takes a `random_state`.
        iterative: How its training can be taken up again: by calling `partial_fit`, by fitting
            again with `warm_start`, or not at all.
        epochs: Constructor argument that says how many epochs a full fit has: passes over the rows
            (`max_iter`) or trees (`n_estimators`). Empty when one pass is the whole fit.
    """

    accepts_sparse: bool = True
    densify_when: tuple[str, str] | None = None
    needs_nonnegative: bool | tuple[str, str] = False
    output: Literal["same", "dense", "sparse"] = "same"
    weights: Literal["none", "class_weight", "sample_weight"] = "none"
    stochastic: bool = False
    iterative: Literal["none", "partial_fit", "warm_start"] = "none"
    epochs: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """One way to do a step.

    Attributes:
        id: Its name within the step.
        estimator: A class with scikit-learn's interface, or a function that makes one, as a dotted
            import path or itself; empty when the step hands on what it was given.
        hyperparameters: What may be chosen, with ranges, defaults and conditions. A name with a dot
            (`poly.degree`) sets the argument after the last dot, over that of a name without.
        fixed: Constructor arguments that are not searched (JSON values).
        sparse_estimator: What takes its place on sparse input, where the class itself cannot.
        sparse_fixed: Constructor arguments that are set besides on sparse input.
        transforms: By hyperparameter, the name of the rule that fits its value to the data's size
            before the estimator gets it (see `tasks.transforms`).
        flags: What the estimator can take and what it does.
        class_weights: `"balanced"` when the steps after this one are to weigh classes by their
            inverse frequency.
    """

    id: str
    estimator: str | Callable[..., Any] = ""
    hyperparameters: ConfigurationSpace = field(default_factory=ConfigurationSpace)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sparse_estimator: str = ""
    sparse_fixed: Mapping[str, Any] = field(default_factory=dict)
    transforms: Mapping[str, str] = field(default_factory=dict)
    flags: Flags = field(default_factory=Flags)
    class_weights: Literal["", "balanced"] = ""

    def __post_init__(self) -> None:
        unknown = [name for name in self.transforms if name not in self.hyperparameters]
        if unknown:
            raise UnknownName(
                f"hyperparameter in the transforms of algorithm {self.id!r}:",
                unknown[0],
                tuple(self.hyperparameters),
            )
        if not isinstance(self.estimator, str):
            _check_importable(self.estimator, self.id)

    @property
    def import_path(self) -> str:
        """Dotted path that the estimator is imported by; empty when there is none."""
        made_by = self.estimator
        return made_by if isinstance(made_by, str) else f"{made_by.__module__}.{made_by.__name__}"

    @property
    def passes_on(self) -> bool:
        """Whether the step hands on exactly what it was given."""
        return self.estimator == ""

    @property
    def n_hyperparameters(self) -> int:
        """How many hyperparameters can take more than one value."""
        return sum(not isinstance(h, Constant) for h in self.hyperparameters.values())

    def describe(self) -> dict[str, Any]:
        """All that makes it what it is, as JSON values."""
        serialized = self.hyperparameters.to_serialized_dict()
        return {
            "id": self.id,
            "estimator": self.import_path,
            "hyperparameters": serialized["hyperparameters"],
            "conditions": serialized["conditions"],
            "forbidden": serialized["forbiddens"],
            "fixed": dict(self.fixed),
            "sparse_estimator": self.sparse_estimator,
            "sparse_fixed": dict(self.sparse_fixed),
            "transforms": dict(self.transforms),
            "flags": asdict(self.flags),
            "class_weights": self.class_weights,
        }


def _check_importable(estimator: Callable[..., Any], algorithm: str) -> None:
    """Workers import estimators by name, so each must have one.

    Raises:
        ValueError: If it is a lambda, is defined inside a function or class, or has no name.
    """
    name = getattr(estimator, "__qualname__", "")
    remedy = "workers import it by its name; define it at the top level of a module"
    if "<lambda>" in name:
        raise ValueError(f"the estimator of algorithm {algorithm!r} is a lambda: {remedy}")
    if "<locals>" in name:
        raise ValueError(
            f"the estimator of algorithm {algorithm!r}, {name.rsplit('.', 1)[-1]}, is defined "
            f"inside a function: {remedy}"
        )
    if not name.isidentifier():
        what = f"is {estimator!r}" if not name else f"is {name}"
        raise ValueError(f"the estimator of algorithm {algorithm!r} {what}: {remedy}")


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


@dataclass(frozen=True, eq=False)
class Space:
    """Ordered steps; a pipeline takes one algorithm of each.

    Attributes:
        name: What `--space` calls it.
        steps: All steps, fixed ones included, in the order they run.
        forbidden: Pairs `((step, algorithm), (step, algorithm))` of adjacent searched steps that
            may not follow one another. Pairs that cannot run because sparse data would reach an
            algorithm that takes dense data only need not be listed: flags say so.
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
        """Whether that path can run: no forbidden pair, no sparse data where dense is needed."""
        named = [(s.name, a) for s, a in zip(self.searched, path, strict=True)]
        if any(pair in self.forbidden for pair in pairwise(named)):
            return False
        is_sparse = False
        for algorithm in self.algorithms(path):
            if is_sparse and not algorithm.flags.accepts_sparse:
                return False
            if algorithm.flags.output != "same":
                is_sparse = algorithm.flags.output == "sparse"
        return True

    def algorithms(self, path: Path) -> tuple[Algorithm, ...]:
        """The algorithm of every step, fixed ones included, for a path over the searched ones.

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
        return tuple(s.algorithms[0] if s.fixed else s.algorithm(next(chosen)) for s in self.steps)

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
