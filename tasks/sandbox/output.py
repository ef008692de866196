"""Output of a call by Python, C libraries and child processes, collected in a file."""

import ctypes
import fcntl
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from prefect_tune.storage.masking import masked_output

_MOST_BYTES = 8_000_000
"""Size above which the beginning of the file is dropped."""
_KEPT_BYTES = 1_000_000
"""Number of bytes kept from the end of the output."""
_LONGEST_LINE = 10_000
"""Maximum number of bytes dropped so that the output begins with a whole line."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The end of a trial's output as bytes (any encoding), with passwords masked."""

    data: bytes = b""
    is_cut: bool = False

    def __repr__(self) -> str:  # truncated, because the data may be long
        return f"Printed({len(self.data)} bytes)"


NOTHING = Printed()


class Output:
    """The nameless file that a sandbox prints to, which vanishes once no process has it open.

    On Linux, the file is in memory, so that calls can print even if the disk is full.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("output")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)
        self._former, self._is_cut = b"", False

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file

    def clear(self) -> None:
        """Discard all output so far."""
        self._former, self._is_cut = b"", False
        with suppress(OSError):
            os.ftruncate(self._file, 0)

    def cut(self) -> None:
        """Drop the beginning of the output if it is long."""
        if self._size() > _MOST_BYTES:
            self._former, self._is_cut = self._tail(), True
            with suppress(OSError):
                os.ftruncate(self._file, 0)

    def printed(self, secrets: Sequence[str]) -> Printed:
        """Return the end of the output, from the start of a line, with `secrets` masked."""
        data = self._former + self._tail()
        is_cut = self._is_cut or self._size() > _KEPT_BYTES
        if is_cut:
            data = data[-_KEPT_BYTES:]
            data = data[data.find(b"\n", 0, _LONGEST_LINE) + 1 :]
        return Printed(masked_output(data, secrets), is_cut)

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def _tail(self) -> bytes:
        return os.pread(self._file, _KEPT_BYTES, max(self._size() - _KEPT_BYTES, 0))


_LIBRARY = ctypes.CDLL(None)
_LINE_BUFFERED = 1
"""`_IOLBF` of C's standard library, on Linux and macOS."""


def open_streams() -> None:
    """Open file descriptors 0, 1 and 2, and Python's streams, if they are closed.

    If a descriptor stayed closed, a file or socket opened later would get the descriptor and
    receive printed output.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(number, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(getattr(sys, name), "closed", True):
            setattr(sys, name, open(number, "w", closefd=False, errors="backslashreplace"))  # noqa: SIM115


def buffer_lines() -> None:
    """Flush after every line, so that no line is lost if the process is killed."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    with suppress(ValueError):  # not glibc
        stdout = ctypes.c_void_p.in_dll(_LIBRARY, "stdout")
        _LIBRARY.setvbuf(stdout, None, _LINE_BUFFERED, ctypes.c_size_t(0))


def flush_streams() -> None:
    """Write all output that Python and C have buffered."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed or replaced by user code
            stream.flush()
    _LIBRARY.fflush(None)
