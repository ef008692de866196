"""The folder for temporary files of this process and of its workers; no other user may enter it.

A worker imports from its folder, so whoever could write there would run code. It is gone when the
process ends, and the next one sweeps what a killed one left.
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
"""When to remove it: `multiprocessing` removes what it has in there before."""


@cache
def scratch_folder() -> Path:
    """Return the folder, made when it is first asked for.

    Raises:
        PermissionError: If another user has made the folder for all such folders.
    """
    base = Path(tempfile.gettempdir()) / f"prefect-tune-{os.getuid()}"
    make_own(base)
    with _locked(base / _LOCK):
        for folder in base.iterdir():
            if folder.is_dir() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f"{os.getpid()}-"))
        # The system takes the lock back when this process dies, however it dies.
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=_AFTER_ALL_OTHERS)
    return folder


def _is_left(folder: Path) -> bool:
    """Return whether the process of a folder has ended."""
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
