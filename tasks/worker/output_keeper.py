"""A small process that writes workers' output to files, so that a worker may be killed.

File descriptors 1 and 2 of a worker are a pipe to the keeper. The worker registers the pipe with a
socket, over which it names the file to write. On each request the keeper empties the pipe, changes
the file and answers. A thread of the worker could not do so while C code holds Python's lock.

Passwords are masked. A file keeps the end of the output in two segments of bounded size, so the end
survives even if the writer is killed. Apart from masking, only the standard library is imported.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import time

from prefect_tune.storage.masking import MaskedStream

KEPT_BYTES = 1_000_000
"""Bytes kept from the end of the output."""
_LONGEST_LINE = 10_000
"""Most bytes dropped to begin with a whole line."""
_KEPT_SECONDS = 3_600
"""Time for which the file of a finished writer can still be read."""


class TailFile:
    """The writer's side of a file, locked until closed; OSError if it cannot be created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def write(self, data: bytes) -> None:
        """Append bytes; OSError if they cannot be written, as on a full disk."""
        data = data[-KEPT_BYTES:]
        if os.fstat(self._file).st_size + len(data) > KEPT_BYTES:
            self._path.replace(_former(self._path))
            former = self._file
            self._open()
            os.close(former)  # last, so that the lock is never missing
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close the file without removing it."""
        os.close(self._file)

    def _open(self) -> None:
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        with suppress(OSError):  # another writer has the lock
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_tail(path: Path) -> tuple[bytes, bool]:
    """Return the end of a file's output, from a whole line, and whether output was dropped."""
    segments = []
    for segment in (_former(path), path):
        with suppress(OSError):
            segments.append(segment.read_bytes())
    data = b"".join(segments)
    # Bytes before the previous segment may be gone.
    is_cut = len(data) > KEPT_BYTES
    data = data[-KEPT_BYTES:]
    return (data[data.find(b"\n", 0, _LONGEST_LINE) + 1 :] if is_cut else data), is_cut


def is_being_written(path: Path) -> bool:
    """Return whether a writer has the file open."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def remove_tail(path: Path) -> None:
    """Remove a file with its segments; its writer may continue, unread."""
    for segment in (path, _former(path)):
        with suppress(OSError):
            segment.unlink()


def sweep_tails(folder: Path, pattern: str) -> None:
    """Remove files that no writer has open and that are an hour old."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            if time() - path.stat().st_mtime > _KEPT_SECONDS and not is_being_written(path):
                path.unlink()


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


_PACKAGES = (
    "prefect_tune",
    "prefect_tune.storage",
    "prefect_tune.tasks",
    "prefect_tune.tasks.worker",
)
_CHUNK_BYTES = 64 * 1024


def boot_code(registrar: int, *, aside: bool) -> list[str]:
    """Return the Python arguments that start a keeper; `aside` detaches it from its worker.

    Our packages are created without their `__init__`, which would load slow libraries.
    """
    paths = {name: list(sys.modules[name].__path__) for name in _PACKAGES}
    code = [
        "import os, sys",
        "from types import ModuleType",
        "if os.fork(): os._exit(0)" if aside else "",
        f"for name, path in {paths!r}.items():",
        "    sys.modules[name] = ModuleType(name)",
        "    sys.modules[name].__path__ = path",
        f"from {__name__} import main",
        f"main({registrar})",
    ]
    return ["-I", "-S", "-c", "\n".join(code)]


class _Client:
    """A worker: the reading end of its output pipe, and its control socket."""

    def __init__(self, pipe: int, control: socket.socket) -> None:
        self.pipe, self.control = pipe, control
        os.set_blocking(pipe, False)
        self._masks = MaskedStream()
        self._file: TailFile | None = None
        self._path: Path | None = None
        self._request = b""

    def copy(self, most: int = _CHUNK_BYTES) -> int | None:
        """Write the pipe's content, up to `most` bytes, and return the size; None if empty."""
        try:
            data = os.read(self.pipe, min(most, _CHUNK_BYTES))
        except BlockingIOError:
            return None
        self._write(self._masks.feed(data))
        return len(data)

    def answer(self) -> bool:
        """Handle requests of the worker; return whether it is still there."""
        try:
            received = self.control.recv(_CHUNK_BYTES)
        except OSError:
            received = b""
        *requests, self._request = (self._request + received).split(b"\n")
        for request in map(json.loads, requests):
            number = request.pop("number")
            self._change_file(**request)
            with suppress(OSError):
                self.control.sendall(b"%d\n" % number)
        return bool(received)

    def finish(self) -> None:
        self._drain()
        self._close()
        self.control.close()
        os.close(self.pipe)

    def _change_file(self, path: str | None, secrets: list[str], *, is_new: bool) -> None:
        self._drain()
        self._close()
        self._masks = MaskedStream(secrets)
        self._path = None if path is None else Path(path)
        if is_new:  # creates the file, for readers that come after the worker is gone
            self._write(b"")

    def _drain(self) -> None:
        """Write the pipe's current content; other processes may keep printing."""
        size = struct.unpack("i", fcntl.ioctl(self.pipe, termios.FIONREAD, bytes(4)))[0]
        while size > 0 and (n := self.copy(size)):
            size -= n

    def _write(self, data: bytes) -> None:
        """Write to the file; failed writes are dropped, because printing must never block."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._file = TailFile(self._path)
            self._file.write(data)
        except OSError:
            self._path = None
            self._close()

    def _close(self) -> None:
        if rest := self._masks.finish():
            self._write(rest)
        if self._file is not None:
            self._file.close()
            self._file = None


def main(registrar: int) -> None:
    """Keep the output of registered workers until the last of them is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=registrar) as door, DefaultSelector() as selector:
        selector.register(door, EVENT_READ)
        n_open = 1
        while n_open:
            for key, _ in selector.select():
                client: _Client | None = key.data
                if selector.get_map().get(key.fd) is not key:
                    continue  # its client was just dismissed
                if client is None:
                    n_open += _admit(door, selector)
                elif key.fileobj is client.control:
                    if not client.answer():
                        n_open -= _dismiss(client, selector)
                elif client.copy() == 0:  # all processes that could print have ended
                    selector.unregister(client.pipe)


def _admit(door: socket.socket, selector: DefaultSelector) -> int:
    """Register a worker; return the change in the number of open connections."""
    word, fds, _, _ = socket.recv_fds(door, 1, 2)
    if not word:
        selector.unregister(door)
        return -1
    pipe, control = fds
    client = _Client(pipe, socket.socket(fileno=control))
    selector.register(client.control, EVENT_READ, client)
    selector.register(client.pipe, EVENT_READ, client)
    return 1


def _dismiss(client: _Client, selector: DefaultSelector) -> int:
    """Write a gone worker's remaining output; return the change in the number of connections."""
    selector.unregister(client.control)
    with suppress(KeyError):  # its pipe closed earlier
        selector.unregister(client.pipe)
    client.finish()
    return 1
