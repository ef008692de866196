"""Recipes, the parts of cache keys that describe what a step does to data of a given shape.

Hyperparameter values that `transforms` map to the same effective value share step results. The
memory of a step is estimated before the step starts. The estimate is a lower bound: the largest
arrays that the step must allocate, given its arguments and the size of the data. Thus no step that
might fit in memory is rejected; the memory limit of the running trial covers memory that depends on
values.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from inspect import signature
from math import comb, log
from typing import Any

import numpy as np
import psutil
from sklearn.pipeline import Pipeline

from prefect_tune.optimizers.documents import UnknownName, value_document
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import Choice
from prefect_tune.storage.matrices import matrix_layout
from prefect_tune.tasks.catalogue.construction import REPAIRS, repairs_of
from prefect_tune.tasks.threads import with_one_thread
from prefect_tune.tasks.user_code import content_of, library_of


@dataclass(frozen=True, slots=True)
class MatrixSummary:
    """Shape and statistics of a matrix, used in the keys of later steps.

    Attributes:
        layout: Layout of the matrix: dense, sparse, frame or pickle (anything else).
        dtype: Type of the elements; empty for frames.
        density: Fraction of nonzero elements.
        minimum: Smallest element of the training rows; None for frames.
        n_classes: Number of classes of the data set, 0 for regression; not stored with the matrix.
        has_parents: Whether event codes have parents; not stored with the matrix.
    """

    rows: int
    columns: int
    layout: str
    dtype: str = ""
    density: float = 1.0
    minimum: float | None = None
    n_classes: int = 0
    has_parents: bool = False

    @classmethod
    def of(cls, X: Any) -> "MatrixSummary":
        """Summarize a training matrix."""
        rows, columns = X.shape
        kind = matrix_layout(X) or "pickle"
        if kind not in ("dense", "sparse"):
            return cls(rows, columns, kind)
        n_nonzero = X.nnz if kind == "sparse" else int(np.count_nonzero(X))
        minimum = float(X.min()) if rows and columns else None
        return cls(rows, columns, kind, str(X.dtype), n_nonzero / max(rows * columns, 1), minimum)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes stored with the matrix, as JSON values."""
        kept = asdict(self)
        del kept["n_classes"], kept["has_parents"]
        return kept


TransformRule = Callable[[Any, MatrixSummary], Any]
"""Function that computes an effective value from a configured value and the training rows."""

_LITERALS = {"none": None, "false": False, "true": True}
_WITHOUT_PARENTS = {"parents": "code", "all": "both"}

_FEW_ROWS = 10_000
"""Number of rows up to which boosted trees are as large as configured, and never stop early."""


def _many(summary: MatrixSummary) -> float:
    """Return how many times `_FEW_ROWS` the training rows are, at least 1."""
    return max(1.0, summary.rows / _FEW_ROWS)


TRANSFORMS: Mapping[str, TransformRule] = {
    "clip_n": lambda value, x: min(value, x.rows),
    "clip_p": lambda value, x: min(value, x.columns),
    "clip_below_p": lambda value, x: max(1, min(value, x.columns - 1)),
    "clip_min_n_p": lambda value, x: min(value, x.rows, x.columns),
    "depth_factor": lambda value, x: max(1, round(value * x.columns)),
    "logp_max_features": lambda value, x: max(
        1, min(x.columns // 2, int(value * (log(x.columns) + 1)))
    ),
    "per_column": lambda value, x: value / max(x.columns, 1),
    "power_of_p": lambda value, x: max(1, int(x.columns**value)),
    "leaves_of_n": lambda value, x: round(value * _many(x) ** 0.5),
    "rounds_of_n": lambda value, x: round(value * _many(x) ** 0.25),
    "share_of_p": lambda value, x: max(1, round(value * x.columns)),
    "two_class_loss": lambda value, x: "log_loss" if x.n_classes > 2 else value,
    "truth": lambda value, _: bool(value),
    "word": lambda value, _: _LITERALS.get(value, value),
    "inert": lambda value, _: value,
    "levels_there": lambda value, x: value if x.has_parents else _WITHOUT_PARENTS.get(value, value),
}
"""Rules by name; n is the number of training rows, p the number of columns. `word` converts none,
true and false to Python's values. `two_class_loss` replaces a loss that is undefined for more than
two classes. `levels_there` ignores parents of codes if the data have none, so that equal results
are cached once. An `inert` hyperparameter appears in the paper's table but has no effect and is not
passed to the estimator."""


_FLOAT = 8
_SPARSE_ELEMENT = 12
"""Bytes of a number and its column index."""


class WillNotFit(MemoryError):  # noqa: N818 - reads as an outcome
    """A step was not started because it would need more memory than is available."""


MemoryRule = Callable[[Mapping[str, Any], MatrixSummary], float]
"""Function that estimates the bytes of a fit from effective arguments and the training rows."""


def check_memory(
    name: str,
    rules: Iterable[MemoryRule | None],
    arguments: Mapping[str, Any],
    summary: MatrixSummary,
    *,
    limit_bytes: int | None = None,
) -> None:
    """Raise `WillNotFit` if a step with the given arguments needs more memory than available.

    `summary` describes the training rows; if `limit_bytes` is None, the machine's memory is the
    limit.
    """
    limit = psutil.virtual_memory().total if limit_bytes is None else limit_bytes
    needed = max(rule(arguments, summary) for rule in (_matrix, *rules) if rule)
    if needed > limit:
        raise WillNotFit(
            f"{name} was not started: for {summary.rows:,} rows and {summary.columns:,} columns, "
            f"it needs at least {needed / 1e9:,.1f} GB, but only {limit / 1e9:,.1f} GB is available"
        )


def _matrix(_: Mapping[str, Any], summary: MatrixSummary) -> float:
    """Return the size of the training matrix in bytes; 0 for frames, which may be memory-mapped."""
    size = summary.rows * summary.columns
    if summary.layout == "sparse":
        return size * summary.density * _SPARSE_ELEMENT
    is_typed = summary.layout == "dense" and summary.dtype
    return size * np.dtype(summary.dtype).itemsize if is_typed else 0.0


def _polynomial(arguments: Mapping[str, Any], summary: MatrixSummary) -> float:
    is_sparse = summary.layout == "sparse"
    # Rows with more nonzero elements than the mean only add to the size.
    factors = int(summary.density * summary.columns) if is_sparse else summary.columns
    is_alone = bool(arguments.get("interaction_only", False))  # each component counts at most once
    degrees = range(1, int(arguments.get("degree", 2)) + 1)
    products = sum(comb(factors if is_alone else factors + k - 1, k) for k in degrees)
    return summary.rows * products * (_SPARSE_ELEMENT if is_sparse else _FLOAT)


MEMORY_RULES: Mapping[str, MemoryRule] = {
    "components": lambda arguments, x: x.rows * int(arguments.get("n_components", 100)) * _FLOAT,
    "dense_matrix": lambda _, x: x.rows * x.columns * _FLOAT,
    "kernel_matrix": lambda _, x: 2 * x.rows**2 * _FLOAT,  # the matrix and its factorization
    "polynomial": _polynomial,
}
"""Memory rules by the names that algorithms may declare in `memory`."""
_OURS = "prefect_tune.tasks.catalogue"
_RULES_OF_ESTIMATORS: Mapping[str, str] = {
    f"{_OURS}.construction.ToDense": "dense_matrix",
    f"{_OURS}.estimators.Polynomial": "polynomial",
    f"{_OURS}.estimators.gaussian_process": "kernel_matrix",
    "sklearn.decomposition.KernelPCA": "kernel_matrix",
    "sklearn.kernel_approximation.Nystroem": "components",
    "sklearn.kernel_approximation.RBFSampler": "components",
    "sklearn.kernel_ridge.KernelRidge": "kernel_matrix",
    "sklearn.preprocessing.PolynomialFeatures": "polynomial",
}
"""Memory rules by estimator, for algorithms that do not declare a rule."""


_PLAIN = (bool, int, float, str, type(None))
"""Types of arguments that need no other package."""
_REPAIRED = "estimator"
"""Name of the estimator's step in a pipeline with repairs."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that an algorithm does to data of a given shape.

    Attributes:
        arguments: Constructor arguments of the estimator.
        weights: Mechanism for passing class weights to the estimator, or "none".
        library: Packages behind the estimator with versions, or digests for code of prefect-tune
            and users.
        stochastic: Whether the estimator needs a seed.
        repairs: Repairs applied to the input before fitting (see `construction`), in order.
        out_of_fold: Whether training rows must be transformed by `fit_transform`.
        files: Digests of data files that the algorithm depends on; empty for a missing file.
        memory: Rule for estimating the memory, or None; not in the key.
        threads: Mechanism for giving several threads to a fit; not in the key.
        rounds: Argument for the largest number of rounds, if training stops early; otherwise empty.
    """

    algorithm: str
    estimator: str
    arguments: Mapping[str, Any]
    weights: str
    library: str
    stochastic: bool
    repairs: tuple[str, ...] = ()
    out_of_fold: bool = False
    files: tuple[str, ...] = ()
    memory: MemoryRule | None = None
    threads: str = ""
    rounds: str = ""

    @property
    def weight_argument(self) -> str:
        """Name of `fit`'s argument for row weights; empty if not used."""
        if self.weights != "sample_weight":
            return ""
        return f"{_REPAIRED}__sample_weight" if self.repairs else "sample_weight"

    def model_in(self, estimator: Any) -> Any:
        """Return the estimator inside a pipeline with repairs."""
        return estimator[-1] if self.repairs else estimator

    def to_json(self, seed: int) -> dict[str, Any]:
        """Return everything that determines the result, as JSON values."""
        document: dict[str, Any] = {
            "algorithm": self.algorithm,
            "estimator": self.estimator,
            "arguments": {name: value_document(v) for name, v in self.arguments.items()},
            "library": self.library,
        }
        if self.stochastic:
            document["seed"] = seed
        more = {
            "weights": "" if self.weights == "none" else self.weights,
            "repairs": list(self.repairs),
            "out_of_fold": self.out_of_fold,
            "files": list(self.files),
            "rounds": self.rounds,
        }
        return document | {name: value for name, value in more.items() if value}


def recipe(
    algorithm: Algorithm, choice: Choice, summary: MatrixSummary, *, balanced: bool
) -> Recipe:
    """Return an algorithm's recipe; `balanced` tells whether a step requested class weights."""
    arguments = dict(algorithm.fixed)
    for name, value in sorted(choice.values, key=lambda item: "." in item[0]):
        rule = algorithm.transforms.get(name)
        if isinstance(rule, str):
            if rule not in TRANSFORMS:
                raise UnknownName("hyperparameter transform", rule, TRANSFORMS)
            if rule == "inert":
                continue
            rule = TRANSFORMS[rule]
        arguments[name.rsplit(".", 1)[-1]] = rule(value, summary) if rule else value
    estimator = algorithm.import_path
    if summary.layout == "sparse":
        if algorithm.sparse_estimator:
            estimator, arguments = algorithm.sparse_estimator, {}
        arguments |= algorithm.sparse_fixed
    weights = algorithm.flags.weights if balanced else "none"
    if weights == "class_weight":
        arguments["class_weight"] = "balanced"
    memory = algorithm.memory if estimator == algorithm.import_path else ""
    memory_rule = memory or _RULES_OF_ESTIMATORS.get(estimator)
    if isinstance(memory_rule, str):
        if memory_rule not in MEMORY_RULES:
            raise UnknownName("memory rule", memory_rule, MEMORY_RULES)
        memory_rule = MEMORY_RULES[memory_rule]
    how = Recipe(
        algorithm=algorithm.id,
        estimator=estimator,
        arguments=arguments,
        weights=weights,
        library="",
        stochastic=algorithm.flags.stochastic,
        repairs=repairs_of(algorithm.flags, dict(choice.values), summary.layout),
        out_of_fold=algorithm.flags.out_of_fold,
        files=tuple(content_of(file) for file in algorithm.depends_on),
        memory=memory_rule,
        threads=algorithm.threads if estimator == algorithm.import_path else "",
        rounds=algorithm.rounds.rpartition(".")[2] if summary.rows > _FEW_ROWS else "",
    )
    library = library_of(
        estimator,
        lambda: build(how, seed=0),
        repaired=bool(how.repairs),
        holds_objects=not all(isinstance(v, _PLAIN) for v in arguments.values()),
        required=algorithm.requires,
    )
    return replace(how, library=library)


def with_rounds(algorithm: Algorithm, choice: Choice, rounds: int) -> tuple[Algorithm, Choice]:
    """Return an algorithm and its values with a given number of rounds, without early stopping."""
    values = tuple((name, v) for name, v in choice.values if name != algorithm.rounds)
    fixed = {**algorithm.fixed, algorithm.rounds.rpartition(".")[2]: rounds}
    return replace(algorithm, fixed=fixed, rounds=""), replace(choice, values=values)


def step_seed(study_seed: int, step: str, fold: int) -> int:
    """Return the seed of a step in a fold; the same for all trials."""
    key = (zlib.crc32(step.encode()), fold)
    state = np.random.SeedSequence(study_seed, spawn_key=key).generate_state(1)
    return int(state[0])


def build(how: Recipe, seed: int) -> Any:
    """Build the unfitted estimator with repairs; set unspecified seeds and threads."""
    make, arguments = imported(how.estimator), deepcopy(dict(how.arguments))
    accepted = signature(make).parameters.values() if how.stochastic else ()
    if any(p.name == "random_state" or p.kind is p.VAR_KEYWORD for p in accepted):
        arguments["random_state"] = seed
    estimator = make(**arguments)
    if how.stochastic and (names := unseeded_arguments(estimator)):
        seeds = np.random.default_rng(seed).integers(2**31, size=len(names))
        estimator.set_params(**dict(zip(names, seeds.tolist(), strict=True)))
    estimator = with_one_thread(estimator)
    if not how.repairs:
        return estimator
    return Pipeline([*((name, REPAIRS[name]()) for name in how.repairs), (_REPAIRED, estimator)])


def unseeded_arguments(estimator: Any) -> list[str]:
    """Return arguments that need a seed, including those of inner estimators."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return sorted(
        name
        for name, value in parameters.items()
        if value is None and name.rsplit("__", 1)[-1] == "random_state"
    )


@cache
def imported(path: str) -> Any:
    """Import the object with a dotted path."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)
