"""Standard output and error of this process: open, by lines, and flushed, in Python and in C.

An algorithm may close or replace them. The trials that follow in the same worker print all the
same.
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
    """Open file descriptors 0, 1 and 2 and Python's streams, as far as they are closed.

    A file or socket opened later would take their place, and receive what libraries print.
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
    """Give this process streams that nobody can close; others may keep a reference to them."""
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
    """Hold back no whole line, which would be lost with a process that is killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # it is closed, or somebody's own
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(ValueError):  # another C library
        stdout = ctypes.c_void_p.in_dll(_LIBRARY, "stdout")
        _LIBRARY.setvbuf(stdout, None, _LINE_BUFFERED, ctypes.c_size_t(0))


def flush_streams() -> None:
    """Write what Python and C still hold back."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # as above
            stream.flush()
    _LIBRARY.fflush(None)


class _Lasting(TextIOWrapper):
    """A stream to a file descriptor that stays open.

    Args:
        number: The file descriptor.
    """

    def __init__(self, number: int) -> None:
        super().__init__(open(number, "wb", closefd=False), errors="backslashreplace")  # noqa: SIM115

    def close(self) -> None:
        """Write what is held back."""
        with suppress(OSError, ValueError):
            self.flush()


def _is_closed(stream: Any) -> bool:
    return stream is None or bool(getattr(stream, "closed", False))
