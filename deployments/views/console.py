"""Printing to the terminal as plain text, never as markup. The module is cheap to import."""

import os
from contextlib import suppress
from typing import IO, Any, cast

import click
from rich.console import Console
from rich.table import Column
from rich.text import Text

from prefect_tune.deployments.views.result_stream import DynamicResultStream, result_stream
from prefect_tune.flows.wording.text import printable


def echo(text: Any, *, err: bool = False) -> None:
    """Print a line to standard output or standard error."""
    if err:
        with suppress(OSError):  # a full disk behind standard error must not end the study
            click.echo(printable(str(text)), err=True)
    else:
        echo_as_is(printable(str(text)))


def echo_as_is(text: str, *, nl: bool = True) -> None:
    """Print a text to standard output unchanged."""
    click.echo(text, nl=nl, file=result_stream())


class PlainConsole(Console):
    """A console that never interprets text as markup, because texts come from users."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text with passwords and control characters masked, but otherwise unchanged."""
        kept = {name: options[name] for name in ("justify", "overflow") if name in options}
        return Text(printable(text), style=options.get("style", ""), **kept)


def bold(text: str) -> tuple[str, str]:
    """Return a text as a bold part for `line`."""
    return text, "bold"


def line(*parts: str | tuple[str, str]) -> Text:
    """Return a line of text, assembled from parts with optional styles."""
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((printable(text), style) for text, style in styled))


def uncut_column(header: str) -> Column:
    """Return a column that is never truncated, for values that users copy into commands."""
    return Column(header, no_wrap=True, overflow="ignore")


CONSOLE = PlainConsole(
    file=cast("IO[str]", DynamicResultStream()),
    highlight=False,
    soft_wrap=True,
    width=None if os.isatty(1) else 160,  # `sys.stdout` is None if it is closed
)
