"""Steps, which are the stages of a pipeline, and the algorithms that can fill them.

An algorithm names its estimator by a dotted path. Estimators are not imported here, so this module
does not depend on their libraries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ConfigSpace import ConfigurationSpace
from ConfigSpace.hyperparameters import Constant, NumericalHyperparameter

from prefect_tune.optimizers.documents import UnknownName, choices_of, value_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Abilities and requirements of an estimator.

    Attributes:
        accepts_sparse: Whether the estimator accepts sparse matrices.
        densify_when: Hyperparameter and value that require dense data. If the hyperparameter has
            this value, sparse data are made dense just before the step.
        needs_nonnegative: Whether the estimator fails on negative numbers, or the hyperparameter
            and value that make the estimator fail. To prevent failure, negative numbers are set to
            0 just before the step.
        output: Layout of the output: same as the input (`same`), always dense, or always sparse.
        weights: Way in which the estimator accepts class weights: by the constructor argument
            `class_weight`, by the argument `sample_weight` of `fit`, or not at all.
        stochastic: Whether the estimator has a parameter `random_state`.
        out_of_fold: Whether the output differs between training rows and identical new rows, as in
            target encoding. If true, training rows are transformed by `fit_transform`.
        few_categories: Whether the estimator accepts at most 255 categories per column. If a column
            has more, its rarest categories become missing values just before the step.
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
"""Model families that may need different features; empty for all other models."""
GROWTH: Mapping[str, float] = {
    "rows": 1.0, "columns": 1.0, "classes": 0.0, "held_out": 0.1, "fixed": 500.0,
}  # fmt: skip
"""Default growth of an algorithm's run time; see `Algorithm.growth`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """An algorithm that can fill a step.

    `describe()` omits `depends_on` and the attributes that affect no result: `memory`, `growth`,
    `threads` and `kind`.

    Attributes:
        id: Name within the step.
        estimator: Class with scikit-learn's interface, function that returns an estimator, or the
            dotted import path of a class or function; empty if the step passes on its input
            unchanged.
        hyperparameters: Hyperparameters with ranges, defaults and conditions. A name with a dot
            (`poly.degree`) sets the argument after the last dot, and has priority over a plain
            name.
        fixed: Constructor arguments that are not searched, as JSON values.
        sparse_estimator: Estimator for sparse input; empty to use `estimator`.
        sparse_fixed: Additional constructor arguments for sparse input.
        transforms: Rules for the effective values of hyperparameters, by hyperparameter name. A
            rule is a name (see `tasks.fitting.recipe`) or a function of the value and a summary of
            the data.
        memory: Rule for the estimated bytes of a fit: a name (see `tasks.fitting.recipe`) or a
            function of the effective arguments and a summary of the data. By default, that
            module's rule for the estimator applies if there is one.
        growth: Expected growth of the run time, before run times are measured. The run time of a
            fit grows with powers of training `rows` and `columns` (default exponent 1), of
            `classes` and of hyperparameters (default exponent 0). The run time per `held_out` row
            grows with a power of the training rows (default exponent 0.1). `fixed` is the constant
            part of a run time, in rows (default 500).
        threads: Mechanism for running a fit in several threads: the name of the estimator's
            parameter (`n_jobs`), or `openmp`. Results must not depend on the number of threads. By
            default, a fit uses one thread.
        kind: Model family. All models of a family need the same features.
        class_weights: Value `"balanced"` if later steps should weight classes by inverse frequency.
        order: Names of steps in running order, if the algorithm is a choice of an `order_step`.
        ignores: Names of earlier steps whose choice does not affect this algorithm. If the
            algorithm is chosen, the ignored steps do nothing, so each needs a choice that does
            nothing.
        only_ignored: Whether the algorithm can be chosen only if a later algorithm ignores its
            step.
        rounds: Hyperparameter for the number of boosting rounds, if training on many rows should
            stop early; empty for no early stopping.
        requires: Optional packages that the algorithm needs. Cache keys include the packages'
            versions.
        depends_on: Paths of data files that affect the result. Cache keys include the files'
            contents.
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
    rounds: str = ""
    requires: tuple[str, ...] = ()
    depends_on: Sequence[str] = ()

    def __post_init__(self) -> None:
        paths = [self.depends_on] if isinstance(self.depends_on, str) else self.depends_on
        object.__setattr__(self, "depends_on", tuple(map(str, paths)))
        for field_name, given, known in (
            ("transforms", self.transforms, tuple(self.hyperparameters)),
            ("growth", self.growth, (*GROWTH, *self.hyperparameters)),
            ("rounds", [self.rounds] if self.rounds else [], tuple(self.hyperparameters)),
        ):
            for name in given:
                if name not in known:
                    where = f"name in the {field_name} of algorithm {self.id!r}:"
                    raise UnknownName(where, name, known)
        for name, h in self.hyperparameters.items():
            if self.growth.get(name) and isinstance(h, NumericalHyperparameter) and h.lower <= 0:
                raise ValueError(
                    f"the run time of algorithm {self.id!r} cannot grow with {name!r}, whose range "
                    f"starts at {h.lower:g}; remove it from `growth`, or start above 0"
                )
        name = getattr(self.estimator, "__qualname__", "")
        if not isinstance(self.estimator, str) and not name.isidentifier():
            raise ValueError(
                f"the estimator of algorithm {self.id!r}, {name or repr(self.estimator)}, cannot "
                "be imported by its name; define it at the top level of a module"
            )
        constants = [*self.fixed.items(), *self.sparse_fixed.items()]
        choices = [(name, choices_of(h) or ()) for name, h in self.hyperparameters.items()]
        for name, values in [*((name, (value,)) for name, value in constants), *choices]:
            try:
                documents = [*map(value_document, values)]
            except ValueError as error:
                raise ValueError(
                    f"a value of {name!r} in algorithm {self.id!r} cannot be stored: {error}; use "
                    "numbers, strings, tuples, lists, functions and classes of a module, or "
                    "estimators, or use strings and convert them with `transforms`"
                ) from error
            if len(set(documents)) < len(documents):
                raise ValueError(
                    f"two choices of {name!r} in algorithm {self.id!r} are stored in the same form "
                    f"({', '.join(map(str, documents))}); remove one of them"
                )

    @property
    def import_path(self) -> str:
        """Dotted import path of the estimator; empty without an estimator."""
        made_by = self.estimator
        return made_by if isinstance(made_by, str) else f"{made_by.__module__}.{made_by.__name__}"

    @property
    def is_passthrough(self) -> bool:
        """Whether the step passes on its input unchanged."""
        return self.estimator == ""

    @property
    def is_idle(self) -> bool:
        """Whether the algorithm has no effect on a pipeline."""
        return self.is_passthrough and not self.class_weights and not self.order

    @property
    def n_hyperparameters(self) -> int:
        """Number of hyperparameters with more than one value."""
        return sum(not isinstance(h, Constant) for h in self.hyperparameters.values())

    def describe(self) -> dict[str, Any]:
        """Return everything that defines the algorithm, as JSON values."""
        serialized = _with_documents(self.hyperparameters.to_serialized_dict())
        return {
            "id": self.id,
            "estimator": self.import_path,
            "hyperparameters": serialized["hyperparameters"],
            "conditions": serialized["conditions"],
            "forbidden": serialized["forbiddens"],
            "fixed": _documents(self.fixed),
            "sparse_estimator": self.sparse_estimator,
            "sparse_fixed": _documents(self.sparse_fixed),
            "transforms": {
                name: rule if isinstance(rule, str) else f"{rule.__module__}.{rule.__qualname__}"
                for name, rule in self.transforms.items()
            },
            "flags": asdict(self.flags),
            "class_weights": self.class_weights,
            "order": list(self.order),
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name in ("ignores", "only_ignored", "rounds", "requires")
                if (value := getattr(self, name))
            },
        }


def _documents(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value_document(value) for name, value in values.items()}


def _with_documents(serialized: Any, name: str = "") -> Any:
    """Return a document of ConfigSpace with all hyperparameter values as JSON."""
    if name in {"default_value", "value"}:
        return value_document(serialized)
    if name in {"choices", "sequence", "values"}:
        return [*map(value_document, serialized)]
    if isinstance(serialized, Mapping):
        return {key: _with_documents(value, key) for key, value in serialized.items()}
    return [*map(_with_documents, serialized)] if isinstance(serialized, list) else serialized


@dataclass(frozen=True, eq=False)
class Step:
    """One stage of a pipeline, with the algorithms that can fill the stage.

    Attributes:
        name: Name of the step and of its Prefect task, such as `rescale`.
        algorithms: Choices for the step, in the order of their columns in a one-hot path.
        fixed: Whether the step always runs with its only algorithm. Fixed steps are not part of a
            configuration and are not counted.
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
            raise ValueError(f"step {self.name!r} has two algorithms named {min(doubled)!r}")
        if self.fixed and (len(ids) > 1 or self.algorithms[0].n_hyperparameters):
            raise ValueError(
                f"step {self.name!r} is fixed and needs one algorithm without hyperparameters; it "
                f"has {len(ids)} algorithms, and the first has "
                f"{self.algorithms[0].n_hyperparameters} hyperparameters"
            )

    @property
    def orders(self) -> tuple[str, ...]:
        """The steps whose order this step chooses; empty unless made by `order_step`."""
        return self.algorithms[0].order

    @property
    def simplest(self) -> Algorithm:
        """The first algorithm that does nothing, or else the first algorithm.

        Algorithms with `only_ignored` are skipped, unless the step has no others.
        """
        free = [a for a in self.algorithms if not a.only_ignored] or self.algorithms
        return next((a for a in free if a.is_idle), free[0])

    @property
    def idle(self) -> Algorithm | None:
        """The first algorithm that does nothing; None if no algorithm does nothing."""
        return next((a for a in self.algorithms if a.is_idle), None)

    def algorithm(self, algorithm_id: str) -> Algorithm:
        """Return the algorithm with an id, or raise UnknownName."""
        for algorithm in self.algorithms:
            if algorithm.id == algorithm_id:
                return algorithm
        known = [a.id for a in self.algorithms]
        raise UnknownName(f"algorithm of step {self.name!r}:", algorithm_id, known)
