"""Ensembles as scikit-learn estimators: the weighted mean of their members' predictions."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import Tags, assert_all_finite, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from prefect_tune.tasks.ensembling.held_out import heaviest_class, shares
from prefect_tune.tasks.objective.predictions import Predictions, predicted_labels, predicted_scores


class _Ensemble(BaseEstimator):
    def __init__(self, members: Sequence[Any], weights: Sequence[float] | None = None) -> None:
        self.members = members
        self.weights = weights

    @classmethod
    def of_fitted(
        cls,
        members: Sequence[Any],
        weights: Sequence[float] | None = None,
        classes: Sequence[Any] | NDArray[Any] = (),
    ) -> Self:
        """Make an ensemble of fitted members, without training.

        Arguments as in the constructor; `classes` are by default the classes the members know.
        ValueError if the weights do not fit the members, or the members' classes differ.
        """
        ensemble = cls(members, weights)
        ensemble._take(list(members), classes)
        return ensemble

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a clone of each member; ValueError if weights or targets do not fit the members."""
        _normalised(self.weights, len(self.members))
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None")
        target = column_or_1d(y, warn=True)
        assert_all_finite(target, input_name="y")
        self._check_target(target)
        self._take([clone(member).fit(X, target) for member in self.members], ())
        return self

    @property
    def n_features_in_(self) -> int:
        return int(self._of_first("n_features_in_"))

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        return self._of_first("feature_names_in_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "members_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        of_members = [get_tags(member).input_tags for member in self.members]
        tags.input_tags.sparse = all(given.sparse for given in of_members)
        tags.input_tags.allow_nan = all(given.allow_nan for given in of_members)
        return tags

    def _take(self, fitted: list[Any], classes: Sequence[Any] | NDArray[Any]) -> None:  # noqa: ARG002
        self.weights_ = _normalised(self.weights, len(fitted))
        self.members_ = fitted

    def _check_target(self, y: NDArray[Any]) -> None:
        """Raise unless y is a target for this kind of members."""

    def _of_first(self, name: str) -> Any:
        if not hasattr(self, "members_"):
            raise AttributeError(f"{type(self).__name__} has no {name} before it is fitted")
        return getattr(self.members_[0], name)


class ClassEnsemble(ClassifierMixin, _Ensemble):
    """The mean of the probabilities of classifiers, or of their votes if they have none.

    Args:
        members: Classifiers.
        weights: Non-negative weights, one per member; equal by default.

    Attributes:
        members_: Fitted members; `classes_` are the same for all.
        weights_: Weights of the members, summing to 1, shape (k,).
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the shares of the classes, shape (n, c)."""
        check_is_fitted(self)
        weighted = zip(self.members_, self.weights_, strict=True)
        mean: NDArray[np.float64] = np.sum(
            [weight * self._contributed(member, X) for member, weight in weighted], axis=0
        )
        # Rounding may push them slightly above 1.
        return mean / mean.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest share, shape (n,); the lowest class wins a tie."""
        return self.labels_of_probabilities(self.predict_proba(X))

    def labels_of_probabilities(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """Return the classes of the largest shares, shape (n,); the lowest class wins a tie."""
        return self.classes_[heaviest_class(probabilities)]

    def _contributed(self, member: Any, X: Any) -> NDArray[np.float64]:
        if callable(getattr(member, "predict_proba", None)):
            with suppress(NotImplementedError):  # how some models signal no probabilities
                score = predicted_scores(member, X, self.classes_, "predict_proba")
                if Predictions(score.argmax(axis=1), score).are_probabilities:
                    return score
        return shares(Predictions(predicted_labels(member, X, self.classes_)), len(self.classes_))

    def _take(self, fitted: list[Any], classes: Sequence[Any] | NDArray[Any]) -> None:
        self.classes_ = np.array(classes) if len(classes) else _common_classes(fitted)
        super()._take(fitted, classes)

    def _check_target(self, y: NDArray[Any]) -> None:
        check_classification_targets(y)


class NumberEnsemble(RegressorMixin, _Ensemble):
    """The mean of the numbers of regressors.

    Args:
        members: Regressors.
        weights: Non-negative weights, one per member; equal by default.

    Attributes:
        members_: Fitted members.
        weights_: Weights of the members, summing to 1, shape (k,).
    """

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions, shape (n,)."""
        check_is_fitted(self)
        numbers = [predicted_labels(member, X, np.empty(0)) for member in self.members_]
        return self.weights_ @ np.array(numbers)


def _normalised(weights: Sequence[float] | None, n_members: int) -> NDArray[np.float64]:
    """Return weights that sum to 1, shape (k,); ValueError if they do not fit the members."""
    if not n_members:
        raise ValueError("an ensemble needs at least one member; got none")
    given = np.ones(n_members) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (n_members,):
        raise ValueError(f"expected {n_members} weights, one per member; got {given.size}")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise ValueError(f"weights must be non-negative, not all 0; got {given.tolist()}")
    return given / given.sum()


def _common_classes(fitted: Sequence[Any]) -> NDArray[Any]:
    """Return the classes of all members, sorted; ValueError if they differ or one has none."""
    for position, member in enumerate(fitted):
        if not hasattr(member, "classes_"):
            kind = type(member).__name__
            raise ValueError(f"member {position} ({kind}) has no classes_; expected a classifier")
    classes = np.sort(np.asarray(fitted[0].classes_))
    for position, member in enumerate(fitted):
        if not np.array_equal(np.sort(member.classes_), classes):
            raise ValueError(
                f"member {position} ({type(member).__name__}) predicts the classes "
                f"{list(member.classes_)}, member 0 ({type(fitted[0]).__name__}) {list(classes)}; "
                "members of an ensemble must predict the same classes"
            )
    return classes
