"""Names of the product that are not public, found in whichever module a revision defines them."""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import prefect_tune

__all__ = ["internal", "made"]

RENAMED: Mapping[str, str] = {}
"""New names of what later revisions renamed, by the old one: `space_named`, `Evaluation.curve`."""


@cache
def internal(name: str) -> Any:
    """Return a function or class by its name.

    Raises:
        LookupError: If no module of the product defines it, or several do.
    """
    known = {name, RENAMED.get(name, name)}
    definition = re.compile(rf"^(?:def|class) (?:{'|'.join(sorted(known))})\b", re.MULTILINE)
    root = Path(prefect_tune.__path__[0])
    defining = [path for path in sorted(root.rglob("*.py")) if definition.search(path.read_text())]
    if len(defining) != 1:
        raise LookupError(
            f"{len(defining)} modules of {root} define {name}; "
            "if it was renamed, enter its new name in `RENAMED`"
        )
    parts = defining[0].relative_to(root).with_suffix("").parts
    module = import_module(".".join(("prefect_tune", *parts)))
    return next(getattr(module, one) for one in known if hasattr(module, one))


def made(cls: type[Any], /, **values: Any) -> Any:
    """Make a dataclass of the product, its fields by the names that this revision gives them.

    Raises:
        LookupError: If it has no such field, under neither name.
    """
    known = {field.name for field in fields(cls)}
    given = {}
    for name, value in values.items():
        here = name if name in known else RENAMED.get(f"{cls.__name__}.{name}", name)
        if here not in known:
            raise LookupError(
                f"{cls.__name__} has no field {name!r}; "
                "if it was renamed, enter its new name in `RENAMED`"
            )
        given[here] = value
    return cls(**given)
