"""JSON documents of dataclasses (trials, memos, plans, reports) and of hyperparameter values.

A class whose document needs a space, or differs from its fields, has its own `to_json` or
`from_json` and leaves all other fields to this module. msgspec is imported by the first conversion,
because help and completion import the classes and convert nothing.

A value of a hyperparameter may be any value with a stable name: a number or text, None, a tuple,
list or dict of them, a function or class of a module, or an object with parameters, such as an
estimator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, signature
from math import isfinite
from types import ModuleType
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


Document = bool | int | float | str | None


def value_document(value: Any) -> Document:
    """Return a value as JSON; a value that JSON lacks becomes its Python code.

    Different values have different documents, which are equal in all processes. A `ValueError` is
    raised for an object without such a document.

    >>> value_document(0.5), value_document((50, 50)), value_document([None, {"f": print}])
    (0.5, '(50, 50)', "[None, {'f': builtins.print}]")
    """
    value = plain_value(value)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain and (not isinstance(value, float) or isfinite(value)) else _code(value)


def plain_value(value: Any) -> Any:
    """Return a Python value in place of numpy's, for JSON and equality."""
    return value.item() if hasattr(value, "dtype") and getattr(value, "shape", 0) == () else value


def choices_of(hyperparameter: Any) -> Sequence[Any] | None:
    """Return the values of a hyperparameter that lists them or has only one; None for a range."""
    for listed in ("choices", "sequence"):
        if hasattr(hyperparameter, listed):
            return tuple(getattr(hyperparameter, listed))
    return (hyperparameter.value,) if hasattr(hyperparameter, "value") else None


def value_of(hyperparameter: Any, document: Any) -> Any:
    """Return the value of a hyperparameter with this document; a ValueError if it has none.

    A list also stands for a tuple of the same items, because JSON has no tuples.
    """
    choices = choices_of(hyperparameter)
    if choices is None:
        if isinstance(document, bool) or not hyperparameter.legal_value(document):
            raise ValueError(f"{document!r} is outside the range of {hyperparameter.name}")
        return document
    wanted = _comparable(document)
    for forms in (choices, json_values([*choices])):
        documents = [*map(_comparable, forms)]
        if wanted in documents:
            return choices[documents.index(wanted)]
    raise ValueError(f"{document!r} is no choice of {hyperparameter.name}")


def _comparable(value: Any) -> tuple[bool, Document]:
    """Return a document that differs for true and 1."""
    document = value_document(value)
    return isinstance(document, bool), document


def _code(value: Any) -> str:
    value = plain_value(value)
    if type(value) is dict:
        return f"{{{', '.join(f'{_code(k)}: {_code(v)}' for k, v in value.items())}}}"
    if type(value) in (list, tuple):
        items = ", ".join(map(_code, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if hasattr(value, "__name__") and isinstance(getattr(value, "__self__", None), _OF_A_MODULE):
        return _dotted_name(value)
    if hasattr(value, "get_params") and hasattr(value, "set_params"):
        return f"{_dotted_name(type(value))}({', '.join(_arguments(value))})"
    code = repr(value)
    if " at 0x" in code or isinstance(value, set | frozenset) or hasattr(value, "dtype"):
        raise ValueError(f"{code} has no text that identifies the object in another process")
    return code


_OF_A_MODULE = (ModuleType, type(None))
"""Types of `__self__` of functions and classes; bound methods have other types."""


def _dotted_name(value: Any) -> str:
    module = getattr(value, "__module__", None) or type(value).__module__
    name = f"{module}.{getattr(value, '__qualname__', value.__name__)}"
    if "<" in name:
        raise ValueError(f"{name} has no name that another process can import")
    return name


def _arguments(value: Any) -> Iterator[str]:
    """Yield the parameters of an object that differ from their defaults."""
    accepted = signature(type(value)).parameters
    for name, given in sorted(value.get_params(deep=False).items()):
        default = accepted[name].default if name in accepted else Parameter.empty
        if default is Parameter.empty or (given is not default and _code(given) != _code(default)):
            yield f"{name}={_code(given)}"
