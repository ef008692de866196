"""Versions of the code behind an estimator, as part of its key; our and users' code has digests."""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec, resolve_name
from pathlib import Path
from platform import python_version
from typing import Any

from prefect_tune.storage.code_digest import code_digest, parsed
from prefect_tune.storage.keys import content_digest
from prefect_tune.tasks.code_behind import find_module, is_of_wheel, packages_of_distributions
from prefect_tune.tasks.user_code import is_user_code


def modules_behind(modules: Iterable[str], within: tuple[str, ...]) -> list[str]:
    """Return modules and all they import, directly or not, from packages `within`, sorted."""
    found: set[str] = set()
    waiting = set(modules)
    while waiting:
        found |= waiting
        waiting = {m for one in waiting for m in _imported(one, within)} - found
    return sorted(found)


@cache
def module_text(module: str) -> str:
    """Return the source of a module; empty if it was installed without."""
    spec = find_spec(module)
    loader = spec.loader if spec else None
    return getattr(loader, "get_source", lambda _: None)(module) or ""


@cache
def _imported(module: str, within: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        name
        for node in ast.walk(parsed(module_text(module)))
        for name in _named(node, module)
        if name.startswith(within) and _is_module(name)
    )


def _named(node: ast.AST, module: str) -> Iterator[str]:
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
    except ModuleNotFoundError:  # its parent is a module that merely defines the name
        return False


_ROOM = "prefect_tune.tasks."


@cache
def digest_of_own(path: str) -> str:
    """Return the digest of our class or function: its module and all imports from `tasks`."""
    module, _, name = path.rpartition(".")
    defined_in = getattr(getattr(import_module(module), name), "__module__", module)
    behind = modules_behind({module, defined_in}, (_ROOM,))
    return code_digest("own code", map(module_text, behind))[:32]


_OURS = "prefect_tune"
_SCIKIT_LEARN = "sklearn"
_NUMERIC = ("numpy", "scipy")
"""Packages whose solvers affect the results of all others."""
_SESSION_DISTRIBUTIONS = (
    "prefect-tune",
    "scikit-learn",
    "numpy",
    "scipy",
    "pandas",
    "prefect",
    "dask",
    "ConfigSpace",
)
"""Distributions that every study depends on."""
_CODE = frozenset({".py", ".pyc", ".so", ".pyd"})
_REPAIRS = "prefect_tune.tasks.repairs.REPAIRS"


def library_of(
    estimator: str,
    make: Callable[[], Any],
    *,
    repaired: bool = False,
    holds_objects: bool = False,
    required: Iterable[str] = (),
) -> str:
    """Return the packages behind an estimator with versions; digests for our and users' code.

    Estimators of packages other than scikit-learn and ours may inherit from or contain classes of
    any package. `make` therefore builds the estimator, and all its classes are inspected, also if
    `holds_objects` declares that its arguments may come from other packages.
    ValueError if a package is not installed.
    """
    package, others = _package(estimator), {_SCIKIT_LEARN, *_NUMERIC, *required}
    if package == _OURS:
        of_its_own = _own(estimator)
    elif is_user_code(package):
        of_its_own = package
    else:
        of_its_own = _with_version(package)
    if holds_objects or package not in (_OURS, _SCIKIT_LEARN):
        # An estimator that cannot be built here will not be built by its step either.
        with suppress(Exception, SystemExit):
            others |= set(_packages(make()))
    repairs = [_own(_REPAIRS)] if repaired else []
    return ", ".join([of_its_own, *repairs, *map(_with_version, sorted(others - {package}))])


def _own(path: str) -> str:
    return f"{_OURS} {digest_of_own(path)}"


def _packages(estimator: Any) -> list[str]:
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    found = {p for held in (estimator, *parameters.values()) for p in _packages_of(held)}
    return sorted({_SCIKIT_LEARN if p == _OURS else p for p in found})


def _packages_of(held: Any) -> Iterator[str]:
    classes = [*type(held).__mro__, *(held.__mro__ if isinstance(held, type) else (held,))]
    for one in classes:
        package = _package(getattr(one, "__module__", None) or "")
        is_followed = is_user_code(package) or package in {"", "__main__"}
        if not is_followed and package not in sys.stdlib_module_names:
            yield package


def _package(path: str) -> str:
    return path.split(".", 1)[0]


@cache
def _with_version(package: str) -> str:
    """Return a package with its version if installed from a wheel, else with a digest of its files.

    A version attribute proves nothing: it can stay the same while the code changes.
    """
    spec = None if package == "__main__" else find_module(package, None)
    if spec is None or is_of_wheel(package, spec):
        return f"{package} {installed_version(package)}"
    return f"{package} {_digest_of_files(spec)}"


def _digest_of_files(spec: ModuleSpec) -> str:
    found = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for place in found for file in place.rglob("*") if file.suffix in _CODE]
    files += [Path(spec.origin)] if spec.origin and not found else []
    texts = [part for file in sorted(files) for part in (file.name.encode(), file.read_bytes())]
    return content_digest("package", texts)[:32]


def installed_version(package: str) -> str:
    """Return the version of an installed package without importing it, or raise ValueError."""
    names = packages_of_distributions().get(package)
    if not names:
        raise ValueError(f"{package} is not installed")
    return " ".join(map(version, names))


def session_versions(required: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python and of a session's packages; ValueError if one is missing."""
    versions = {
        "python": python_version(),
        **{name: version(name) for name in _SESSION_DISTRIBUTIONS},
    }
    return versions | {package: installed_version(package) for package in sorted(set(required))}
