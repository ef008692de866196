"""What commands write: JSON, summaries, files and folders."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

__all__ = ["print_json", "print_summary", "written", "written_folder"]


@contextmanager
def written(out: str) -> Iterator[Path]:
    """A path to write to, which becomes `out` when all is written."""
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    temporary = target.with_name(f".{target.name}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder")
        temporary.touch()
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another file") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def written_folder(out: str) -> Iterator[Path]:
    """A folder to write to, which becomes `out` when all is written."""
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{out} is there already; name a folder that is empty or not there")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            folder = Path(temporary) / target.name
            folder.mkdir()
            yield folder
            folder.replace(target)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another folder") from error


def print_json(document: Any) -> None:
    """JSON to standard output."""
    click.echo(json.dumps(document, indent=2))


def print_summary(summary: dict[str, Any], *, as_json: bool, silent: bool = False) -> None:
    """A summary of a study, as JSON or for people."""
    if as_json:
        print_json(summary)
    elif not silent:
        from prefect_tune.deployments.views import study as view

        view.print_summary(summary)
