"""Errors of commands, including usage errors: a message and an exit code instead of a traceback."""

import errno
import sys
import traceback
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import click

from prefect_tune.deployments.views.console import echo
from prefect_tune.deployments.views.result_stream import result_apart, stay_apart
from prefect_tune.flows.wording.text import printable
from prefect_tune.storage.waiting import interrupt_behind
from prefect_tune.tasks.sandbox.output import open_streams


@contextmanager
def reported_errors() -> Iterator[None]:
    """Report errors. The exit code is 2 for bad input, 1 for failures, 128 + N for signal N."""
    try:
        yield
    except (click.exceptions.Exit, click.ClickException, click.Abort):  # for example after --help
        raise
    except (Exception, KeyboardInterrupt) as error:
        # An outage may have interrupted the handling of the first error.
        if interrupt := interrupt_behind(error):
            echo("interrupted", err=True)
            sys.exit(getattr(interrupt, "exit_code", 130))
        is_ours = type(error).__module__.startswith("prefect_tune.")
        if is_ours and (isinstance(error, RuntimeError) or getattr(error, "exit_code", 2) == 1):
            echo(f"Failed: {error}", err=True)
            sys.exit(1)
        is_name = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        if is_name or (is_ours and isinstance(error, ValueError)):
            echo(f"Error: {error}", err=True)
            sys.exit(2)
        if is_of_server(error):
            why = f"does not answer: {error!r}"
            if getattr(getattr(error, "response", None), "status_code", None) == 401:
                why = "refused access; set PREFECT_API_AUTH_STRING to the server's credentials"
            echo(f"Failed: the Prefect server {why}", err=True)
            sys.exit(1)
        raise


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an unexpected error like `sys.excepthook`, but with passwords masked."""
    echo("".join(traceback.format_exception(kind, error, trace)), err=True)


def is_of_server(error: BaseException) -> bool:
    """Return whether an error arose in communication with the Prefect server."""
    cause: BaseException | None = error
    while cause is not None:
        rooms = {kind.__module__.split(".")[0] for kind in type(cause).__mro__}
        if not rooms.isdisjoint({"httpx", "httpcore"}):
            return True
        cause = cause.__cause__
    return False


class Commands(click.Group):
    """Group of commands that reports usage errors like other errors, masking passwords."""

    def make_context(
        self,
        info_name: str | None,
        args: MutableSequence[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments of a command, which must be valid UTF-8."""
        with _mistakes_shown():
            for word in args:
                _check_utf8(word)
            return super().make_context(info_name, list(args), parent, **extra)

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run the command line of the program, or `args` if given."""
        open_streams()
        if args is None:
            stay_apart()
        return super().main(args, **extra)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command that may print only its result to standard output."""
        _keep_apart(cmd)
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the remaining arguments and run the command."""
        from prefect_tune.tasks.bad_input import command_line

        with _mistakes_shown(), command_line(), reported_errors():
            return super().invoke(ctx)


def _keep_apart(command: click.Command) -> None:
    """Redirect all output of a command or group to standard error, except results."""
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
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # from click 8.2
            raise  # only prints the help
        raise click.UsageError(printable(error.format_message()), error.ctx) from error


def _check_utf8(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{word} is not valid UTF-8; rename the file or folder") from error
