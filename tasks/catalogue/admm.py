"""Steps and models of ADMM's two spaces (Tables A2 and A3) that differ from FLASH's.

Ranges are auto-sklearn's, the source that the paper names. Options that scikit-learn has dropped
are replaced to match the table's counts: gradient boosting's `criterion` by `init`, logistic
regression's `penalty` by an `l1_ratio` of 0 or 1.
"""

from dataclasses import replace

from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    InCondition,
    Integer,
)
from ConfigSpace.hyperparameters import UniformFloatHyperparameter, UniformIntegerHyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm, Flags, Step
from prefect_tune.tasks.catalogue import classification, preprocessing
from prefect_tune.tasks.catalogue import preparation as rescaling
from prefect_tune.tasks.catalogue.shared_spaces import (
    GAMMA,
    KERNEL_GROWTH,
    C,
    fast_ica_space,
    forest_space,
    ranges,
)

_ESTIMATORS = "prefect_tune.tasks.catalogue.estimators"


def _forest(*, bootstrap: bool) -> ConfigurationSpace:
    return forest_space(
        Float("max_features", (0.0, 1.0), default=0.5),
        Integer("n_estimators", (50, 500), default=100),
        bootstrap=bootstrap,
    )


_GRADIENT_BOOSTING = Algorithm(
    id="gradient_boosting",
    estimator="sklearn.ensemble.GradientBoostingClassifier",
    hyperparameters=ranges(
        Float("learning_rate", (0.01, 1.0), default=0.1, log=True),
        Float("subsample", (0.01, 1.0), default=1.0),
        Float("max_features", (0.1, 1.0), default=1.0),
        Integer("n_estimators", (50, 500), default=100),
        Integer("max_depth", (1, 10), default=3),
        Integer("min_samples_split", (2, 20), default=2),
        Integer("min_samples_leaf", (1, 20), default=1),
        Categorical("loss", ["log_loss", "exponential"], default="log_loss"),
        Categorical("init", ["none", "zero"], default="none"),
    ),
    transforms={"init": "word", "loss": "two_class_loss"},
    flags=Flags(weights="sample_weight", stochastic=True),
    kind="boosted_trees",
)
_RANDOM_FOREST = Algorithm(
    id="random_forest",
    estimator="sklearn.ensemble.RandomForestClassifier",
    hyperparameters=_forest(bootstrap=True),
    fixed={"n_jobs": 1},
    threads="n_jobs",
    transforms={"max_features": "power_of_p"},
    flags=Flags(weights="class_weight", stochastic=True),
    kind="trees",
)
_EXTRA_TREES = replace(
    _RANDOM_FOREST,
    id="extra_trees",
    estimator="sklearn.ensemble.ExtraTreesClassifier",
    hyperparameters=_forest(bootstrap=False),
)
CLASSIFY = Step(
    "fit model",
    (
        classification.GAUSSIAN_NB,
        classification.QUADRATIC_DISCRIMINANT,
        _GRADIENT_BOOSTING,
        classification.K_NEAREST,
        _RANDOM_FOREST,
        _EXTRA_TREES,
    ),
)
CLASSIFY_LARGE = Step(
    "fit model",
    (
        *CLASSIFY.algorithms,
        Algorithm(
            id="ada_boost",
            estimator=f"{_ESTIMATORS}.ada_boost_classifier",
            hyperparameters=ranges(
                Float("learning_rate", (0.01, 2.0), default=0.1, log=True),
                Integer("n_estimators", (50, 500), default=50),
                Integer("max_depth", (1, 10), default=1),
            ),
            flags=Flags(weights="sample_weight", stochastic=True),
            kind="boosted_trees",
        ),
        Algorithm(
            id="decision_tree",
            estimator="sklearn.tree.DecisionTreeClassifier",
            hyperparameters=ranges(
                Float("max_depth", (0.0, 2.0), default=0.5),
                Float("max_features", (0.1, 1.0), default=1.0),
                Float("min_weight_fraction_leaf", (0.0, 0.1), default=0.0),
                Categorical("criterion", ["gini", "entropy"], default="gini"),
                Integer("min_samples_split", (2, 20), default=2),
                Integer("min_samples_leaf", (1, 20), default=1),
            ),
            transforms={"max_depth": "depth_factor"},
            flags=Flags(weights="class_weight", stochastic=True),
            kind="trees",
        ),
        Algorithm(
            id="gaussian_process",
            estimator=f"{_ESTIMATORS}.gaussian_process",
            memory="kernel_matrix",
            growth=KERNEL_GROWTH,
            hyperparameters=ranges(
                Categorical("kernel", ["RBF", "Matern52"], default="RBF"),
                Integer("max_iter_predict", (20, 200), default=100, log=True),
            ),
            flags=Flags(accepts_sparse=False, stochastic=True),
        ),
        Algorithm(
            id="logistic_regression",
            estimator=f"{_ESTIMATORS}.logistic_regression",
            hyperparameters=ranges(
                Float("C", C, default=1.0, log=True),
                Float("tol", (1e-5, 0.1), default=1e-4, log=True),
                Categorical("penalty", ["l2", "l1"], default="l2"),
                Categorical("fit_intercept", [True, False], default=True),
                Categorical("class_weight", ["none", "balanced"], default="none"),
            ),
            fixed={"max_iter": 500},
            transforms={"class_weight": "word"},
            flags=Flags(weights="class_weight", stochastic=True),
            kind="linear",
        ),
        Algorithm(
            id="mlp",
            estimator=f"{_ESTIMATORS}.mlp",
            hyperparameters=ranges(
                Float("alpha", (1e-7, 0.1), default=1e-4, log=True),
                Float("learning_rate_init", (1e-4, 0.5), default=1e-3, log=True),
                Integer("hidden_layers", (1, 3), default=1),
                Integer("nodes_per_layer", (16, 264), default=32, log=True),
                Categorical("activation", ["tanh", "relu"], default="relu"),
                Categorical("early_stopping", [True, False], default=True),
                Integer("batch_size", (32, 256), default=200, log=True),
            ),
            fixed={"max_iter": 512},
            transforms={"batch_size": "clip_n"},
            flags=Flags(stochastic=True),
        ),
    ),
)


def _kernel_space(
    n_components: UniformIntegerHyperparameter,
    gamma: UniformFloatHyperparameter,
    *,
    with_sigmoid_gamma: bool,
) -> ConfigurationSpace:
    kernel = Categorical("kernel", ["poly", "rbf", "sigmoid", "cosine"], default="rbf")
    coef0 = Float("coef0", (-1.0, 1.0), default=0.0)
    degree = Integer("degree", (2, 5), default=3)
    space = ranges(kernel, n_components, gamma, coef0, degree)
    with_gamma = ["poly", "rbf", "sigmoid"] if with_sigmoid_gamma else ["poly", "rbf"]
    space.add(InCondition(gamma, kernel, with_gamma))
    space.add(InCondition(coef0, kernel, ["poly", "sigmoid"]))
    space.add(EqualsCondition(degree, kernel, "poly"))
    return space


def _kernel_pca_space() -> ConfigurationSpace:
    space = _kernel_space(
        Integer("n_components", (10, 2000), default=100),
        Float("gamma", GAMMA, default=0.01, log=True),
        with_sigmoid_gamma=False,
    )
    space.add(Categorical("remove_zero_eig", [False, True], default=False))
    return space


def _components() -> UniformIntegerHyperparameter:
    return Integer("n_components", (10, 256), default=128)


IMPUTE = Step(
    "impute",
    (
        Algorithm(
            id="simple",
            estimator="prefect_tune.tasks.catalogue.preparation.make_imputer",
            hyperparameters=ranges(
                Categorical("strategy", ["mean", "median", "most_frequent"], default="mean")
            ),
        ),
    ),
)
SCALE = Step(
    "scale",
    (
        rescaling.NONE,
        rescaling.NORMALIZE,
        rescaling.QUANTILES,
        rescaling.MINMAX,
        rescaling.STANDARDIZE,
        rescaling.ROBUST,
    ),
)
SCALE_LARGE = Step("scale", (*SCALE.algorithms, rescaling.BINARIZE, rescaling.DISCRETIZE))
TRANSFORM = Step("transform", (preprocessing.NONE, preprocessing.PCA, preprocessing.POLYNOMIAL))
TRANSFORM_LARGE = Step(
    "transform",
    (
        preprocessing.NONE,
        Algorithm(
            id="sparse_projection",
            estimator="sklearn.random_projection.SparseRandomProjection",
            hyperparameters=ranges(
                _components(), Float("density", (0.001, 1.0), default=0.1, log=True)
            ),
            fixed={"dense_output": True},
            transforms={"n_components": "clip_p"},
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="gaussian_projection",
            estimator="sklearn.random_projection.GaussianRandomProjection",
            hyperparameters=ranges(_components()),
            transforms={"n_components": "clip_p"},
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="kitchen_sinks",
            estimator="sklearn.kernel_approximation.RBFSampler",
            memory="random_features",
            growth={"n_components": 1.0},
            hyperparameters=ranges(
                Float("gamma", GAMMA, default=1.0, log=True),
                Integer("n_components", (50, 10000), default=100, log=True),
            ),
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="nystroem",
            estimator="sklearn.kernel_approximation.Nystroem",
            memory="nystroem",
            growth={"n_components": 1.0},
            hyperparameters=_kernel_space(
                Integer("n_components", (50, 10000), default=100, log=True),
                Float("gamma", GAMMA, default=0.1, log=True),
                with_sigmoid_gamma=True,
            ),
            transforms={"n_components": "clip_n"},
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="truncated_svd",
            estimator="sklearn.decomposition.TruncatedSVD",
            hyperparameters=ranges(
                _components(),
                Categorical("algorithm", ["randomized", "arpack"], default="randomized"),
            ),
            transforms={"n_components": "clip_below_p"},
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="kernel_pca",
            estimator="sklearn.decomposition.KernelPCA",
            memory="kernel_matrix",
            growth=KERNEL_GROWTH,
            hyperparameters=_kernel_pca_space(),
            transforms={"n_components": "clip_n"},
            flags=Flags(output="dense", stochastic=True),
        ),
        Algorithm(
            id="fast_ica",
            estimator="sklearn.decomposition.FastICA",
            hyperparameters=fast_ica_space(
                "unit-variance", Integer("max_iter", (100, 1000), default=200, log=True)
            ),
            transforms={"n_components": "clip_min_n_p", "whiten": "word"},
            flags=Flags(accepts_sparse=False, output="dense", stochastic=True),
        ),
        Algorithm(
            id="factor_analysis",
            estimator="sklearn.decomposition.FactorAnalysis",
            hyperparameters=ranges(
                _components(),
                Categorical("svd_method", ["lapack", "randomized"], default="randomized"),
                Integer("iterated_power", (1, 10), default=3),
            ),
            transforms={"n_components": "clip_p"},
            flags=Flags(accepts_sparse=False, output="dense", stochastic=True),
        ),
        preprocessing.PCA,
        preprocessing.POLYNOMIAL,
    ),
)


def _selection(name: str, mode: int) -> Algorithm:
    return Algorithm(
        id=f"select_{name}",
        estimator=f"{_ESTIMATORS}.select_by_p_value",
        hyperparameters=ranges(Float("alpha", (0.01, 0.5), default=0.1)),
        fixed={"mode": mode},
    )


SELECT_LARGE = Step(
    "select",
    (
        preprocessing.NONE,
        Algorithm(
            id="select_percentile",
            estimator=f"{_ESTIMATORS}.select_percentile",
            hyperparameters=ranges(Integer("percentile", (1, 99), default=50)),
        ),
        _selection("fpr", 0),
        _selection("fdr", 1),
        _selection("fwe", 2),
        Algorithm(
            id="variance_threshold",
            estimator="sklearn.feature_selection.VarianceThreshold",
            hyperparameters=ranges(Float("threshold", (0.0, 0.05), default=0.0)),
        ),
        Algorithm(
            id="select_best",
            estimator="sklearn.feature_selection.SelectKBest",
            hyperparameters=ConfigurationSpace({"k": 10}),
            transforms={"k": "clip_p"},
        ),
    ),
)
"""The paper announces 7 choices but prints 6; `select_best` with its usual 10 columns is added."""
