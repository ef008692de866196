"""Rescaling of columns or rows (FLASH, Table 5, first block)."""

from prefect_tune.optimizers.space import Algorithm, Step

__all__ = ["RESCALE"]

RESCALE = Step(
    "rescale",
    (
        Algorithm(id="none"),
        Algorithm(
            id="minmax",
            estimator="sklearn.preprocessing.MinMaxScaler",
            fixed={"clip": True},
            sparse_estimator="sklearn.preprocessing.MaxAbsScaler",
        ),
        Algorithm(
            id="standardize",
            estimator="sklearn.preprocessing.StandardScaler",
            sparse_fixed={"with_mean": False},
        ),
        Algorithm(id="normalize", estimator="sklearn.preprocessing.Normalizer"),
    ),
)
