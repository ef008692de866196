"""The spaces that `--space` knows by name.

Cheap to import, because help and completion list the names: spaces are imported on demand.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prefect_tune.optimizers.plugins import Registry

if TYPE_CHECKING:
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
"""Spaces by name, independent of installed libraries (see `libraries`)."""
DEFAULT_SPACES: Mapping[tuple[str, str], str] = {
    ("table", "classes"): "modern",
    ("table", "numbers"): "modern_regression",
    ("events", "classes"): "events",
}
"""Default space by the kinds of data and target."""


def space_named(name: str) -> "Space":
    """Return a space by name; UnknownName if it does not exist or cannot be used."""
    return SPACES.named(name)
