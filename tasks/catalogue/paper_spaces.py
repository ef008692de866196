"""The papers' spaces, spaces of a single model, and a small one.

The spaces of a single model are the seven of Levesque, Gagne and Sabourin (2016), without earlier
steps, but standardised for models that use distances. Ratios of columns give at least one column.
"""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer
from ConfigSpace.hyperparameters import UniformFloatHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.catalogue import admm, classification, preprocessing
from prefect_tune.tasks.catalogue import preparation as rescaling
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.preparation import BALANCE, ENCODE, IMPUTE
from prefect_tune.tasks.catalogue.regression import PREPROCESS_NUMBERS, REGRESS
from prefect_tune.tasks.catalogue.shared_spaces import KERNEL_GROWTH, ranges

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"
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


def _kernel_machine(*more: UniformFloatHyperparameter) -> ConfigurationSpace:
    return ranges(
        Float("C", (1e-2, 1e3), default=1.0, log=True),
        Float("gamma", (1e-5, 1e3), default=0.1, log=True),
        *more,
    )


def _forest() -> ConfigurationSpace:
    return ranges(
        Categorical("family", ["random_forest", "extra_trees"], default="random_forest"),
        Categorical("bootstrap", [True, False], default=True),
        Float("max_features", (1e-4, 1.0), default=0.5),
    )


def _boosting(*more: UniformFloatHyperparameter) -> ConfigurationSpace:
    return ranges(
        Integer("max_depth", (1, 15), default=3),
        Float("learning_rate", (1e-2, 1.0), default=0.1, log=True),
        *more,
    )


SVM = _model_alone(
    Algorithm(
        id="svm",
        estimator="sklearn.svm.SVC",
        hyperparameters=_kernel_machine(),
        fixed={"kernel": "rbf"},
        growth=KERNEL_GROWTH,
        flags=Flags(weights="class_weight"),
    ),
    _STANDARDIZE,
)
SVR = _model_alone(
    Algorithm(
        id="svr",
        estimator="sklearn.svm.SVR",
        hyperparameters=_kernel_machine(Float("epsilon", (1e-2, 1.0), default=0.1, log=True)),
        fixed={"kernel": "rbf"},
        growth=KERNEL_GROWTH,
    ),
    _STANDARDIZE,
    numbers=True,
)
RANDOM_FOREST = _model_alone(
    Algorithm(
        id="random_forest",
        estimator=f"{_ESTIMATORS}.forest_classifier",
        hyperparameters=_forest(),
        fixed={"n_estimators": 100, "n_jobs": 1},
        threads="n_jobs",
        transforms={"max_features": "share_of_p"},
        flags=Flags(weights="class_weight", stochastic=True),
    )
)
GRADIENT_BOOSTING = _model_alone(
    Algorithm(
        id="gradient_boosting",
        estimator="sklearn.ensemble.GradientBoostingClassifier",
        hyperparameters=_boosting(Float("max_features", (1e-3, 1.0), default=1.0)),
        fixed={"n_estimators": 100},
        transforms={"max_features": "share_of_p"},
        flags=Flags(weights="sample_weight", stochastic=True),
    )
)
GRADIENT_BOOSTING_REGRESSOR = _model_alone(
    Algorithm(
        id="gradient_boosting_regressor",
        estimator="sklearn.ensemble.GradientBoostingRegressor",
        hyperparameters=_boosting(Float("alpha", (1e-4, 0.9999), default=0.9)),
        fixed={"n_estimators": 100, "loss": "huber"},
        flags=Flags(stochastic=True),
    ),
    numbers=True,
)
"""Huber's loss replaces the mixture of squared and absolute loss, as in the authors' code."""
RANDOM_FOREST_REGRESSOR = _model_alone(
    Algorithm(
        id="random_forest_regressor",
        estimator=f"{_ESTIMATORS}.forest_regressor",
        hyperparameters=_forest(),
        fixed={"n_estimators": 100, "n_jobs": 1},
        threads="n_jobs",
        transforms={"max_features": "share_of_p"},
        flags=Flags(stochastic=True),
    ),
    numbers=True,
)
MLP = _model_alone(
    Algorithm(
        id="mlp",
        estimator=f"{_ESTIMATORS}.layerwise_mlp",
        hyperparameters=ranges(
            Integer("width_1", (1, 100), default=10),
            Integer("width_2", (1, 100), default=10),
            *(Float(f"alpha_{i}", (1e-5, 100.0), default=1e-3, log=True) for i in (1, 2, 3)),
        ),
        flags=Flags(stochastic=True),
    ),
    _STANDARDIZE,
)
