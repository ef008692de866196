"""One thread per trial: the cores belong to the trials, and sums are the same everywhere."""

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS and OpenMP to one thread in the body.

    The order in which several threads add numbers up differs from run to run, and with it the last
    digits; neighbours at equal distance then change places.
    """
    limited: AbstractContextManager[Any] = _controller(len(sys.modules)).limit(limits=1)
    return limited


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:  # noqa: ARG001 - others bring libraries
    return ThreadpoolController()
