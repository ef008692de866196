"""The group of all commands, and how it tells mistakes in their usage."""

from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any

import click

from prefect_tune.deployments.views.plain import shown

__all__ = ["Commands"]


class Commands(click.Group):
    """Commands whose mistakes in usage are shown as all else is: no passwords, nothing unseen."""

    def make_context(
        self,
        info_name: str | None,
        args: MutableSequence[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the words of a command, which must be UTF-8."""
        with _mistakes_shown():
            for word in args:
                _check_utf8(word)
            return super().make_context(info_name, list(args), parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the words that follow, and run the command."""
        with _mistakes_shown():
            return super().invoke(ctx)


@contextmanager
def _mistakes_shown() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        raise click.UsageError(shown(error.format_message()), error.ctx) from error


def _check_utf8(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(
            f"{word} is not UTF-8, as all names must be; rename what it names"
        ) from error
