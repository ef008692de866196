"""Summaries of matrices, and the memory that a step needs as estimated before it starts.

An estimate is a lower bound: the bytes of the largest arrays that the step cannot avoid, given its
arguments and the size of the data. A step that might fit is therefore never refused. What depends
on the values, such as the leaves of a tree, is left to the limit of the running trial.

All training rows of a fold count, also where a part of them is looked at: the rest may follow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import comb
from operator import attrgetter
from typing import Any

import numpy as np
import psutil

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.matrices import matrix_layout
from prefect_tune.tasks.catalogue.libraries import algorithms_of
from prefect_tune.tasks.catalogue.spaces import SPACES


@dataclass(frozen=True, slots=True)
class MatrixSummary:
    """A matrix without its elements: enough for later steps to compute their keys.

    Attributes:
        rows: Rows to train on.
        columns: Columns.
        layout: dense, sparse, frame or pickle (anything else).
        dtype: Type of the elements; empty for frames.
        density: Share of elements that are not zero.
        minimum: Smallest element of the training rows; None for frames.
        n_classes: Classes of the data set; 0 where numbers are predicted.
        has_parents: Whether the codes of events have parents.

    The last two are not the matrix's own, so they are not kept with it.
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
        """Summarise a training matrix."""
        rows, columns = X.shape
        kind = matrix_layout(X) or "pickle"
        if kind not in ("dense", "sparse"):
            return cls(rows, columns, kind)
        n_nonzero = X.nnz if kind == "sparse" else int(np.count_nonzero(X))
        minimum = float(X.min()) if rows and columns else None
        return cls(rows, columns, kind, str(X.dtype), n_nonzero / max(rows * columns, 1), minimum)

    def to_json(self) -> dict[str, Any]:
        """Return what is kept with the matrix, as JSON values."""
        kept = asdict(self)
        del kept["n_classes"], kept["has_parents"]
        return kept


_FLOAT = 8
_SINGLE = 4
_SPARSE_ELEMENT = 12
"""Bytes of a number and its column."""
_ORDERED_EVENT = 40
"""Bytes of an event's position, code, time, age and cell while features are constructed."""


LIBRARIES_BYTES = 300_000_000
"""Memory of a worker that has loaded its libraries, about."""


class WillNotFit(MemoryError):  # noqa: N818 - it says what is the matter
    """A step needs more memory than there is, so it was not started."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The largest array that a step makes.

    Attributes:
        what: What it is, for a message.
        size_bytes: What it takes at least.
    """

    what: str
    size_bytes: float


MemoryRule = Callable[[Mapping[str, Any], MatrixSummary], MemoryEstimate]
"""An estimate from effective arguments and the training rows."""


def memory_rule(algorithm: Algorithm, estimator: str) -> MemoryRule | None:
    """Return the rule for the memory of an algorithm, or None if nothing is known of it.

    Args:
        algorithm: The algorithm.
        estimator: Dotted path of the estimator that it uses: its own, or the one for sparse data.

    Raises:
        UnknownName: If it names a rule that does not exist.
    """
    declared = algorithm.memory if estimator == algorithm.import_path else ""
    rule = declared or _rules_of_estimators().get(estimator)
    if not isinstance(rule, str):
        return rule
    if rule not in MEMORY_RULES:
        raise UnknownName("rule that estimates memory", rule, MEMORY_RULES)
    return MEMORY_RULES[rule]


def check_memory(
    name: str,
    rule: MemoryRule | None,
    arguments: Mapping[str, Any],
    summary: MatrixSummary,
    *,
    repairs: Sequence[str] = (),
    limit_bytes: int | None = None,
) -> None:
    """Refuse a step that cannot fit in memory.

    Args:
        name: What to call the estimator in the message.
        rule: The rule for its memory, if there is one.
        arguments: Effective constructor arguments.
        summary: Of the training rows that reach it.
        repairs: What is done to the data just before it.
        limit_bytes: Most memory there is for it; None for all that the machine has.

    Raises:
        WillNotFit: If it needs more.
    """
    limit = _machine_bytes() if limit_bytes is None else limit_bytes
    rules = [rule]
    if "write_out" in repairs:
        rules.append(_dense_matrix)
    largest = _largest(rules, arguments, summary)
    if largest.size_bytes > limit:
        raise WillNotFit(
            f"{name} was not started: {largest.what} takes at least "
            f"{largest.size_bytes / 1e9:,.1f} GB, and there are {limit / 1e9:,.1f} GB"
        )


def least_memory(models: Iterable[Algorithm], rows: int, columns: int) -> MemoryEstimate:
    """Return what the model takes at least that needs least memory of a table.

    Args:
        models: Algorithms of the last step, one or more.
        rows: Training rows.
        columns: Columns.
    """
    table = MatrixSummary(rows, columns, "dense", "float32")
    estimates = []
    for algorithm in models:
        arguments = {h.name: h.default_value for h in algorithm.hyperparameters.values()}
        rule = memory_rule(algorithm, algorithm.import_path)
        estimates.append(_largest([rule], {**arguments, **algorithm.fixed}, table))
    return min(estimates, key=attrgetter("size_bytes"))


def _largest(
    rules: Iterable[MemoryRule | None], arguments: Mapping[str, Any], summary: MatrixSummary
) -> MemoryEstimate:
    """Return the largest estimate by some rules, and of the matrix itself."""
    estimates = (rule(arguments, summary) for rule in (_matrix, *rules) if rule)
    return max(estimates, key=attrgetter("size_bytes"))


@cache
def _machine_bytes() -> int:
    return int(psutil.virtual_memory().total)


def _matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    """Return what the training rows take as they are; nothing for frames, which may be mapped."""
    n, p = summary.rows, summary.columns
    made, size = f"a matrix of {n:,} rows and {p:,} columns", 0.0
    if summary.layout == "dense" and summary.dtype:
        size = n * p * np.dtype(summary.dtype).itemsize
    elif summary.layout == "sparse":
        size = n * p * summary.density * _SPARSE_ELEMENT
    return MemoryEstimate(made, size)


def _dense_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n, p = summary.rows, summary.columns
    return MemoryEstimate(f"a dense matrix of {n:,} rows and {p:,} columns", n * p * _FLOAT)


def _polynomial(arguments: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    degree, alone = int(arguments.get("degree", 2)), bool(arguments.get("interaction_only", False))
    columns = _n_monomials(summary.columns, degree, alone=alone)
    made = f"a polynomial of degree {degree} with {columns:,} columns for {summary.rows:,} rows"
    if summary.layout == "sparse":  # rows that are fuller than the mean only add to it
        elements = _n_monomials(int(summary.density * summary.columns), degree, alone=alone)
        return MemoryEstimate(made, summary.rows * elements * _SPARSE_ELEMENT)
    return MemoryEstimate(made, summary.rows * columns * _FLOAT)


def _n_monomials(p: int, degree: int, *, alone: bool) -> int:
    """Count products of up to `degree` of p factors, none twice if `alone`, nor the constant."""
    return sum(comb(p if alone else p + k - 1, k) for k in range(1, degree + 1))


def _kernel_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n = summary.rows  # the matrix itself and its factorisation
    made = f"a kernel matrix of {n:,} x {n:,} rows and its factors"
    return MemoryEstimate(made, 2 * n * n * _FLOAT)


def _event_windows(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n = summary.rows  # the number of events is not known here, but each row has one
    return MemoryEstimate(f"the events of {n:,} rows in order of their codes", n * _ORDERED_EVENT)


def _nystroem(arguments: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    m = min(int(arguments.get("n_components", 100)), summary.rows)
    made = f"a kernel matrix of {m:,} x {m:,} rows with its factors, and {summary.rows:,} x {m:,}"
    return MemoryEstimate(made, (3 * m * m + summary.rows * m) * _FLOAT)


def _random_features(arguments: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    m = int(arguments.get("n_components", 100))
    made = f"{m:,} random features of {summary.rows:,} rows"
    return MemoryEstimate(made, (summary.rows + summary.columns) * m * _FLOAT)


def _pca(arguments: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n, p = summary.rows, summary.columns
    if arguments.get("svd_solver") == "covariance_eigh":
        made = f"a covariance matrix of {p:,} x {p:,} columns and its factors"
        return MemoryEstimate(made, 2 * p * p * _FLOAT)
    made = f"the factors of a matrix of {n:,} rows and {p:,} columns"
    return MemoryEstimate(made, (n * p + (n + p) * min(n, p)) * _FLOAT)


def _column_distances(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    p = summary.columns
    return MemoryEstimate(f"the distances of {p:,} columns to each other", p * (p - 1) / 2 * _FLOAT)


def _binned_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n, p = summary.rows, summary.columns
    if summary.layout == "sparse":  # a byte for the bin of a number that is not zero
        stored = round(summary.density * n * p)
        made = f"the bins of {n:,} rows with {stored:,} numbers that are not zero, and their copy"
        return MemoryEstimate(made, stored * (1 + _SINGLE))
    coded = n * p * _FLOAT if summary.layout == "frame" else 0
    return MemoryEstimate(f"the bins of {n:,} rows and {p:,} columns", n * p + coded)


MEMORY_RULES: Mapping[str, MemoryRule] = {
    "binned_matrix": _binned_matrix,
    "column_distances": _column_distances,
    "dense_matrix": _dense_matrix,
    "event_windows": _event_windows,
    "kernel_matrix": _kernel_matrix,
    "nystroem": _nystroem,
    "pca": _pca,
    "polynomial": _polynomial,
    "random_features": _random_features,
}
"""By the names that algorithms declare in `memory`."""


@cache
def _rules_of_estimators() -> Mapping[str, str | MemoryRule]:
    """Return the catalogue's rules by estimator, for users' algorithms that declare none."""
    algorithms = (a for space in SPACES.built_in() for a in algorithms_of(space))
    declared = {a.import_path: a.memory for a in algorithms if a.memory}
    # The catalogue has a subclass of its own.
    return {"sklearn.preprocessing.PolynomialFeatures": "polynomial", **declared}
