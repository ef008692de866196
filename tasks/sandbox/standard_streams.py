"""Standard output and error of this process, in Python and in C."""

import ctypes
import os
import sys
from contextlib import suppress

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
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(getattr(sys, name), "closed", True):
            setattr(sys, name, open(number, "w", closefd=False, errors="backslashreplace"))  # noqa: SIM115


def buffer_lines() -> None:
    """Flush every whole line, so that none is lost when the process is killed."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(ValueError):  # another C library
        stdout = ctypes.c_void_p.in_dll(_LIBRARY, "stdout")
        _LIBRARY.setvbuf(stdout, None, _LINE_BUFFERED, ctypes.c_size_t(0))


def flush_streams() -> None:
    """Write everything that Python and C have buffered."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or replaced by other code
            stream.flush()
    _LIBRARY.fflush(None)
