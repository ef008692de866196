"""The papers' spaces, those of a single model, and a small one."""

from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.catalogue import admm, classification, ensemble_smbo, preprocessing
from prefect_tune.tasks.catalogue import preparation as rescaling
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.preparation import BALANCE, ENCODE, IMPUTE
from prefect_tune.tasks.catalogue.regression import PREPROCESS_NUMBERS, REGRESS

_TABLE = (IMPUTE, ENCODE)
_FLASH_STEPS = (rescaling.RESCALE, BALANCE, preprocessing.PREPROCESS, classification.CLASSIFY)
_SMALL_STEPS = (
    rescaling.RESCALE,
    BALANCE,
    Step("preprocess", (preprocessing.NONE, preprocessing.PCA, preprocessing.SELECT_PERCENTILE)),
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


SMALL = Space("small", (*_TABLE, *_SMALL_STEPS))
FLASH = Space("flash", (*_TABLE, *_FLASH_STEPS))
HEALTHCARE = Space("healthcare", (CONSTRUCT_FEATURES, DENSIFY, *_FLASH_STEPS), data="events")
REGRESSION = Space(
    "regression", (*_TABLE, rescaling.RESCALE, PREPROCESS_NUMBERS, REGRESS), target="numbers"
)
ADMM = Space("admm", (admm.IMPUTE, ENCODE, admm.SCALE, admm.TRANSFORM, admm.CLASSIFY))
ADMM_LARGE = Space(
    "admm_large",
    (
        admm.IMPUTE,
        ENCODE,
        admm.SCALE_LARGE,
        admm.TRANSFORM_LARGE,
        admm.SELECT_LARGE,
        admm.CLASSIFY_LARGE,
    ),
)
SVM = _model_alone(ensemble_smbo.SVM, _STANDARDIZE)
SVR = _model_alone(ensemble_smbo.SVR, _STANDARDIZE, numbers=True)
RANDOM_FOREST = _model_alone(ensemble_smbo.RANDOM_FOREST)
GRADIENT_BOOSTING = _model_alone(ensemble_smbo.GRADIENT_BOOSTING)
GRADIENT_BOOSTING_REGRESSOR = _model_alone(ensemble_smbo.GRADIENT_BOOSTING_REGRESSOR, numbers=True)
RANDOM_FOREST_REGRESSOR = _model_alone(ensemble_smbo.RANDOM_FOREST_REGRESSOR, numbers=True)
MLP = _model_alone(ensemble_smbo.MLP, _STANDARDIZE)
