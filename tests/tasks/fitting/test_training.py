"""Training in epochs equals a single fit, to the last bit."""

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.svm import LinearSVC

from prefect_tune.tasks.catalogue.notation import OWN
from prefect_tune.tasks.fitting.epochs import (
    ITERATIVE,
    Checkpoint,
    EpochTraining,
    Iterative,
    epoch_seed,
    rounds_after,
    training_of,
)
from prefect_tune.tasks.fitting.fitting import FoldData, fit_model
from prefect_tune.tasks.fitting.recipe import Recipe
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

EPOCHS = 10
BOOSTING = "prefect_tune.tasks.catalogue.boosting"
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "MLPClassifier": (
        {},
        {"solver": "sgd", "learning_rate": "adaptive", "early_stopping": True},
    ),
    "SGDClassifier": (
        {"loss": "log_loss", "average": True, "class_weight": "balanced"},
        {"loss": "hinge", "penalty": None, "learning_rate": "pa1", "eta0": 0.5},
    ),
    "mlp_regressor": ({"hidden_layers": 1, "nodes_per_layer": 4, "early_stopping": True},),
    "BaggingClassifier": ({"max_features": 0.5}, {"estimator": LinearSVC(), "n_estimators": 8}),
    "SGDRegressor": ({"average": 5, "eta0": 0.001},),
    "GradientBoostingClassifier": (
        {"n_estimators": 20, "max_depth": 2, "subsample": 0.5, "max_features": 0.3},
        {"n_estimators": 7, "n_iter_no_change": 2, "loss": "log_loss"},
    ),
    "HistGradientBoostingClassifier": ({"max_features": 0.5}, {"early_stopping": True}),
    f"{BOOSTING}.light_gbm.classifier": ({"n_estimators": 25, "colsample_bytree": 0.5},),
    f"{BOOSTING}.xg_boost.classifier": ({"n_estimators": 25, "colsample_bytree": 0.5},),
    f"{BOOSTING}.cat_boost.classifier": ({"iterations": 25, "learning_rate": 0.2},),
    f"{BOOSTING}.light_gbm.regressor": (
        {"n_estimators": 7, "colsample_bytree": 0.5, "extra_trees": True},
    ),
    f"{BOOSTING}.xg_boost.regressor": ({"n_estimators": 7, "subsample": 0.5},),
    f"{BOOSTING}.cat_boost.regressor": ({"iterations": 7, "learning_rate": 0.2},),
    "RandomForestClassifier": ({"class_weight": "balanced_subsample"}, {"oob_score": True}),
}
PATHS = {f"{made.__module__}.{made.__name__}": way for made, way in ITERATIVE.items()}
PATHS[f"{OWN}.mlp_regressor"] = ITERATIVE[MLPRegressor]
PATHS |= {path: Iterative("estimator's") for path in VARIANTS if path.startswith(BOOSTING)}
USUAL = {"MLPClassifier", "SGDClassifier", "GradientBoostingClassifier", "RandomForestClassifier"}
CASES = [
    pytest.param(path, arguments, marks=() if name in USUAL and not n else pytest.mark.full)
    for path, name in ((path, path.rsplit(".", 1)[1]) for path in PATHS)
    for n, arguments in enumerate(VARIANTS.get(path, VARIANTS.get(name, ({},))))
]


def recipe_of(path: str, arguments: dict[str, Any], **more: Any) -> Recipe:
    if any(kind in path for kind in ("Forest", "ExtraTrees")):
        arguments = {"n_jobs": 1, "n_estimators": 15, **arguments}
    if "HistGradient" in path:
        arguments = {"max_iter": 12, **arguments}
    return Recipe("model", path, arguments, "none", "scikit-learn", stochastic=True, **more)


@cache
def rows_of(*, classes: bool) -> tuple[FoldData, np.ndarray]:
    """Return a fold of 120 training and 60 held-out rows, and the targets of the held-out rows."""
    if not classes:
        X, y = make_regression(180, 6, noise=20.0, random_state=0)
        y /= y.std()
        return FoldData(X[:120], X[120:], y[:120], np.array([])), y[120:]
    X, y = make_classification(180, 6, n_informative=4, n_classes=3, flip_y=0.2, random_state=0)
    names = np.array(["a", "b", "c"])
    return FoldData(X[:120], X[120:], names[y[:120]], names), y[120:]


def begun(
    how: Recipe, start: Checkpoint | None = None, *, scored: bool = True,
    data: FoldData | None = None,
) -> EpochTraining:  # fmt: skip
    is_classifier = not how.estimator.endswith(("Regressor", "regressor"))
    usual, y = rows_of(classes=is_classifier)
    metric = metric_named("error" if is_classifier else "neg_mean_squared_error")
    loss = (lambda p: metric.loss(y, p, len(usual.classes))) if scored else None
    return EpochTraining(
        how, training_of(how), 7, data or usual, epochs=EPOCHS, loss=loss, start=start
    )


def trained(how: Recipe, *stops: int, data: FoldData | None = None) -> EpochTraining:
    """Train, stopping and resuming at each of these epochs."""
    training = begun(how, data=data)
    for stop in stops:
        training.advance(stop)
        if stop != stops[-1]:
            checkpoint = pickle.loads(pickle.dumps(training.checkpoint()))
            training = begun(how, checkpoint, data=data)
    return training


def held_out(training: EpochTraining) -> bytes:
    return held_out_of(training.predictions(training.epochs))


def held_out_of(found: Predictions) -> bytes:
    return found.label.tobytes() + (b"" if found.score is None else found.score.tobytes())


@pytest.mark.slow
@pytest.mark.parametrize(("path", "arguments"), CASES)
def test_resumed_training_ends_as_if_never_interrupted(path, arguments) -> None:
    how = recipe_of(path, arguments)
    whole, parts = trained(how, 10), trained(how, 4, 10)
    assert len(whole.curve) == EPOCHS
    assert parts.curve == whole.curve
    assert held_out(parts) == held_out(whole)
    assert trained(how, 1, 2, 7, 10).curve == whole.curve
    if "cat_boost" not in path:  # CatBoost stores times and random names
        assert pickle.dumps(trained(how, 10).estimator) == pickle.dumps(whole.estimator)
    data, y = rows_of(classes=not path.endswith(("Regressor", "regressor")))
    metric = metric_named("error" if len(data.classes) else "neg_mean_squared_error")
    for epoch in (1, 4, 10):
        training = begun(how, scored=False)
        training.advance(epoch)
        assert training.curve == []
        alone = predictions_of(training.estimator, data.held_out, data.classes)
        assert whole.curve[epoch - 1] == metric.loss(y, alone, len(data.classes))
        again = whole.predictions(epoch)
        assert (again is None) == (epoch < 10 and not PATHS[path].rounds)
        if again is not None:
            assert again.label.tobytes() == alone.label.tobytes()
            assert alone.score is None or again.score.tobytes() == alone.score.tobytes()


def test_repairs_are_fitted_once_and_stay_in_front_of_the_model() -> None:
    data, _ = rows_of(classes=True)
    train, new = sparse.csr_array(data.train), sparse.csr_array(data.held_out)
    thin = replace(data, train=train, held_out=new)
    how = recipe_of("sklearn.neural_network.MLPClassifier", {}, repairs=("write_out", "clip"))
    clipped = replace(data, train=data.train.clip(0), held_out=data.held_out.clip(0))
    whole = trained(how, 10, data=thin).curve
    assert trained(how, 4, 10, data=thin).curve == whole
    assert trained(replace(how, repairs=()), 10, data=clipped).curve == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "weights"),
    [
        ("sklearn.linear_model.SGDClassifier", "class_weight"),
        ("sklearn.ensemble.GradientBoostingClassifier", "sample_weight"),
    ],
)
def test_class_weights_apply_in_every_epoch(path, weights) -> None:
    data, _ = rows_of(classes=True)
    kept = np.flatnonzero((data.y != "a") | (np.arange(120) % 5 == 0))
    skewed = replace(data, train=data.train[kept], y=data.y[kept])
    plain = recipe_of(path, {})
    of_recipe = {"class_weight": "balanced"} if weights == "class_weight" else {}
    balanced = replace(plain, weights=weights, arguments={**plain.arguments, **of_recipe})
    whole = trained(balanced, 10, data=skewed).curve
    assert trained(balanced, 4, 10, data=skewed).curve == whole
    assert trained(plain, 10, data=skewed).curve != whole


@given(epochs=st.integers(1, 300), rounds=st.integers(1, 2000))
def test_rounds_grow_with_the_epochs_to_exactly_the_configured_number(epochs, rounds) -> None:
    counted = [rounds_after(epoch, epochs, rounds) for epoch in range(1, epochs + 1)]
    assert counted[-1] == rounds
    assert counted == sorted(counted)
    assert min(counted) >= 1
    assert all(abs(n - rounds * e / epochs) <= 0.5 or n == 1 for e, n in enumerate(counted, 1))


def test_each_pass_over_the_rows_has_a_different_seed(monkeypatch) -> None:
    used: list[int] = []
    fit = SGDClassifier.partial_fit

    def note_and_fit(model: SGDClassifier, *given: Any, **named: Any) -> SGDClassifier:
        used.append(model.random_state)
        return fit(model, *given, **named)

    monkeypatch.setattr(SGDClassifier, "partial_fit", note_and_fit)
    trained(recipe_of("sklearn.linear_model.SGDClassifier", {}), 4, 10)
    assert used == [epoch_seed(7, epoch) for epoch in range(1, 11)]
    others = [epoch_seed(seed, epoch) for seed in (0, 1) for epoch in range(1, 50)]
    assert len({*used, *others}) == len(used) + len(others)


@pytest.mark.slow
def test_catboost_continues_beyond_200_rounds() -> None:
    """From 200 rounds on, the library would choose other arguments for two classes."""
    usual, _ = rows_of(classes=True)
    train, held_out = (
        pd.DataFrame(X[:, :3], columns=list("abc")).assign(
            kind=np.where(X[:, 3] > 0, "left", "right")
        )
        for X in (usual.train, usual.held_out)
    )
    y, classes = np.where(usual.y == "a", "a", "b"), np.array(["a", "b"])
    data = FoldData(train, held_out, y, classes)
    how = recipe_of(f"{BOOSTING}.cat_boost.classifier", {"iterations": 220, "learning_rate": 0.2})
    parts = EpochTraining(how, training_of(how), 7, data, epochs=EPOCHS, loss=None)
    for stop in (9, 10):
        parts.advance(stop)
    _, expected = fit_model(how, 7, data)
    assert held_out_of(parts.predictions(EPOCHS)) == held_out_of(expected)


class SGDClassifierOfAUser(SGDClassifier):  # type: ignore[misc]
    """A user's class, which may do anything in `partial_fit`."""


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("sklearn.neural_network.MLPClassifier", {"solver": "lbfgs"}),
        ("sklearn.linear_model.SGDClassifier", {"learning_rate": "adaptive"}),
        ("sklearn.ensemble.AdaBoostClassifier", {}),
        ("sklearn.ensemble.BaggingClassifier", {"oob_score": True}),
        ("sklearn.linear_model.LogisticRegression", {}),
        (f"{__name__}.SGDClassifierOfAUser", {}),
        (f"{BOOSTING}.light_gbm.classifier", {"boosting_type": "dart"}),
        (f"{BOOSTING}.light_gbm.classifier", {"subsample": 0.5, "subsample_freq": 1}),
        (f"{BOOSTING}.light_gbm.regressor", {"objective": "poisson"}),
        (f"{BOOSTING}.light_gbm.classifier", {"num_iterations": 9}),
        (f"{BOOSTING}.xg_boost.classifier", {"booster": "dart"}),
        (f"{BOOSTING}.xg_boost.classifier", {"tree_method": "approx"}),
        (f"{BOOSTING}.cat_boost.classifier", {"iterations": 9}),
    ],
)
def test_configuration_without_epochs_is_fitted_at_once(path, arguments) -> None:
    assert training_of(recipe_of(path, arguments)) is None
    how = recipe_of("sklearn.linear_model.SGDClassifier", {})
    assert training_of(how) is not None
    assert training_of(replace(how, stochastic=False)) is None
