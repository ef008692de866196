"""Errors as a command reports them: one message and an exit code, no traceback."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from prefect_tune.deployments.views.plain import echo

__all__ = ["is_of_server", "print_traceback", "reported_errors"]


@contextmanager
def reported_errors() -> Iterator[None]:
    """Report a user's own mistake with exit code 2, a failure with 1, a signal with 128 and it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        echo("interrupted", err=True)
        sys.exit(getattr(interrupt, "exit_code", 130))
    except Exception as error:
        if _is_mistake(error):
            echo(f"Error: {error}", err=True)
            sys.exit(2)
        if _is_failure(error):
            echo(f"Failed: {error}", err=True)
            sys.exit(1)
        if is_of_server(error):
            echo(f"Failed: {_of_server(error)}", err=True)
            sys.exit(1)
        raise


def print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print what no command expects, as `sys.excepthook` does, but without passwords."""
    echo("".join(traceback.format_exception(kind, error, trace)), err=True)


def is_of_server(error: Exception) -> bool:
    """Return whether an error, or what it comes from, came from talking to the Prefect server."""
    cause: BaseException | None = error
    while cause is not None:
        rooms = {kind.__module__.split(".")[0] for kind in type(cause).__mro__}
        if not rooms.isdisjoint({"httpx", "httpcore"}):
            return True
        cause = cause.__cause__
    return False


def _of_server(error: Exception) -> str:
    if getattr(getattr(error, "response", None), "status_code", None) == 401:
        return "the Prefect server lets in only who sets its PREFECT_API_AUTH_STRING"
    return f"the Prefect server does not answer: {error!r}"


def _is_mistake(error: Exception) -> bool:
    from prefect_tune.optimizers.space.wording import UnknownName
    from prefect_tune.storage.store import StoreRefused
    from prefect_tune.tasks.bad_input import BadInput

    return isinstance(error, BadInput | UnknownName | StoreRefused)


def _is_failure(error: Exception) -> bool:
    from prefect_tune.deployments.server import ServerFailed
    from prefect_tune.flows.study.study import StudyFailed
    from prefect_tune.storage.lease import LeaseLost
    from prefect_tune.storage.waiting.lost import ProcessExhausted, StoreLost
    from prefect_tune.tasks.final_model import RefitFailed
    from prefect_tune.tasks.objective.predictions import InvalidPredictions

    failures = StudyFailed | RefitFailed | InvalidPredictions | ServerFailed
    return isinstance(error, failures | StoreLost | LeaseLost | ProcessExhausted)
