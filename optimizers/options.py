"""Checks of a method's options against their annotations: users may write anything."""

from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["check_options"]

_CALLED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_options(options: Any) -> None:
    """Check every field of a dataclass of options against its annotation.

    Annotations are `int`, `float` (finite), `bool`, `str`, a `Literal` of texts, or one of these or
    None.

    Raises:
        TypeError: If a value is of another kind; names the field and what it takes.
        ValueError: If a value is none of a `Literal`, or not finite.
    """
    for name, annotation in get_type_hints(type(options)).items():
        kinds = _kinds(annotation)
        value = getattr(options, name)
        if value is None and NoneType in kinds:
            continue
        choices = [c for kind in kinds if get_origin(kind) is Literal for c in get_args(kind)]
        if choices:
            if value not in choices:
                raise ValueError(f"{name} must be {' or '.join(choices)}; got {value!r}")
        elif not any(_is_of(value, kind) for kind in kinds):
            takes = " or ".join(_CALLED[kind] for kind in kinds if kind in _CALLED)
            raise TypeError(f"{name} must be {takes}; got {value!r}")
        elif isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{name} must be a finite number; got {value!r}")


def _kinds(annotation: Any) -> tuple[Any, ...]:
    is_union = get_origin(annotation) in {Union, UnionType}
    return get_args(annotation) if is_union else (annotation,)


def _is_of(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return kind is not NoneType and isinstance(value, kind)
