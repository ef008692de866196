"""The code of our own modules that decide a step's result; it enters keys, as a user's does."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from prefect_tune.storage.key import code_digest, parsed

__all__ = ["digest_of_own"]

_ROOM = "prefect_tune.tasks."


@cache
def digest_of_own(path: str) -> str:
    """Return the digest of the modules behind a class or function of ours.

    That is the module which defines it and all that this one imports of `tasks`, and so on.

    Args:
        path: Its dotted path.
    """
    module, _, name = path.rpartition(".")
    defined_in = getattr(getattr(import_module(module), name), "__module__", module)
    found, waiting = {module}, {module, defined_in}
    while waiting:
        found |= waiting
        waiting = {m for one in waiting for m in _imported(one)} - found
    return code_digest("own code", map(_text, sorted(found)))[:32]


@cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules of `tasks` that one imports anywhere in its text."""
    return frozenset(
        name
        for node in ast.walk(parsed(_text(module)))
        for name in _named(node)
        if name.startswith(_ROOM) and _is_module(name)
    )


def _named(node: ast.AST) -> Iterator[str]:
    """Yield what may be a module in an import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, and it a name in that
        return False


@cache
def _text(module: str) -> str:
    """Return the text of a module; empty where it came without."""
    spec = find_spec(module)
    loader = spec.loader if spec else None
    return getattr(loader, "get_source", lambda _: None)(module) or ""
