"""The spaces that `--space` knows by name."""

from collections.abc import Mapping

from prefect_tune.optimizers.naming import UnknownName
from prefect_tune.optimizers.space import Space, Step
from prefect_tune.tasks.catalogue import classification, preprocessing
from prefect_tune.tasks.catalogue.balancing import BALANCE
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.rescaling import RESCALE
from prefect_tune.tasks.catalogue.table_preparation import ENCODE, IMPUTE

__all__ = ["SPACES", "space_named"]

_SMALL = (
    RESCALE,
    BALANCE,
    Step(
        "preprocess",
        (preprocessing.NONE, preprocessing.PCA, preprocessing.SELECT_PERCENTILE),
    ),
    Step(
        "fit model",
        (
            classification.GAUSSIAN_NB,
            classification.LOGISTIC_REGRESSION,
            classification.K_NEAREST,
            classification.DECISION_TREE,
            classification.EXTRA_TREES,
        ),
    ),
)

SPACES: Mapping[str, Space] = {
    space.name: space
    for space in (
        Space("small", (IMPUTE, ENCODE, *_SMALL), data="table"),
        Space("healthcare", (CONSTRUCT_FEATURES, DENSIFY, *_SMALL), data="events"),
    )
}


def space_named(name: str) -> Space:
    """The space of that name.

    Raises:
        UnknownName: If there is none.
    """
    if name not in SPACES:
        raise UnknownName("space", name, SPACES)
    return SPACES[name]
