"""`NAME=VALUE`, the form in which users write the options of a method."""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["parse_assignment", "write_assignments"]


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return name and value; a value is JSON where it reads as such, and text otherwise.

    Raises:
        ValueError: If the text is not of the form NAME=VALUE.
    """
    match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text)
    if match is None:
        raise ValueError(f"{text}: write NAME=VALUE")
    try:
        return match[1], json.loads(match[2])
    except ValueError:
        return match[1], match[2]


def write_assignments(values: Mapping[str, Any]) -> list[str]:
    """Return each value as NAME=VALUE, the inverse of `parse_assignment`."""
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    ]
