"""Standard output is the result of a command, and nothing else. Light to import.

What libraries, a user's space or an unpickled model print while a command works goes to standard
error, from Python, C libraries and child processes alike.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import IO, Any

import click

from prefect_tune.tasks.worker.standard_streams import flush_streams

_APART: list[IO[str]] = []
"""Streams of results that are apart from `sys.stdout`; the last one is used."""
_STAYS: list[bool] = []
"""Not empty after `stay_apart`."""


def stay_apart() -> None:
    """Keep all but results away from standard output until this process ends."""
    _STAYS.append(True)


def result_stream() -> IO[str]:
    """Return the stream of results; that is `sys.stdout` in Python programs."""
    return _APART[-1] if _APART else sys.stdout


class DynamicResultStream:
    """The stream of results at each moment, for a console that outlives several."""

    def __getattr__(self, name: str) -> Any:
        return getattr(result_stream(), name)


@contextmanager
def result_apart() -> Iterator[None]:
    """Let the body print results to standard output, and all else to standard error.

    After `stay_apart` that stays so to the end of the process, as C libraries print what they have
    held back when it exits. A Python program that calls a command has its standard output back.
    """
    former, is_own = sys.stdout, _is_of_process(sys.stdout)
    results = _moved_results() if is_own else former
    _APART.append(results)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        _APART.pop()
        if is_own and not _STAYS:
            flush_streams()
            os.dup2(results.fileno(), 1)
        if is_own:
            with suppress(OSError, click.ClickException):  # reported when it was written
                results.close()
        if not (is_own and _STAYS):
            sys.stdout = former


def _is_of_process(stream: IO[str]) -> bool:
    """Return whether a stream is standard output of this process, and no replacement."""
    with suppress(AttributeError, OSError, ValueError):
        return stream is sys.__stdout__ and stream.fileno() == 1
    return False


def _moved_results() -> IO[str]:
    """Return standard output under another number, which now leads to standard error."""
    sys.stdout.flush()
    moved = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(2, 1)
    return _Results(moved, sys.stdout)


class _Results(TextIOWrapper):
    """Standard output that reports why it cannot be written.

    A character that its encoding lacks is printed as a question mark.

    Args:
        number: Its file descriptor.
        like: A stream of the same encoding.
    """

    def __init__(self, number: int, like: Any) -> None:
        encoding = like.encoding
        errors = like.errors if encoding.lower().startswith("utf") else "replace"
        super().__init__(BufferedWriter(FileIO(number, "w")), encoding, errors)

    def write(self, text: str) -> int:
        """Write a text."""
        with _failure_reported():
            return super().write(text)

    def flush(self) -> None:
        """Write what is held back."""
        with _failure_reported():
            super().flush()


@contextmanager
def _failure_reported() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise click.ClickException(f"standard output cannot be written: {error}") from error
