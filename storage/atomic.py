"""Local files and folders that appear whole or not at all: written aside, then renamed.

For what users name. `storage.files` publishes a store's own folders, on any filesystem.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory


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
