"""FLASH's steps (Table 5), their counterparts for regression, and spaces built from these steps.

Algorithms are in the order of the table. `interaction_only` and `mode` are integers, to match the
table's counts of hyperparameters. Class weights are passed to every classifier that accepts
weights, although the paper's own code did not always do so. For regression, a classifier or score
without a counterpart is replaced with a similar one; for example, ridge regression replaces linear
discriminants.

The seven single-model spaces come from Levesque, Gagne and Sabourin (2016). Single-model spaces
have no steps before the model, except that data are standardized for models that use distances. A
number of columns given as a ratio is at least 1.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ConfigSpace import Float, Integer

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.notation import (
    DENSE,
    GAMMA,
    KERNEL_GROWTH,
    MAKES_DENSE,
    OWN,
    ROWS_WEIGHTED,
    SEEDED,
    WEIGHTED,
    C,
    Group,
    boosted_trees,
    choice,
    chosen,
    criterion,
    decision_tree,
    declare,
    fast_ica,
    forest,
    gradient_boosting,
    kernel_pca,
    kernel_svm,
    kitchen_sinks,
    linear,
    log_real,
    log_whole,
    nystroem,
    only_if,
    real,
    sgd,
    splits,
    step,
    svc,
    svr,
    tol,
    twin_of,
    whole,
)
from prefect_tune.tasks.catalogue.preparation import (
    BALANCE,
    ENCODE,
    IMPUTE,
    NONE,
    RESCALE,
    STANDARDIZE,
)

_HUNDRED_TREES = {"n_estimators": 100, "n_jobs": 1}
_KERNELS_WITH_OFFSET = {"sigmoid": "coef0 gamma", "poly": "degree coef0 gamma"}


def _kernels(default_gamma: float, **kernels: str) -> Group:
    """Return a choice of kernels, and the hyperparameters of each, named `kernel.argument`."""
    kernel = choice(kernel=list(kernels), default="rbf")
    group = [*kernel]
    for value, arguments in kernels.items():
        made = {
            "gamma": Float(f"{value}.gamma", GAMMA, default=default_gamma, log=True),
            "coef0": Float(f"{value}.coef0", (-1.0, 1.0), default=0.0),
            "degree": Integer(f"{value}.degree", (2, 5), default=3),
        }
        group += only_if(kernel, value, [made[argument] for argument in arguments.split()])
    return group


def _forest(estimator: str, *, bootstrap: bool, **more: Any) -> Algorithm:
    return declare(
        estimator,
        real(max_features=(1.0, 5.0, 1.0)),
        criterion(),
        forest(bootstrap=bootstrap),
        fixed=_HUNDRED_TREES,
        transforms={"max_features": "logp_max_features"},
        flags=WEIGHTED,
        **more,
    )


def _forest_of_numbers(estimator: str, *, bootstrap: bool, **more: Any) -> Algorithm:
    share = real(max_features=(0.1, 1.0, 1.0))
    return declare(
        estimator, share, forest(bootstrap=bootstrap), fixed=_HUNDRED_TREES, flags=SEEDED, **more
    )


def percentile_of(score: str) -> Algorithm:
    """Declare the selection of a percentage of the columns by a score."""
    percentile, fixed = whole(percentile=(1, 99, 50)), {"score": score}
    return declare(f"{OWN}.select_percentile", percentile, fixed=fixed)


_SCORE, _OF_SCORE = choice(score=["chi2", "f_classif"]), Flags(needs_nonnegative=("score", "chi2"))
_SELECTION = real(param=(0.01, 0.5, 0.1)), whole(mode=(0, 2, 0))
PREPROCESS = step(
    "preprocess",
    _forest(f"{OWN}.select_by_extra_trees", bootstrap=False, name="extra_trees"),
    fast_ica("arbitrary-variance", fixed={"max_iter": 200}),
    declare(
        f"{OWN}.feature_agglomeration",
        whole(n_clusters=(2, 400, 25)),
        choice(
            linkage_and_metric=[
                "ward+euclidean",
                *(f"complete+{metric}" for metric in ("euclidean", "manhattan", "cosine")),
                *(f"average+{metric}" for metric in ("euclidean", "manhattan", "cosine")),
            ],
            pooling=["mean", "median", "max"],
        ),
        name="agglomerate",
        transforms={"n_clusters": "clip_p"},
        flags=Flags(accepts_sparse=False, output="dense"),
    ),
    kernel_pca(
        _kernels(1.0, cosine="", rbf="gamma", sigmoid="coef0", poly="degree coef0 gamma"),
        fixed={"remove_zero_eig": False},
    ),
    kitchen_sinks(real(gamma=(0.3, 2.0, 1.0))),
    declare(f"{OWN}.select_by_linear_svm", tol(), log_real(C=C), name="linear_svm", flags=WEIGHTED),
    NONE,
    nystroem(
        log_whole(n_components=(50, 10000, 100)),
        _kernels(0.1, cosine="", rbf="gamma", chi2="gamma", **_KERNELS_WITH_OFFSET),
        flags=Flags(
            densify_when=("kernel", "chi2"),
            needs_nonnegative=("kernel", "chi2"),
            output="dense",
            stochastic=True,
        ),
    ),
    declare(
        "sklearn.decomposition.PCA",
        real(n_components=(0.5, 0.9999, 0.9999)),
        choice(whiten=[False, True]),
        fixed={"svd_solver": "full"},
        sparse_fixed={"svd_solver": "covariance_eigh"},
        flags=Flags(output="dense"),
    ),
    declare(
        f"{OWN}.Polynomial",
        whole(degree=(2, 3, 2), interaction_only=(0, 1, 0)),
        choice(include_bias=[True, False]),
        transforms={"interaction_only": "truth"},
    ),
    declare(
        "sklearn.ensemble.RandomTreesEmbedding",
        whole(n_estimators=(10, 100, 10), max_depth=(2, 10, 5)),
        splits(),
        name="trees_embedding",
        fixed={"sparse_output": False, "n_jobs": 1},
        threads="n_jobs",
        flags=MAKES_DENSE,
    ),
    declare(f"{OWN}.select_percentile", whole(percentile=(1, 99, 50)), _SCORE, flags=_OF_SCORE),
    declare(f"{OWN}.select_univariate", *_SELECTION, _SCORE, flags=_OF_SCORE),
)
"""FLASH's thirteen choices."""

_SHRINKAGE = choice(shrinkage=["none", "auto", "manual"])
_LOSS = choice(loss=["hinge", "log_loss", "squared_hinge", "perceptron", "modified_huber"])
_AS_TREES: Mapping[str, Any] = {"threads": "n_jobs", "kind": "trees"}
CLASSIFY = step(
    "fit model",
    boosted_trees(
        f"{OWN}.ada_boost_classifier",
        whole(n_estimators=(50, 500, 50), max_depth=(1, 10, 1)),
        log_real(learning_rate=(1e-4, 2.0, 0.1)),
        choice(splitter=["best", "random"]),
        growth={"n_estimators": 1.0, "max_depth": 1.0},
        flags=ROWS_WEIGHTED,
    ),
    decision_tree(
        "sklearn.tree.DecisionTreeClassifier",
        criterion(),
        real(max_depth=(0.0, 2.0, 0.5)),
        splits(),
        flags=WEIGHTED,
    ),
    _forest("sklearn.ensemble.ExtraTreesClassifier", bootstrap=False, **_AS_TREES),
    declare(
        "sklearn.naive_bayes.GaussianNB", flags=Flags(accepts_sparse=False, weights="sample_weight")
    ),
    gradient_boosting(
        log_real(learning_rate=(1e-4, 1.0, 0.1)),
        whole(max_depth=(1, 10, 3)),
        splits(),
        real(subsample=(0.01, 1.0, 1.0), max_features=(1.0, 5.0, 1.0)),
        fixed={"n_estimators": 100},
        transforms={"max_features": "logp_max_features"},
    ),
    declare(
        "sklearn.neighbors.KNeighborsClassifier",
        log_whole(n_neighbors=(1, 100, 1)),
        choice(weights=["uniform", "distance"]),
        choice(p=[1, 2], default=2),
        name="k_nearest",
        transforms={"n_neighbors": "clip_n"},
        growth={"held_out": 1.0},
    ),
    linear(
        f"{OWN}.linear_discriminant",
        _SHRINKAGE,
        only_if(_SHRINKAGE, "manual", [Float("manual.shrinkage", (0.0, 1.0), default=0.5)]),
        whole(n_components=(1, 250, 10)),
        tol(),
        transforms={"shrinkage": "word", "n_components": "inert"},
        flags=DENSE,
    ),
    linear(
        "sklearn.svm.LinearSVC",
        tol(),
        log_real(C=C),
        name="linear_svm",
        fixed={"penalty": "l2", "loss": "squared_hinge", "dual": False},
        flags=WEIGHTED,
    ),
    svc(kernel_svm(1e-4), name="kernel_svm", fixed={"cache_size": 200}),
    declare(
        "sklearn.naive_bayes.MultinomialNB",
        log_real(alpha=(0.01, 100.0, 1.0)),
        choice(fit_prior=[True, False]),
        flags=Flags(needs_nonnegative=True, weights="sample_weight"),
    ),
    linear(
        f"{OWN}.passive_aggressive_classifier",
        choice(loss=["hinge", "squared_hinge"]),
        log_whole(max_iter=(5, 1000, 20)),
        log_real(C=(1e-5, 10.0, 1.0)),
        flags=WEIGHTED,
    ),
    declare(f"{OWN}.QuadraticDiscriminant", real(reg_param=(0.0, 1.0, 0.5)), flags=DENSE),
    _forest("sklearn.ensemble.RandomForestClassifier", bootstrap=True, **_AS_TREES),
    linear(
        "sklearn.linear_model.SGDClassifier",
        sgd(_LOSS, "optimal"),
        only_if(
            _LOSS,
            "modified_huber",
            [Float("modified_huber.epsilon", (1e-5, 0.1), default=1e-4, log=True)],
        ),
        real(eta0=(1e-6, 0.1, 0.01)),
        fixed={"tol": None},
        transforms={"modified_huber.epsilon": "inert"},
        flags=WEIGHTED,
    ),
)
"""FLASH's fourteen choices."""
LOGISTIC_REGRESSION = linear(
    "sklearn.linear_model.LogisticRegression",
    log_real(C=(1e-4, 1e4, 1.0)),
    fixed={"max_iter": 200},
    flags=Flags(weights="class_weight"),
)


_PASSIVE_LOSSES = ["epsilon_insensitive", "squared_epsilon_insensitive"]
PREPROCESS_NUMBERS = step(
    "preprocess",
    _forest_of_numbers(
        f"{OWN}.select_by_extra_trees_regressor", bootstrap=False, name="extra_trees"
    ),
    *chosen(PREPROCESS, "fast_ica", "agglomerate", "kernel_pca", "kitchen_sinks"),
    declare(f"{OWN}.select_by_lasso", log_real(alpha=(1e-5, 1.0, 1e-2)), tol(), name="lasso"),
    *chosen(PREPROCESS, "none", "nystroem", "pca", "polynomial", "trees_embedding"),
    percentile_of("f_regression"),
    declare(f"{OWN}.select_univariate", *_SELECTION, fixed={"score": "f_regression"}),
)
REGRESS = step(
    "fit model",
    boosted_trees(
        f"{OWN}.ada_boost_regressor",
        whole(n_estimators=(50, 500, 50), max_depth=(1, 10, 1)),
        log_real(learning_rate=(1e-2, 2.0, 0.1)),
        choice(loss=["linear", "square", "exponential"]),
        flags=SEEDED,
    ),
    decision_tree(
        "sklearn.tree.DecisionTreeRegressor",
        choice(splitter=["best", "random"]),
        real(max_depth=(0.0, 2.0, 0.5)),
        splits(),
        flags=SEEDED,
    ),
    _forest_of_numbers("sklearn.ensemble.ExtraTreesRegressor", bootstrap=False, **_AS_TREES),
    linear("sklearn.linear_model.BayesianRidge", flags=DENSE),
    twin_of(CLASSIFY.algorithm("gradient_boosting"), "sklearn.ensemble.GradientBoostingRegressor"),
    twin_of(CLASSIFY.algorithm("k_nearest"), "sklearn.neighbors.KNeighborsRegressor", growth={}),
    linear("sklearn.linear_model.Ridge", log_real(alpha=(1e-5, 1e3, 1.0)), flags=SEEDED),
    linear(
        "sklearn.svm.LinearSVR",
        log_real(epsilon=(1e-3, 1.0, 0.1), C=C),
        tol(),
        name="linear_svm",
        fixed={"loss": "squared_epsilon_insensitive", "dual": False},
        flags=SEEDED,
    ),
    svr(
        kernel_svm(1e-3),
        log_real(epsilon=(1e-3, 1.0, 0.1)),
        name="kernel_svm",
        fixed={"cache_size": 200},
    ),
    linear(
        "sklearn.linear_model.ElasticNet",
        log_real(alpha=(1e-5, 10.0, 0.1)),
        real(l1_ratio=(0.01, 1.0, 0.5)),
    ),
    linear(
        f"{OWN}.passive_aggressive_regressor",
        choice(loss=_PASSIVE_LOSSES),
        log_whole(max_iter=(5, 1000, 20)),
        log_real(C=(1e-5, 10.0, 1.0), epsilon=(1e-3, 1.0, 0.1)),
        flags=SEEDED,
    ),
    declare(
        "sklearn.kernel_ridge.KernelRidge",
        log_real(alpha=(1e-5, 10.0, 1.0), gamma=(*GAMMA, 0.1)),
        fixed={"kernel": "rbf"},
        growth=KERNEL_GROWTH,
    ),
    _forest_of_numbers("sklearn.ensemble.RandomForestRegressor", bootstrap=True, **_AS_TREES),
    linear(
        "sklearn.linear_model.SGDRegressor",
        sgd(choice(loss=["squared_error", "huber", *_PASSIVE_LOSSES]), "invscaling"),
        log_real(epsilon=(1e-5, 0.1, 0.1), eta0=(1e-6, 0.1, 0.01)),
        fixed={"tol": None},
        flags=SEEDED,
    ),
)

_FLASH_STEPS = (RESCALE, BALANCE, PREPROCESS, CLASSIFY)
FLASH = Space("flash", (IMPUTE, ENCODE, *_FLASH_STEPS))
HEALTHCARE = Space("healthcare", (CONSTRUCT_FEATURES, DENSIFY, *_FLASH_STEPS), data="events")
REGRESSION = Space(
    "regression", (IMPUTE, ENCODE, RESCALE, PREPROCESS_NUMBERS, REGRESS), target="regression"
)
_FEW_MODELS = (
    *chosen(CLASSIFY, "gaussian_nb"),
    LOGISTIC_REGRESSION,
    *chosen(CLASSIFY, "k_nearest", "decision_tree", "extra_trees"),
)
_FEW_FEATURES = step("preprocess", *chosen(PREPROCESS, "none", "pca", "select_percentile"))
SMALL = Space(
    "small", (IMPUTE, ENCODE, RESCALE, BALANCE, _FEW_FEATURES, step("fit model", *_FEW_MODELS))
)

_STANDARDIZE = step("rescale", STANDARDIZE, fixed=True)


def _model_alone(algorithm: Algorithm, *before: Step) -> Space:
    return Space(algorithm.id, (IMPUTE, ENCODE, *before, step("fit model", algorithm)))


def _numbers_alone(algorithm: Algorithm, *before: Step) -> Space:
    return replace(_model_alone(algorithm, *before), target="regression")


_KERNEL_MACHINE = log_real(C=(1e-2, 1e3, 1.0), gamma=(1e-5, 1e3, 0.1))
_BOOSTING = [*whole(max_depth=(1, 15, 3)), *log_real(learning_rate=(1e-2, 1.0, 0.1))]
SVM = _model_alone(svc(_KERNEL_MACHINE, name="svm", fixed={"kernel": "rbf"}), _STANDARDIZE)
SVR = _numbers_alone(
    svr(_KERNEL_MACHINE, log_real(epsilon=(1e-2, 1.0, 0.1)), fixed={"kernel": "rbf"}), _STANDARDIZE
)
_FOREST = declare(
    f"{OWN}.forest_classifier",
    choice(family=["random_forest", "extra_trees"], bootstrap=[True, False]),
    real(max_features=(1e-4, 1.0, 0.5)),
    name="random_forest",
    fixed=_HUNDRED_TREES,
    threads="n_jobs",
    transforms={"max_features": "share_of_p"},
    flags=WEIGHTED,
)
RANDOM_FOREST = _model_alone(_FOREST)
RANDOM_FOREST_REGRESSOR = _numbers_alone(
    twin_of(_FOREST, f"{OWN}.forest_regressor", id="random_forest_regressor")
)
GRADIENT_BOOSTING = _model_alone(
    declare(
        "sklearn.ensemble.GradientBoostingClassifier",
        _BOOSTING,
        real(max_features=(1e-3, 1.0, 1.0)),
        fixed={"n_estimators": 100},
        transforms={"max_features": "share_of_p"},
        flags=ROWS_WEIGHTED,
    )
)
GRADIENT_BOOSTING_REGRESSOR = _numbers_alone(
    declare(
        "sklearn.ensemble.GradientBoostingRegressor",
        _BOOSTING,
        real(alpha=(1e-4, 0.9999, 0.9)),
        name="gradient_boosting_regressor",
        fixed={"n_estimators": 100, "loss": "huber"},
        flags=SEEDED,
    )
)
"""Huber's loss replaces the mixture of squared and absolute loss, as in the authors' code."""
MLP = _model_alone(
    declare(
        f"{OWN}.layerwise_mlp",
        whole(width_1=(1, 100, 10), width_2=(1, 100, 10)),
        log_real(alpha_1=(1e-5, 100.0, 1e-3), alpha_2=(1e-5, 100.0, 1e-3)),
        log_real(alpha_3=(1e-5, 100.0, 1e-3)),
        name="mlp",
        flags=SEEDED,
    ),
    _STANDARDIZE,
)
