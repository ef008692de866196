"""Output of commands: JSON, summaries, files and folders."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["print_json", "print_summary", "written", "written_folder"]


@contextmanager
def written(out: str) -> Iterator[Path]:
    """Yield a path to write to, which becomes `out` when all is written."""
    from prefect_tune.storage.atomic import atomic_file
    from prefect_tune.tasks.bad_input import BadInput

    try:
        with atomic_file(Path(out)) as path:
            yield path
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another file") from error


@contextmanager
def written_folder(out: str) -> Iterator[Path]:
    """Yield a folder to write to, which becomes `out` when all is written."""
    from prefect_tune.storage.atomic import atomic_folder
    from prefect_tune.tasks.bad_input import BadInput

    target = Path(out)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{out} already exists; choose an empty or new folder")
    try:
        with atomic_folder(target) as folder:
            yield folder
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another folder") from error


def print_json(document: Any) -> None:
    """Print a document as JSON to standard output."""
    from prefect_tune.storage.privacy.masking import masked_values

    click.echo(json.dumps(masked_values(document), indent=2))


def print_summary(
    summary: dict[str, Any], *, as_json: bool, silent: bool = False, notes: bool = False
) -> None:
    """Print the summary of a study, as JSON or for people.

    Args:
        summary: The summary.
        as_json: Whether as JSON, which has everything.
        silent: Whether people are to see nothing.
        notes: Whether with the method's notes; a run has said them when its search ended.
    """
    if as_json:
        print_json(summary)
    elif not silent:
        from prefect_tune.deployments.views import study as view

        view.print_summary(summary, notes=notes)
