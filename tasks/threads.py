"""One thread per trial: the cores belong to the trials, and sums are the same everywhere."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS and OpenMP to one thread in the body.

    The order in which several threads add numbers up differs from run to run, and with it the last
    digits; neighbours at equal distance then change places.
    """
    limited: AbstractContextManager[Any] = _controller().limit(limits=1)
    return limited


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
