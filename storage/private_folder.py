"""Folders and files that no other user of the machine can look into: studies hold people's data."""

import os
import stat
from pathlib import Path
from shlex import quote

from prefect_tune.storage.notices import warn

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
