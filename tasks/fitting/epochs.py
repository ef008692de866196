"""Training in epochs: estimators that can be resumed, and the training of a fold's model.

An epoch is a pass over the rows (`partial_fit`), or a fraction of the configured trees or boosting
rounds (`warm_start`). The table below lists the estimators that give the same model, to the last
bit, if training is interrupted, pickled and resumed. `Native.can_continue` decides for boosted
trees of other libraries. All other estimators are fitted at once: logistic regression loses the
state of its solver, a second pass adds nothing to naive Bayes, and AdaBoost, support vector
machines, nearest neighbors, discriminant analysis, Gaussian processes and single trees have no
epochs.

A regressor that makes passes may be inside a transformation of the target. The transformation is
fitted once.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.class_weight import compute_sample_weight

from prefect_tune.optimizers.space.algorithm import Step
from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.tasks.catalogue.boosting import Native
from prefect_tune.tasks.fitting.fitting import (
    FoldData,
    check_fits,
    class_weights,
    quick_weighted_bins,
    transformed,
)
from prefect_tune.tasks.fitting.recipe import MatrixSummary, Recipe, build, recipe
from prefect_tune.tasks.objective.predictions import (
    Predictions,
    checked_predictions,
    n_rows,
    predictions_of,
)


@dataclass(frozen=True, slots=True)
class Iterative:
    """The way in which an estimator trains in epochs.

    Attributes:
        rounds: Constructor argument for the number of trees or rounds; empty if an epoch is a pass.
        settings: Arguments set regardless of the configuration. The settings disable early
            stopping, which would hold out training rows; the best epoch of the curve serves
            instead.
        unless: Argument and value that prevent training in passes.
    """

    rounds: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    unless: tuple[str, Any] = ("", None)


_ALONE = {"early_stopping": False}
_NETWORK = Iterative(settings=_ALONE, unless=("solver", "lbfgs"))
_SGD = Iterative(settings=_ALONE, unless=("learning_rate", "adaptive"))
_BOOSTING = Iterative("n_estimators", {"n_iter_no_change": None})
_HISTOGRAMS = Iterative("max_iter", _ALONE)
_FOREST = Iterative("n_estimators")
_BAGGING = Iterative("n_estimators", unless=("oob_score", True))
ITERATIVE: Mapping[type, Iterative] = {
    **dict.fromkeys((MLPClassifier, MLPRegressor), _NETWORK),
    **dict.fromkeys((SGDClassifier, SGDRegressor), _SGD),
    **dict.fromkeys((GradientBoostingClassifier, GradientBoostingRegressor), _BOOSTING),
    **dict.fromkeys((HistGradientBoostingClassifier, HistGradientBoostingRegressor), _HISTOGRAMS),
    **dict.fromkeys((RandomForestClassifier, RandomForestRegressor), _FOREST),
    **dict.fromkeys((ExtraTreesClassifier, ExtraTreesRegressor), _FOREST),
    **dict.fromkeys((BaggingClassifier, BaggingRegressor), _BAGGING),
    Perceptron: Iterative(settings=_ALONE),
}
"""Way of training in epochs, by estimator class. Subclasses are excluded, because they may behave
differently."""


def training_of(how: Recipe) -> Iterative | None:
    """Return how a recipe's estimator trains in epochs; None if fitted at once."""
    try:
        outer = how.model_in(build(how, seed=0))
    except Exception:
        return None
    model = trained_part(outer)
    iterative = ITERATIVE.get(type(model))
    if isinstance(model, Native) and model.can_continue:
        iterative = Iterative(model.rounds)
    if iterative is None or (iterative.rounds and model is not outer):
        return None
    if not isinstance(model.random_state, int | np.integer):
        return None  # without a seed, resumed training would give a different model
    argument, value = iterative.unless
    return None if argument and getattr(model, argument) == value else iterative


def trained_part(model: Any) -> Any:
    """Return the regressor inside a transformation of the target; any other model as it is."""
    if not isinstance(model, TransformedTargetRegressor):
        return model
    return getattr(model, "regressor_", model.regressor)


def rounds_after(epoch: int, epochs: int, rounds: int) -> int:
    """Return the number of trees or rounds after an epoch, counted from 1.

    The result is `rounds * epoch / epochs`, rounded, but at least 1, so training to the last epoch
    uses exactly the configured number of rounds.
    """
    return max(1, (2 * epoch * rounds + epochs) // (2 * epochs))


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one pass over the rows, so that each pass has a different row order."""
    return int(np.random.SeedSequence(seed, spawn_key=(epoch,)).generate_state(1)[0])


def iterative_algorithms(step: Step, n_classes: int) -> frozenset[str]:
    """Return the ids of a step's algorithms that train in epochs with default values."""
    summary = MatrixSummary(1000, 10, "dense", "float64", n_classes=n_classes)
    return frozenset(
        a.id
        for a in step.algorithms
        if not a.is_passthrough
        and training_of(recipe(a, default_choice(a), summary, balanced=False)) is not None
    )


Loss = Callable[[Predictions], float]
"""Function that returns the loss of held-out predictions; raises `ValueError` if it is not finite.
"""

_DIVERGED = (ArithmeticError, ValueError, np.linalg.LinAlgError)
"""Exceptions that estimators and metrics raise if numbers are not finite."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model after some epochs, with the repairs of its input.

    Attributes:
        curve: Loss on the held-out rows after each epoch; empty if not measured.
        seconds: Time spent on all epochs.
    """

    epochs: int
    estimator: Any
    curve: tuple[float, ...] = ()
    seconds: float = 0.0


class EpochTraining:
    """Training of one fold's model for up to `epochs` epochs.

    Args:
        how: Recipe of the model.
        iterative: Way in which the estimator trains in epochs.
        seed: Source of randomness.
        data: Data of the fold.
        epochs: Number of epochs in a full training run.
        loss: Loss to measure after each epoch; None to train without a curve.
        start: Checkpoint to resume from, which is copied; None to start from scratch.

    Attributes:
        curve: Finite losses so far, one per epoch.
        seconds: Time spent on training and on computing losses in this process.
        earlier_seconds: Time spent on epochs before the checkpoint.
        trouble: Reason why training cannot continue; None if it can.
    """

    def __init__(
        self,
        how: Recipe,
        iterative: Iterative,
        seed: int,
        data: FoldData,
        *,
        epochs: int,
        loss: Loss | None,
        start: Checkpoint | None = None,
    ) -> None:
        started = perf_counter()
        check_fits(how, data)
        self._how, self._iterative, self._loss = how, iterative, loss
        self.data, self._of = data, epochs
        initial = build(how, seed)
        # Unpickled arrays may be read-only, and a shared copy must not be trained.
        self.estimator = pickle.loads(pickle.dumps(start.estimator)) if start else initial
        self._outer = how.model_in(self.estimator)
        self._model, model = trained_part(self._outer), trained_part(how.model_in(initial))
        self._seed: int = model.random_state
        self._total = int(model.get_params()[iterative.rounds]) if iterative.rounds else 0
        self.epochs, self.curve = (start.epochs, list(start.curve)) if start else (0, [])
        self.earlier_seconds = start.seconds if start else 0.0
        self._train, self._held_out = data.train, data.held_out
        if how.repairs:
            repairs = self.estimator[:-1]
            if not self.epochs:
                repairs.fit(data.train, data.y)
            self._train = repairs.transform(data.train)
            self._held_out = transformed(repairs, data.held_out, self._train)
        self._y = data.y if self._model is self._outer else self._transformed_target()
        if start is None:
            self._model.set_params(**iterative.settings)
            word = getattr(self._model, "class_weight", None)
            takes_no_word = not iterative.rounds and isinstance(word, str) and word == "balanced"
            if how.weights == "class_weight" or takes_no_word:  # `partial_fit` rejects "balanced"
                self._model.set_params(class_weight=class_weights(data.y))
        self._weights = (
            {"sample_weight": compute_sample_weight("balanced", data.y)}
            if how.weight_argument
            else {}
        )
        self._latest: Predictions | None = None
        self.trouble: Exception | None = None
        self.seconds = perf_counter() - started

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last epoch with finite numbers; raise if none has any."""
        started = perf_counter()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                (self._add_rounds if self._iterative.rounds else self._pass_over)(to)
            except _DIVERGED as error:
                if not self.good_epochs:
                    raise
                self.trouble = error
        self.seconds += perf_counter() - started

    @property
    def good_epochs(self) -> int:
        """Number of epochs up to the last epoch with finite numbers."""
        return self.epochs if self._loss is None else len(self.curve)

    def predictions(self, epoch: int) -> Predictions | None:
        """Return the held-out predictions after an epoch; None after an earlier pass over the rows.

        Raises `InvalidPredictions` if predictions are not finite.
        """
        if self._iterative.rounds:
            return next(self._staged([epoch]))
        return self._last_predictions() if epoch == self.epochs else None

    def checkpoint(self) -> Checkpoint:
        """Return the current state, which shares objects that further training changes."""
        seconds = self.earlier_seconds + self.seconds
        return Checkpoint(self.epochs, self.estimator, tuple(self.curve), seconds)

    def _transformed_target(self) -> NDArray[Any]:
        """Return the transformed target; fit the transformation before the first pass."""
        outer, y = self._outer, self.data.y
        if not self.epochs:
            regressor = outer.regressor
            outer.set_params(regressor=DummyRegressor()).fit(self._train, y)
            outer.set_params(regressor=regressor).regressor_ = self._model
        target: NDArray[Any] = outer.transformer_.transform(y.reshape(-1, 1)).reshape(-1)
        return target

    def _pass_over(self, to: int) -> None:
        """Make passes over the rows up to an epoch, each with its own seed."""
        classes = {"classes": self.data.classes} if len(self.data.classes) else {}
        for epoch in range(self.epochs + 1, to + 1):
            self._model.set_params(random_state=epoch_seed(self._seed, epoch))
            known = {} if epoch > 1 else classes
            self._model.partial_fit(self._train, self._y, **known, **self._weights)
            self._model.set_params(random_state=self._seed)
            self.epochs, self._latest = epoch, None
            if self._loss is not None:
                self.curve.append(self._loss(self._last_predictions()))

    def _add_rounds(self, to: int) -> None:
        """Add the rounds of several epochs in one fit, which is cheaper than one fit per epoch."""
        done = self._rounds(self.epochs) if self.epochs else 0
        if self._rounds(to) > done:  # with more epochs than rounds, some epochs add no round
            counted = {self._iterative.rounds: self._rounds(to)}
            self._model.set_params(warm_start=True, **counted)
            if self._weights:
                quick_weighted_bins()
            with self.data.threads_for(self._model, self._how):
                self._model.fit(self._train, self.data.y, **self._weights)
            # Otherwise the user's next `fit` would not start from scratch.
            self._model.set_params(warm_start=False)
        new = range(self.epochs + 1, to + 1)
        self.epochs = to
        if self._loss is not None:
            for predictions in self._staged(new):
                self.curve.append(self._loss(predictions))

    def _last_predictions(self) -> Predictions:
        if self._latest is None:
            classes, name = self.data.classes, self._how.algorithm
            self._latest = predictions_of(self._outer, self._held_out, classes, name=name)
        return self._latest

    def _staged(self, epochs: Sequence[int]) -> Iterator[Predictions]:
        rounds = [self._rounds(epoch) for epoch in epochs]
        return staged_predictions(self._model, self._held_out, self.data.classes, rounds)

    def _rounds(self, epoch: int) -> int:
        return rounds_after(epoch, self._of, self._total)


def staged_predictions(
    ensemble: Any, X: Any, classes: NDArray[Any], rounds: Sequence[int]
) -> Iterator[Predictions]:
    """Yield predictions after ascending numbers of rounds, in one pass over the rounds.

    The predictions equal, to the last bit, the output that `predict` would give if training had
    ended after the same number of rounds.
    """
    if not n_rows(X):
        yield from (predictions_of(ensemble, X, classes) for _ in rounds)
        return
    if isinstance(ensemble, Native):
        for found in ensemble.stages(X, rounds):
            label = ensemble.labels_of_probabilities(found) if len(classes) else found
            score = found if len(classes) else None
            yield checked_predictions(ensemble, X, classes, label, score)
        return
    made_by = _boosted if hasattr(ensemble, "staged_predict") else _averaged
    stages = enumerate(made_by(ensemble, X, is_classifier=bool(len(classes))), 1)
    at, predictions = 0, Predictions(np.empty(0))
    for wanted in rounds:
        while at < wanted:
            at, (label, score) = next(stages)
            if at == wanted:
                predictions = checked_predictions(ensemble, X, classes, label, score)
        yield predictions


Stages = Iterator[tuple[NDArray[Any], NDArray[np.float64] | None]]
"""Labels or numbers, and probabilities, after each round."""


def _boosted(ensemble: Any, X: Any, *, is_classifier: bool) -> Stages:
    if not is_classifier:
        yield from ((found, None) for found in ensemble.staged_predict(X))
        return
    both = zip(ensemble.staged_predict(X), ensemble.staged_predict_proba(X), strict=True)
    yield from ((np.atleast_1d(label), score) for label, score in both)


def _averaged(forest: Any, X: Any, *, is_classifier: bool) -> Stages:
    """Yield the running mean of the members, added in the same order as in `predict`."""
    total = np.zeros(())
    for n, found in enumerate(_members(forest, X, "predict_proba" if is_classifier else "predict")):
        total = total + found
        mean = total / (n + 1)
        if is_classifier:
            yield forest.classes_.take(mean.argmax(axis=1), axis=0), mean
        else:
            yield mean, None


def _members(forest: Any, X: Any, what: str) -> Iterator[NDArray[np.float64]]:
    """Yield the predictions of each member of a forest or of bagging."""
    if isinstance(forest, BaggingClassifier | BaggingRegressor):
        one = copy(forest)
        one.n_estimators = 1
        for member, columns in zip(forest.estimators_, forest.estimators_features_, strict=True):
            one.estimators_, one.estimators_features_ = [member], [columns]
            yield getattr(one, what)(X)
        return
    checked = forest._validate_X_predict(X)  # noqa: SLF001 - as its `predict` does
    for tree in forest.estimators_:
        # A check per tree would cost more than the prediction.
        yield getattr(tree, what)(checked, check_input=False)
