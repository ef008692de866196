"""Whoever calls a flow hands over to it: what was prepared for it is not prepared again.

A command finds what is wrong with the input before any flow run begins, while its server starts;
and a DataFrame is taken out of the parameters, which Prefect keeps and shows. The flow has the same
parameters, as any caller would give them, and need not read the input again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Self, TypeVar

from prefect_tune.flows.interrupts import retake_interrupts

Prepared = TypeVar("Prepared")


class Handover(Generic[Prepared]):
    """Holds one prepared value, with the parameters that it was prepared by.

    Threads that call flows at the same time have one each.
    """

    def __init__(self) -> None:
        self._held: ContextVar[list[tuple[Mapping[str, Any], Prepared]]] = ContextVar("held")

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        """Travel without what is held: Prefect sends the flow with its globals to workers."""
        return type(self), ()

    @contextmanager
    def offered(self, parameters: Mapping[str, Any], prepared: Prepared) -> Iterator[None]:
        """Offer a value to the flow that is called in the body with these parameters."""
        token = self._held.set([(dict(parameters), prepared)])
        try:
            yield
        finally:
            self._held.reset(token)

    def take(self, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the value that was prepared by equal parameters, once; None if there is none.

        Signals are the command's to handle from then on, as before.
        """
        held = self._held.get([])
        if not held or held[0][0] != dict(parameters):
            return None
        _, prepared = held.pop()
        retake_interrupts()
        return prepared
