"""Feature preprocessing: fewer or other columns (FLASH, Table 5, third block)."""

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers.space import Algorithm, Flags

__all__ = ["NONE", "PCA", "SELECT_PERCENTILE"]

NONE = Algorithm(id="none")
PCA = Algorithm(
    id="pca",
    estimator="sklearn.decomposition.PCA",
    hyperparameters=ConfigurationSpace(
        space=[
            Float("n_components", (0.5, 0.9999), default=0.9999),
            Categorical("whiten", [False, True], default=False),
        ]
    ),
    fixed={"svd_solver": "full"},
    sparse_fixed={"svd_solver": "covariance_eigh"},
    flags=Flags(output="dense"),
)
SELECT_PERCENTILE = Algorithm(
    id="select_percentile",
    estimator="sklearn.feature_selection.SelectPercentile",
    hyperparameters=ConfigurationSpace(space=[Integer("percentile", (1, 99), default=50)]),
)
