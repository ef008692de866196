"""Summaries of matrices, and estimates of the memory that a step needs before it starts.

An estimate is a lower bound: the largest arrays the step cannot avoid, given its arguments and the
size of the data. A step that might fit is never refused; the limit of the running trial covers
memory that depends on values. Estimates are for all training rows, because a trial on them may
follow.
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
    """A matrix without its elements, enough for later steps to compute their keys.

    Attributes:
        layout: dense, sparse, frame or pickle (anything else).
        dtype: Type of the elements; empty for frames.
        density: Share of non-zero elements.
        minimum: Smallest element of the training rows; None for frames.
        n_classes: Number of classes of the data set, 0 for numbers; not stored with the matrix.
        has_parents: Whether the codes of events have parents; not stored with the matrix.
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
        """Return the attributes stored with the matrix, as JSON values."""
        kept = asdict(self)
        del kept["n_classes"], kept["has_parents"]
        return kept


_FLOAT = 8
_SINGLE = 4
_SPARSE_ELEMENT = 12
"""Bytes of a number and its column index."""
_ORDERED_EVENT = 40
"""Bytes per event for position, code, time, age and cell while features are constructed."""


class WillNotFit(MemoryError):  # noqa: N818 - reads as an outcome
    """A step was not started because it needs more memory than is available."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """The largest array that a step makes: a description for messages, and its least size."""

    what: str
    size_bytes: float


MemoryRule = Callable[[Mapping[str, Any], MatrixSummary], MemoryEstimate]
"""Estimates memory from effective arguments and the training rows."""


def memory_rule(algorithm: Algorithm, estimator: str) -> MemoryRule | None:
    """Return the memory rule of an algorithm, or None; UnknownName if its rule does not exist."""
    declared = algorithm.memory if estimator == algorithm.import_path else ""
    rule = declared or _rules_of_estimators().get(estimator)
    if not isinstance(rule, str):
        return rule
    if rule not in MEMORY_RULES:
        raise UnknownName("memory rule", rule, MEMORY_RULES)
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
    """Raise WillNotFit if the estimate for a step with effective `arguments` exceeds memory.

    `summary` describes its training rows; `limit_bytes` of None is the machine's memory.
    """
    limit = _machine_bytes() if limit_bytes is None else limit_bytes
    rules = [rule]
    if "write_out" in repairs:
        rules.append(_dense_matrix)
    largest = _largest(rules, arguments, summary)
    if largest.size_bytes > limit:
        raise WillNotFit(
            f"{name} was not started: {largest.what} takes at least "
            f"{largest.size_bytes / 1e9:,.1f} GB, but only {limit / 1e9:,.1f} GB are available"
        )


def _largest(
    rules: Iterable[MemoryRule | None], arguments: Mapping[str, Any], summary: MatrixSummary
) -> MemoryEstimate:
    estimates = (rule(arguments, summary) for rule in (_matrix, *rules) if rule)
    return max(estimates, key=attrgetter("size_bytes"))


@cache
def _machine_bytes() -> int:
    return int(psutil.virtual_memory().total)


def _matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    """Return the size of the training rows; 0 for frames, which may be memory-mapped."""
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
    if summary.layout == "sparse":  # rows fuller than the mean only add to the size
        elements = _n_monomials(int(summary.density * summary.columns), degree, alone=alone)
        return MemoryEstimate(made, summary.rows * elements * _SPARSE_ELEMENT)
    return MemoryEstimate(made, summary.rows * columns * _FLOAT)


def _n_monomials(p: int, degree: int, *, alone: bool) -> int:
    """Count products of 1 to `degree` of p factors; each factor at most once if `alone`."""
    return sum(comb(p if alone else p + k - 1, k) for k in range(1, degree + 1))


def _kernel_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n = summary.rows  # counts the matrix and its factorisation
    made = f"a kernel matrix of {n:,} x {n:,} rows and its factors"
    return MemoryEstimate(made, 2 * n * n * _FLOAT)


def _event_windows(_: Mapping[str, Any], summary: MatrixSummary) -> MemoryEstimate:
    n = summary.rows  # the number of events is unknown here, but each row has at least one
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
    if summary.layout == "sparse":  # one byte for the bin of each non-zero number
        stored = round(summary.density * n * p)
        made = f"the bins of {n:,} rows with {stored:,} non-zero numbers, and their copy"
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
"""Memory rules by the names that algorithms declare in `memory`."""


@cache
def _rules_of_estimators() -> Mapping[str, str | MemoryRule]:
    """Return the catalogue's rules by estimator, for user algorithms that declare none."""
    algorithms = (a for space in SPACES.built_in() for a in algorithms_of(space))
    declared = {a.import_path: a.memory for a in algorithms if a.memory}
    # The catalogue has its own subclass.
    return {"sklearn.preprocessing.PolynomialFeatures": "polynomial", **declared}
