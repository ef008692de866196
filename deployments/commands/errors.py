"""Errors as a command tells them: one message and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

__all__ = ["is_of_server", "told_plainly"]


@contextmanager
def told_plainly() -> Iterator[None]:
    """A user's own mistakes as one message and exit code 2, failures as one and exit code 1."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        from prefect_tune.deployments.server import ServerFailed
        from prefect_tune.flows.study.study import StudyFailed
        from prefect_tune.optimizers.space.naming import UnknownName
        from prefect_tune.storage.database import StoreLost
        from prefect_tune.storage.lease import LeaseLost
        from prefect_tune.storage.store import StoreRefused
        from prefect_tune.tasks.bad_input import BadInput

        if isinstance(error, BadInput | UnknownName | StoreRefused):
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)
        if isinstance(error, StudyFailed | ServerFailed | StoreLost | LeaseLost):
            click.echo(f"Failed: {error}", err=True)
            sys.exit(1)
        if is_of_server(error):
            click.echo(f"Failed: the Prefect server does not answer: {error!r}", err=True)
            sys.exit(1)
        raise


def is_of_server(error: Exception) -> bool:
    """Whether an error came from talking to the Prefect server."""
    return type(error).__module__.split(".")[0] in ("httpx", "httpcore")
