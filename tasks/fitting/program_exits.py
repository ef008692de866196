"""Exceptions that end programs, as errors of the algorithm that raised them.

An algorithm may call `sys.exit` or raise what a library uses to cancel its own work. On a Dask
worker such an exception would end the worker, or the task would never be reported as done.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ProgramExit", "exits_as_errors"]


class ProgramExit(RuntimeError):  # noqa: N818 - it says what happened
    """An algorithm raised an exception that ends programs; the message names it."""


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Raise exceptions that are no `Exception` as errors.

    In the main thread, signals raise such exceptions, so only `SystemExit` is an error there.

    Raises:
        ProgramExit: Instead of such an exception.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and not isinstance(error, SystemExit):
            raise
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ProgramExit(f"the algorithm raised {text}, which ends programs") from error
