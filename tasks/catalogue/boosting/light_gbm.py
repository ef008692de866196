"""LightGBM's boosted trees."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from lightgbm import Booster, Dataset, LGBMClassifier, LGBMRegressor, train
from lightgbm.basic import LightGBMError
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.utils.class_weight import compute_sample_weight

from prefect_tune.tasks.catalogue.boosting import (
    Native,
    NativeClassifier,
    NativeRegressor,
    Weights,
    of_each_class,
    round_seed,
)

_OBJECTIVES = {0: "regression", 2: "binary"}
"""The usual objective by number of classes; for more classes, `multiclass`."""
_SETTINGS: Mapping[str, Any] = {
    "n_jobs": 0,  # all threads that OpenMP allows; other numbers would end up in the model's text
    "verbose": -1,
    "deterministic": True,
    "importance_type": "gain",
}


class _LightGBM(Native):
    """LightGBM with results that depend neither on the number of threads nor on stops.

    The random numbers of a round depend only on the seed and the number of earlier rounds.

    Column-wise training computes each sum on one thread, so the order of additions is fixed.
    Row-wise training and sparse columns split sums between threads. Matrices consist mostly of
    zeros and are faster row-wise, so they are fitted on one thread.
    """

    n_trees_: list[int]
    """Number of trees per class after each round; a round without a split adds none."""
    _plain: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "boosting_type": ("gbdt",),
        "objective": (None,),
        "subsample_freq": (0,),
    }

    _tested = frozenset([*_SETTINGS, "extra_trees"])

    def _converted(self, coded: Any, y: NDArray[Any], weights: Weights) -> Dataset:
        columns = np.flatnonzero(self.codes_.is_category_).tolist()
        if (word := self.estimator.get_params().get("class_weight")) is not None:
            weights = compute_sample_weight(word, y) * (1.0 if weights is None else weights)
        return Dataset(coded, y, weight=weights, categorical_feature=columns)

    def _trained(self, data: Any, begun: Any, *, is_live: bool) -> Booster:
        settings = self._settings()
        booster, n_trees = begun, self.n_trees_[:] if begun else []
        n_rounds = settings.pop("n_estimators")
        for n_done in range(len(n_trees), n_rounds):
            seed = round_seed(self.random_state, n_done)
            seeds = {"feature_fraction_seed": seed, "extra_seed": seed}
            if is_live:
                try:
                    booster.reset_parameter(seeds)
                except LightGBMError:  # no column can be split, so each round adds nothing
                    n_trees += [n_trees[-1]] * (n_rounds - n_done)
                    break
                booster.update()
            else:
                more = {"init_model": booster, "keep_training_booster": True}
                booster, is_live = train(settings | seeds, data, 1, **more), True
            n_trees.append(booster.current_iteration())
        self.n_trees_, self.has_own_link_ = n_trees, self.can_continue
        return booster

    def _settings(self) -> dict[str, Any]:
        """Return the library's parameters, with the names of its scikit-learn interface."""
        settings = self.estimator.get_params()
        if self.codes_.is_table_:
            settings |= {"force_col_wise": True, "is_enable_sparse": False}
        else:
            settings |= {"force_row_wise": True, "n_jobs": 1}
        if settings["objective"] is None:
            n_classes = len(getattr(self, "classes_", ()))
            settings["objective"] = _OBJECTIVES.get(n_classes, "multiclass")
            settings["num_class"] = n_classes if n_classes > 2 else 1
        left_out = ("class_weight", "importance_type")
        return {name: value for name, value in settings.items() if name not in left_out}

    def _keep(self, n_rounds: int) -> None:
        self.n_trees_ = self.n_trees_[:n_rounds]
        kept = self.estimator_.model_to_string(num_iteration=self.n_trees_[-1])
        self.estimator_ = Booster(model_str=kept)

    def _predicted(self, coded: Any) -> Any:
        found: Any = self.estimator_.predict(coded, raw_score=self.has_own_link_, num_threads=1)
        if self.has_own_link_:
            return self._linked(found)
        return of_each_class(found) if hasattr(self, "classes_") else found

    def _stage(self, coded: Any, total: Any, n_done: int, n_rounds: int) -> tuple[Any, Any]:
        total = np.zeros(1) if total is None else total
        done = self.n_trees_[n_done - 1] if n_done else 0
        for tree in range(done, self.n_trees_[n_rounds - 1]):  # in the order of predictions
            total = total + self.estimator_.predict(
                coded, start_iteration=tree, num_iteration=1, raw_score=True, num_threads=1
            )
        return self._linked(total), total

    def _linked(self, raw: Any) -> Any:
        """Return predictions, given sums over trees.

        The library's own probabilities would need another pass over all trees for each stage.
        """
        if hasattr(self, "classes_"):
            return softmax(raw, axis=1) if raw.ndim == 2 else of_each_class(expit(raw))
        return raw


class LightGBMClassifier(_LightGBM, NativeClassifier):
    """LightGBM for classification."""


class LightGBMRegressor(_LightGBM, NativeRegressor):
    """LightGBM for regression."""


def classifier(**arguments: Any) -> LightGBMClassifier:
    """Return a LightGBM classifier that predicts on one thread."""
    return LightGBMClassifier(LGBMClassifier(**_SETTINGS, **arguments))


def regressor(**arguments: Any) -> LightGBMRegressor:
    """Return a LightGBM regressor that predicts on one thread."""
    return LightGBMRegressor(LGBMRegressor(**_SETTINGS, **arguments))
