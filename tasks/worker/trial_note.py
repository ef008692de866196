"""A worker's note of its trial and its progress, for its nanny to read at any moment.

The note is a file of fixed size next to the worker's folder. All blocks are allocated at once, so a
full disk cannot block updates. Texts go to two slots in turn, each with a checksum; readers take
the newest valid slot. Limits depend on the note, so a trial without a note does not start.

While a trial runs, warnings of its worker reach the flow as Dask events.
"""

import errno
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from time import monotonic
from typing import Any

import distributed
from prefect.context import TaskRunContext

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.storage.waiting import StoreLost, Waits
from prefect_tune.tasks.worker.orphans import lead_group
from prefect_tune.tasks.worker.output_keeper import sweep_tails

PLACE_BYTES = 128 * 1024
"""Size of a slot: a text and its header."""
_HEADER = struct.Struct("<QLL")
"""Number of the text, its length in bytes, and a checksum of number and text."""


class NoteFile:
    """The writer's side of a note; OSError if the file cannot be created, as on a full disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        path.unlink(missing_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # for the life of this process: see `sweep_tails`
        try:
            self._place(bytes(2 * PLACE_BYTES), 0)
            os.fsync(self._file)  # allocates the blocks now
        except OSError:
            self.remove()
            raise

    def write(self, text: str) -> None:
        """Replace the text, which stays on ValueError (if it is too long) or OSError."""
        content = text.encode()
        if len(content) > PLACE_BYTES - _HEADER.size:
            raise ValueError(f"a note of {len(content)} bytes exceeds {PLACE_BYTES} bytes")
        number = self._number + 1
        header = _HEADER.pack(number, len(content), _checksum(number, content))
        self._place(header + content, number % 2 * PLACE_BYTES)
        self._number = number

    def remove(self) -> None:
        """Remove the file if it exists."""
        with suppress(OSError):  # already removed
            os.close(self._file)
        self.path.unlink(missing_ok=True)

    def _place(self, content: bytes, offset: int) -> None:
        while content:
            written = os.pwrite(self._file, content, offset)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            content, offset = content[written:], offset + written


def read_text(path: Path) -> str | None:
    """Return the newest valid text of a file; None if no file or text exists."""
    newest, text = 0, None
    with suppress(OSError), path.open("rb") as file:
        for place in range(2):
            file.seek(place * PLACE_BYTES)
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                continue
            number, length, checksum = _HEADER.unpack(header)
            content = file.read(min(length, PLACE_BYTES))
            if number > newest and _checksum(number, content) == checksum:
                newest, text = number, content.decode()
    return text


def _checksum(number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little")))


_COST_FIELDS = tuple(f.name for f in fields(StepCost))
_MOST_STEPS = (PLACE_BYTES - 4_096) // 512
"""Step costs that fit into a note, with room for long names."""


class WorkerUnfit(StoreLost):
    """A worker cannot enforce the limits of a trial, for reasons unrelated to the trial."""


@dataclass(slots=True)
class _Note:
    file: NoteFile
    content: dict[str, Any] = field(default_factory=dict)

    def write(self, **content: Any) -> None:
        self.content |= content
        self.file.write(json.dumps(self.content))


_NOTED: ContextVar[_Note | None] = ContextVar("trial_note", default=None)


@contextmanager
def trial_noted(times: float = 1.0, limit_seconds: float | None = None) -> Iterator[None]:
    """Note this task run as the worker's trial during the body, so that limits apply.

    The time limit is `times` a trial's limit, or `limit_seconds` if that is less. Raises
    WorkerUnfit if the trial cannot be noted, for example because the disk is full.
    """
    context = TaskRunContext.get()
    worker = this_worker()
    if context is None or worker is None:
        yield
        return
    note = _Note(prepare_note(worker))
    try:
        note.write(
            trial=str(context.task_run.id),
            flow_run=str(context.task_run.flow_run_id),
            worker=worker.address,
            started=monotonic(),
            times=times,
            limit_seconds=limit_seconds,
        )
    except OSError as error:
        raise _unfit(worker, error) from error
    token = _NOTED.set(note)
    try:
        with notices_sent(worker, str(context.task_run.flow_run_id)):
            yield
    finally:
        _NOTED.reset(token)
        _take_back(note.file)


def prepare_note(worker: Any) -> NoteFile:
    """Create a worker's note file and process group, once per process, or raise WorkerUnfit."""
    lead_group()
    try:
        return _note_file(worker.local_directory, os.getpid())
    except OSError as error:
        raise _unfit(worker, error) from error


def dask_setup(worker: Any) -> None:
    """Prepare a starting worker on this machine; called by Dask."""
    with suppress(WorkerUnfit):  # reported when a trial starts
        prepare_note(worker)


def note_path(worker_folder: str, pid: int) -> Path:
    """Return the note file of a worker's process."""
    return Path(worker_folder).parent / f"trial-{pid}.note"


def this_worker() -> Any:
    """Return the Dask worker that runs this code; None outside a worker."""
    try:
        return distributed.get_worker()
    except ValueError:
        return None


@contextmanager
def loading_noted() -> Iterator[None]:
    """Note that this process's trial loads data and libraries during the body.

    Loading has its own time limit. The trial's clock starts when the body ends.
    """
    note = _NOTED.get()
    if note is None:
        yield
        return
    with suppress(OSError, ValueError):  # the previous note still enforces the limits
        note.write(is_loading=True)
    yield
    load_seconds, waited = own_seconds(note.content), note.content.get("waited", 0.0)
    ended = {"is_loading": False, "load_seconds": load_seconds, "waited_before": waited}
    with suppress(OSError, ValueError):  # as above
        note.write(started=monotonic(), **ended)


def note_step(step: str, fold: int, costs: Callable[[], Iterable[StepCost]] = tuple) -> None:
    """Note the step and fold that this process's trial has reached, with all costs so far."""
    if (note := _NOTED.get()) is not None:
        # One note per step and fold; `asdict` would copy all values deeply.
        noted = [{name: getattr(cost, name) for name in _COST_FIELDS} for cost in costs()]
        with suppress(OSError, ValueError):  # the previous note still enforces the limits
            note.write(step=step, fold=fold, steps=noted[-_MOST_STEPS:])


def note_waits(waits: Waits) -> None:
    """Note how long this process's trial has waited for others, and whether it waits now."""
    if (note := _NOTED.get()) is not None:
        with suppress(OSError, ValueError):  # as above
            note.write(waited=waits.seconds, waits_since=waits.since)


def own_seconds(note: Mapping[str, Any]) -> float:
    """Return the seconds since the clock of a note's trial started, without waiting times."""
    until = note.get("waits_since") or monotonic()
    waited = note.get("waited", 0.0) - note.get("waited_before", 0.0)
    return float(until - note["started"] - waited)


def read_note(path: Path) -> Mapping[str, Any]:
    """Read a note: `trial`, `flow_run`, `worker`, `started`, perhaps `step`, `fold` and `steps`.

    While a worker loads data and libraries, `is_loading` is true; `load_seconds` follows. A worker
    without a trial has an empty note.
    """
    return json.loads(read_text(path) or "{}")


@cache
def _note_file(worker_folder: str, pid: int) -> NoteFile:
    path = note_path(worker_folder, pid)
    sweep_tails(path.parent, "trial-*.note")
    file = NoteFile(path)
    Finalize(None, file.remove, exitpriority=0)  # unlike `atexit`, also runs in forked workers
    return file


def _take_back(file: NoteFile) -> None:
    try:
        file.write("{}")
    except OSError:  # otherwise the next trial would be mistaken for this one
        _note_file.cache_clear()
        file.remove()


def _unfit(worker: Any, error: OSError) -> WorkerUnfit:
    return WorkerUnfit(f"worker {worker.address} cannot note its trial: {error}")


def notice_topic(flow_run: str) -> str:
    """Return the Dask topic for warnings of a flow run."""
    return f"prefect-tune notices {flow_run}"


@contextmanager
def notices_sent(worker: Any, flow_run: str) -> Iterator[None]:
    """Send warnings raised in the body to the flow of `flow_run`, through its Dask worker."""
    with noticed_by(_Sender(worker, flow_run)):
        yield


class _Sender:
    """Sends the first warning of each kind and subject, so a thousand warnings are one event."""

    def __init__(self, worker: Any, flow_run: str) -> None:
        self._worker, self._flow_run = worker, flow_run
        self._sent = _sent_before(worker.address, flow_run)

    def __call__(self, notice: Notice) -> None:
        if (notice.kind, notice.subject) in self._sent:
            return
        self._sent.add((notice.kind, notice.subject))
        message = asdict(replace(notice, flow_run=self._flow_run))
        self._worker.log_event(notice_topic(self._flow_run), message)


@lru_cache(maxsize=8)
def _sent_before(address: str, flow_run: str) -> set[tuple[str, str]]:  # noqa: ARG001 - the cache's key
    return set()
