"""Options of methods as people see them: name, default and meaning; light, as help is."""

import re
from dataclasses import asdict, fields, is_dataclass
from inspect import cleandoc
from typing import Any

__all__ = ["method_options", "written"]


def method_options(options: type) -> list[dict[str, Any]]:
    """Return name, default and meaning of each option in the dataclass of a method's options."""
    if not is_dataclass(options) or not fields(options):
        return []
    meanings, defaults = _meanings(options), options()
    if hasattr(defaults, "resolved"):
        defaults = defaults.resolved()  # what the default variant has
    return [
        {"name": name, "default": default, "meaning": meanings[name]}
        for name, default in asdict(defaults).items()
    ]


def _meanings(options: type) -> dict[str, str]:
    """Return the text of each attribute in a docstring."""
    listed = cleandoc(options.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def written(default: Any) -> str:
    """Return a default as one writes it on the command line."""
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)
