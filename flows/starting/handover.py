"""Passes a prepared value from a flow's caller to the flow, so that it is not prepared twice.

A command can thus report bad input while the server starts, before its flow run begins. A DataFrame
stays out of the parameters, which Prefect stores and shows. The flow gets the same parameters as
from any other caller, but does not read the input again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar

from prefect_tune.flows.running.event_loop import plain
from prefect_tune.flows.running.interrupts import retake_interrupts

Prepared = TypeVar("Prepared")


class Handover(Generic[Prepared]):
    """Holds one prepared value with its parameters, separately for each calling thread."""

    def __init__(self) -> None:
        self._held: ContextVar[list[tuple[Mapping[str, Any], Prepared]]] = ContextVar("held")

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Pickle without the value: Prefect sends the flow with its globals to workers."""
        return type(self), ()

    @contextmanager
    def offered(self, parameters: Mapping[str, Any], prepared: Prepared) -> Iterator[None]:
        """Offer a value to the flow called in the body with these parameters."""
        known = {name: plain(value) for name, value in parameters.items()}
        token = self._held.set([(known, prepared)])
        try:
            yield
        finally:
            self._held.reset(token)

    def take(self, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the value prepared with equal parameters, once, and handle signals again."""
        held = self._held.get([])
        if not held or held[0][0] != dict(parameters):
            return None
        _, prepared = held.pop()
        retake_interrupts()
        return prepared
