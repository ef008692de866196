"""Ensembles as estimators of scikit-learn: the weighted mean of what their members predict."""

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
    """Members and weights, and how fitted ones become an ensemble."""

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
        """Make a fitted ensemble of fitted members, without training.

        Args:
            members: Fitted classifiers, or regressors.
            weights: One per member, not negative; equal if left out.
            classes: All classes, sorted; by default those that the members know.

        Raises:
            ValueError: If weights are no weights of these members, or the members disagree on
                the classes.
        """
        ensemble = cls(members, weights)
        ensemble._take(list(members), classes)
        return ensemble

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a clone of each member; the members that were given stay as they are.

        Args:
            X: Rows that the members can be fitted on.
            y: Class or number of each, shape (n,).

        Raises:
            ValueError: If weights are no weights of these members, or y is no target for them.
        """
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
        """Number of features, where the members know it."""
        return int(self._of_first("n_features_in_"))

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the features, where the members know them."""
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
        """Become the ensemble of fitted members."""
        self.weights_ = _normalised(self.weights, len(fitted))
        self.members_ = fitted

    def _check_target(self, y: NDArray[Any]) -> None:
        """Raise unless it is a target for this kind of members."""

    def _of_first(self, name: str) -> Any:
        if not hasattr(self, "members_"):
            raise AttributeError(f"{type(self).__name__} has {name} once it is fitted")
        return getattr(self.members_[0], name)


class ClassEnsemble(ClassifierMixin, _Ensemble):
    """The mean of the probabilities of classifiers, or of their votes if they have none.

    Args:
        members: Classifiers.
        weights: One per member, not negative; equal if left out.

    Attributes:
        members_: The fitted members.
        weights_: Their weights, together 1, shape (k,).
        classes_: The classes in order, the same for all members.
        n_features_in_: Number of features, where the members know it.
        feature_names_in_: Names of the features, where the members know them.
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the shares of the classes, shape (n, c)."""
        check_is_fitted(self)
        weighted = zip(self.members_, self.weights_, strict=True)
        mean: NDArray[np.float64] = np.sum(
            [weight * self._contributed(member, X) for member, weight in weighted], axis=0
        )
        # Rounding may make them a little more than 1.
        return mean / mean.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest share, shape (n,); of equals, the lowest."""
        return self.labels_of_probabilities(self.predict_proba(X))

    def labels_of_probabilities(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """Return the classes of the largest shares, (n,), of (n, c); of equals, the lowest."""
        return self.classes_[heaviest_class(probabilities)]

    def _contributed(self, member: Any, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of a member; its votes if it gives none, shape (n, c)."""
        if callable(getattr(member, "predict_proba", None)):
            with suppress(NotImplementedError):  # so models say that they give none
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
        weights: One per member, not negative; equal if left out.

    Attributes:
        members_: The fitted members.
        weights_: Their weights, together 1, shape (k,).
        n_features_in_: Number of features, where the members know it.
        feature_names_in_: Names of the features, where the members know them.
    """

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions, shape (n,)."""
        check_is_fitted(self)
        numbers = [predicted_labels(member, X, np.empty(0)) for member in self.members_]
        return self.weights_ @ np.array(numbers)


def _normalised(weights: Sequence[float] | None, n_members: int) -> NDArray[np.float64]:
    """Return weights that sum to 1, shape (k,).

    Raises:
        ValueError: If there are no members, or the weights are not theirs.
    """
    if not n_members:
        raise ValueError("an ensemble has members; got none")
    given = np.ones(n_members) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (n_members,):
        raise ValueError(f"each of the {n_members} members has a weight; got {given.size} weights")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise ValueError(f"weights are not negative and not all 0; got {given.tolist()}")
    return given / given.sum()


def _common_classes(fitted: Sequence[Any]) -> NDArray[Any]:
    """Return the classes that all members predict, sorted.

    Raises:
        ValueError: If one is no fitted classifier, or predicts other classes than the first.
    """
    for position, member in enumerate(fitted):
        if not hasattr(member, "classes_"):
            kind = type(member).__name__
            raise ValueError(f"member {position} ({kind}) has no classes_; it is no classifier")
    classes = np.sort(np.asarray(fitted[0].classes_))
    for position, member in enumerate(fitted):
        if not np.array_equal(np.sort(member.classes_), classes):
            raise ValueError(
                f"member {position} ({type(member).__name__}) predicts the classes "
                f"{list(member.classes_)}, member 0 ({type(fitted[0]).__name__}) {list(classes)}; "
                "members of an ensemble predict the same classes"
            )
    return classes
