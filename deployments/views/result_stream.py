"""Standard output, reserved for the result of a command. The module is cheap to import.

Output of libraries (Python or C) and of child processes goes to standard error.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import IO, Any

import click

from prefect_tune.tasks.sandbox.output import flush_streams

_APART: list[IO[str]] = []
"""Result streams other than `sys.stdout`. The last stream is used."""
_STAYS: list[bool] = []
"""Non-empty after `stay_apart`, so that the redirection stays."""


def stay_apart() -> None:
    """Redirect all output except results to standard error until this process ends."""
    _STAYS.append(True)


def result_stream() -> IO[str]:
    """Return the stream for results, which is `sys.stdout` unless redirected."""
    return _APART[-1] if _APART else sys.stdout


class DynamicResultStream:
    """Proxy of the current result stream, because a console outlives the streams of commands."""

    def __getattr__(self, name: str) -> Any:
        return getattr(result_stream(), name)


@contextmanager
def result_apart() -> Iterator[None]:
    """Keep standard output for results, and print all other output to standard error.

    The redirection ends with the `with` block, so that a Python program that calls a command gets
    its standard output back. After `stay_apart`, the redirection lasts until the process ends,
    because C libraries flush output at exit.
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
            with suppress(OSError, click.ClickException):  # already reported when written
                results.close()
        if not (is_own and _STAYS):
            sys.stdout = former


def _is_of_process(stream: IO[str]) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return stream is sys.__stdout__ and stream.fileno() == 1
    return False


def _moved_results() -> IO[str]:
    """Duplicate standard output, and redirect the original to standard error."""
    sys.stdout.flush()
    moved = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(2, 1)
    return _Results(moved, sys.stdout)


class _Results(TextIOWrapper):
    """Standard output that reports failed writes and replaces unknown characters with `?`."""

    def __init__(self, number: int, like: Any) -> None:
        encoding = like.encoding
        errors = like.errors if encoding.lower().startswith("utf") else "replace"
        super().__init__(BufferedWriter(FileIO(number, "w")), encoding, errors)

    def write(self, text: str) -> int:
        with _failure_reported():
            return super().write(text)

    def flush(self) -> None:
        with _failure_reported():
            super().flush()


@contextmanager
def _failure_reported() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except OSError as error:
        raise click.ClickException(f"standard output cannot be written: {error}") from error
