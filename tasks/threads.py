"""Threads of trials: one per trial, except in large fits with thread-independent results.

Trials that start together share the free cores, and keep their threads to their end. Linear algebra
always uses one thread, because the order in which threads add numbers affects the last digits.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from inspect import signature
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA", "RAYON")
THREAD_VARIABLES: Mapping[str, str] = {
    **{f"{library}_NUM_THREADS": "1" for library in _LIBRARIES},
    "VECLIB_MAXIMUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
}
"""Environment variables that libraries read on loading."""
_ARGUMENTS = ("n_jobs", "nthread", "num_threads", "thread_count")
"""Arguments for the number of threads; if unset, some estimators use all cores."""


_LOCK, _FORMER = Lock(), list[dict[str, str | None]]()
"""Lock, and the environments saved by `one_thread`, one per running body."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit libraries to one thread in the body, including libraries loaded in the body.

    Several threads add numbers in varying order, which affects the last digits and thus results
    such as nearest neighbors.
    """
    with _LOCK:
        before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        _FORMER.append(before if not _FORMER else _FORMER[0])
        os.environ.update(THREAD_VARIABLES)
    try:
        with _controller(len(sys.modules)).limit(limits=1):
            yield
    finally:
        with _LOCK:
            former = _FORMER.pop()
            for name, value in former.items() if not _FORMER else ():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def with_one_thread(estimator: Any) -> Any:
    """Set the number of threads to 1 in an estimator and inner estimators, unless already set."""
    if not hasattr(estimator, "get_params"):
        return estimator
    parameters = estimator.get_params(deep=True)
    # Some estimators return only parameters that were explicitly set.
    accepted = signature(type(estimator)).parameters
    parameters |= {
        n: accepted[n].default for n in {*_ARGUMENTS}.intersection(accepted) - {*parameters}
    }
    left_open = {
        name: 1
        for name, value in parameters.items()
        if value is None and name.rsplit("__", 1)[-1] in _ARGUMENTS
    }
    return estimator.set_params(**left_open) if left_open else estimator


OPENMP = "openmp"
"""Value of `Algorithm.threads` for fits that use as many threads as OpenMP allows."""
_CELLS_PER_THREAD = 500_000
"""Number of cells (rows times columns) per thread of a fit."""


def fit_threads(n_cells: float, most: int) -> int:
    """Return the number of threads for a fit on `n_cells` cells (nonzero cells if sparse)."""
    return max(1, min(most, int(n_cells / _CELLS_PER_THREAD)))


@contextmanager
def several_threads(estimator: Any, way: str, n_threads: int) -> Iterator[None]:
    """Give several threads to a fit inside `one_thread`; restore the estimator afterwards.

    `way` is the algorithm's `threads` declaration; empty for one thread.
    """
    if n_threads == 1 or not way:
        yield
    elif way == OPENMP:
        with _controller(len(sys.modules)).limit(limits={"openmp": n_threads, "blas": 1}):
            yield
        for part in vars(estimator).values():
            if hasattr(part, "n_threads"):  # used when estimators bin columns
                part.n_threads = 1
    else:
        former = estimator.get_params()[way]
        estimator.set_params(**{way: n_threads})
        try:
            yield
        finally:
            estimator.set_params(**{way: former})


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:  # noqa: ARG001 - key of the cache
    return ThreadpoolController()
