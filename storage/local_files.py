"""Local files and folders that are written atomically, or readable by their owner only.

Studies contain patients' data, so other users of the machine must not read them.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from uuid import uuid4

from prefect_tune.storage.notices import warn


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `target` if the `with` block succeeds.

    Raises OSError if the file cannot be written.
    """
    temporary = _temporary_path(target)
    try:
        temporary.touch()
        yield temporary
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `target` if the `with` block succeeds.

    Raises OSError if `target` exists and is not empty, or cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        folder = Path(temporary) / target.name
        folder.mkdir()
        yield folder
        folder.replace(target)


def check_writable(target: Path) -> None:
    """Raise OSError unless `target` can be written. Call this function before long work."""
    temporary = _temporary_path(target)
    temporary.touch()
    temporary.unlink()


def _temporary_path(target: Path) -> Path:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder")
    return target.with_name(f".prefect-tune-{uuid4().hex[:12]}.part")


_REPORTED = set[Path]()


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can enter; warn once if other users can enter it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=stat.S_IRWXU)
    except FileExistsError:
        if not folder.is_dir():
            raise
        _warn_if_open(folder, f"enter {folder}", "700")


def make_private_file(file: Path) -> None:
    """Create an empty file that only its owner can read; warn once if other users can read it."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR))
    except FileExistsError:
        if file.parent.stat().st_mode & _OTHERS:
            _warn_if_open(file, f"read {file}", "600")


_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def _warn_if_open(path: Path, access: str, right: str) -> None:
    """Warn once that other users can access a path, and give the command that prevents it."""
    found = path.stat()
    if found.st_mode & _OTHERS and found.st_uid == os.getuid() and path not in _REPORTED:
        _REPORTED.add(path)
        closing = f"chmod {right} {quote(str(path))}"
        mode = stat.S_IMODE(found.st_mode)
        text = f"other users can {access} (mode {mode:o}); to prevent this, run {closing}"
        warn("open to others", text, str(path))


def make_own(folder: Path) -> None:
    """Create a private folder, for example in `/tmp`, or make an existing folder private.

    Raises PermissionError if the folder belongs to another user.
    """
    try:
        folder.mkdir(mode=stat.S_IRWXU)
    except FileExistsError:
        found = folder.lstat()  # not stat: a link may lead anywhere
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(
                f"{folder} is not your own folder; remove it, or set TMPDIR to another folder"
            ) from None
        folder.chmod(stat.S_IRWXU)
