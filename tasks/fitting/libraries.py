"""Packages that an estimator comes from, with their versions; they enter keys."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions, version
from typing import Any

from prefect_tune.tasks.user_code import is_user_code

__all__ = ["library_of"]

_OURS = "prefect_tune"
_SCIKIT_LEARN = "sklearn"


def library_of(estimator: str, make: Callable[[], Any]) -> str:
    """Return the packages behind an estimator with their versions; user code by its digest.

    What is neither ours nor scikit-learn's may inherit or hold estimators of any other package, so
    it is made, and all its classes are looked at.

    Args:
        estimator: Dotted path of the class, or of the function that makes it.
        make: Makes the estimator as it will be fitted.

    Raises:
        ValueError: If one of the packages is not installed.
    """
    package = _package(estimator)
    if package in (_OURS, _SCIKIT_LEARN):  # our own count by the artifact format besides
        return _with_version(_SCIKIT_LEARN)
    of_its_own = package if is_user_code(package) else _with_version(package)
    try:
        made = make()
    except (Exception, SystemExit):  # it will not be made when its step is run either
        return of_its_own
    others = [_with_version(other) for other in _packages(made) if other != package]
    return ", ".join([of_its_own, *others])


def _packages(estimator: Any) -> list[str]:
    """Return the packages of an estimator's classes and of what it holds, sorted."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    found = {p for held in (estimator, *parameters.values()) for p in _packages_of(held)}
    return sorted({_SCIKIT_LEARN if p == _OURS else p for p in found})


def _packages_of(held: Any) -> Iterator[str]:
    classes = [*type(held).__mro__, *(held.__mro__ if isinstance(held, type) else (held,))]
    for one in classes:
        package = _package(getattr(one, "__module__", None) or "")
        if package and package not in sys.stdlib_module_names and not is_user_code(package):
            yield package


def _package(path: str) -> str:
    return path.split(".", 1)[0]


@cache
def _with_version(package: str) -> str:
    known = getattr(import_module(package), "__version__", None)
    return f"{package} {known or _installed_version(package)}"


def _installed_version(package: str) -> str:
    names = packages_distributions().get(package)
    if not names:
        raise ValueError(
            f"{package} is not an installed package, so workers would lack it; put the estimator "
            "into the file of the space"
        )
    return version(names[0])
