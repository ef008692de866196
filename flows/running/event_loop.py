"""Flows that can be called inside a running event loop, as in a notebook."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from os import PathLike, fspath
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from prefect import Flow

from prefect_tune.flows.running.interrupts import INTERRUPTED
from prefect_tune.storage.masking import without_signature
from prefect_tune.tasks.bad_input import errors_for_caller

P = ParamSpec("P")
Result = TypeVar("Result")


class LoopSafeFlow(Flow[P, Result]):
    """A flow that can be called inside a running event loop."""

    if not TYPE_CHECKING:  # parameters and result as declared by Prefect

        @errors_for_caller()
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Call the flow. Errors name Python parameters instead of command-line options."""
            kwargs = {name: plain(value) for name, value in kwargs.items()}
            return apart_from_loop(partial(super().__call__, *map(plain, args), **kwargs))

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate parameters. Paths become strings, and web addresses lose their signatures."""
        return super().validate_parameters({n: plain(v) for n, v in parameters.items()})


def plain(value: Any) -> Any:
    """Return a parameter as Prefect may store it: paths as strings, URLs without signatures."""
    value = fspath(value) if isinstance(value, PathLike) else value
    return without_signature(value) if isinstance(value, str) else value


def loop_safe_flow(
    name: str,
) -> Callable[[Callable[P, Result]], LoopSafeFlow[P, Result]]:
    """Return a decorator that makes a function a flow that works inside an event loop."""

    def made(function: Callable[P, Result]) -> LoopSafeFlow[P, Result]:
        return LoopSafeFlow(function, name=name, persist_result=False, log_prints=False, retries=0)

    return made


def apart_from_loop(work: Callable[[], Result]) -> Result:
    """Call `work` in this thread or, if this thread runs an event loop, in a new thread.

    If this thread is interrupted, the study in the new thread ends as soon as the study waits for
    workers, usually within half a second.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no event loop is running
        return work()
    interrupted, outcome = Event(), Future[Result]()
    context = copy_context()

    def followed() -> None:
        INTERRUPTED.set(interrupted)
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised again in the waiting thread
            outcome.set_exception(error)

    thread = Thread(target=context.run, args=(followed,), name="study")
    try:
        thread.start()
        return outcome.result()
    except KeyboardInterrupt:
        interrupted.set()
        if thread.is_alive():
            thread.join()  # the study requeues its trials
        raise
