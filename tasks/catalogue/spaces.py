"""Spaces by the name given to `--space`, and the part of a space usable on this machine.

The module is cheap to import, because help and completion list the names of spaces, and each space
is imported on demand. Algorithms may require libraries that a machine lacks; the flow that starts a
study decides once which part of the space is searched.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from prefect_tune.optimizers.registry import Registry
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.algorithm import Algorithm
    from prefect_tune.optimizers.space.space import Space

_MODERN = "prefect_tune.tasks.catalogue.modern"
_FLASH = "prefect_tune.tasks.catalogue.flash"
_ADMM = "prefect_tune.tasks.catalogue.admm"

SPACES: "Registry[Space]" = Registry(
    "space",
    "prefect_tune.optimizers.space.space:Space",
    {
        name: f"{module}:{name.upper()}"
        for module, names in (
            (_FLASH, ("small", "flash", "healthcare", "regression")),
            (_ADMM, ("admm", "admm_large")),
            (_FLASH, ("svm", "svr", "random_forest", "gradient_boosting")),
            (_FLASH, ("gradient_boosting_regressor", "random_forest_regressor", "mlp")),
            (_MODERN, ("modern", "modern_healthcare", "events", "modern_regression")),
        )
        for name in names
    },
)
"""Spaces by name, independent of installed libraries."""
DEFAULT_SPACES: Mapping[tuple[str, str], str] = {
    ("table", "classification"): "modern",
    ("table", "regression"): "modern_regression",
    ("events", "classification"): "events",
}
"""Default space, by kind of data and kind of target."""


def space_named(name: str) -> "Space":
    """Return a space by name; raise `UnknownName` if the space does not exist or cannot be used."""
    return SPACES.named(name)


_XGBOOST = "xgboost" if sys.platform == "darwin" else "xgboost-cpu"  # without graphics libraries
OPTIONAL: Mapping[str, str] = {"catboost": "catboost", "xgboost": _XGBOOST}
"""Distributions of the packages of the extra `boosting`; all other packages come with prefect-tune
or are installed by the user."""
_LINKED = frozenset({"lightgbm", "xgboost"})
"""Packages that may need a system-wide OpenMP runtime; other packages include all they need."""
_OPENMP = "brew install libomp, apt-get install libgomp1, or dnf install libgomp"


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """A library that algorithms need but this machine lacks; `is_optional` if part of an extra."""

    package: str
    reason: str
    remedy: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.package} {self.reason}: {self.remedy}"


def missing_library(package: str) -> MissingLibrary | None:
    """Return the reason why a package cannot be used, with a remedy; None if usable."""
    if package in sys.modules and sys.modules[package] is not None:
        return None
    remedy = f"pip install {OPTIONAL.get(package, package)}"
    spec = None
    with suppress(ModuleNotFoundError):  # raised if the parent package of a dotted name is missing
        spec = find_spec(package)
    if spec is None:
        return MissingLibrary(package, "is not installed", remedy, is_optional=package in OPTIONAL)
    if package not in _LINKED:
        return None
    from prefect_tune.tasks.threads import one_thread  # noqa: PLC0415 - completion needs only names

    try:
        with one_thread():  # the library reads the number of threads on loading
            import_module(package)
    except Exception as error:  # OSError or the library's own error
        text = str(error).strip() or type(error).__name__
        remedy = _OPENMP if re.search("libg?omp", text) else f"reinstall it, {remedy}"
        return MissingLibrary(package, f"cannot be loaded ({text.splitlines()[0]})", remedy)
    return None


def missing_libraries(algorithms: "Iterable[Algorithm]") -> tuple[MissingLibrary, ...]:
    """Return the libraries required by the algorithms but unusable on this machine."""
    required = dict.fromkeys(package for a in algorithms for package in a.requires)
    return tuple(missing for package in required if (missing := missing_library(package)))


def check_libraries(what: str, algorithms: "Iterable[Algorithm]") -> None:
    """Raise `BadInput`, with a remedy, if this machine cannot use a library that `what` needs."""
    for library in missing_libraries(algorithms):
        text = f"{what} needs {library.package}, which {library.reason}"
        raise BadInput(text, remedy=library.remedy)


def algorithms_of(space: "Space") -> "tuple[Algorithm, ...]":
    """Return the algorithms of all steps of a space."""
    return tuple(algorithm for step in space.steps for algorithm in step.algorithms)


def usable_part(space: "Space") -> "Space":
    """Return the part of a space usable on this machine; raise `BadInput` if a step is empty."""
    missing = {library.package for library in missing_libraries(algorithms_of(space))}
    if not missing:
        return space
    left = {
        step.name: {a.id for a in step.algorithms if missing.isdisjoint(a.requires)}
        for step in space.searched
    }
    for step in space.steps:
        if all(missing.intersection(algorithm.requires) for algorithm in step.algorithms):
            check_libraries(f"step {step.name!r} of space {space.name!r}", step.algorithms)
    return space.restricted_to(left)
