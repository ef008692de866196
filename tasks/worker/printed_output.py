"""Output of workers goes to files: one per trial, and one for everything else.

File descriptors 1 and 2 lead to an `output_keeper`, so output of Python, C libraries and child
processes never reaches the terminal. Workers started by others are captured only during trials,
workers of this machine and the fork server for their whole life.
"""

import asyncio
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Any

from prefect_tune.tasks.worker.output_keeper import (
    boot_code,
    is_being_written,
    read_tail,
    remove_tail,
    sweep_tails,
)
from prefect_tune.tasks.worker.standard_streams import (
    buffer_lines,
    flush_streams,
    keep_streams_open,
    open_streams,
    streams_restored,
)

_ANSWER_SECONDS = 10.0
"""Longest wait for the keeper, even on a very busy machine."""
_END_SECONDS = 2.0
"""Longest wait for the output of a killed worker to be written."""
_OUTSIDE = "outside-trials.output"


@dataclass(frozen=True, slots=True)
class Printed:
    """The end of a trial's output, not necessarily UTF-8, with passwords masked."""

    data: bytes = b""
    is_cut: bool = False

    def __repr__(self) -> str:  # the data may be long
        return f"Printed({len(self.data)} bytes)"


NOTHING = Printed()


def capture_fork_server() -> None:
    """Capture the output of this process, the fork server, and share its keeper with workers."""
    global _SHARED  # noqa: PLW0603 - workers inherit it
    open_streams()
    with suppress(OSError):
        _SHARED = _start_keeper(aside=False)
        _close(_Capture(_outside_trials(), forks=True).redirect())


def dask_setup(worker: Any) -> None:
    """Capture all output of a worker on this machine; called by Dask when it starts."""
    global _CAPTURE  # noqa: PLW0603 - one per process
    open_streams()
    keep_streams_open()
    buffer_lines()
    try:
        _CAPTURE = _Capture(_outside_trials())
        _close(_CAPTURE.redirect())
    except OSError:  # the fork server's files serve as well
        _CAPTURE = None
    sweep_tails(_folder(worker), "trial-*.output*")


@contextmanager
def trial_captured(
    worker: Any, task_run_id: str, secrets: Sequence[str] = ()
) -> Iterator[list[Printed]]:
    """Capture the output of the body; the list receives it afterwards, with `secrets` masked.

    The nanny finds the file by `task_run_id`. Outside a Dask worker, nothing is captured.
    """
    printed: list[Printed] = []
    capture = _capture_of_trials() if worker is not None else None
    if capture is None:
        yield printed
        return
    path = _trial_file(_folder(worker), task_run_id)
    restored = capture.begin(path, secrets)
    try:
        with streams_restored():
            yield printed
    finally:
        capture.end(restored)
        printed.append(Printed(*read_tail(path)))
        remove_tail(path)


async def take_printed(task_run_id: str, dask_worker: Any) -> Printed:
    """Return and remove the output of a trial whose worker is gone; runs on the nanny."""
    path = _trial_file(Path(dask_worker.local_directory), task_run_id)
    until = monotonic() + _END_SECONDS
    while is_being_written(path) and monotonic() < until:  # noqa: ASYNC110 - another process writes
        await asyncio.sleep(0.01)
    printed = Printed(*read_tail(path))
    remove_tail(path)
    return printed


class _Capture:
    """A pipe to the keeper, and the file it leads to: `outside` between trials, if not None."""

    def __init__(self, outside: Path | None, *, forks: bool = False) -> None:
        self.pid, self._outside, self._forks = os.getpid(), outside, forks
        self._lock, self._number = Lock(), 0
        read, write = os.pipe()
        # Not 0, 1 or 2, which are free if another library has closed them.
        self._read, self._write = (fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 3) for f in (read, write))
        os.close(read)
        os.close(write)
        self._request = self._change(outside)
        self._connect()
        if forks:  # without a keeper, printing fails at once in the fork server
            os.close(self._read)

    def redirect(self) -> list[int]:
        """Lead file descriptors 1 and 2 to the keeper; return copies of the previous ones."""
        copies = []
        for number in (1, 2):
            copies.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3))
            os.dup2(self._write, number)
        return copies

    def begin(self, path: Path, secrets: Sequence[str]) -> list[int]:
        flush_streams()
        self._ask(self._change(path, secrets, is_new=True))
        former = self.redirect()  # again, as other code may have redirected them
        if self._outside is None:
            return former
        _close(former)
        return []

    def end(self, restored: Sequence[int]) -> None:
        flush_streams()
        for number, copy in enumerate(restored, start=1):
            os.dup2(copy, number)
            os.close(copy)
        self._ask(self._change(self._outside))

    def _change(
        self, path: Path | None, secrets: Sequence[str] = (), *, is_new: bool = False
    ) -> bytes:
        self._number += 1
        request = {
            "number": self._number,
            "path": None if path is None else str(path),
            "secrets": list(secrets),
            "is_new": is_new,
        }
        return json.dumps(request).encode() + b"\n"

    def _ask(self, request: bytes) -> None:
        """Send a request to the keeper and await the answer; if it was killed, start another."""
        with self._lock:
            self._request = request
            if not self._send():
                self._connect_again()

    def _send(self) -> bool:
        answer, expected = b"", b"%d\n" % self._number
        try:
            self._control.sendall(self._request)
            while not answer.endswith(expected):  # late answers to earlier requests come first
                if not (received := self._control.recv(64)):
                    return False
                answer += received
        except TimeoutError:
            return True
        except OSError:
            return False
        return True

    def _connect(self) -> None:
        """Register with a keeper, which continues the file of the last request, or OSError."""
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_ANSWER_SECONDS)
        with theirs:
            fds = [self._read, theirs.fileno()]
            if not (_SHARED and _registered(_SHARED, fds)):
                with _start_keeper(aside=True) as door:
                    _registered(door, fds)
        self._send()
        if not self._forks:
            Thread(target=self._watch, args=(self._control,), daemon=True).start()

    def _watch(self, control: socket.socket) -> None:
        """Start another keeper when this one is killed, or printing would block forever."""
        poll = select.poll()
        poll.register(control, 0)  # reports hang-ups in any case
        poll.poll()
        with self._lock:
            if self._control is control:
                self._connect_again()

    def _connect_again(self) -> None:
        """Register with another keeper; without one, output is dropped."""
        try:
            self._connect()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            for number in (1, 2, self._write, self._read):
                os.dup2(nothing, number)  # processes that have the pipe must not block
            os.close(nothing)


def _close(copies: Sequence[int]) -> None:
    """Close file descriptors that would keep readers of the flow's output waiting."""
    for copy in copies:
        os.close(copy)


def _registered(door: socket.socket, fds: list[int]) -> bool:
    try:
        socket.send_fds(door, [b"+"], fds)
    except OSError:
        return False
    return True


def _capture_of_trials() -> _Capture | None:
    """Return the capture of this process; without one, make one for trials only."""
    global _CAPTURE  # noqa: PLW0603 - one per process
    if _CAPTURE is None or _CAPTURE.pid != os.getpid():
        open_streams()
        buffer_lines()
        try:
            _CAPTURE = _Capture(None)
        except OSError:
            return None
    return _CAPTURE


def _start_keeper(*, aside: bool) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own code
            [sys.executable, *boot_code(theirs.fileno(), aside=aside)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    if aside:
        process.wait()
    else:
        _CHILDREN.append(process)
    return ours


def _outside_trials() -> Path:
    return Path(tempfile.gettempdir()) / _OUTSIDE


def _folder(worker: Any) -> Path:
    return Path(worker.local_directory).parent


def _trial_file(folder: Path, task_run_id: str) -> Path:
    return folder / f"trial-{task_run_id}.output"


_CHILDREN: list["subprocess.Popen[bytes]"] = []
_SHARED: socket.socket | None = None
"""Socket on which workers of this machine register; inherited by workers."""
_CAPTURE: _Capture | None = None
"""Capture of this process; a forked process has its parent's until it makes its own."""
