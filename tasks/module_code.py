"""Texts of modules, with the modules that they import."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec, resolve_name

from prefect_tune.storage.key import parsed


def modules_behind(modules: Iterable[str], within: tuple[str, ...]) -> list[str]:
    """Return modules and all that they import of some packages, and so on, sorted.

    Args:
        modules: Dotted names.
        within: How the names of modules begin that are followed.
    """
    found: set[str] = set()
    waiting = set(modules)
    while waiting:
        found |= waiting
        waiting = {m for one in waiting for m in _imported(one, within)} - found
    return sorted(found)


@cache
def module_text(module: str) -> str:
    """Return the text of a module; empty where it came without."""
    spec = find_spec(module)
    loader = spec.loader if spec else None
    return getattr(loader, "get_source", lambda _: None)(module) or ""


@cache
def _imported(module: str, within: tuple[str, ...]) -> frozenset[str]:
    """Return the modules that one imports anywhere in its text."""
    return frozenset(
        name
        for node in ast.walk(parsed(module_text(module)))
        for name in _named(node, module)
        if name.startswith(within) and _is_module(name)
    )


def _named(node: ast.AST, module: str) -> Iterator[str]:
    """Yield what may be a module in an import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            spec = find_spec(module)
            base = resolve_name("." * node.level + base, spec.parent if spec else None)
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, and it a name in that
        return False
