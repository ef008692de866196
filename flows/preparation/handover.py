"""A command hands over to the flow that it calls next: what it prepared is not prepared again.

A command finds what is wrong with the input before any flow run begins, while its server starts.
Its flow has the same parameters, as any caller would give them, and need not read the input again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from prefect_tune.flows.interrupts import retake_interrupts

__all__ = ["Handover"]

Prepared = TypeVar("Prepared")


class Handover(Generic[Prepared]):
    """Holds one prepared value, with the parameters that it was prepared by."""

    def __init__(self) -> None:
        self._held: tuple[Mapping[str, Any], Prepared] | None = None

    @contextmanager
    def offered(self, parameters: Mapping[str, Any], prepared: Prepared) -> Iterator[None]:
        """Offer a value to the flow that is called in the body with these parameters."""
        self._held = dict(parameters), prepared
        try:
            yield
        finally:
            self._held = None

    def take(self, parameters: Mapping[str, Any]) -> Prepared | None:
        """Return the value that was prepared by equal parameters, once; None if there is none.

        Signals are the command's to handle from then on, as before.
        """
        if self._held is None or self._held[0] != dict(parameters):
            return None
        (_, prepared), self._held = self._held, None
        retake_interrupts()
        return prepared
