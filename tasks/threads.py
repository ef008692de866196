"""One thread per trial: the cores belong to the trials, and sums are the same everywhere."""

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
