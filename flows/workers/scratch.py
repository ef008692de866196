"""The private folder for temporary files of this process and its workers.

A worker imports from its folder, so write access would allow running code. The folder is deleted
when the process ends; the next process deletes the folders of killed ones.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from prefect_tune.storage.local_files import make_own

_LOCK = "lock"
_AFTER_ALL_OTHERS = -1_000
"""Priority of the deletion, after `multiprocessing` has deleted its own files there."""


@cache
def scratch_folder() -> Path:
    """Return the folder, created on first use; `PermissionError` if its parent is not ours."""
    base = Path(tempfile.gettempdir()) / f"prefect-tune-{os.getuid()}"
    make_own(base)
    with _locked(base / _LOCK):
        for folder in base.iterdir():
            if folder.is_dir() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f"{os.getpid()}-"))
        # The system releases the lock however this process dies.
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=_AFTER_ALL_OTHERS)
    return folder


def _is_left(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
