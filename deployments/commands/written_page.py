"""Reports as the files that commands write."""

from pathlib import Path
from typing import TYPE_CHECKING

from prefect_tune.deployments.commands.output import written
from prefect_tune.deployments.views.plain import echo
from prefect_tune.flows.text import format_bytes

if TYPE_CHECKING:
    from prefect_tune.deployments.report.page import Page

__all__ = ["check_page", "write_page"]


def check_page(out: str) -> None:
    """Check that a file can be written, before the work that is to fill it.

    Raises:
        BadInput: If it cannot.
    """
    from prefect_tune.storage.atomic import check_writable
    from prefect_tune.tasks.bad_input import BadInput

    try:
        check_writable(Path(out))
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}; name another file") from error


def write_page(out: str, page: "Page", of: str, *, is_silent: bool) -> None:
    """Write a page to a file, and say where it is.

    Args:
        out: The file.
        page: The page.
        of: What it is the report of.
        is_silent: Whether nothing is to be said.

    Raises:
        BadInput: If the file cannot be written.
    """
    from prefect_tune.deployments.report.html import page_html

    text = page_html(page)
    with written(out) as path:
        path.write_text(text, encoding="utf-8")
    if not is_silent:
        size = format_bytes(len(text.encode()))
        echo(f"the report of {of} is in {out} ({size})")
        echo(f"open it in a browser: {Path(out).absolute().as_uri()}")
