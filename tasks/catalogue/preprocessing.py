"""Feature preprocessing in the order of FLASH's Table 5, third block.

`interaction_only` and `mode` are whole numbers, to match the table's counts of hyperparameters.
"""

from collections.abc import Callable
from typing import Any

from ConfigSpace import Categorical, ConfigurationSpace, EqualsCondition, Float, Integer
from ConfigSpace.hyperparameters import Hyperparameter, UniformIntegerHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.tasks.catalogue.shared_spaces import (
    GAMMA,
    KERNEL_GROWTH,
    C,
    fast_ica_space,
    forest_space,
    ranges,
)

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"


def kernel_space(
    kernels: dict[str, tuple[str, ...]],
    n_components: UniformIntegerHyperparameter,
    default_gamma: float,
) -> ConfigurationSpace:
    """Return kernels, each with its own hyperparameters, named `kernel.argument`."""
    kernel = Categorical("kernel", list(kernels), default="rbf")
    space = ranges(n_components, kernel)
    make: dict[str, Callable[[str], Hyperparameter[Any, Any]]] = {
        "gamma": lambda name: Float(name, GAMMA, default=default_gamma, log=True),
        "coef0": lambda name: Float(name, (-1.0, 1.0), default=0.0),
        "degree": lambda name: Integer(name, (2, 5), default=3),
    }
    for value, arguments in kernels.items():
        for argument in arguments:
            child = make[argument](f"{value}.{argument}")
            space.add(child)
            space.add(EqualsCondition(child, kernel, value))
    return space


EXTRA_TREES = Algorithm(
    id="extra_trees",
    estimator=f"{_ESTIMATORS}.select_by_extra_trees",
    hyperparameters=forest_space(Float("max_features", (1.0, 5.0), default=1.0), bootstrap=False),
    fixed={"n_estimators": 100, "n_jobs": 1},
    transforms={"max_features": "logp_max_features"},
    flags=Flags(weights="class_weight", stochastic=True),
)
FAST_ICA = Algorithm(
    id="fast_ica",
    estimator="sklearn.decomposition.FastICA",
    hyperparameters=fast_ica_space("arbitrary-variance"),
    fixed={"max_iter": 200},
    transforms={"n_components": "clip_min_n_p", "whiten": "word"},
    flags=Flags(accepts_sparse=False, output="dense", stochastic=True),
)
AGGLOMERATE = Algorithm(
    id="agglomerate",
    estimator=f"{_ESTIMATORS}.feature_agglomeration",
    memory="column_distances",
    hyperparameters=ranges(
        Integer("n_clusters", (2, 400), default=25),
        Categorical(
            "linkage_and_metric",
            [
                "ward+euclidean",
                "complete+euclidean",
                "complete+manhattan",
                "complete+cosine",
                "average+euclidean",
                "average+manhattan",
                "average+cosine",
            ],
            default="ward+euclidean",
        ),
        Categorical("pooling", ["mean", "median", "max"], default="mean"),
    ),
    transforms={"n_clusters": "clip_p"},
    flags=Flags(accepts_sparse=False, output="dense"),
)
KERNEL_PCA = Algorithm(
    id="kernel_pca",
    estimator="sklearn.decomposition.KernelPCA",
    memory="kernel_matrix",
    growth=KERNEL_GROWTH,
    hyperparameters=kernel_space(
        {
            "cosine": (),
            "rbf": ("gamma",),
            "sigmoid": ("coef0",),
            "poly": ("degree", "coef0", "gamma"),
        },
        Integer("n_components", (10, 2000), default=100),
        1.0,
    ),
    fixed={"remove_zero_eig": False},
    transforms={"n_components": "clip_n"},
    flags=Flags(output="dense", stochastic=True),
)
KITCHEN_SINKS = Algorithm(
    id="kitchen_sinks",
    estimator="sklearn.kernel_approximation.RBFSampler",
    memory="random_features",
    growth={"n_components": 1.0},
    hyperparameters=ranges(
        Float("gamma", (0.3, 2.0), default=1.0),
        Integer("n_components", (50, 10000), default=100, log=True),
    ),
    flags=Flags(output="dense", stochastic=True),
)
LINEAR_SVM = Algorithm(
    id="linear_svm",
    estimator=f"{_ESTIMATORS}.select_by_linear_svm",
    hyperparameters=ranges(
        Float("tol", (1e-5, 0.1), default=1e-4, log=True), Float("C", C, default=1.0, log=True)
    ),
    flags=Flags(weights="class_weight", stochastic=True),
)
NONE = Algorithm(id="none")
NYSTROEM = Algorithm(
    id="nystroem",
    estimator="sklearn.kernel_approximation.Nystroem",
    memory="nystroem",
    growth={"n_components": 1.0},
    hyperparameters=kernel_space(
        {
            "cosine": (),
            "rbf": ("gamma",),
            "chi2": ("gamma",),
            "sigmoid": ("coef0", "gamma"),
            "poly": ("degree", "coef0", "gamma"),
        },
        Integer("n_components", (50, 10000), default=100, log=True),
        0.1,
    ),
    transforms={"n_components": "clip_n"},
    flags=Flags(
        densify_when=("kernel", "chi2"),
        needs_nonnegative=("kernel", "chi2"),
        output="dense",
        stochastic=True,
    ),
)
PCA = Algorithm(
    id="pca",
    estimator="sklearn.decomposition.PCA",
    memory="pca",
    hyperparameters=ranges(
        Float("n_components", (0.5, 0.9999), default=0.9999),
        Categorical("whiten", [False, True], default=False),
    ),
    fixed={"svd_solver": "full"},
    sparse_fixed={"svd_solver": "covariance_eigh"},
    flags=Flags(output="dense"),
)
POLYNOMIAL = Algorithm(
    id="polynomial",
    estimator=f"{_ESTIMATORS}.Polynomial",
    memory="polynomial",
    hyperparameters=ranges(
        Integer("degree", (2, 3), default=2),
        Integer("interaction_only", (0, 1), default=0),
        Categorical("include_bias", [True, False], default=True),
    ),
    transforms={"interaction_only": "truth"},
)
TREES_EMBEDDING = Algorithm(
    id="trees_embedding",
    estimator="sklearn.ensemble.RandomTreesEmbedding",
    hyperparameters=ranges(
        Integer("n_estimators", (10, 100), default=10),
        Integer("max_depth", (2, 10), default=5),
        Integer("min_samples_split", (2, 20), default=2),
        Integer("min_samples_leaf", (1, 20), default=1),
    ),
    fixed={"sparse_output": False, "n_jobs": 1},
    threads="n_jobs",
    flags=Flags(output="dense", stochastic=True),
)
SELECT_PERCENTILE = Algorithm(
    id="select_percentile",
    estimator=f"{_ESTIMATORS}.select_percentile",
    hyperparameters=ranges(
        Integer("percentile", (1, 99), default=50),
        Categorical("score", ["chi2", "f_classif"], default="chi2"),
    ),
    flags=Flags(needs_nonnegative=("score", "chi2")),
)
SELECT_UNIVARIATE = Algorithm(
    id="select_univariate",
    estimator=f"{_ESTIMATORS}.select_univariate",
    hyperparameters=ranges(
        Float("param", (0.01, 0.5), default=0.1),
        Categorical("score", ["chi2", "f_classif"], default="chi2"),
        Integer("mode", (0, 2), default=0),
    ),
    flags=Flags(needs_nonnegative=("score", "chi2")),
)


def percentile_of(score: str) -> Algorithm:
    """Return the selection of a share of the columns by a score."""
    return Algorithm(
        id="select_percentile",
        estimator=f"{_ESTIMATORS}.select_percentile",
        hyperparameters=ranges(Integer("percentile", (1, 99), default=50)),
        fixed={"score": score},
    )


PREPROCESS = Step(
    "preprocess",
    (
        EXTRA_TREES,
        FAST_ICA,
        AGGLOMERATE,
        KERNEL_PCA,
        KITCHEN_SINKS,
        LINEAR_SVM,
        NONE,
        NYSTROEM,
        PCA,
        POLYNOMIAL,
        TREES_EMBEDDING,
        SELECT_PERCENTILE,
        SELECT_UNIVARIATE,
    ),
)
"""FLASH's thirteen choices."""
