"""Folders that other users of the machine cannot look into: studies hold people's data."""

import logging
import os
import stat
from pathlib import Path

__all__ = ["make_own", "make_private"]

_LOGGER = logging.getLogger(__name__)
_SAID = set[Path]()


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
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and folder not in _SAID:
            _SAID.add(folder)
            _LOGGER.warning(
                f"other users can enter {folder} (mode {mode:o}); close it with: chmod 700 {folder}"
            )


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
