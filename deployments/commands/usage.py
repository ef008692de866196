"""The group of all commands, and how it tells mistakes in their usage."""

from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import Any

import click

from prefect_tune.deployments.views.plain import shown
from prefect_tune.deployments.views.result_stream import result_apart, stay_apart
from prefect_tune.tasks.worker.standard_streams import open_streams

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

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run with the words of the command line, as a program, or with others, for a caller."""
        open_streams()
        if args is None:
            stay_apart()
        return super().main(args, **extra)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command whose standard output is its result alone."""
        _keep_apart(cmd)
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the words that follow, and run the command."""
        with _mistakes_shown():
            return super().invoke(ctx)


def _keep_apart(command: click.Command) -> None:
    """Let a command, or those of a group, print nothing but results to standard output."""
    if isinstance(command, click.Group):
        for member in command.commands.values():
            _keep_apart(member)
    elif command.callback is not None:
        command.callback = result_apart()(command.callback)


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
