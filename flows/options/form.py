"""Prefect's form for the parameters of a flow, generated from the table of options.

Prefect takes types, defaults and descriptions from a function and its docstring. This module adds
choices, bounds and sections to the JSON schema with which Prefect checks parameters before a run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import cleandoc, signature
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.optimizers.options import Option

P = ParamSpec("P")
R = TypeVar("R")

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "switch": {"type": "boolean"},
    "choice": {"type": "boolean"},
    "assignments": {"type": "object"},
}
"""JSON schemas by kind of option."""


def documented(function: Callable[P, R], options: Mapping[str, Option] = OPTIONS) -> Callable[P, R]:
    """Add the descriptions of options to a function's docstring and annotations."""
    known = {n: p for n, p in signature(function).parameters.items() if n in options}
    described = "\n".join(f"    {name}: {options[name].help}" for name in known)
    function.__doc__ = f"{cleandoc(function.__doc__ or '')}\n\nArgs:\n{described}\n"
    for name, parameter in known.items():
        option, is_optional = options[name], parameter.default is None
        extra: dict[str, Any] = {"title": f"{option.group}: {option.name}"}
        is_chosen = is_optional and option.default_text and not option.is_open
        if is_chosen and option.default_text in option.known:
            # The form preselects this value. Submitting the value is like omitting the option.
            extra["default"] = option.default_text
        field, schema = Field(json_schema_extra=extra), _OptionSchema(option, is_optional)
        function.__annotations__[name] = Annotated[parameter.annotation, schema, field]
    return function


@dataclass(frozen=True, slots=True)
class _OptionSchema:
    """Annotation that replaces the JSON schema of a type with the schema of an option.

    The schema is generated when requested, because methods and formats may be registered late.
    """

    option: Option
    is_optional: bool

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        alternatives = list(_alternatives(self.option))
        if self.is_optional:
            alternatives.append({"title": "default", "type": "null"})
        if len(alternatives) > 1:
            return {"anyOf": alternatives}
        return {name: value for name, value in alternatives[0].items() if name != "title"}


def _alternatives(option: Option) -> Iterator[dict[str, Any]]:
    """Yield a schema for each type that an option accepts. Prefect shows the types as tabs."""
    known = option.known
    if known:
        yield {"title": "choose", "type": "string", "enum": list(known)}
    if option.or_whole:
        yield {"title": "number", "type": "integer", **option.schema_bounds}
    if not known or option.is_open:
        limits = {} if option.or_whole else dict(option.schema_bounds)
        schema = {"title": "other" if known else "set", **_TYPES[option.kind], **limits}
        if option.examples:
            schema["examples"] = list(option.examples)
        yield schema
