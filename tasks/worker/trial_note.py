"""A worker's note of its trial and its progress, for its nanny to read at any moment.

The note is a file of fixed size beside the worker's folder, made when the worker starts and removed
when it dies. Its blocks are allocated at once, so a disk that fills up later cannot keep the note
from changing. Of two places with a checksum each, written in turn, a reader takes the newest whole
one. Limits depend on the note, so a trial without one does not start.

While its trial runs, warnings of the worker are sent to the flow as events of Dask.
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
"""Room for a text with its header."""
_HEADER = struct.Struct("<QLL")
"""Number of the text, its length in bytes, and the checksum of number and text."""


class NoteFile:
    """The writer's side.

    Args:
        path: Where to make it, in place of what is there.

    Raises:
        OSError: If it cannot be made, as on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        path.unlink(missing_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # as long as this process lives: see `sweep_tails`
        try:
            self._place(bytes(2 * PLACE_BYTES), 0)
            os.fsync(self._file)  # or blocks may be found only later
        except OSError:
            self.remove()
            raise

    def write(self, text: str) -> None:
        """Write a text in place of the former one.

        Raises:
            ValueError: If it is too long.
            OSError: If it cannot be written; the former text stays then.
        """
        content = text.encode()
        if len(content) > PLACE_BYTES - _HEADER.size:
            raise ValueError(f"{len(content)} bytes do not fit into {PLACE_BYTES}")
        number = self._number + 1
        header = _HEADER.pack(number, len(content), _checksum(number, content))
        self._place(header + content, number % 2 * PLACE_BYTES)
        self._number = number

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # it was removed before
            os.close(self._file)
        self.path.unlink(missing_ok=True)

    def _place(self, content: bytes, offset: int) -> None:
        while content:
            written = os.pwrite(self._file, content, offset)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            content, offset = content[written:], offset + written


def read_text(path: Path) -> str | None:
    """Return the newest whole text of a file; None if there is no file, or none was written."""
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
"""Costs of steps that fit into a note, however long their names are."""


class WorkerUnfit(StoreLost):
    """A worker cannot keep a trial within its limits; no doing of the trial."""


@dataclass(slots=True)
class _Note:
    """The note of this process's trial."""

    file: NoteFile
    content: dict[str, Any] = field(default_factory=dict)

    def write(self, **content: Any) -> None:
        self.content |= content
        self.file.write(json.dumps(self.content))


_NOTED: ContextVar[_Note | None] = ContextVar("trial_note", default=None)


@contextmanager
def trial_noted(times: float = 1.0, limit_seconds: float | None = None) -> Iterator[None]:
    """Note the task run in the body as this worker's trial, whose limits are then kept.

    Args:
        times: How many times as long as a trial it may take.
        limit_seconds: How long it may take where that is less; None for what the nannies allow.

    Raises:
        WorkerUnfit: If it cannot be noted, as when no file can be made on a full disk.
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
    """Make the file for the notes of a worker, once in its process, and a group of the process.

    Raises:
        WorkerUnfit: If it cannot be made.
    """
    lead_group()
    try:
        return _note_file(worker.local_directory, os.getpid())
    except OSError as error:
        raise _unfit(worker, error) from error


def dask_setup(worker: Any) -> None:
    """Prepare a worker of this machine as it starts; called by Dask."""
    with suppress(WorkerUnfit):  # said when a trial comes
        prepare_note(worker)


def note_path(worker_folder: str, pid: int) -> Path:
    """Return the file that a worker's process notes its trial in."""
    return Path(worker_folder).parent / f"trial-{pid}.note"


def this_worker() -> Any:
    """Return the Dask worker that runs this; None elsewhere."""
    try:
        return distributed.get_worker()
    except ValueError:
        return None


@contextmanager
def loading_noted() -> Iterator[None]:
    """Note that the trial of this process loads data and libraries in the body.

    Loading has a time limit of its own. The clock of the trial starts when the body has ended.
    """
    note = _NOTED.get()
    if note is None:
        yield
        return
    with suppress(OSError, ValueError):  # the former note holds the trial to its limits
        note.write(is_loading=True)
    yield
    load_seconds, waited = own_seconds(note.content), note.content.get("waited", 0.0)
    ended = {"is_loading": False, "load_seconds": load_seconds, "waited_before": waited}
    with suppress(OSError, ValueError):  # as above
        note.write(started=monotonic(), **ended)


def note_step(step: str, fold: int, costs: Callable[[], Iterable[StepCost]] = tuple) -> None:
    """Note which step of which fold the trial of this process is at.

    Args:
        step: Name of the step.
        fold: Number of the fold.
        costs: Says what each step and fold has taken that has ended.
    """
    if (note := _NOTED.get()) is not None:
        # One note per step and fold, and `asdict` copies all values deeply.
        noted = [{name: getattr(cost, name) for name in _COST_FIELDS} for cost in costs()]
        with suppress(OSError, ValueError):  # the former note holds the trial to its limits
            note.write(step=step, fold=fold, steps=noted[-_MOST_STEPS:])


def note_waits(waits: Waits) -> None:
    """Note how long the trial of this process has waited for others, and whether it waits now."""
    if (note := _NOTED.get()) is not None:
        with suppress(OSError, ValueError):  # as above
            note.write(waited=waits.seconds, waits_since=waits.since)


def own_seconds(note: Mapping[str, Any]) -> float:
    """Return the seconds since the clock of a note's trial started, without waits for others."""
    until = note.get("waits_since") or monotonic()
    waited = note.get("waited", 0.0) - note.get("waited_before", 0.0)
    return float(until - note["started"] - waited)


def read_note(path: Path) -> Mapping[str, Any]:
    """Read a note: `trial`, `flow_run`, `worker`, `started`, perhaps `step`, `fold` and `steps`.

    While a worker loads data and libraries, `is_loading` is true; `load_seconds` follows. Empty if
    it runs no trial.
    """
    return json.loads(read_text(path) or "{}")


@cache
def _note_file(worker_folder: str, pid: int) -> NoteFile:
    path = note_path(worker_folder, pid)
    sweep_tails(path.parent, "trial-*.note")
    file = NoteFile(path)
    Finalize(None, file.remove, exitpriority=0)  # unlike `atexit`, in forked workers too
    return file


def _take_back(file: NoteFile) -> None:
    """Note that no trial runs."""
    try:
        file.write("{}")
    except OSError:  # or the next trial would be taken for this one
        _note_file.cache_clear()
        file.remove()


def _unfit(worker: Any, error: OSError) -> WorkerUnfit:
    return WorkerUnfit(f"worker {worker.address} cannot note its trial: {error}")


def notice_topic(flow_run: str) -> str:
    """Return the topic of the warnings that belong to a flow run."""
    return f"prefect-tune notices {flow_run}"


@contextmanager
def notices_sent(worker: Any, flow_run: str) -> Iterator[None]:
    """Send the warnings of the body to the flow.

    Args:
        worker: The Dask worker that runs the body.
        flow_run: Id of the flow run that it belongs to.
    """
    with noticed_by(_Sender(worker, flow_run)):
        yield


class _Sender:
    """Sends the first warning of each kind and subject, so that a thousand are one event."""

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
    """Return the set of kinds and subjects that a worker has sent to a flow run, to be added to."""
    return set()
