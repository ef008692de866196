"""Conversion between dataclasses and JSON documents: trials, memos, plans and reports.

A class whose document needs a space, or differs from its fields, has its own `to_json` or
`from_json` and leaves all other fields to this module. msgspec is imported by the first conversion,
because help and completion import the classes and convert nothing.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def to_document(value: "DataclassInstance", **documents: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values; `documents` replaces fields with their own hooks."""
    from msgspec import to_builtins  # noqa: PLC0415 - see above

    if not documents:
        return to_builtins(value, enc_hook=_plain)
    values = {f.name: documents.get(f.name, getattr(value, f.name)) for f in fields(value)}
    return to_builtins(values, enc_hook=_plain)


def json_values(value: Any) -> Any:
    """Return a document with lists in place of tuples, as after writing and reading it."""
    if isinstance(value, Mapping):
        return {name: json_values(part) for name, part in value.items()}
    return [*map(json_values, value)] if isinstance(value, list | tuple) else value


def from_document(cls: type[T], document: Any) -> T:
    """Return the dataclass with these JSON values; instances among the values stay as they are.

    Missing fields have their defaults and unknown keys are skipped, because other versions wrote
    more or fewer fields. A `ValueError` names the place in the document where a field without a
    default is missing, or a value has the wrong type or is rejected by its class.
    """
    from msgspec import ValidationError, convert  # noqa: PLC0415 - see above

    try:
        return convert(document, cls)
    except ValidationError as error:
        raise ValueError(f"{cls.__name__}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")
