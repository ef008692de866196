"""Methods that enter a comparison, with their options, from what users write and from studies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefect_tune.flows.preparation.assignments import parse_assignment, write_assignments
from prefect_tune.optimizers.registry import method_named
from prefect_tune.tasks.bad_input import BadInput

__all__ = ["Entrant", "entrant_of", "parse_methods"]


@dataclass(frozen=True)
class Entrant:
    """A method with its options.

    Attributes:
        label: How it was written, and is shown.
        method: Its name.
        options: Its own options.
    """

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """The label as the end of a study's name."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.label).strip("-")


def parse_methods(text: str) -> tuple[Entrant, ...]:
    """Parse `flash,flash:variant=paper,random`; values are JSON where they can be.

    Raises:
        UnknownName: If there is no such method.
        BadInput: If an option is not written NAME=VALUE, or a method is there twice.
    """
    entrants = tuple(_entrant(part.strip()) for part in text.split(",") if part.strip())
    seen: set[str] = set()
    for entrant in entrants:
        if entrant.suffix in seen:
            raise BadInput(
                f"{entrant.label} is there twice",
                option="methods",
                value=text,
                remedy="leave one out",
            )
        seen.add(entrant.suffix)
    return entrants


def entrant_of(method: str, options: Mapping[str, Any]) -> Entrant:
    """Return a method with its options, as users write it."""
    return Entrant(":".join((method, *write_assignments(options))), method, options)


def _entrant(label: str) -> Entrant:
    method, *assignments = label.split(":")
    method_named(method)
    try:
        options = dict(map(parse_assignment, assignments))
    except ValueError:
        raise BadInput("write METHOD:NAME=VALUE", option="methods", value=label) from None
    return Entrant(label, method, options)
