"""Options declared as fields of a frozen dataclass, each with everything known about it.

The options of `run` and `compare` and those of every method are declared this way. Light to import,
so that the command line shows its help at once.
"""

import collections.abc
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

OnResume = Literal["same", "changed", "anew", "checked"]
Kind = Literal["text", "texts", "whole", "number", "switch", "choice", "assignments"]

_COMPARE = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}
_WORDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}
_CALLED = {"whole": "a whole number", "number": "a number", "choice": "true or false"}


def _parsed_as_it_is(value: Any, option: "Option") -> Any:  # noqa: ARG001
    return value


@dataclass(frozen=True, slots=True)
class Written:
    """The written form of an option whose value is not that form itself, such as a duration.

    Attributes:
        parse: Turns the written form into the value; given the option too, for errors.
        write: Turns the value into one word of a command line; an element of it where the option
            may be repeated.
        pattern: Regular expression for the written form; empty where only `parse` can tell.
    """

    parse: Callable[[Any, "Option"], Any] = _parsed_as_it_is
    write: Callable[[Any], str] = str
    pattern: str = ""


_AS_IT_IS = Written()
_SHARE = Written(write=lambda value: f"{value:.15g}")


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as its field declares it.

    Attributes:
        name: Name of the field and of the flow's parameter; the flag has dashes for underscores.
        kind: Form of its values.
        default: Value of the field when the option is left out.
        text: Description for people; a function where it depends on the registries.
        group: Heading in help and forms.
        metavar: Placeholder for its value in the help.
        default_text: Description of what holds when it is left out.
        standard: Value that holds when it is left out of a new study, where that is fixed.
        choices: Values that can be listed.
        is_open: Whether other values than the choices are valid.
        or_whole: Whether a whole number is valid too.
        is_optional: Whether None is valid.
        is_argument: Whether the command takes it by position.
        bounds: Keywords of JSON schema that its value must meet.
        examples: Values that show how it is written.
        why: Reason for the bounds.
        written: Its written form.
        on_resume: Rule for a study that is resumed: `same` refuses another value, `changed` takes
            one, `anew` forgets the earlier one, and `checked` leaves it to a check of its own.
        in_compare: Whether `compare` has it; a text where its description differs there.
        is_shared: Whether all replicates of a comparison have the same value.
        is_stored: Whether the study keeps it, or only the session that it was given to.
        is_literal: Whether its type lists the choices.
    """

    name: str
    kind: Kind
    default: Any
    text: str | Callable[[], str]
    group: str = ""
    metavar: str = ""
    default_text: str | Callable[[], str] = ""
    standard: Any = None
    choices: Callable[[], Iterable[str]] | None = None
    is_open: bool = False
    or_whole: bool = False
    is_optional: bool = True
    is_argument: bool = False
    bounds: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    why: str = ""
    written: Written = _AS_IT_IS
    on_resume: OnResume = "checked"
    in_compare: bool | str = True
    is_shared: bool = False
    is_stored: bool = True
    is_literal: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        """The values that can be listed; none where any may be given."""
        return () if self.choices is None else tuple(self.choices())

    @property
    def flag(self) -> str:
        """The option as the command line writes it."""
        return "--" + self.name.replace("_", "-")

    @property
    def limits(self) -> Mapping[str, float]:
        """Bounds of numbers among its bounds."""
        return {name: bound for name, bound in self.bounds.items() if name in _COMPARE}

    @property
    def limits_text(self) -> str:
        """Bounds of numbers, for people; empty if there are none."""
        return " and ".join(f"{_WORDS[name]} {bound}" for name, bound in self.limits.items())

    @property
    def schema_bounds(self) -> Mapping[str, Any]:
        """Keywords of JSON schema that the written form must meet."""
        pattern = self.written.pattern or self.bounds.get("pattern")
        return {"pattern": f"^{pattern}$"} if pattern else self.bounds

    @property
    def help(self) -> str:
        """Its description and default, for people."""
        text = self.text if isinstance(self.text, str) else self.text()
        default = self.default_text if isinstance(self.default_text, str) else self.default_text()
        return f"{text}  [default: {default}]" if default else text

    def violation(self, value: Any) -> str:
        """Return how a value breaks the bounds, as a predicate; empty if it meets them."""
        if isinstance(value, str):
            pattern = self.bounds.get("pattern")
            return self.why if pattern and re.fullmatch(pattern, value) is None else ""
        if all(_COMPARE[name](value, bound) for name, bound in self.limits.items()):
            return ""
        return f"must be {self.limits_text}" + (f"; {self.why}" if self.why else "")

    def parse(self, value: Any) -> Any:
        """Return the value of a written form; the field's default for None.

        Raises:
            Exception: Errors of its own `written.parse`.
        """
        if value is None:
            return dict(self.default) if self.kind == "assignments" else self.default
        if self.kind == "texts":
            value = tuple(value)
        return self.written.parse(value, self)

    def words(self, value: Any) -> list[tuple[str, str | None]]:
        """Return a value as flags of a command line, each with its word; None for a bare flag."""
        if value is None:
            return []
        if self.kind in {"switch", "choice"}:
            negative = f"--no-{self.flag.removeprefix('--')}"
            flag = self.flag if value else negative if self.kind == "choice" else ""
            return [(flag, None)] if flag else []
        values = value if self.kind in {"texts", "assignments"} else [value]
        if self.kind == "assignments":
            values = [f"{name}={self.written.write(one)}" for name, one in value.items()]
            return [(self.flag, one) for one in values]
        return [(self.flag, self.written.write(one)) for one in values]


_OPTION = "option"


def option(
    text: str | Callable[[], str],
    *,
    default: Any = None,
    default_factory: Callable[[], Any] | None = None,
    at_least: float | None = None,
    more_than: float | None = None,
    at_most: float | None = None,
    less_than: float | None = None,
    pattern: str | None = None,
    **facts: Any,
) -> Any:
    """Declare a field of a dataclass as an option.

    Args:
        text: Description for people.
        default: Value of the field when the option is left out.
        default_factory: Makes the default where it is no plain value.
        at_least: Smallest value.
        more_than: Bound that the value exceeds.
        at_most: Largest value.
        less_than: Bound that the value stays below.
        pattern: Regular expression that a text matches.
        **facts: Attributes of `Option`.
    """
    bounds = {
        "minimum": at_least,
        "exclusiveMinimum": more_than,
        "maximum": at_most,
        "exclusiveMaximum": less_than,
        "pattern": pattern,
    }
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    metadata = {_OPTION: {"text": text, "bounds": known, **facts}}
    if default_factory is not None:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache
def options_of(declared: type[Any]) -> Mapping[str, Option]:
    """Return the options that a dataclass declares, by name and in order.

    A field without `option(...)` is an option without a description.

    Raises:
        TypeError: If a field has no default, or a type that no option has.
    """
    types = {one.name: one.type for one in fields(declared)}
    if any(isinstance(annotation, str) for annotation in types.values()):
        types = get_type_hints(declared)  # slow, and all our own are types already
    return {one.name: _option_of(one, types[one.name], declared) for one in fields(declared)}


def _option_of(declared: "Field[Any]", annotation: Any, owner: type[Any]) -> Option:
    facts = declared.metadata.get(_OPTION, {"text": ""})
    where = f"{owner.__name__}.{declared.name}"
    kind, choices, is_optional = _kind_of(annotation, where)
    default = declared.default
    if declared.default_factory is not MISSING:
        default = declared.default_factory()
    elif default is MISSING:
        raise TypeError(f"{where} has no default")
    if kind == "choice" and default is False:
        kind = "switch"
    if choices:
        facts = {"choices": lambda: choices, "is_literal": True, **facts}
    if kind in {"whole", "number"} and "written" in facts:
        kind = "text"
    elif kind == "number":
        facts = {"written": _SHARE, **facts}
    derived = {"name": declared.name, "kind": kind, "default": default, "is_optional": is_optional}
    return Option(**(derived | facts))


def _kind_of(annotation: Any, where: str) -> tuple[Kind, tuple[str, ...], bool]:
    """Return the form of a type's values, the texts that it admits, and whether it admits None."""
    is_union = get_origin(annotation) in {Union, UnionType}
    parts = get_args(annotation) if is_union else (annotation,)
    some = [part for part in parts if part is not NoneType]
    origin = get_origin(some[0])
    choices = tuple(c for part in some if get_origin(part) is Literal for c in get_args(part))
    kinds: dict[Any, Kind] = {bool: "choice", int: "whole", float: "number", str: "text"}
    if origin is tuple:
        kind: Kind = "texts"
    elif isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        kind = "assignments"
    elif choices:
        kind = "text"
    elif some[0] in kinds:
        kind = kinds[some[0]]
    elif isinstance(some[0], type):
        kind = "text"  # parsed by its written form
    else:
        raise TypeError(f"{where} is of a type that no option has: {annotation}")
    return kind, choices, len(some) < len(parts)


def check_options(options: Any) -> None:
    """Check every field of a dataclass of options against its type and its bounds.

    Raises:
        TypeError: If a value is of another type; names the field and the types that it takes.
        ValueError: If a value is none of the choices, not finite, or beyond a bound.
    """
    declared: Any = type(options)
    for name, one in options_of(declared).items():
        value = getattr(options, name)
        if value is None and one.is_optional:
            continue
        if one.known:
            if value not in one.known:
                raise ValueError(f"{name} must be {' or '.join(one.known)}; got {value!r}")
            continue
        if not _is_of(value, one.kind):
            raise TypeError(f"{name} must be {_CALLED.get(one.kind, 'a text')}; got {value!r}")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{name} must be a finite number; got {value!r}")
        if wrong := one.violation(value):
            raise ValueError(f"{name} {wrong}; got {value!r}")


def _is_of(value: Any, kind: Kind) -> bool:
    if kind in {"choice", "switch"}:
        return isinstance(value, bool)
    if kind in {"whole", "number"}:
        takes = int if kind == "whole" else int | float
        return isinstance(value, takes) and not isinstance(value, bool)
    return isinstance(value, str)
