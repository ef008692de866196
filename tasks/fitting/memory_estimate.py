"""Memory that a step will need, told from its arguments and the size of its data before it starts.

Estimates are lower bounds: what the largest arrays of the training rows take that cannot be done
without. So nothing is refused that might have fitted, and what depends on the values themselves
(the leaves of a tree) is left to the limit on the running trial.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import comb
from typing import Any

import psutil

from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary

__all__ = ["WillNotFit", "check_memory", "foreseen_bytes"]

_FLOAT = 8
_SPARSE_ELEMENT = 12
"""Bytes of a number and its column."""

Need = tuple[str, float]
"""What is made, and its bytes."""


class WillNotFit(MemoryError):  # noqa: N818 - it says what is the matter
    """A step was not started, because it needs more memory than there is; the message says both."""


def check_memory(
    estimator: str,
    arguments: Mapping[str, Any],
    summary: MatrixSummary,
    *,
    repairs: Sequence[str] = (),
    limit_bytes: int | None = None,
) -> None:
    """Refuse a step that cannot fit in memory.

    Args:
        estimator: Dotted path of its estimator.
        arguments: Effective constructor arguments.
        summary: Of the training rows that reach it.
        repairs: What is done to the data just before it.
        limit_bytes: Most memory there is for it; None for all that the machine has.

    Raises:
        WillNotFit: If it needs more.
    """
    limit = _machine_bytes() if limit_bytes is None else limit_bytes
    made, needed = foreseen_bytes(estimator, arguments, summary)
    if "write_out" in repairs:
        made, needed = max((made, needed), _dense(arguments, summary), key=lambda need: need[1])
    if needed > limit:
        raise WillNotFit(
            f"{estimator.rsplit('.', 1)[-1]} was not started: {made} takes at least "
            f"{needed / 1e9:,.1f} GB, and there are {limit / 1e9:,.1f} GB"
        )


def foreseen_bytes(estimator: str, arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:
    """What the largest things are that an estimator will make, and the bytes they take at least.

    Args:
        estimator: Dotted path of its class; of one that is not known here nothing is foreseen.
        arguments: Effective constructor arguments.
        summary: Of the training rows.
    """
    rule = _NEEDS.get(estimator)
    return rule(arguments, summary) if rule else ("nothing", 0.0)


@cache
def _machine_bytes() -> int:
    return int(psutil.virtual_memory().total)


def _dense(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:  # noqa: ARG001 - as all rules
    n, p = summary.rows, summary.columns
    return f"a dense matrix of {n:,} rows and {p:,} columns", n * p * _FLOAT


def _polynomial(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:
    degree, alone = int(arguments.get("degree", 2)), bool(arguments.get("interaction_only", False))
    columns = _n_monomials(summary.columns, degree, alone=alone)
    made = f"a polynomial of degree {degree} with {columns:,} columns for {summary.rows:,} rows"
    if summary.layout == "sparse":  # rows that are fuller than the mean only add to it
        elements = _n_monomials(int(summary.density * summary.columns), degree, alone=alone)
        return made, summary.rows * elements * _SPARSE_ELEMENT
    return made, summary.rows * columns * _FLOAT


def _n_monomials(p: int, degree: int, *, alone: bool) -> int:
    """Products of up to `degree` of p factors, none twice if `alone`; the constant is not one."""
    return sum(comb(p if alone else p + k - 1, k) for k in range(1, degree + 1))


def _kernel_of_rows(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:  # noqa: ARG001
    n = summary.rows  # the matrix itself and its factorisation
    return f"a kernel matrix of {n:,} x {n:,} rows and its factors", 2 * n * n * _FLOAT


def _nystroem(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:
    m = min(int(arguments.get("n_components", 100)), summary.rows)
    made = f"a kernel matrix of {m:,} x {m:,} rows with its factors, and {summary.rows:,} x {m:,}"
    return made, (3 * m * m + summary.rows * m) * _FLOAT


def _random_features(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:
    m = int(arguments.get("n_components", 100))
    made = f"{m:,} random features of {summary.rows:,} rows"
    return made, (summary.rows + summary.columns) * m * _FLOAT


def _pca(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:
    n, p = summary.rows, summary.columns
    if arguments.get("svd_solver") == "covariance_eigh":
        return f"a covariance matrix of {p:,} x {p:,} columns and its factors", 2 * p * p * _FLOAT
    made = f"the factors of a matrix of {n:,} rows and {p:,} columns"
    return made, (n * p + (n + p) * min(n, p)) * _FLOAT


def _distances_of_columns(arguments: Mapping[str, Any], summary: MatrixSummary) -> Need:  # noqa: ARG001
    p = summary.columns
    return f"the distances of {p:,} columns to each other", p * (p - 1) / 2 * _FLOAT


_CATALOGUE = "prefect_tune.tasks.catalogue"
_NEEDS: Mapping[str, Callable[[Mapping[str, Any], MatrixSummary], Need]] = {
    f"{_CATALOGUE}.construction.ToDense": _dense,
    f"{_CATALOGUE}.estimators.feature_agglomeration": _distances_of_columns,
    f"{_CATALOGUE}.estimators.gaussian_process": _kernel_of_rows,
    "sklearn.decomposition.KernelPCA": _kernel_of_rows,
    "sklearn.decomposition.PCA": _pca,
    "sklearn.kernel_approximation.Nystroem": _nystroem,
    "sklearn.kernel_approximation.RBFSampler": _random_features,
    "sklearn.kernel_ridge.KernelRidge": _kernel_of_rows,
    f"{_CATALOGUE}.estimators.Polynomial": _polynomial,
    "sklearn.preprocessing.PolynomialFeatures": _polynomial,
}
"""By dotted path of the estimator."""
