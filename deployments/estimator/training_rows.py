"""Checks X and y of an estimator, and converts them to a DataFrame and a target."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.row_reader import as_pandas
from prefect_tune.tasks.data.tables import (
    CLASSES_WITH_DECIMALS,
    as_column,
    checked_column,
    checked_frame,
    unused_name,
)


def frame_of(estimator: BaseEstimator, X: Any, *, is_new: bool) -> pd.DataFrame:
    """Return rows as a pandas DataFrame. Columns of an array are named x0, x1 and so on.

    If `is_new` is true, as in `fit`, the attributes `n_features_in_` and `feature_names_in_` of the
    estimator are set. If `is_new` is false, X must match the rows passed to `fit`. An array has
    shape (n, d).

    Raises:
        BadInput: If X is sparse, or if a column name occurs twice or a column mixes types.
        ValueError, TypeError: If scikit-learn rejects X.
    """
    if sparse.issparse(X):
        raise BadInput(
            f"X is a sparse {type(X).__name__}, but the search needs dense data",
            remedy="make X dense with X.toarray()",
        )
    X, least = as_pandas(X), 2 if is_new else 1
    if isinstance(X, pd.DataFrame):
        frame = checked_frame(X, "X")
        for count, what, needed in ((len(frame), "sample", least), (frame.shape[1], "feature", 1)):
            if count < needed:  # the message of scikit-learn
                raise BadInput(
                    f"X has {count} {what}(s) (shape={frame.shape}) while a minimum of {needed} is "
                    "required"
                )
        validate_data(estimator, X=X, reset=is_new, skip_check_array=True)
        return frame
    checked = validate_data(
        estimator,
        X=X,
        reset=is_new,
        dtype=None if _has_texts(X) else "numeric",
        ensure_all_finite="allow-nan",
        ensure_min_samples=least,
    )
    names = getattr(estimator, "feature_names_in_", [f"x{i}" for i in range(checked.shape[1])])
    return checked_frame(pd.DataFrame(checked, columns=names), "X")


def target_of(estimator: BaseEstimator, y: Any, X: pd.DataFrame, predicts: str | None) -> pd.Series:
    """Return the target as a series with one value per row of X and an unused name.

    `predicts` is `classification`, `regression`, or None to infer the kind. Raises BadInput if
    targets are missing, infinite, all of one class, or of several types. Raises ValueError if the
    target has a wrong shape or kind.
    """
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    y = as_column(y)
    check_consistent_length(X, y)
    target = checked_column(y.rename(unused_name(str(y.name or "target"), X)), "y")
    n_missing = int(target.isna().sum())
    if n_missing:
        raise BadInput(
            f"{n_missing} of {len(target)} targets in y are missing; drop these rows from X and y"
        )
    is_number = pd.api.types.is_numeric_dtype(target)
    if is_number and np.isinf(target.to_numpy(dtype=np.float64)).any():
        raise BadInput("y has infinite values; drop these rows from X and y")
    if predicts == "classification":
        if not (is_number and target.nunique() <= CLASSES_WITH_DECIMALS):
            check_classification_targets(target)
        if target.nunique() < 2:
            raise BadInput(f"y has only one class, {target.iloc[0]}; a search needs at least two")
    if predicts == "regression" and not is_number:
        raise BadInput(f"y contains {target.iloc[0]!r}, which cannot be predicted as a number")
    return target


def with_groups(
    X: pd.DataFrame, groups: Any, column: str | None, target: pd.Series
) -> tuple[pd.DataFrame, str | None]:
    """Return the rows with a column of groups, and the name of the group column.

    Groups are given either by `groups`, with one label per row, or by `column`, the name of a
    column of X. Raises BadInput if both arguments are given, or if labels are missing, of several
    types, or not one per row.
    """
    if groups is None:
        return X, column
    if column is not None:
        raise BadInput(f"fit got groups, but group={column!r} is set, too; use only one of them")
    if np.shape(groups) != (len(X),):
        raise BadInput(f"groups needs one label per row: shape ({len(X)},), not {np.shape(groups)}")
    labels = checked_column(as_column(groups), "groups")
    n_missing = int(labels.isna().sum())
    if n_missing:
        raise BadInput(f"{n_missing} of {len(labels)} groups are missing; give each row a group")
    name = unused_name("group", [*X.columns, target.name])
    return X.assign(**{name: labels}), name


def _has_texts(X: Any) -> bool:
    if isinstance(X, list | tuple):
        X = np.asarray(X)
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return kind == "U" or (kind == "O" and any(isinstance(v, str) for v in np.ravel(X)))
