"""The zygote: a single-threaded process that has imported all modules and forks sandboxes.

Each worker process has one zygote. A fork is ready within 50 ms, whereas a fresh interpreter takes
seconds. The zygote reaps sandboxes, adopts processes left behind by sandboxes, and ends all of them
when its worker ends. On systems without `prctl`, each sandbox is a fresh interpreter.

Temporary files of a worker and its sandboxes are kept in a private folder, which is deleted when
the worker ends. If a worker was killed, the next process deletes the folder.
"""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Protocol

from prefect_tune.storage.local_files import make_own
from prefect_tune.tasks.sandbox.process_tree import kill_below
from prefect_tune.tasks.threads import THREAD_VARIABLES

IS_LINUX = sys.platform == "linux"
_PRELOADED = ("prefect_tune.tasks.final.refit", "prefect_tune.tasks.final.promotion")
"""Modules that calls need."""
_ENVIRONMENT: Mapping[str, str] = {
    # Each core runs one trial, so extra threads would compete with other trials.
    **THREAD_VARIABLES,
    "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads free their core
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # a process with threads cannot fork safely
}
_START_SECONDS = 60.0
"""Longest time to start a zygote, including all imports from a slow disk."""
_ANSWER_SECONDS = 15.0
"""Longest time to wait for an answer from a running zygote."""
_END_SECONDS = 5.0
_MOST_BYTES = 65_536
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STANDARD_ERROR = 2
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Options of prctl(2)."""


class CannotStart(RuntimeError):  # noqa: N818 - reads as an outcome
    """A process could not be started; the message is the cause."""


class Zygote:
    """The zygote of this process, started on first use and restarted if killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: _Process | None = None
        self._errors: IO[bytes] | None = None
        self._has_answered = False
        self._fresh: dict[int, subprocess.Popen[bytes]] = {}

    def forget(self) -> None:
        """Reset to no zygote in a fork of a process that has one."""
        self._of_parent = self._socket, self._process, self._errors  # keeps these objects open
        self._lock = threading.Lock()
        self._socket = self._process = self._errors = None

    @property
    def pid(self) -> int | None:
        """Process id of the zygote; None before the first start."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the zygote unless it is running; modules are imported in the background.

        Raises `CannotStart`.
        """
        if IS_LINUX:
            with self._lock:
                self._start()

    def start_as_copy(self) -> None:
        """Import the modules that calls need, and fork the zygote from this process.

        If this process has imported numpy or has several threads, the zygote starts as in `start`.
        Raises `CannotStart`.
        """
        if not IS_LINUX or "numpy" in sys.modules or threading.active_count() > 1:
            self.start()
            return
        os.environ.update(_ENVIRONMENT)  # libraries read the environment on loading
        for module in _PRELOADED:
            import_module(module)
        with self._lock:
            self._start(_Copy)

    def fork(self, connection: int, output: int) -> int:
        """Start a sandbox with these file descriptors, and return its process id.

        Raises `CannotStart` or `OSError`.
        """
        if not IS_LINUX:
            code = f"from {__package__}.child import begin; begin({connection}, {output})"
            process = _popen(code, [connection, output], subprocess.DEVNULL)
            self._fresh[process.pid] = process
            return process.pid
        pid = self._ask("fork", fds=[connection, output], may_start=True)
        if isinstance(pid, str):
            raise CannotStart(pid)
        return int(pid)

    def wait(self, pid: int) -> int | None:
        """Wait for a sandbox to end; return its exit code, or the negative number of a signal.

        Returns None if the exit code is unknown because the zygote has also ended.
        """
        if (process := self._fresh.pop(pid, None)) is not None:
            return process.wait()
        until = monotonic() + _END_SECONDS
        code: int | str | None = "not yet"
        while code == "not yet" and monotonic() < until:
            try:
                code = self._ask("wait", pid)
            except CannotStart:
                return None
            if code == "not yet":
                sleep(0.002)
        return code if isinstance(code, int) else None

    def clear(self) -> None:
        """Kill all processes left behind by sandboxes; no sandbox may be in use."""
        with suppress(CannotStart):
            self._ask("clear")

    def _ask(
        self, what: str, pid: int = 0, *, fds: Sequence[int] = (), may_start: bool = False
    ) -> Any:
        with self._lock:
            if may_start:
                self._start()
            if self._socket is None:
                raise CannotStart("the zygote process has ended")
            self._socket.settimeout(_ANSWER_SECONDS if self._has_answered else _START_SECONDS)
            cause = "it has ended"
            try:
                socket.send_fds(self._socket, [json.dumps([what, pid]).encode()], fds)
                answer = self._socket.recv(_MOST_BYTES)
            except OSError as error:
                answer, cause = b"", f"{type(error).__name__}: {error}"
            if not answer:
                raise CannotStart(f"the zygote process does not answer: {self._end(cause)}")
            self._has_answered = True
            return json.loads(answer)

    def _start(self, begin: "Callable[[int, int], _Process] | None" = None) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end("")
        try:
            self._errors = tempfile.TemporaryFile(dir=scratch_folder())  # noqa: SIM115
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                begin = begin or _fresh_zygote
                self._process = begin(theirs.fileno(), self._errors.fileno())
        except OSError as error:
            raise CannotStart(f"{type(error).__name__}: {error}") from error
        self._has_answered = False

    def _end(self, cause: str) -> str:
        """Kill the zygote if running; return the last line it printed, or the cause."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._socket is not None:
            self._socket.close()
        if self._errors is not None:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            self._errors.close()
            cause = lines[-1] if lines else cause
        self._process = self._socket = self._errors = None
        return cause


class _Process(Protocol):
    """The methods of `subprocess.Popen` that are used here."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self) -> int | None: ...
    def kill(self) -> None: ...


class _Copy:
    """A zygote that was forked from this process."""

    def __init__(self, connection: int, errors: int) -> None:
        self._code: int | None = None
        # The fork must not run this process's signal handlers.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _become_zygote(connection, errors)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self) -> int | None:
        return self.poll(0)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _become_zygote(connection: int, errors: int) -> None:
    """Serve as the zygote in a forked process, without its signal handlers, files and terminal."""
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.environ["TMPDIR"] = str(scratch_folder())
        tempfile.tempdir = None
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(errors, _STANDARD_ERROR)
        for descriptor in {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}:
            if descriptor not in (_STANDARD_ERROR, connection):
                # Files and pipes of the other process; objects may still refer to their
                # descriptors.
                with suppress(OSError):
                    os.dup2(nothing, descriptor, inheritable=descriptor < _STANDARD_ERROR)
        main(connection)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


ZYGOTE = Zygote()
os.register_at_fork(after_in_child=ZYGOTE.forget)


def _fresh_zygote(connection: int, errors: int) -> "subprocess.Popen[bytes]":
    return _popen(f"from {__name__} import main; main({connection})", [connection], errors)


def _popen(code: str, fds: Sequence[int], errors: int) -> "subprocess.Popen[bytes]":
    head = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    return subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", head + code, json.dumps(import_path())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=fds,
        start_new_session=True,
        env=environment(),
    )


def environment() -> dict[str, str]:
    """Return the environment for new sandboxes. Raises `OSError`."""
    return {**os.environ, **_ENVIRONMENT, "TMPDIR": str(scratch_folder())}


def current_folder() -> str:
    """Return the current folder, or the root folder if the current folder was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - Path.cwd() raises as well
    except OSError:
        return "/"


def import_path() -> list[str]:
    """Return the folders from which this process imports, as absolute paths."""
    return [entry or current_folder() for entry in sys.path]


def main(connection: int) -> None:
    """Run the zygote: serve the worker at the other end of a socket until the worker ends."""
    parent = os.getppid()

    def check_parent(*_: object) -> None:
        # Linux sends the signal if the thread that started this process ends.
        if os.getppid() != parent:
            _end_all()
            os._exit(0)

    signal.signal(signal.SIGTERM, check_parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control_process(_SET_CHILD_SUBREAPER, 1)
    control_process(_SET_DEATH_SIGNAL, signal.SIGTERM)
    check_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    gc.disable()
    for module in _PRELOADED:
        import_module(module)
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=connection) as server:
        _Server(server).run()


class _Server:
    """The zygote's side: running sandboxes, and exit codes of ended sandboxes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ended: dict[int, int] = {}

    def run(self) -> None:
        while True:
            received, fds, _, _ = socket.recv_fds(self._connection, _MOST_BYTES, 2)
            if not received:
                _end_all()
                os._exit(0)
            what, pid = json.loads(received)
            answer: int | str | None = None
            if what == "fork":
                answer = self._fork(fds)
            elif what == "wait":
                answer = self._wait(pid)
            else:
                _end_all()
            self._connection.send(json.dumps(answer).encode())

    def _fork(self, fds: Sequence[int]) -> int | str:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            if os.getpid() == zygote:
                for fd in fds:
                    os.close(fd)
        if pid:
            self._ended.pop(pid, None)
            return pid
        try:
            self._connection.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Processes left by a call stay in the call's tree.
            control_process(_SET_CHILD_SUBREAPER, 1)
            control_process(_SET_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() == zygote:
                from prefect_tune.tasks.sandbox.child import begin  # noqa: PLC0415 - no loop

                begin(*fds)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _wait(self, pid: int) -> int | str | None:
        """Return a sandbox's exit code, "not yet", or None if it belonged to another zygote."""
        with suppress(ChildProcessError):
            while (left := os.waitpid(-1, os.WNOHANG))[0]:  # includes processes left by sandboxes
                self._ended[left[0]] = os.waitstatus_to_exitcode(left[1])
            if pid not in self._ended:
                os.waitpid(pid, os.WNOHANG)
                return "not yet"
        return self._ended.pop(pid, None)


def _end_all() -> None:
    """Kill all descendants of this process, including adopted children of ended processes."""
    until = monotonic() + _END_SECONDS
    while kill_below(os.getpid()) and monotonic() < until:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        sleep(0.001)


def control_process(what: int, value: int) -> None:
    """Call prctl(2) for this process."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(what, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_LOCK = "lock"


@cache
def scratch_folder() -> Path:
    """Return the private temporary folder; `PermissionError` if another user owns its parent."""
    base = Path(tempfile.gettempdir()) / f"prefect-tune-{os.getuid()}"
    make_own(base)
    with (base / _LOCK).open("wb") as common:
        fcntl.flock(common, fcntl.LOCK_EX)
        for folder in base.iterdir():
            if folder.is_dir() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f"{os.getpid()}-"))
        # The operating system releases the lock however this process ends.
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process inherits this hook, but must not delete the folder
        shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / _LOCK).open("rb+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
