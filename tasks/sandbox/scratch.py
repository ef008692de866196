"""The private folder for temporary files of this process and its sandboxes.

The folder is deleted when the process ends; the next process deletes the folders of killed ones.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from prefect_tune.storage.local_files import make_own

_LOCK = "lock"


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
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked process inherits the hook, but not the folder
        shutil.rmtree(folder, ignore_errors=True)


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
