"""The command line on a terminal of its own, whose screen is read as a person would."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pyte
from processes import COMMAND, environment, wait_for


class Terminal:
    """A running command and its screen; a thread takes what it writes.

    Attributes:
        process: The command.
        screens: Each different screen so far, as lines without spaces at their ends.
    """

    def __init__(self, process: subprocess.Popen[bytes], side: int, columns: int, lines: int):
        self.process, self._side = process, side
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = Lock()
        self.written = b""
        self.screens: list[list[str]] = []
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def lines(self) -> list[str]:
        """What is seen now."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def scrolled(self) -> list[str]:
        """What has left the screen at its top, and what is seen now."""
        with self._lock:
            width = self._screen.columns
            gone = [
                "".join(row[i].data for i in range(width)).rstrip()
                for row in self._screen.history.top
            ]
            return [*gone, *(line.rstrip() for line in self._screen.display)]

    def wait_for(self, seen: Callable[[str], Any], seconds: float = 150.0) -> Any:
        """The first true value of a function of the screen."""
        return wait_for(lambda: seen("\n".join(self.lines())), seconds)

    def end(self) -> int:
        """Wait until the command has ended and all of it is on the screen."""
        self.process.wait(timeout=240)
        self._reader.join(timeout=10)
        return self.process.returncode

    def _read(self) -> None:
        with suppress(OSError):  # the command has ended
            while data := os.read(self._side, 65_536):
                with self._lock:
                    self.written += data
                    self._stream.feed(data)
                if (seen := self.lines()) not in self.screens[-1:]:
                    self.screens.append(seen)


@contextmanager
def on_terminal(
    *arguments: object,
    home: Path,
    server: str | None = None,
    columns: int = 100,
    lines: int = 30,
    **variables: str,
) -> Iterator[Terminal]:
    """`prefect-tune` on a terminal of that size; killed if it still runs at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = environment(home, server)
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        inherited.pop(name, None)
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env={**inherited, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **variables},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours, columns, lines)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)
        os.close(ours)
