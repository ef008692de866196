"""Standard output and error of this process: open, by lines, and flushed, in Python and in C."""

import ctypes
import os
import sys
from contextlib import suppress

__all__ = ["buffer_lines", "flush_streams", "open_streams"]

_LIBRARY = ctypes.CDLL(None)
_LINE_BUFFERED = 1
"""`_IOLBF` of C's standard library, on Linux and macOS."""


def open_streams() -> None:
    """Open the file descriptors 0, 1 and 2 that whoever started this process has closed.

    A file or socket opened later would take their place, and receive what libraries print.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


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
