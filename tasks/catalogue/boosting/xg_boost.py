"""XGBoost's boosted trees."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix, QuantileDMatrix, XGBClassifier, XGBRegressor

from prefect_tune.tasks.catalogue.boosting import (
    Native,
    NativeClassifier,
    NativeRegressor,
    Weights,
    of_each_class,
    round_seed,
)

_SETTINGS: Mapping[str, Any] = {
    "n_jobs": 1,
    "verbosity": 0,
    "tree_method": "hist",
    "enable_categorical": True,
}
_ROUNDS_PER_SEED = 4
"""Number of rounds that share a seed. Fewer rounds would make training slower."""


class _XGBoost(Native):
    """XGBoost, which treats unstored entries of a sparse matrix as missing values.

    Training that continues drops the rounds since the last change of the seed, and repeats them.

    Zeros in dense matrices also count as missing, so that dense and sparse matrices give equal
    trees. In tables, zeros are numbers or category codes and do not count as missing.
    """

    _plain: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "booster": (None, "gbtree"),
        "objective": ("binary:logistic", "reg:squarederror"),
        "tree_method": ("hist",),
    }

    def _converted(self, coded: Any, y: NDArray[Any], weights: Weights) -> DMatrix:
        self.missing_: float = self.estimator.missing
        if not self.codes_.is_table_ and np.isnan(self.missing_):
            self.missing_ = 0.0
        is_binned = self.estimator.tree_method == "hist"
        kind = partial(QuantileDMatrix, max_bin=self.estimator.max_bin) if is_binned else DMatrix
        return kind(
            coded,
            y,
            weight=weights,
            missing=self.missing_,
            feature_types=["c" if c else "q" for c in self.codes_.is_category_],
            enable_categorical=True,
            nthread=1,
        )

    def _trained(self, data: Any, begun: Any, *, is_live: bool) -> Booster:
        settings, n_classes = self.estimator.get_xgb_params(), len(getattr(self, "classes_", ()))
        if n_classes > 2:
            settings |= {"objective": "multi:softprob", "num_class": n_classes}
        n_done = begun.num_boosted_rounds() if begun is not None else 0
        booster, has_seeds = begun, self.can_continue
        # Only at a new seed can a booster in memory continue as it is.
        if not is_live or n_done % _ROUNDS_PER_SEED:
            n_done -= n_done % _ROUNDS_PER_SEED
            booster = Booster(settings, [data], begun[:n_done] if n_done else None)
        for n in range(n_done, self.estimator.n_estimators):
            if n % _ROUNDS_PER_SEED == 0 and has_seeds:
                # The sampler of columns keeps its state until the tree method changes.
                booster.set_param({"tree_method": "approx"})
                booster.num_features()  # applies the parameters
                seed = round_seed(self.random_state, n)
                booster.set_param({"tree_method": "hist", "seed": seed})
            booster.update(data, n)
        return booster

    def _keep(self, n_rounds: int) -> None:
        self.estimator_ = self.estimator_[:n_rounds]

    def _predicted(self, coded: Any) -> Any:
        found = self._summed(coded, None, 0, self.estimator_.num_boosted_rounds(), "value")
        return of_each_class(found) if hasattr(self, "classes_") else found

    def _stage(self, coded: Any, total: Any, n_done: int, n_rounds: int) -> tuple[Any, Any]:
        found = self._summed(coded, total, n_done, n_rounds, "value")
        total = self._summed(coded, total, n_done, n_rounds, "margin")
        return of_each_class(found) if hasattr(self, "classes_") else found, total

    def _summed(self, coded: Any, total: Any, n_done: int, n_rounds: int, form: str) -> Any:
        return self.estimator_.inplace_predict(
            coded,
            iteration_range=(n_done, n_rounds),
            predict_type=form,
            missing=self.missing_,
            validate_features=False,
            base_margin=total,
        )


class XGBoostClassifier(_XGBoost, NativeClassifier):
    """XGBoost for classification."""


class XGBoostRegressor(_XGBoost, NativeRegressor):
    """XGBoost for regression."""


def classifier(**arguments: Any) -> XGBoostClassifier:
    """Return an XGBoost classifier on one thread."""
    return XGBoostClassifier(XGBClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> XGBoostRegressor:
    """Return an XGBoost regressor on one thread."""
    return XGBoostRegressor(XGBRegressor(**_SETTINGS, **arguments))
