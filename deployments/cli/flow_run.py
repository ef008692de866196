"""Runs the flow of a command, and shows progress."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from prefect_tune.deployments.cli.errors import is_of_server

if TYPE_CHECKING:
    from prefect_tune.flows.comparison.comparison import Comparison
    from prefect_tune.flows.starting.prepare import PreparedStudy

from prefect_tune.deployments.views.console import echo


@contextmanager
def quick_imports() -> Iterator[None]:
    """Switch off garbage collection during imports, and skip imported objects afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


Prepared = TypeVar("Prepared", "PreparedStudy", "Comparison")
"""A checked study or comparison, ready to run."""


def run_flow(
    prepare: Callable[[], Prepared],
    run: Callable[[Prepared], dict[str, Any]],
    *,
    quiet: bool,
    json_lines: bool,
    keep_server: bool,
) -> dict[str, Any]:
    """Check the input while server and workers start; then run a flow and show its progress."""
    from prefect_tune.flows.running.interrupts import interrupts_taken
    from prefect_tune.tasks.sandbox.zygote import ZYGOTE, CannotStart

    if sys.stderr.isatty() and not (quiet or json_lines):
        echo("loading the libraries and the data ...", err=True)
    announce = partial(echo, "interrupted: ending the running trials ...", err=True)
    with interrupts_taken(announce), ExitStack() as stack:
        with quick_imports():
            from prefect_tune.deployments.server.embedded import launched_server

            server = stack.enter_context(launched_server(keep=keep_server))
            with suppress(CannotStart):  # if not, the first trial reports the error
                ZYGOTE.start_as_copy()  # before Prefect, which sandboxes do not need
            # Prefect would import these modules when the flow starts.
            import fastapi.encoders  # noqa: F401
            import prefect.flow_engine
            import prefect.utilities.visualization  # noqa: F401
            from prefect.exceptions import PrefectSignal

            import prefect_tune.flows.tune  # noqa: F401
            from prefect_tune.deployments.views.live import observer_for
            from prefect_tune.flows.study.progress import observed_by
        preparation = prepare()
        with (
            observer_for(quiet=quiet, json_lines=json_lines) as observer,
            observed_by(observer),
        ):
            observer.note(preparation.title)
            for note in preparation.notes:
                observer.note(str(note))
            observer.note(f"Prefect shows the run at {server.shown}")
            if keep_server:
                observer.note(f"in another shell: {server.exports}")
            server.wait()
            try:
                return run(preparation)
            except (KeyboardInterrupt, PrefectSignal) as ended:
                observer.note(f"to resume, rerun the command with {preparation.again}")
                if isinstance(ended, PrefectSignal):  # suspended or cancelled in Prefect's UI
                    raise KeyboardInterrupt from ended
                raise
            except Exception as error:
                summary = preparation.finished() if is_of_server(error) else None
                if summary is None:
                    raise
                observer.note(f"the Prefect server stopped; {preparation.title} is complete")
                return summary
