"""Our estimators become scikit-learn's own, and predict and learn the same."""

import numpy as np
import pandas as pd
import pytest
from inputs import table
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline

from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.catalogue import estimators, gaps_and_categories
from prefect_tune.tasks.catalogue.combinations import ArithmeticCombinations
from prefect_tune.tasks.catalogue.preparation import make_encoder, make_imputer
from prefect_tune.tasks.ensembling.model import ClassEnsemble
from prefect_tune.tasks.exporting.plain import estimator_classes, plain, without_idle_bounds
from prefect_tune.tasks.exporting.portable import is_ours
from prefect_tune.tasks.repairs import BoundCategories, ClipNegatives

FRAME = canonical(table())
X, y = FRAME.drop(columns="target"), np.asarray(FRAME["target"].astype(str))
PREPARED = (make_imputer, make_encoder)
BEHIND = {
    "Polynomial": estimators.Polynomial(),
    "SelectByModel": estimators.select_by_extra_trees(n_estimators=5, random_state=0),
    "SelectByPercentile": estimators.select_percentile(percentile=50),
    "SelectByScore": estimators.select_univariate(param=0.5, mode=0, score="f_classif"),
}


def fitted(*steps: object) -> Pipeline:
    return make_pipeline(*steps).fit(X, y)


def ours_in(model: object) -> list[str]:
    return [kind.__name__ for kind in estimator_classes(model) if is_ours(kind.__module__)]


def is_same(model: Pipeline, other: Pipeline, rows: pd.DataFrame = X) -> bool:
    return np.array_equal(model.predict_proba(rows), other.predict_proba(rows))


@pytest.mark.parametrize("name", BEHIND)
def test_what_only_guards_its_parent_becomes_that_parent(name) -> None:
    model = fitted(*(make() for make in PREPARED), BEHIND[name], LogisticRegression())
    assert ours_in(model) == [name]
    made = plain(model)
    assert ours_in(made) == []
    assert ours_in(model) == [name]
    assert is_same(model, made)
    assert is_same(clone(model).fit(X, y), clone(made).fit(X, y))


def test_target_encoding_and_discriminants_are_scikit_learns_too() -> None:
    encoder = gaps_and_categories.target_encoder(smooth=3.0, random_state=0)
    model = fitted(make_imputer(), encoder, estimators.QuadraticDiscriminant(0.1))
    assert ours_in(model) == ["OutOfFoldEncoder", "QuadraticDiscriminant"]
    assert ours_in(plain(model)) == []
    assert is_same(model, plain(model))


def test_clipping_of_dense_matrices_is_numpys_and_of_sparse_ones_stays_ours() -> None:
    dense = fitted(*(make() for make in PREPARED), ClipNegatives(), MultinomialNB())
    assert ours_in(plain(dense)) == []
    assert is_same(dense, plain(dense))
    counts = sparse.csr_array(np.eye(len(X))[:, :4] - 0.5)
    clipped = make_pipeline(ClipNegatives(), MultinomialNB()).fit(counts, y)
    assert ours_in(plain(clipped)) == ["ClipNegatives"]


def test_a_selection_that_would_have_left_nothing_stays_ours() -> None:
    nothing = estimators.SelectByModel(LogisticRegression(), threshold=1e9)
    model = fitted(*(make() for make in PREPARED), nothing, LogisticRegression())
    assert ours_in(plain(model)) == ["SelectByModel"]


def test_what_has_no_counterpart_stays_and_is_shared() -> None:
    model = fitted(ArithmeticCombinations(4), *(make() for make in PREPARED), LogisticRegression())
    assert plain(model) is model


def test_members_of_an_ensemble_are_looked_at_too() -> None:
    members = [
        fitted(*(make() for make in PREPARED), BEHIND[name], LogisticRegression())
        for name in ("Polynomial", "SelectByScore")
    ]
    ensemble = ClassEnsemble.of_fitted(members, [0.3, 0.7])
    made = plain(ensemble)
    assert ours_in(made) == ["ClassEnsemble"]
    assert made.members[0] is made.members_[0]
    assert np.array_equal(ensemble.predict_proba(X), made.predict_proba(X))


def bounded(kept: pd.DataFrame) -> Pipeline:
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    steps = [("bound_categories", BoundCategories()), ("estimator", trees)]
    return make_pipeline(Pipeline(steps)).fit(kept, y)


def test_bounds_that_held_nothing_back_go_and_predictions_stay_also_of_unseen_texts() -> None:
    model = bounded(X)
    made = without_idle_bounds(model)
    assert ours_in(made) == []
    rows = table(40, seed=7).drop(columns="target")
    rows.loc[:5, "colour"] = "mauve"
    for new in (rows, rows.astype({"colour": object}), rows.astype({"colour": "category"})):
        assert is_same(model, made, new)


def test_bounds_that_held_categories_back_stay() -> None:
    names = [f"name {i}" for i in range(300)]
    many = pd.concat([X] * 2, ignore_index=True).assign(name=pd.Categorical(names))
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    steps = [("bound_categories", BoundCategories()), ("estimator", trees)]
    model = make_pipeline(Pipeline(steps)).fit(many, np.tile(y, 2))
    assert ours_in(without_idle_bounds(model)) == ["BoundCategories"]
