"""Unfitted estimators as the expressions that make them."""

import importlib
from collections.abc import Iterator, Mapping
from inspect import Parameter, signature
from operator import methodcaller
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

import numpy as np
from sklearn.compose import make_column_selector
from sklearn.model_selection import BaseCrossValidator

from prefect_tune.tasks.reproduction.expressions import Call, Expression, Group, Literal, Name

__all__ = ["NotWritten", "described"]

_THREADS = ("n_jobs",)
"""Of scikit-learn's classes, 1 is what None says."""


class NotWritten(ValueError):  # noqa: N818 - it says what is the matter
    """A value that no expression is known for."""


def described(value: Any) -> Expression:
    """Return an expression that makes a value: an unfitted estimator, or an argument of one.

    Arguments that have their defaults are left out.

    >>> from sklearn.svm import SVC
    >>> described(SVC(C=2.0, kernel="rbf")).arguments
    (('C', Literal(text='2.0')),)

    Raises:
        NotWritten: If no expression is known for it or for something in it.
    """
    return _described(value, is_inside=False)


def _described(value: Any, *, is_inside: bool) -> Expression:
    """Do as `described`; what lies inside of an estimator has its form of output from that."""
    if hasattr(value, "get_params") and not isinstance(value, type):  # of any library
        return _estimator(value, is_inside=is_inside)
    if type(value) in (list, tuple):
        brackets = "[]" if isinstance(value, list) else "()"
        return Group(brackets, tuple(_described(v, is_inside=is_inside) for v in value))
    if isinstance(value, dict):
        both = (part for item in value.items() for part in item)
        return Group("{}", tuple(_described(part, is_inside=is_inside) for part in both))
    return _literal(value.item() if isinstance(value, np.generic) else value)


def _literal(value: Any) -> Expression:
    match value:
        case None | bool() | int():
            return Literal(repr(value))
        case str():
            return Literal(_quoted(value))
        case float():
            return _number(value)
        case type() | FunctionType() | BuiltinFunctionType() | np.ufunc():
            return _imported(value)
    return _other(value)


def _quoted(text: str) -> str:
    """Return a text as Python writes it, in double quotes where it has none."""
    written = repr(text)
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in written else written


def _number(value: float) -> Expression:
    if np.isnan(value):
        return Name("numpy", "nan")
    return Literal(repr(value) if np.isfinite(value) else f'float("{value}")')


def _other(value: Any) -> Expression:
    """Return the expression of a helper of scikit-learn that is no estimator.

    Raises:
        NotWritten: If it is none that is known.
    """
    if isinstance(value, methodcaller):
        made_by, arguments = cast("tuple[Any, tuple[Any, ...]]", value.__reduce__())[:2]
        if made_by is methodcaller:
            return Call(_imported(methodcaller), tuple(("", described(a)) for a in arguments))
    if isinstance(value, make_column_selector | BaseCrossValidator):
        return Call(_imported(type(value)), tuple(_set_arguments(value, vars(value))))
    made_by = getattr(value, "__name__", "")
    if callable(value) and made_by:  # a function of another library that wraps its own
        return _imported(value)
    raise NotWritten(f"no expression is known for {value!r}")


def _estimator(estimator: Any, *, is_inside: bool) -> Expression:
    form: str | None = getattr(estimator, "_sklearn_output_config", {}).get("transform")
    outer = None if is_inside else form
    values = _parameters(estimator)
    is_set = is_inside or outer is not None
    arguments = tuple(_set_arguments(estimator, values, is_inside=is_set))
    made = Call(_imported(type(estimator)), arguments)
    if outer is None:
        return made
    return Call(made, (("transform", Literal(_quoted(outer))),), "set_output")


def _parameters(estimator: Any) -> Mapping[str, Any]:
    try:
        values: Mapping[str, Any] = estimator.get_params(deep=False)
    except TypeError:  # of a class of its own
        values = estimator.get_params()
    return values


def _set_arguments(
    value: Any, values: Mapping[str, Any], *, is_inside: bool = False
) -> Iterator[tuple[str, Expression]]:
    """Yield the arguments of a constructor that do not have their defaults, in its order.

    Those without a default, which come first, have no name.
    """
    accepted = signature(type(value)).parameters
    is_sklearns = type(value).__module__.startswith("sklearn.")
    for name in sorted(values, key=lambda n: list(accepted).index(n) if n in accepted else 999):
        given, known = values[name], accepted.get(name)
        default = None if known is None else known.default
        if is_sklearns and name in _THREADS and given == 1 and default is None:
            continue
        if not _is_same(given, default):
            position = known is not None and known.kind is Parameter.POSITIONAL_OR_KEYWORD
            is_needed = position and default is Parameter.empty
            yield "" if is_needed else name, _described(given, is_inside=is_inside)


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if type(value) is not type(default) or default is Parameter.empty:
        return False
    if isinstance(value, float) and np.isnan(value):
        return bool(np.isnan(default))
    return isinstance(value, bool | int | float | str | tuple) and bool(value == default)


def _imported(value: Any) -> Name:
    """Return the shortest public name under which something is imported.

    Raises:
        NotWritten: If it cannot be imported.
    """
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
    if isinstance(value, np.ufunc):
        module = "numpy"
    parts = module.split(".")
    for n_parts in range(1, len(parts) + 1):
        candidate = ".".join(parts[:n_parts])
        try:
            found = getattr(importlib.import_module(candidate), name, None)
        except ImportError:
            continue
        if found is value:
            return Name(candidate, name)
    raise NotWritten(f"{name or value!r} cannot be imported from {module or 'anywhere'}")
