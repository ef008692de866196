"""Output of workers goes to files: that of each trial to its own, all else to another.

File descriptors 1 and 2 lead to an `output_keeper`, so that prints of Python, of C libraries and of
child processes are taken alike, and nothing reaches the terminal or the result of a command. On
this machine they lead there from the start of a worker to its end, and from the start of the
process that workers are forked from, which starts the keeper of them all. Workers that others
started print as ever, but during trials.
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
"""Longest wait for the keeper, on a machine that is very busy."""
_END_SECONDS = 2.0
"""Longest wait until the output of a worker that was killed is written."""
_OUTSIDE = "outside-trials.output"


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a trial, with passwords masked.

    Attributes:
        data: The bytes, which need not be UTF-8.
        is_cut: Whether more was printed before.
    """

    data: bytes = b""
    is_cut: bool = False

    def __repr__(self) -> str:  # it may be long
        return f"Printed({len(self.data)} bytes)"


NOTHING = Printed()


def capture_fork_server() -> None:
    """Take what this process prints, which workers are forked from, and share its keeper."""
    global _SHARED  # noqa: PLW0603 - workers inherit it
    open_streams()
    with suppress(OSError):
        _SHARED = _start_keeper(aside=False)
        _close(_Capture(_outside_trials(), forks=True).redirect())


def dask_setup(worker: Any) -> None:
    """Take all that a worker of this machine prints; called by Dask as it starts."""
    global _CAPTURE  # noqa: PLW0603 - one per process
    open_streams()
    keep_streams_open()
    buffer_lines()
    try:
        _CAPTURE = _Capture(_outside_trials())
        _close(_CAPTURE.redirect())
    except OSError:  # the fork server's files are as good
        _CAPTURE = None
    sweep_tails(_folder(worker), "trial-*.output*")


@contextmanager
def trial_captured(
    worker: Any, task_run_id: str, secrets: Sequence[str] = ()
) -> Iterator[list[Printed]]:
    """Take what the body prints; afterwards the list holds it.

    Args:
        worker: The Dask worker; outside one, nothing is taken.
        task_run_id: Task run of the trial, by which its nanny finds the file.
        secrets: Passwords that are masked wherever they occur.
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
    """Return what a trial printed whose worker is gone, and remove it; run by a nanny.

    Args:
        task_run_id: Task run of the trial.
        dask_worker: The nanny.
    """
    path = _trial_file(Path(dask_worker.local_directory), task_run_id)
    until = monotonic() + _END_SECONDS
    while is_being_written(path) and monotonic() < until:  # noqa: ASYNC110 - by another process
        await asyncio.sleep(0.01)
    printed = Printed(*read_tail(path))
    remove_tail(path)
    return printed


class _Capture:
    """A pipe to the keeper, and the file that it leads to.

    Args:
        outside: File of what is printed outside trials; None if that is not taken.
        forks: Whether this is the process that workers are forked from, which has no threads.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, outside: Path | None, *, forks: bool = False) -> None:
        self.pid, self._outside, self._forks = os.getpid(), outside, forks
        self._lock, self._number = Lock(), 0
        read, write = os.pipe()
        # Not 0, 1 or 2, which are free if somebody has closed them.
        self._read, self._write = (fcntl.fcntl(f, fcntl.F_DUPFD_CLOEXEC, 3) for f in (read, write))
        os.close(read)
        os.close(write)
        self._request = self._change(outside)
        self._connect()
        if forks:  # without a keeper, printing fails at once there
            os.close(self._read)

    def redirect(self) -> list[int]:
        """Lead file descriptors 1 and 2 to the keeper; return copies of what they were."""
        copies = []
        for number in (1, 2):
            copies.append(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3))
            os.dup2(self._write, number)
        return copies

    def begin(self, path: Path, secrets: Sequence[str]) -> list[int]:
        """Lead what is printed from now on to the file of a trial."""
        flush_streams()
        self._ask(self._change(path, secrets, is_new=True))
        former = self.redirect()  # again, as others may have led them elsewhere meanwhile
        if self._outside is None:
            return former
        _close(former)
        return []

    def end(self, restored: Sequence[int]) -> None:
        """Wait until all that was printed is in the file, and lead what follows elsewhere."""
        flush_streams()
        for number, copy in enumerate(restored, start=1):
            os.dup2(copy, number)
            os.close(copy)
        self._ask(self._change(self._outside))

    def _change(
        self, path: Path | None, secrets: Sequence[str] = (), *, is_new: bool = False
    ) -> bytes:
        """Return the request for another file, under the next number."""
        self._number += 1
        request = {
            "number": self._number,
            "path": None if path is None else str(path),
            "secrets": list(secrets),
            "is_new": is_new,
        }
        return json.dumps(request).encode() + b"\n"

    def _ask(self, request: bytes) -> None:
        """Send the keeper a request and wait for its answer; if it was killed, start another."""
        with self._lock:
            self._request = request
            if not self._send():
                self._connect_again()

    def _send(self) -> bool:
        """Return whether the keeper was there to take the request."""
        answer, expected = b"", b"%d\n" % self._number
        try:
            self._control.sendall(self._request)
            while not answer.endswith(expected):  # late ones of former requests come before
                if not (received := self._control.recv(64)):
                    return False
                answer += received
        except TimeoutError:
            return True
        except OSError:
            return False
        return True

    def _connect(self) -> None:
        """Register with a keeper, which goes on with the file of the last request.

        Raises:
            OSError: If there is none, and none can be started.
        """
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
        """Start another keeper when this one is killed, or printing would wait for ever."""
        poll = select.poll()
        poll.register(control, 0)  # its end is told in any case
        poll.poll()
        with self._lock:
            if self._control is control:
                self._connect_again()

    def _connect_again(self) -> None:
        """Register with another keeper; without one, nothing is taken any more."""
        try:
            self._connect()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            for number in (1, 2, self._write, self._read):
                os.dup2(nothing, number)  # whoever has the pipe must not wait for a reader
            os.close(nothing)


def _close(copies: Sequence[int]) -> None:
    """Close file descriptors that would keep the reader of the flow's output waiting."""
    for copy in copies:
        os.close(copy)


def _registered(door: socket.socket, fds: list[int]) -> bool:
    """Register a pipe and a socket; return whether a keeper was there."""
    try:
        socket.send_fds(door, [b"+"], fds)
    except OSError:
        return False
    return True


def _capture_of_trials() -> _Capture | None:
    """Return the capture of this process; make one for trials alone where none was begun."""
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
    """Start a keeper, and return the socket to register on."""
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
"""Where workers of this machine register, which they inherit."""
_CAPTURE: _Capture | None = None
"""That of this process; in a forked one, that of its parent until it has its own."""
