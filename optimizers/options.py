"""Options declared as fields of a frozen dataclass, with all their metadata.

The options of `run`, `compare` and every method are declared in such dataclasses. The module is
cheap to import, so that the command line shows help instantly.
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


@dataclass(frozen=True, slots=True)
class Written:
    """The text form of an option whose value has another type, such as a duration.

    Attributes:
        parse: Function from the text and the option (named in error messages) to the value.
        write: Function from the value, or one value of a repeatable option, to a word of a command
            line.
        pattern: Regular expression that valid texts match; empty if only `parse` can decide.
    """

    parse: Callable[[Any, "Option"], Any] = lambda value, _: value
    write: Callable[[Any], str] = str
    pattern: str = ""


_SHARE = Written(write=lambda value: f"{value:.15g}")


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as declared by a field.

    Attributes:
        name: Name of the field and of the flow's parameter. The flag has dashes for underscores.
        kind: Kind of values.
        default: Value if the option is not given.
        text: Description for users, or a function that builds the description from registries.
        group: Heading in the help and in forms.
        metavar: Placeholder for the value in the help.
        default_text: Description of the behavior if the option is not given.
        standard: Fixed value for a new study if the option is not given.
        choices: Function that returns the listed values.
        is_open: Whether values other than the choices are valid.
        or_whole: Whether a whole number is also valid.
        is_optional: Whether None is valid.
        is_argument: Whether the option is a positional argument of the command.
        bounds: JSON Schema keywords that the value must satisfy.
        examples: Sample values that show the format.
        why: Reason for the bounds.
        written: Text form of the value.
        on_resume: Rule for a different value on resume. `same` rejects the value, `changed` accepts
            the value, `anew` drops the earlier value, and `checked` leaves the decision to another
            check.
        in_compare: Whether `compare` has the option; a string if `compare` needs a different
            description.
        is_shared: Whether all replicates of a comparison share the value.
        is_stored: Whether the study stores the value; if not, the value applies to one session.
        is_literal: Whether the field's type lists the choices.
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
    written: Written = Written()
    on_resume: OnResume = "checked"
    in_compare: bool | str = True
    is_shared: bool = False
    is_stored: bool = True
    is_literal: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        """The listed values; empty if the option has no choices."""
        return () if self.choices is None else tuple(self.choices())

    @property
    def flag(self) -> str:
        """The option's command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def limits(self) -> Mapping[str, float]:
        """Numeric bounds by JSON Schema keyword."""
        return {name: bound for name, bound in self.bounds.items() if name in _COMPARE}

    @property
    def limits_text(self) -> str:
        """Numeric bounds as text; empty without bounds."""
        return " and ".join(f"{_WORDS[name]} {bound}" for name, bound in self.limits.items())

    @property
    def schema_bounds(self) -> Mapping[str, Any]:
        """JSON Schema keywords that the text form must satisfy."""
        pattern = self.written.pattern or self.bounds.get("pattern")
        return {"pattern": f"^{pattern}$"} if pattern else self.bounds

    @property
    def help(self) -> str:
        """Description and default, for users."""
        text = self.text if isinstance(self.text, str) else self.text()
        default = self.default_text if isinstance(self.default_text, str) else self.default_text()
        return f"{text}  [default: {default}]" if default else text

    def violation(self, value: Any) -> str:
        """Return the end of a sentence about the violated bound; empty if the value is valid."""
        if isinstance(value, str):
            pattern = self.bounds.get("pattern")
            return self.why if pattern and re.fullmatch(pattern, value) is None else ""
        if all(_COMPARE[name](value, bound) for name, bound in self.limits.items()):
            return ""
        return f"must be {self.limits_text}" + (f"; {self.why}" if self.why else "")

    def parse(self, value: Any) -> Any:
        """Return the value of a text, or the default for None; raises errors of `written.parse`."""
        if value is None:
            return dict(self.default) if self.kind == "assignments" else self.default
        if self.kind == "texts":
            value = tuple(value)
        return self.written.parse(value, self)

    def words(self, value: Any) -> list[tuple[str, str | None]]:
        """Return a value as (flag, word) pairs of a command line; bare flags have the word None."""
        if value is None:
            return []
        if self.kind in {"switch", "choice"}:
            negative = f"--no-{self.flag.removeprefix('--')}"
            flag = self.flag if value else negative if self.kind == "choice" else ""
            return [(flag, None)] if flag else []
        if self.kind == "assignments":
            return [(self.flag, f"{name}={self.written.write(one)}") for name, one in value.items()]
        values = value if self.kind == "texts" else [value]
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
        text: Description for users.
        default: Default value.
        default_factory: Function that returns the default value.
        at_least: Inclusive lower bound.
        more_than: Exclusive lower bound.
        at_most: Inclusive upper bound.
        less_than: Exclusive upper bound.
        pattern: Regular expression that a string must match.
        facts: Further attributes of `Option`.
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

    A field without `option(...)` is an option without a description. Raises TypeError if a field
    has no default or an unsupported type.
    """
    types = {one.name: one.type for one in fields(declared)}
    if any(isinstance(annotation, str) for annotation in types.values()):
        types = get_type_hints(declared)  # slow and not needed for built-in options
    return {one.name: _option_of(one, types[one.name], declared) for one in fields(declared)}


def _option_of(declared: "Field[Any]", annotation: Any, owner: type[Any]) -> Option:
    facts = declared.metadata.get(_OPTION, {"text": ""})
    where = f"{owner.__name__}.{declared.name}"
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
    elif choices or isinstance(some[0], type):
        kind = kinds.get(some[0], "text")  # other types are parsed from their text form
    else:
        raise TypeError(f"{where} has a type that options do not support: {annotation}")
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
    derived = {"name": declared.name, "kind": kind, "default": default}
    derived["is_optional"] = len(some) < len(parts)
    return Option(**(derived | facts))


def check_options(options: Any) -> None:
    """Check every field of a dataclass of options against its type and its bounds.

    Raises TypeError for a value of the wrong type, and ValueError for a value that is not among the
    choices, not finite, or out of bounds.
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
        if one.kind in {"choice", "switch"}:
            is_of_kind = isinstance(value, bool)
        elif one.kind in {"whole", "number"}:
            takes = int if one.kind == "whole" else int | float
            is_of_kind = isinstance(value, takes) and not isinstance(value, bool)
        else:
            is_of_kind = isinstance(value, str)
        if not is_of_kind:
            raise TypeError(f"{name} must be {_CALLED.get(one.kind, 'a string')}; got {value!r}")
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{name} must be a finite number; got {value!r}")
        if wrong := one.violation(value):
            raise ValueError(f"{name} {wrong}; got {value!r}")
