"""Standard output and error of this process: open, line-buffered and flushed, in Python and in C.

Even if an algorithm closes or replaces the streams, later trials in the same worker can print.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any

_LIBRARY = ctypes.CDLL(None)
_LINE_BUFFERED = 1
"""`_IOLBF` of C's standard library, on Linux and macOS."""


def open_streams() -> None:
    """Open file descriptors 0, 1 and 2 and Python's streams if they are closed.

    Otherwise a file or socket opened later would take a free number, and receive prints.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(number, True)
    if _is_closed(sys.stdout):
        sys.stdout = _Lasting(1)
    if _is_closed(sys.stderr):
        sys.stderr = _Lasting(2)


def keep_streams_open() -> None:
    """Give this process streams that cannot be closed, because other code may keep references."""
    flush_streams()
    sys.stdout = sys.__stdout__ = _Lasting(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _Lasting(2)  # type: ignore[misc]


@contextmanager
def streams_restored() -> Iterator[None]:
    """Restore Python's streams after a body that may replace or close them."""
    former = sys.stdout, sys.stderr
    try:
        yield
    finally:
        flush_streams()
        sys.stdout, sys.stderr = former
        open_streams()


def buffer_lines() -> None:
    """Flush every whole line, so that none is lost when the process is killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or replaced by other code
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(ValueError):  # another C library
        stdout = ctypes.c_void_p.in_dll(_LIBRARY, "stdout")
        _LIBRARY.setvbuf(stdout, None, _LINE_BUFFERED, ctypes.c_size_t(0))


def flush_streams() -> None:
    """Write everything that Python and C have buffered."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # as above
            stream.flush()
    _LIBRARY.fflush(None)


class _Lasting(TextIOWrapper):
    """A stream to a file descriptor that stays open when the stream is closed."""

    def __init__(self, number: int) -> None:
        super().__init__(open(number, "wb", closefd=False), errors="backslashreplace")  # noqa: SIM115

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self.flush()


def _is_closed(stream: Any) -> bool:
    return stream is None or bool(getattr(stream, "closed", False))
