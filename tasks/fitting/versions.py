"""Versions of the code behind an estimator, as part of its key; our and users' code has digests."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from prefect_tune.storage.code_digest import code_digest
from prefect_tune.storage.keys import content_digest
from prefect_tune.tasks.user_code import (
    find_module,
    follow,
    is_installed,
    is_user_code,
    packages_of_distributions,
)

_ROOM = "prefect_tune.tasks."


@cache
def digest_of_own(path: str) -> str:
    """Return the digest of our class or function: its module and all imports from `tasks`."""
    module, _, name = path.rpartition(".")
    defined_in = getattr(getattr(import_module(module), name), "__module__", module)
    behind = follow("", None, [module, defined_in], lambda name: name.startswith(_ROOM)).modules
    return code_digest("own code", (one.text for one in behind if not one.is_package))[:32]


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
        first = f"{_OURS} {digest_of_own(estimator)}"
    else:
        first = package if is_user_code(package) else _with_version(package)
    if holds_objects or package not in (_OURS, _SCIKIT_LEARN):
        # An estimator that cannot be built here will not be built by its step either.
        with suppress(Exception, SystemExit):
            others |= set(_packages(make()))
    repairs = [f"{_OURS} {digest_of_own(_REPAIRS)}"] if repaired else []
    return ", ".join([first, *repairs, *map(_with_version, sorted(others - {package}))])


def _packages(estimator: Any) -> Iterator[str]:
    """Yield the packages whose classes an estimator and its parameters have or inherit from."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    for value in (estimator, *parameters.values()):
        for one in [
            *type(value).__mro__,
            *(value.__mro__ if isinstance(value, type) else (value,)),
        ]:
            package = _package(getattr(one, "__module__", None) or "")
            is_followed = is_user_code(package) or package in {"", "__main__"}
            if not is_followed and package not in sys.stdlib_module_names:
                yield _SCIKIT_LEARN if package == _OURS else package


def _package(path: str) -> str:
    return path.split(".", 1)[0]


@cache
def _with_version(package: str) -> str:
    """Return a package with its version, or with a digest of its files if it counts by content.

    A version attribute proves nothing: it can stay the same while the code changes.
    """
    spec = find_module(package, None)
    if spec is None or is_installed(package):
        return f"{package} {installed_version(package)}"
    found = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for place in found for file in place.rglob("*") if file.suffix in _CODE]
    files += [Path(spec.origin)] if spec.origin and not found else []
    texts = [part for file in sorted(files) for part in (file.name.encode(), file.read_bytes())]
    return f"{package} {content_digest('package', texts)[:32]}"


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
