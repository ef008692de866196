"""Configurations (an algorithm and its values for each searched step), and queries at a fidelity.

The module also finds the active hyperparameters of an algorithm and checks for forbidden values.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Self

from ConfigSpace import ConfigurationSpace
from ConfigSpace.hyperparameters import Hyperparameter

from prefect_tune.optimizers.documents import (
    Document,
    from_document,
    plain_value,
    to_document,
    value_document,
    value_of,
)
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.space import Path, Space

Value = Any
"""A value of a hyperparameter: a number, a string, or another value that `documents` supports."""


def active_hyperparameters(
    hyperparameters: ConfigurationSpace, values: Mapping[str, Value]
) -> Iterator[Hyperparameter[Any, Any]]:
    """Yield hyperparameters whose conditions hold, parents first.

    The caller may add the value of a yielded hyperparameter to `values` before requesting the next.
    """
    for hyperparameter in hyperparameters.values():
        conditions = hyperparameters.parent_conditions_of[hyperparameter.name]
        parents = hyperparameters.parents_of[hyperparameter.name]
        if all(parent.name in values for parent in parents) and all(
            condition.satisfied_by_value(dict(values)) for condition in conditions
        ):
            yield hyperparameter


def are_allowed(algorithm: Algorithm, values: Mapping[str, Value]) -> bool:
    """Return whether an algorithm's forbidden clauses allow the values."""
    clauses = algorithm.hyperparameters.forbidden_clauses
    return not any(clause.is_forbidden_value(dict(values)) for clause in clauses)


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one step with the values of its active hyperparameters.

    Two choices are equal if their algorithms and `documents` are equal.

    Attributes:
        algorithm: Id of the algorithm.
        values: Values by hyperparameter, sorted by name.
        documents: JSON form of the values.
    """

    algorithm: str
    values: tuple[tuple[str, Value], ...] = field(default=(), compare=False)
    documents: tuple[tuple[str, Document], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        documents = tuple((name, value_document(value)) for name, value in self.values)
        object.__setattr__(self, "documents", documents)

    def to_json(self) -> dict[str, Any]:
        """Return `{"algorithm": ..., "hyperparameters": {...}}`."""
        return {"algorithm": self.algorithm, "hyperparameters": dict(self.documents)}

    @classmethod
    def of(cls, algorithm: str, values: Mapping[str, Value]) -> Self:
        """Return the choice of an algorithm, with values for its active hyperparameters."""
        return cls(algorithm, tuple(sorted(values.items(), key=itemgetter(0))))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One choice per searched step, in the order of the steps."""

    choices: tuple[tuple[str, Choice], ...]

    @classmethod
    def of(cls, space: Space, path: Path, values: Iterable[Mapping[str, Value]]) -> Self:
        """Return the configuration of a path, given values for each of its algorithms."""
        given = zip(space.searched, path, values, strict=True)
        return cls(tuple((step.name, Choice.of(a, v)) for step, a, v in given))

    @property
    def path(self) -> Path:
        """Ids of the algorithms, one per searched step."""
        return tuple(choice.algorithm for _, choice in self.choices)

    def __getitem__(self, step: str) -> Choice:
        return dict(self.choices)[step]

    def to_json(self) -> dict[str, Any]:
        """Return each step's algorithm and values as JSON, in step order."""
        return {step: choice.to_json() for step, choice in self.choices}

    @property
    def canonical(self) -> str:
        """Canonical JSON: two configurations are equal if and only if their JSON is equal."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Return the canonical configuration from a document, checked against a space.

        Steps that a later algorithm ignores get a choice that does nothing.

        Raises:
            ValueError: If a step, algorithm or hyperparameter is unknown or missing, a value is out
                of range or forbidden, or the path cannot run.
        """
        expected = [s.name for s in space.searched]
        if set(document) != set(expected):
            raise ValueError(
                f"a configuration of space {space.name!r} needs the steps {', '.join(expected)}; "
                f"got {', '.join(document) or 'none'}"
            )
        choices = []
        for step in space.searched:
            given = document[step.name]
            algorithm = step.algorithm(given["algorithm"])
            read = given.get("hyperparameters", {})
            values: dict[str, Value] = {}
            for h in algorithm.hyperparameters.values():
                if h.name in read:
                    try:
                        values[h.name] = value_of(h, read[h.name])
                    except ValueError as error:
                        raise ValueError(f"algorithm {algorithm.id!r}: {error}") from error
            active = [h.name for h in active_hyperparameters(algorithm.hyperparameters, values)]
            if set(read) != set(active):
                raise ValueError(
                    f"algorithm {algorithm.id!r} of step {step.name!r} needs values of "
                    f"{', '.join(active) or 'no hyperparameter'}; got {', '.join(read) or 'none'}"
                )
            if not are_allowed(algorithm, values):
                raise ValueError(f"{dict(read)} is forbidden for algorithm {algorithm.id!r}")
            choices.append((step.name, Choice.of(algorithm.id, values)))
        path = tuple(choice.algorithm for _, choice in choices)
        configuration = cls(
            tuple(
                (step, choice if choice.algorithm == algorithm else Choice(algorithm))
                for (step, choice), algorithm in zip(
                    choices, space.canonical_path(path, settle=False), strict=True
                )
            )
        )
        if not space.is_feasible(configuration.path):
            raise ValueError(
                f"path {' > '.join(configuration.path)} cannot run in space {space.name!r}"
            )
        return configuration


def default_choice(algorithm: Algorithm) -> Choice:
    """Return the choice of an algorithm with default values."""
    values: dict[str, Value] = {}
    for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
        values[hyperparameter.name] = plain_value(hyperparameter.default_value)
    return Choice.of(algorithm.id, values)


def default_configuration(space: Space, path: Path) -> Configuration:
    """Return the configuration of a path with default values."""
    chosen = zip(space.searched, space.algorithms(path), strict=True)
    return Configuration(tuple((step.name, default_choice(a)) for step, a in chosen))


def is_allowed(space: Space, configuration: Configuration) -> bool:
    """Return whether the forbidden clauses of all algorithms allow a configuration's values."""
    return all(
        are_allowed(space.step(step).algorithm(choice.algorithm), dict(choice.values))
        for step, choice in configuration.choices
    )


ROWS_PER_CLASS = 2
"""Minimum number of rows in a subset from each class, or from each stratum of a numeric target."""


def part_of(whole: int | None, asked: int | None, what: str) -> int | None:
    """Return the number of folds or epochs as stored in a query, where None means all.

    Args:
        whole: Number of folds or epochs in a full evaluation; None if unknown.
        asked: Requested number of folds or epochs.
        what: Noun for the message, `folds` or `epochs`.

    Raises:
        ValueError: If `asked` exceeds `whole`.
    """
    if asked is not None and whole is not None and asked > whole:
        raise ValueError(f"{asked} {what}, but a full evaluation has only {whole}")
    return None if asked == whole else asked


@dataclass(frozen=True, slots=True)
class Query:
    """A configuration and the fidelity at which to evaluate it.

    Attributes:
        subset: Fraction of the training rows, in (0, 1].
        subset_draw: Number that identifies an independent draw of nested subsets.
        epochs: Epoch up to which an iterative model is trained; None to train to the end.
        folds: Number of folds, counted from the first; None for all folds.
        held_out: Fraction of each fold's held-out rows that is scored, in (0, 1].
        rounds: Number of boosting rounds for a refit, found by early stopping in the trial; None
            to find the number.
    """

    configuration: Configuration
    subset: float = 1.0
    subset_draw: int = 0
    epochs: int | None = None
    folds: int | None = None
    held_out: float = 1.0
    rounds: int | None = None

    def __post_init__(self) -> None:
        for name in ("subset", "held_out"):
            share = getattr(self, name)
            if not 0 < share <= 1:
                raise ValueError(f"{name} must be a share of the rows in (0, 1]; got {share}")
        if self.subset_draw < 0:
            raise ValueError(f"subset_draw must be at least 0; got {self.subset_draw}")
        for name, number in (("epochs", self.epochs), ("folds", self.folds)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, or None for all; got {number}")

    @property
    def is_full(self) -> bool:
        """Whether the query is a full evaluation, on all rows, all folds and all epochs."""
        takes_all_rows = self.held_out == 1.0 and self.subset == 1.0
        return takes_all_rows and self.folds is None and self.epochs is None

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values.

        `folds` and `held_out` are omitted if full, and `rounds` if None.
        """
        document = to_document(self, configuration=self.configuration.to_json())
        for name in ("folds", "rounds"):
            if document[name] is None:
                del document[name]
        if self.held_out == 1:
            del document["held_out"]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Return the query from a document of `to_json`, checked against a space."""
        configuration = Configuration.from_json(document["configuration"], space)
        return from_document(cls, {**document, "configuration": configuration})
