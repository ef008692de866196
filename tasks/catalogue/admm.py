"""The two spaces of the ADMM paper (Tables A2 and A3); steps and models differ from FLASH's.

Ranges are those of auto-sklearn, the source named by the paper. Options removed from scikit-learn
are replaced with others, so that the counts of hyperparameters match the tables: `criterion` of
gradient boosting with `init`, and `penalty` of logistic regression with an `l1_ratio` of 0 or 1.
"""

from typing import Any

from ConfigSpace import Constant

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.catalogue.flash import CLASSIFY as FLASH_MODELS
from prefect_tune.tasks.catalogue.flash import PREPROCESS
from prefect_tune.tasks.catalogue.notation import (
    GAMMA,
    KERNEL_GROWTH,
    MAKES_DENSE,
    OF_DENSE,
    OWN,
    ROWS_WEIGHTED,
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
    kitchen_sinks,
    linear,
    log_real,
    log_whole,
    nystroem,
    only_if,
    real,
    splits,
    step,
    tol,
    trees,
    whole,
)
from prefect_tune.tasks.catalogue.preparation import (
    BINARIZE,
    DISCRETIZE,
    ENCODE,
    MINMAX,
    NONE,
    NORMALIZE,
    QUANTILES,
    ROBUST,
    STANDARDIZE,
)


def _forest(estimator: str, *, bootstrap: bool) -> Algorithm:
    return trees(
        estimator,
        real(max_features=(0.0, 1.0, 0.5)),
        whole(n_estimators=(50, 500, 100)),
        criterion(),
        forest(bootstrap=bootstrap),
        fixed={"n_jobs": 1},
        threads="n_jobs",
        transforms={"max_features": "power_of_p"},
        flags=WEIGHTED,
    )


CLASSIFY = step(
    "fit model",
    *chosen(FLASH_MODELS, "gaussian_nb", "quadratic_discriminant"),
    gradient_boosting(
        log_real(learning_rate=(0.01, 1.0, 0.1)),
        real(subsample=(0.01, 1.0, 1.0), max_features=(0.1, 1.0, 1.0)),
        whole(n_estimators=(50, 500, 100), max_depth=(1, 10, 3)),
        splits(),
        choice(loss=["log_loss", "exponential"], init=["none", "zero"]),
        transforms={"init": "word", "loss": "two_class_loss"},
    ),
    *chosen(FLASH_MODELS, "k_nearest"),
    _forest("sklearn.ensemble.RandomForestClassifier", bootstrap=True),
    _forest("sklearn.ensemble.ExtraTreesClassifier", bootstrap=False),
)
CLASSIFY_LARGE = step(
    "fit model",
    *CLASSIFY.algorithms,
    boosted_trees(
        f"{OWN}.ada_boost_classifier",
        log_real(learning_rate=(0.01, 2.0, 0.1)),
        whole(n_estimators=(50, 500, 50), max_depth=(1, 10, 1)),
        flags=ROWS_WEIGHTED,
    ),
    decision_tree(
        "sklearn.tree.DecisionTreeClassifier",
        real(max_depth=(0.0, 2.0, 0.5), max_features=(0.1, 1.0, 1.0)),
        real(min_weight_fraction_leaf=(0.0, 0.1, 0.0)),
        criterion(),
        splits(),
        flags=WEIGHTED,
    ),
    declare(
        f"{OWN}.gaussian_process",
        choice(kernel=["RBF", "Matern52"]),
        log_whole(max_iter_predict=(20, 200, 100)),
        growth=KERNEL_GROWTH,
        flags=Flags(accepts_sparse=False, stochastic=True),
    ),
    linear(
        f"{OWN}.logistic_regression",
        log_real(C=C),
        tol(),
        choice(penalty=["l2", "l1"], fit_intercept=[True, False]),
        choice(class_weight=["none", "balanced"]),
        fixed={"max_iter": 500},
        transforms={"class_weight": "word"},
        flags=WEIGHTED,
    ),
    declare(
        f"{OWN}.mlp",
        log_real(alpha=(1e-7, 0.1, 1e-4), learning_rate_init=(1e-4, 0.5, 1e-3)),
        whole(hidden_layers=(1, 3, 1)),
        log_whole(nodes_per_layer=(16, 264, 32), batch_size=(32, 256, 200)),
        choice(activation=["tanh", "relu"], default="relu"),
        choice(early_stopping=[True, False]),
        fixed={"max_iter": 512},
        transforms={"batch_size": "clip_n"},
        flags=Flags(stochastic=True),
    ),
)


def _kernels(default_gamma: float, with_gamma: list[str]) -> Group:
    kernel = choice(kernel=["poly", "rbf", "sigmoid", "cosine"], default="rbf")
    return [
        *kernel,
        *only_if(kernel, with_gamma, log_real(gamma=(*GAMMA, default_gamma))),
        *only_if(kernel, ["poly", "sigmoid"], real(coef0=(-1.0, 1.0, 0.0))),
        *only_if(kernel, "poly", whole(degree=(2, 5, 3))),
    ]


def _decomposition(estimator: str, *groups: Group, limit: str = "clip_p", **more: Any) -> Algorithm:
    components = whole(n_components=(10, 256, 128))
    rules = {"n_components": limit}
    return declare(estimator, components, *groups, transforms=rules, **more)


def _selection(name: str, mode: int) -> Algorithm:
    alpha = real(alpha=(0.01, 0.5, 0.1))
    return declare(f"{OWN}.select_by_p_value", alpha, name=name, fixed={"mode": mode})


IMPUTE = step(
    "impute",
    declare(
        "prefect_tune.tasks.catalogue.preparation.make_imputer",
        choice(strategy=["mean", "median", "most_frequent"]),
        name="simple",
    ),
)
SCALE = step("scale", NONE, NORMALIZE, QUANTILES, MINMAX, STANDARDIZE, ROBUST)
SCALE_LARGE = step("scale", *SCALE.algorithms, BINARIZE, DISCRETIZE)
TRANSFORM = Step("transform", chosen(PREPROCESS, "none", "pca", "polynomial"))
TRANSFORM_LARGE = step(
    "transform",
    NONE,
    _decomposition(
        "sklearn.random_projection.SparseRandomProjection",
        log_real(density=(0.001, 1.0, 0.1)),
        name="sparse_projection",
        fixed={"dense_output": True},
        flags=MAKES_DENSE,
    ),
    _decomposition(
        "sklearn.random_projection.GaussianRandomProjection",
        name="gaussian_projection",
        flags=MAKES_DENSE,
    ),
    kitchen_sinks(log_real(gamma=(*GAMMA, 1.0))),
    nystroem(log_whole(n_components=(50, 10000, 100)), _kernels(0.1, ["poly", "rbf", "sigmoid"])),
    _decomposition(
        "sklearn.decomposition.TruncatedSVD",
        choice(algorithm=["randomized", "arpack"]),
        limit="clip_below_p",
        flags=MAKES_DENSE,
    ),
    kernel_pca(_kernels(0.01, ["poly", "rbf"]), choice(remove_zero_eig=[False, True])),
    fast_ica("unit-variance", log_whole(max_iter=(100, 1000, 200))),
    _decomposition(
        "sklearn.decomposition.FactorAnalysis",
        choice(svd_method=["lapack", "randomized"], default="randomized"),
        whole(iterated_power=(1, 10, 3)),
        flags=OF_DENSE,
    ),
    *chosen(PREPROCESS, "pca", "polynomial"),
)
SELECT_LARGE = step(
    "select",
    NONE,
    declare(f"{OWN}.select_percentile", whole(percentile=(1, 99, 50))),
    _selection("select_fpr", 0),
    _selection("select_fdr", 1),
    _selection("select_fwe", 2),
    declare("sklearn.feature_selection.VarianceThreshold", real(threshold=(0.0, 0.05, 0.0))),
    declare(
        "sklearn.feature_selection.SelectKBest",
        [Constant("k", 10)],
        name="select_best",
        transforms={"k": "clip_p"},
    ),
)
"""The paper announces 7 choices but prints 6; `select_best` with its usual 10 columns is added."""

ADMM = Space("admm", (IMPUTE, ENCODE, SCALE, TRANSFORM, CLASSIFY))
ADMM_LARGE = Space(
    "admm_large", (IMPUTE, ENCODE, SCALE_LARGE, TRANSFORM_LARGE, SELECT_LARGE, CLASSIFY_LARGE)
)
