"""Local files and folders: those that appear whole or not at all, and those only their owner sees.

What users name is written aside, then renamed; `storage.files` publishes a store's own folders, on
any filesystem. Studies hold people's data, so other users of the machine cannot look into them.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

from prefect_tune.storage.notices import warn


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces `target` when the body ends.

    Raises:
        OSError: If `target` is a folder or cannot be written.
    """
    aside = _aside(target)
    try:
        aside.touch()
        yield aside
        aside.replace(target)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to write to, which becomes `target` when the body ends.

    Raises:
        OSError: If `target` holds anything or cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
        folder = Path(beside) / target.name
        folder.mkdir()
        yield folder
        folder.replace(target)


def check_writable(target: Path) -> None:
    """Raise unless a file can be written there, before the work that is to fill it.

    Raises:
        OSError: If `target` is a folder or cannot be written.
    """
    aside = _aside(target)
    aside.touch()
    aside.unlink()


def _aside(target: Path) -> Path:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder")
    return target.with_name(f".{target.name}.part")


_REPORTED = set[Path]()


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter; of one that is there and wider, say so once.

    Raises:
        OSError: If it cannot be made.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=stat.S_IRWXU)
    except FileExistsError:
        if not folder.is_dir():
            raise
        _warn_if_open(folder, "enter", "700")


def make_private_file(file: Path) -> None:
    """Make an empty file that only its owner may read, as `make_private` makes folders.

    Raises:
        OSError: If it cannot be made.
    """
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR))
    except FileExistsError:
        if _is_open(file.parent):
            _warn_if_open(file, "read", "600")


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _warn_if_open(path: Path, do: str, right: str) -> None:
    """Warn once that other users can look into a folder or file, and how to close it."""
    if _is_open(path) and path not in _REPORTED:
        _REPORTED.add(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        closing = f"chmod {right} {quote(str(path))}"
        text = f"other users can {do} {path} (mode {mode:o}); close it with: {closing}"
        warn("open to others", text, str(path))


def make_own(folder: Path) -> None:
    """Make a folder that only its owner may enter where anyone may make one, as in `/tmp`.

    Raises:
        PermissionError: If another user was first.
        OSError: If it cannot be made.
    """
    try:
        folder.mkdir(mode=stat.S_IRWXU)
    except FileExistsError:
        found = folder.lstat()  # a link may lead anywhere
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(
                f"{folder} belongs to another user; remove it, or set TMPDIR to another folder"
            ) from None
        folder.chmod(stat.S_IRWXU)
