"""The spaces that `--space` knows by name.

Cheap to import, because help, completion and views list the names: a space is imported when it is
looked up.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prefect_tune.optimizers.plugins import Registry

if TYPE_CHECKING:
    from prefect_tune.optimizers.space.space import Space

_MODERN = "prefect_tune.tasks.catalogue.modern"
_PAPERS = "prefect_tune.tasks.catalogue.paper_spaces"

SPACES: "Registry[Space]" = Registry(
    "space",
    "prefect_tune.optimizers.space.space:Space",
    {
        name: f"{module}:{name.upper()}"
        for module, names in (
            (_PAPERS, ("small", "flash", "healthcare", "regression", "admm", "admm_large")),
            (_PAPERS, ("svm", "svr", "random_forest", "gradient_boosting")),
            (_PAPERS, ("gradient_boosting_regressor", "random_forest_regressor", "mlp")),
            (_MODERN, ("modern", "modern_healthcare", "events", "modern_regression")),
        )
        for name in names
    },
)
"""By name; the same whatever is installed (see `libraries`)."""
DEFAULT_SPACES: Mapping[tuple[str, str], str] = {
    ("table", "classes"): "modern",
    ("table", "numbers"): "modern_regression",
    ("events", "classes"): "events",
}
"""By the kind of the data and of what is to be predicted."""


def space_named(name: str) -> "Space":
    """Return the space of that name.

    Raises:
        UnknownName: If there is none, or it cannot be used.
    """
    return SPACES.named(name)
