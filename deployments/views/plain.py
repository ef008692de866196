"""Lines of a terminal, which hold only what people may see. Light to import."""

from contextlib import suppress
from typing import Any

import click

from prefect_tune.deployments.views.result_stream import result_stream
from prefect_tune.flows.text import shown

__all__ = ["echo", "echo_as_is", "shown"]


def echo(text: Any, *, err: bool = False) -> None:
    """Print a line to standard output or standard error."""
    if err:
        with suppress(OSError):  # a full disk behind standard error ends no study
            click.echo(shown(str(text)), err=True)
    else:
        echo_as_is(shown(str(text)))


def echo_as_is(text: str, *, nl: bool = True) -> None:
    """Print a text to standard output as it is."""
    click.echo(text, nl=nl, file=result_stream())
