"""Threads of trials: one each, but for large fits whose results do not depend on their number.

The cores belong to the trials: workers times threads is at most their number. Linear algebra keeps
to one thread always, since the order in which threads add numbers up decides the last digits.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from inspect import Parameter, signature
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

THREAD_VARIABLES: Mapping[str, str] = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "POLARS_MAX_THREADS",
    ),
    "1",
)
"""What libraries read when they are loaded."""
_ARGUMENTS = ("n_jobs", "nthread", "num_threads", "thread_count")
"""How estimators call the number of their threads; left open, some take all cores."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep libraries to one thread in the body, those too that are only loaded there.

    The order in which several threads add numbers up differs from run to run, and with it the last
    digits; neighbours at equal distance then change places.
    """
    _VARIABLES.enter()
    try:
        with _controller(len(sys.modules)).limit(limits=1):
            yield
    finally:
        _VARIABLES.leave()


def with_one_thread(estimator: Any) -> Any:
    """Set the number of threads to 1 wherever an estimator, or one inside it, leaves it open."""
    if not hasattr(estimator, "get_params"):
        return estimator
    parameters = estimator.get_params(deep=True)
    left_open = {
        name
        for name, value in parameters.items()
        if value is None and name.rsplit("__", 1)[-1] in _ARGUMENTS
    }
    # Some tell only what was set.
    accepted = signature(type(estimator)).parameters
    left_open |= {
        name
        for name in _ARGUMENTS
        if name not in parameters and accepted.get(name, _SET).default is None
    }
    return estimator.set_params(**dict.fromkeys(left_open, 1)) if left_open else estimator


OPENMP = "openmp"
"""Way to give threads to a fit that takes as many as OpenMP allows; see `Algorithm.threads`."""
_CELLS_PER_THREAD = 500_000
"""Rows times columns for each thread of a fit; tests/benchmarks/tasks/threads.py measures it."""


def fit_threads(n_cells: float, most: int) -> int:
    """Return how many threads a fit should have.

    Args:
        n_cells: Rows times columns of the training matrix, or its non-zeros if it is sparse.
        most: Threads that there are for it.
    """
    return max(1, min(most, int(n_cells / _CELLS_PER_THREAD)))


@contextmanager
def several_threads(estimator: Any, way: str, n_threads: int) -> Iterator[None]:
    """Give a fit in the body of `one_thread` several threads, and leave no trace of them.

    Args:
        estimator: The estimator to fit.
        way: What its algorithm declares as `threads`; empty for one thread.
        n_threads: The number of threads.
    """
    if n_threads == 1 or not way:
        yield
    elif way == OPENMP:
        with _controller(len(sys.modules)).limit(limits={"openmp": n_threads, "blas": 1}):
            yield
        for held in vars(estimator).values():
            if hasattr(held, "n_threads"):  # as those who bin columns note it
                held.n_threads = 1
    else:
        former = estimator.get_params()[way]
        estimator.set_params(**{way: n_threads})
        try:
            yield
        finally:
            estimator.set_params(**{way: former})


_SET = Parameter("set", Parameter.KEYWORD_ONLY, default=1)


class _Variables:
    """The environment's variables, set as long as somebody needs them, in whatever thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_users = 0
        self._former: dict[str, str | None] = {}

    def enter(self) -> None:
        with self._lock:
            self._n_users += 1
            if self._n_users == 1:
                self._former = {name: os.environ.get(name) for name in THREAD_VARIABLES}
                os.environ.update(THREAD_VARIABLES)

    def leave(self) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users:
                return
            for name, value in self._former.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_VARIABLES = _Variables()


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:  # noqa: ARG001 - others bring libraries
    return ThreadpoolController()
