"""Summaries of matrices, and estimates of the memory that a step needs before it starts.

An estimate is a lower bound: the largest arrays the step cannot avoid, given its arguments and the
size of the data. A step that might fit is never refused; the limit of the running trial covers
memory that depends on values. Estimates are for all training rows, because a trial on them may
follow.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np
import psutil

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.matrices import matrix_layout


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
_SPARSE_ELEMENT = 12
"""Bytes of a number and its column index."""


class WillNotFit(MemoryError):  # noqa: N818 - reads as an outcome
    """A step was not started because it needs more memory than is available."""


MemoryRule = Callable[[Mapping[str, Any], MatrixSummary], float]
"""Estimates the bytes of a fit from effective arguments and the training rows."""


def memory_rule(algorithm: Algorithm, estimator: str) -> MemoryRule | None:
    """Return the memory rule of an algorithm, or None; UnknownName if its rule does not exist."""
    declared = algorithm.memory if estimator == algorithm.import_path else ""
    rule = declared or _RULES_OF_ESTIMATORS.get(estimator)
    if not isinstance(rule, str):
        return rule
    if rule not in MEMORY_RULES:
        raise UnknownName("memory rule", rule, MEMORY_RULES)
    return MEMORY_RULES[rule]


def check_memory(
    name: str,
    rules: Iterable[MemoryRule | None],
    arguments: Mapping[str, Any],
    summary: MatrixSummary,
    *,
    limit_bytes: int | None = None,
) -> None:
    """Raise WillNotFit if a step with effective `arguments` needs more memory than there is.

    `summary` describes its training rows; `limit_bytes` of None is the machine's memory.
    """
    limit = psutil.virtual_memory().total if limit_bytes is None else limit_bytes
    needed = max(rule(arguments, summary) for rule in (_matrix, *rules) if rule)
    if needed > limit:
        raise WillNotFit(
            f"{name} was not started: for {summary.rows:,} rows and {summary.columns:,} columns it "
            f"takes at least {needed / 1e9:,.1f} GB, but only {limit / 1e9:,.1f} GB are available"
        )


def _matrix(_: Mapping[str, Any], summary: MatrixSummary) -> float:
    """Return the size of the training rows; 0 for frames, which may be memory-mapped."""
    size = summary.rows * summary.columns
    if summary.layout == "sparse":
        return size * summary.density * _SPARSE_ELEMENT
    is_typed = summary.layout == "dense" and summary.dtype
    return size * np.dtype(summary.dtype).itemsize if is_typed else 0.0


def _dense_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> float:
    return summary.rows * summary.columns * _FLOAT


def _kernel_matrix(_: Mapping[str, Any], summary: MatrixSummary) -> float:
    return 2 * summary.rows**2 * _FLOAT  # the matrix and its factorisation


def _components(arguments: Mapping[str, Any], summary: MatrixSummary) -> float:
    return summary.rows * int(arguments.get("n_components", 100)) * _FLOAT


def _polynomial(arguments: Mapping[str, Any], summary: MatrixSummary) -> float:
    is_sparse = summary.layout == "sparse"
    # Sparse rows fuller than the mean only add to the size.
    factors = int(summary.density * summary.columns) if is_sparse else summary.columns
    is_alone = bool(arguments.get("interaction_only", False))  # each factor at most once
    degrees = range(1, int(arguments.get("degree", 2)) + 1)
    products = sum(comb(factors if is_alone else factors + k - 1, k) for k in degrees)
    return summary.rows * products * (_SPARSE_ELEMENT if is_sparse else _FLOAT)


MEMORY_RULES: Mapping[str, MemoryRule] = {
    "components": _components,
    "dense_matrix": _dense_matrix,
    "kernel_matrix": _kernel_matrix,
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
"""Rules by estimator, for algorithms that declare none."""
