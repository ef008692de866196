"""The spaces that `--space` knows by name."""

from collections.abc import Mapping

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.catalogue import (
    admm,
    classification,
    ensemble_smbo,
    preprocessing,
)
from prefect_tune.tasks.catalogue import (
    admm as admm_models,
)
from prefect_tune.tasks.catalogue import (
    preparation as rescaling,
)
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.modern import EVENTS, MODERN, MODERN_HEALTHCARE, MODERN_REGRESSION
from prefect_tune.tasks.catalogue.preparation import BALANCE, ENCODE, IMPUTE
from prefect_tune.tasks.catalogue.regression import PREPROCESS_NUMBERS, REGRESS

_TABLE = (IMPUTE, ENCODE)
_FLASH = (
    rescaling.RESCALE,
    BALANCE,
    preprocessing.PREPROCESS,
    classification.CLASSIFY,
)
_SMALL = (
    rescaling.RESCALE,
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
_STANDARDIZE = Step("rescale", (rescaling.STANDARDIZE,), fixed=True)


def _model_alone(algorithm: Algorithm, *before: Step, numbers: bool = False) -> Space:
    """Return a space of one model, named like it."""
    model = Step("fit model", (algorithm,))
    return Space(
        algorithm.id, (*_TABLE, *before, model), target="numbers" if numbers else "classes"
    )


SPACES: Mapping[str, Space] = {
    space.name: space
    for space in (
        Space("small", (*_TABLE, *_SMALL)),
        Space("flash", (*_TABLE, *_FLASH)),
        Space("healthcare", (CONSTRUCT_FEATURES, DENSIFY, *_FLASH), data="events"),
        Space(
            "regression",
            (*_TABLE, rescaling.RESCALE, PREPROCESS_NUMBERS, REGRESS),
            target="numbers",
        ),
        Space("admm", (admm.IMPUTE, ENCODE, admm.SCALE, admm.TRANSFORM, admm_models.CLASSIFY)),
        Space(
            "admm_large",
            (
                admm.IMPUTE,
                ENCODE,
                admm.SCALE_LARGE,
                admm.TRANSFORM_LARGE,
                admm.SELECT_LARGE,
                admm_models.CLASSIFY_LARGE,
            ),
        ),
        _model_alone(ensemble_smbo.SVM, _STANDARDIZE),
        _model_alone(ensemble_smbo.SVR, _STANDARDIZE, numbers=True),
        _model_alone(ensemble_smbo.RANDOM_FOREST),
        _model_alone(ensemble_smbo.GRADIENT_BOOSTING),
        _model_alone(ensemble_smbo.GRADIENT_BOOSTING_REGRESSOR, numbers=True),
        _model_alone(ensemble_smbo.RANDOM_FOREST_REGRESSOR, numbers=True),
        _model_alone(ensemble_smbo.MLP, _STANDARDIZE),
        MODERN,
        MODERN_HEALTHCARE,
        EVENTS,
        MODERN_REGRESSION,
    )
}
"""By name; the same whatever is installed (see `libraries`)."""
DEFAULT_SPACES: Mapping[tuple[str, str], str] = {
    ("table", "classes"): "modern",
    ("table", "numbers"): "modern_regression",
    ("events", "classes"): "events",
}
"""By the kind of the data and of what is to be predicted."""


def space_named(name: str) -> Space:
    """Return the space of that name.

    Raises:
        UnknownName: If there is none.
    """
    if name not in SPACES:
        raise UnknownName("space", name, SPACES)
    return SPACES[name]
