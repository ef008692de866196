"""Lines of a terminal, which hold only what people may see. Light to import."""

from typing import Any

import click

from prefect_tune.flows.visible import shown

__all__ = ["echo", "shown"]


def echo(text: Any, *, err: bool = False) -> None:
    """Print a line to standard output or standard error."""
    click.echo(shown(str(text)), err=err)
