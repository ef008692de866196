"""Steps, the stages of a pipeline, and the algorithms that can fill them.

An algorithm is data. It names its estimator by dotted path and never imports it, so that everything
here stays free of the libraries it talks about.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ConfigSpace import ConfigurationSpace
from ConfigSpace.hyperparameters import Constant, NumericalHyperparameter

from prefect_tune.optimizers.space.wording import UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Abilities and effects of an estimator.

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
        out_of_fold: Whether training rows come out otherwise than new ones, as those of target
            encoding do: they are what `fit_transform` makes.
        few_categories: Whether it takes a table, but at most 255 categories of a column; the rarest
            become gaps just before it.
    """

    accepts_sparse: bool = True
    densify_when: tuple[str, str] | None = None
    needs_nonnegative: bool | tuple[str, str] = False
    output: Literal["same", "dense", "sparse"] = "same"
    weights: Literal["none", "class_weight", "sample_weight"] = "none"
    stochastic: bool = False
    out_of_fold: bool = False
    few_categories: bool = False


Kind = Literal["", "linear", "trees", "boosted_trees"]
"""Kinds of models that may want different features; empty for all other models."""
GROWTH: Mapping[str, float] = {
    "rows": 1.0, "columns": 1.0, "classes": 0.0, "held_out": 0.1, "fixed": 500.0,
}  # fmt: skip
"""How the seconds of an algorithm are expected to grow; see `Algorithm.growth`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """One way to do a step.

    Attributes:
        id: Its name within the step.
        estimator: A class with scikit-learn's interface, or a function that makes one, as a dotted
            import path or itself; empty when the step hands on what it was given.
        hyperparameters: Those to choose, with ranges, defaults and conditions. A name with a dot
            (`poly.degree`) sets the argument after the last dot, over that of a name without.
        fixed: Constructor arguments that are not searched (JSON values).
        sparse_estimator: Takes its place on sparse input, where the class itself cannot.
        sparse_fixed: Constructor arguments that are set besides on sparse input.
        transforms: By hyperparameter, the rule that makes its effective value, which the estimator
            gets, from its value and a summary of the data: a name (see
            `tasks.fitting.recipe`) or a function of both.
        memory: The rule that estimates the memory a fit needs, from the effective arguments and a
            summary of the data: a name (see `tasks.fitting.memory_estimate`) or a function of both.
            By default that of the catalogue for the same estimator, if it has one. It decides no
            result, so it is not part of `describe()`.
        growth: How seconds are expected to grow, until they are measured: exponents by which those
            of a fit grow with training `rows` and `columns` (1 unless given), `classes` and the
            values of hyperparameters (0 unless given), and those of a `held_out` row with training
            rows (0.1 unless given); and the rows that the `fixed` part of a fit is worth (500
            unless given). Not part of `describe()` either.
        threads: Way to give a fit several threads, only where its results are equal for any number
            of them: the parameter of the estimator that counts them (`n_jobs`), or `openmp`. By
            default a fit has one thread. Not part of `describe()` either.
        kind: Kind of a model: models of a kind want the same features. It decides no result, so it
            is not part of `describe()` either.
        flags: Abilities and effects of the estimator.
        class_weights: `"balanced"` when the steps after this one are to weigh classes by their
            inverse frequency.
        order: Names of steps as they are to run, for a choice of `order_step`.
        ignores: Names of earlier steps whose choice means nothing to it. Where it is chosen they do
            nothing, so each of them needs a choice that does nothing.
        only_ignored: Whether it is chosen only where a later algorithm ignores its step; what does
            nothing then is not otherwise to be had.
        requires: Packages that it needs and that may not be installed; in keys with their versions.
        depends_on: Paths of data files that decide its result, such as a table of weights. Their
            content enters keys, their paths do not. Not part of `describe()` either.
    """

    id: str
    estimator: str | Callable[..., Any] = ""
    hyperparameters: ConfigurationSpace = field(default_factory=ConfigurationSpace)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sparse_estimator: str = ""
    sparse_fixed: Mapping[str, Any] = field(default_factory=dict)
    transforms: Mapping[str, str | Callable[[Any, Any], Any]] = field(default_factory=dict)
    memory: str | Callable[[Mapping[str, Any], Any], Any] = ""
    growth: Mapping[str, float] = field(default_factory=dict)
    threads: str = ""
    kind: Kind = ""
    flags: Flags = field(default_factory=Flags)
    class_weights: Literal["", "balanced"] = ""
    order: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    only_ignored: bool = False
    requires: tuple[str, ...] = ()
    depends_on: Sequence[str] = ()

    def __post_init__(self) -> None:
        paths = [self.depends_on] if isinstance(self.depends_on, str) else self.depends_on
        object.__setattr__(self, "depends_on", tuple(map(str, paths)))
        unknown = [name for name in self.transforms if name not in self.hyperparameters]
        if unknown:
            raise UnknownName(
                f"hyperparameter in the transforms of algorithm {self.id!r}:",
                unknown[0],
                tuple(self.hyperparameters),
            )
        grows_with = (*GROWTH, *self.hyperparameters)
        unknown = [name for name in self.growth if name not in grows_with]
        if unknown:
            raise UnknownName(
                f"name in the growth of algorithm {self.id!r}:", unknown[0], grows_with
            )
        for name, h in self.hyperparameters.items():
            if self.growth.get(name) and isinstance(h, NumericalHyperparameter) and h.lower <= 0:
                raise ValueError(
                    f"seconds of algorithm {self.id!r} are declared to grow with {name!r}, whose "
                    f"range begins at {h.lower:g}; leave it out of `growth`, or begin above 0"
                )
        if not isinstance(self.estimator, str):
            _check_importable(self.estimator, self.id)

    @property
    def import_path(self) -> str:
        """Dotted path that the estimator is imported by; empty when there is none."""
        made_by = self.estimator
        return made_by if isinstance(made_by, str) else f"{made_by.__module__}.{made_by.__name__}"

    @property
    def is_passthrough(self) -> bool:
        """Whether the step hands on exactly what it was given."""
        return self.estimator == ""

    @property
    def is_idle(self) -> bool:
        """Whether the pipeline is the same without it."""
        return self.is_passthrough and not self.class_weights and not self.order

    @property
    def n_hyperparameters(self) -> int:
        """How many hyperparameters can take more than one value."""
        return sum(not isinstance(h, Constant) for h in self.hyperparameters.values())

    def describe(self) -> dict[str, Any]:
        """Return all that makes it what it is, as JSON values."""
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
            "transforms": {
                name: rule if isinstance(rule, str) else f"{rule.__module__}.{rule.__qualname__}"
                for name, rule in self.transforms.items()
            },
            "flags": asdict(self.flags),
            "class_weights": self.class_weights,
            "order": list(self.order),
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name in ("ignores", "only_ignored", "requires")
                if (value := getattr(self, name))
            },
        }


def _check_importable(estimator: Callable[..., Any], algorithm: str) -> None:
    """Raise unless workers can import an estimator by its name.

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

    @property
    def orders(self) -> tuple[str, ...]:
        """The steps whose order this one chooses; empty for all but those of `order_step`."""
        return self.algorithms[0].order

    @property
    def plainest(self) -> Algorithm:
        """The algorithm that hands on what it was given, or the first one if there is none.

        Not one that is chosen only where the step is ignored.
        """
        free = [a for a in self.algorithms if not a.only_ignored] or self.algorithms
        return next((a for a in free if a.is_idle), free[0])

    @property
    def idle(self) -> Algorithm | None:
        """The algorithm that does nothing, the first one; None if there is none."""
        return next((a for a in self.algorithms if a.is_idle), None)

    def algorithm(self, algorithm_id: str) -> Algorithm:
        """Return the algorithm of that id.

        Raises:
            UnknownName: If the step has none of that id.
        """
        for algorithm in self.algorithms:
            if algorithm.id == algorithm_id:
                return algorithm
        known = [a.id for a in self.algorithms]
        raise UnknownName(f"algorithm of step {self.name!r}:", algorithm_id, known)
