"""Sandboxes: processes that run users' code, so that limits never end the worker itself.

A worker thread waits for a call in a sandbox. Ten times a second, the thread checks the time and
memory of the call, and whether the result is still wanted. If a call failed or damaged its process,
the sandbox is replaced.
"""

import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing import Pipe
from threading import Lock
from time import monotonic, sleep
from typing import Any, Protocol

import psutil

from prefect_tune.optimizers.trials.outcome import FailureKind, StepCost
from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import Notice
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.sandbox.child import (
    LOST,
    FoldReached,
    Function,
    Loaded,
    Loading,
    Message,
    Noticed,
    Raised,
    Returned,
    StepBegun,
    StepDone,
    Waited,
    request,
)
from prefect_tune.tasks.sandbox.output import Output
from prefect_tune.tasks.sandbox.process_tree import ProcessTree
from prefect_tune.tasks.sandbox.zygote import (
    ZYGOTE,
    CannotStart,
    current_folder,
    environment,
    import_path,
)

_LOOK_SECONDS = 0.1
_LOAD_SECONDS = 600.0
"""Time limit for loading data and libraries, which does not count toward a trial's limit."""
_START_SECONDS = 45.0
"""Time during which starting a sandbox is retried."""
_PAUSE_SECONDS = 0.5
_NEAR = 0.8
"""Fraction of the memory limit above which a kill is attributed to memory."""
_KEPT_SHARE = 0.5
"""Fraction of the memory limit that an idle sandbox may use."""
_REMEDIES = (
    ("Cannot allocate memory", "use fewer --workers or free some memory"),
    ("Resource temporarily unavailable", "use fewer --workers or raise `ulimit -u`"),
    ("Too many open files", "use fewer --workers or raise `ulimit -n`"),
    ("No space left on device", "make room in the folder for temporary files, or set TMPDIR"),
)


class NoSandbox(StoreLost):
    """No process for trials could be started for some time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a call: memory, and seconds excluding loading and waiting."""

    seconds: float = inf
    memory_bytes: int | None = None
    remedy: str = "raise the limit with --trial-timeout"


@dataclass
class CallProgress:
    """Progress of a call according to its reports; times are readings of the clock `monotonic`."""

    step: str | None = None
    fold: int | None = None
    costs: tuple[StepCost, ...] = ()
    started: float = field(default_factory=monotonic)
    is_loading: bool = False
    load_seconds: float = 0.0
    waits: Waited = field(default_factory=lambda: Waited(0.0, None))
    waited_before: float = 0.0

    def note(self, message: Message) -> None:
        """Update the progress from a report."""
        if isinstance(message, FoldReached):
            self.step, self.fold, self.costs = message.step, message.fold, message.costs
        elif isinstance(message, Waited):
            self.waits = message
        elif isinstance(message, Loading):
            self.is_loading = True
        elif isinstance(message, Loaded):
            self.is_loading, self.load_seconds = False, message.seconds
            self.started, self.waited_before = monotonic(), self.waits.seconds

    def seconds(self) -> float:
        """Return the seconds since the call's time started, excluding waiting times."""
        until = monotonic() if self.waits.since is None else self.waits.since
        return until - self.started - (self.waits.seconds - self.waited_before)


class CallEnded(RuntimeError):  # noqa: N818 - reads as an outcome
    """A call has no result because its sandbox has ended; `at` is the call's last progress.

    Attributes:
        kind: Kind of the failure; None if the call was cancelled.
        may_repeat: Whether another attempt may succeed, because another process killed the sandbox.
    """

    def __init__(
        self, kind: FailureKind | None, message: str, at: CallProgress, *, may_repeat: bool = False
    ) -> None:
        super().__init__(message)
        self.kind, self.at, self.may_repeat = kind, at, may_repeat


class Caller(Protocol):
    """The party that waits for a call."""

    def is_unwanted(self) -> bool:
        """Return whether the result is no longer wanted."""

    def observe(self, seen: CallProgress | Notice) -> None:
        """Receive the progress about ten times a second, and every warning."""


class Call:
    """A call in a sandbox, whose limits are enforced by the waiting thread."""

    def __init__(self, sandbox: "Sandbox", limits: Limits, caller: Caller) -> None:
        self._sandbox, self._limits, self._caller = sandbox, limits, caller
        self.progress = CallProgress()
        self.ended: CallEnded | None = None
        self._checked = monotonic()
        self._ahead: list[Message] = []

    def next_step(self) -> StepBegun | None:
        """Wait for the next step to begin; return None after the last step.

        Raises `CallEnded`.
        """
        message = self._next()
        while isinstance(message, StepDone):
            message = self._next()
        if isinstance(message, StepBegun):
            return message
        self._ahead.append(message)
        return None

    def step_done(self) -> StepDone:
        """Wait for the end of the current step. Raises `CallEnded`."""
        message = self._next()
        assert isinstance(message, StepDone)  # noqa: S101 - each step that began also ends
        return message

    def value(self) -> Any:
        """Return the call's result after the last step, or raise the call's error."""
        message = self._next()
        if isinstance(message, Raised):
            self._sandbox.end()
            raise message.error
        assert isinstance(message, Returned)  # noqa: S101 - see `next_step`
        self._sandbox.settle(message.damage, self._memory_limit())
        return message.value

    def _next(self) -> Message:
        while True:
            message = self._ahead.pop() if self._ahead else self._received()
            if isinstance(message, Noticed):
                self._caller.observe(message.notice)
            elif isinstance(message, StepBegun | StepDone | Returned | Raised):
                return message
            else:
                self.progress.note(message)

    def _received(self) -> Message:
        connection = self._sandbox.connection
        try:
            while not connection.poll(_LOOK_SECONDS) or self._is_late():
                if self._sandbox.tree.has_ended() and not connection.poll(0):
                    connection.close()  # forked copies of the sandbox may keep the connection open
                else:
                    self._check()
            message: Message = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            self.ended = self._death()
            raise self.ended from None
        return message

    def _is_late(self) -> bool:
        """Return whether the last check was long ago because of constant reports."""
        return monotonic() - self._checked > 2 * _LOOK_SECONDS

    def _check(self) -> None:
        """End the sandbox if the call exceeds a limit, or if nobody wants the result."""
        self._checked = monotonic()
        self._sandbox.output.cut()
        tree, at, limit_bytes = self._sandbox.tree, self.progress, self._memory_limit()
        tree.refresh()
        limit_seconds = _LOAD_SECONDS if at.is_loading else self._limits.seconds
        # Check memory first: if a check is late, memory explains the failure better than time.
        if memory_bytes := tree.memory_above(limit_bytes):
            text = (
                f"took {memory_bytes / 1e9:.4g} GB of memory, more than "
                f"{limit_bytes / 1e9:.3g} GB (raise the limit with --trial-memory)"
            )
            raise self._ended(FailureKind.MEMORY, text)
        if at.seconds() > limit_seconds:
            what = "to load data and libraries" if at.is_loading else ""
            text = what or f"({self._limits.remedy})"
            raise self._ended(FailureKind.TIMEOUT, f"took more than {limit_seconds:.4g} s {text}")
        if self._caller.is_unwanted():
            raise self._ended(None, "cancelled by the flow")
        self._caller.observe(at)

    def _ended(self, kind: FailureKind | None, message: str) -> CallEnded:
        self._sandbox.end()
        self.ended = CallEnded(kind, message, self.progress)
        return self.ended

    def _death(self) -> CallEnded:
        """Return the failure for a sandbox that ended on its own."""
        was_near = self._sandbox.tree.last_bytes > _NEAR * self._memory_limit()
        code = self._sandbox.end()
        if code in (None, -signal.SIGKILL):
            kind = FailureKind.MEMORY if was_near else FailureKind.CRASHED
            text = "the process was killed" + (" when memory was short" if was_near else "")
            return CallEnded(kind, text, self.progress, may_repeat=True)
        how = f"exited with code {code}, as if by os._exit"
        if code == LOST:
            how = "lost the connection to its worker, as if code had closed all file descriptors"
        elif code < 0:
            how = f"was ended by signal {-code} ({_signal_name(-code)})"
        return CallEnded(FailureKind.CRASHED, f"the process {how}", self.progress)

    def _memory_limit(self) -> int:
        return self._limits.memory_bytes or psutil.virtual_memory().total


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class Sandbox:
    """A process that runs one call at a time. The constructor raises `CannotStart`."""

    def __init__(self, at_start: bytes = b"") -> None:
        try:
            self.output = Output()
            self.connection, theirs = Pipe()
            start = pickle.dumps((current_folder(), import_path(), environment()))
            with theirs:
                pid = ZYGOTE.fork(theirs.fileno(), self.output.fileno())
        except OSError as error:
            raise CannotStart(f"{type(error).__name__}: {error}") from error
        try:
            self.tree = ProcessTree(pid)
        except psutil.NoSuchProcess as error:
            raise CannotStart("the process ended during its start") from error
        self.is_alive = True
        self._code: int | None = None
        self._is_loading = bool(at_start)
        self._send(start)
        if at_start:
            self._send(at_start)

    def call(
        self,
        function: Function,
        arguments: Mapping[str, Any],
        limits: Limits,
        caller: Caller,
    ) -> Call:
        """Start a call to a module's function; the module must import neither Prefect nor Dask."""
        self.output.clear()
        self._send(request(function, arguments))
        call = Call(self, limits, caller)
        call.progress.is_loading, self._is_loading = self._is_loading, False
        return call

    def has_ended(self) -> bool:
        """Return whether an idle sandbox has ended, for example by a kill."""
        # Threads of a killed process may keep the connection open for a moment.
        return not self.is_alive or self.connection.poll(0) or self.tree.has_ended()

    def settle(self, damage: str, limit_bytes: int) -> None:
        """End the sandbox if a call damaged it or left a large amount of memory in use."""
        if damage or self.tree.memory_above(int(_KEPT_SHARE * limit_bytes)):
            self.end()

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # if the sandbox has ended, the next call detects this
            self.connection.send_bytes(message)

    def end(self) -> int | None:
        """Kill the process and all processes it started; return the result of `Zygote.wait`."""
        if self.is_alive:
            self.is_alive = False
            self.tree.end()
            self._code = ZYGOTE.wait(self.tree.pid)
            self.connection.close()
        return self._code


class Sandboxes:
    """The sandboxes of this process, including idle sandboxes for later calls."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset to no sandboxes, including in a fork of a process with sandboxes."""
        self._lock = Lock()
        self._idle: list[Sandbox] = []
        self.n_taken = 0

    @contextmanager
    def taken(self, caller: Caller, at_start: bytes = b"") -> Iterator[Sandbox]:
        """Yield a sandbox, idle or new, for exclusive use.

        If the sandbox ends during use, a new sandbox starts at once with the request `at_start`,
        which loads the data without a waiting caller. Raises `NoSandbox` if no sandbox could be
        started for some time.
        """
        sandbox = None
        try:
            sandbox = self._take() or _started(caller)
            yield sandbox
        except BaseException:
            if sandbox is not None:
                sandbox.end()
            raise
        finally:
            with self._lock:
                self.n_taken -= 1
                if sandbox is not None and sandbox.is_alive:
                    self._idle.append(sandbox)
                elif sandbox is not None and at_start and not caller.is_unwanted():
                    with suppress(CannotStart):  # the next call retries
                        self._idle.append(Sandbox(at_start))

    def close(self) -> None:
        """End all idle sandboxes and, if no sandbox is in use, processes left behind by calls."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()
            if not self.n_taken:
                ZYGOTE.clear()

    def _take(self) -> Sandbox | None:
        with self._lock:
            self.n_taken += 1
            while self._idle:
                sandbox = self._idle.pop()
                if not sandbox.has_ended():
                    return sandbox
                sandbox.end()
        return None


SANDBOXES = Sandboxes()
os.register_at_fork(after_in_child=SANDBOXES.forget)


def _started(caller: Caller) -> Sandbox:
    since = monotonic()
    while True:
        try:
            return Sandbox()
        except CannotStart as error:
            cause = masked(str(error))
            if monotonic() - since > _START_SECONDS or caller.is_unwanted():
                remedy = next((r for part, r in _REMEDIES if part in cause), "remove the cause")
                raise NoSandbox(
                    f"no process for trials could be started for {monotonic() - since:.0f} s: "
                    f"{cause}; {remedy}, then rerun the command to resume"
                ) from error
            sleep(_PAUSE_SECONDS)
