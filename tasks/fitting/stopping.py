"""Early stopping: the rounds of boosted trees, found on training rows that are kept from training.

The rounds are added in pieces (see `epochs`). After each piece, the study's loss is computed on the
rows kept from training. Training stops when the loss has not fallen during the last two fifths of
the rounds, and the model keeps the rounds with the lowest loss. If all losses are equal but not 0,
training does not stop early. Training also stops before the trial would exceed its time.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from prefect_tune.storage.artifacts import Made
from prefect_tune.tasks.catalogue.boosting import Native
from prefect_tune.tasks.fitting.epochs import EpochTraining, training_of
from prefect_tune.tasks.fitting.fitting import FoldData
from prefect_tune.tasks.fitting.recipe import MatrixSummary, Recipe, build, imported
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

_HISTOGRAMS = HistGradientBoostingClassifier, HistGradientBoostingRegressor
_ROUNDS_PER_PIECE = 16
_FEWEST_PIECES = 8
"""Number of pieces before training may stop."""
_GROWTH = 1.25
"""Factor between successive numbers of pieces after which the loss is computed."""
_PATIENCE = 0.6
"""Training stops if the best number of pieces is at most this fraction of all pieces."""


@dataclass(frozen=True, slots=True)
class StoppingRows:
    """Training rows that decide when training stops.

    Attributes:
        are_kept: Whether each training row is kept from training, shape (n,).
        loss: Loss of predictions for the rows kept from training.
        seconds: Time after which no more rounds are added.
    """

    are_kept: NDArray[np.bool_]
    loss: Callable[[Predictions], float]
    seconds: float = inf


class UndefinedLoss(Exception):  # noqa: N818 - reads as the reason of a failure
    """The loss of the rows kept from training is undefined; the cause gives the reason."""


def can_stop(how: Recipe) -> bool:
    """Return whether the estimator can stop early: boosted trees of `boosting` or histograms."""
    iterative = training_of(how) if how.rounds in how.arguments else None
    if iterative is None or iterative.rounds.rpartition("__")[2] != how.rounds:
        return False
    model = how.model_in(build(how, seed=0))
    return isinstance(model, (Native, *_HISTOGRAMS))


def fit_until_flat(
    how: Recipe, seed: int, data: FoldData, stopping: StoppingRows
) -> tuple[Made, Predictions]:
    """Fit boosted trees on part of the rows, until the loss on the other rows stops falling.

    The configured number of rounds is the maximum, rounded up to whole pieces. Returns the part
    `estimator`, and the held-out predictions.

    Raises:
        UndefinedLoss: If the loss of the rows kept from training is undefined.
        WillNotFit: If the step would need too much memory.
        InvalidPredictions: If predictions are not finite.
        Exception: If the estimator raises any error.
    """
    imported(how.estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _fitted(how, seed, data, stopping)


def _fitted(
    how: Recipe, seed: int, data: FoldData, stopping: StoppingRows
) -> tuple[Made, Predictions]:
    started, iterative = perf_counter(), training_of(how)
    assert iterative is not None  # noqa: S101 - the caller has checked
    n_pieces = ceil(how.arguments[how.rounds] / _ROUNDS_PER_PIECE)
    whole = {**how.arguments, how.rounds: n_pieces * _ROUNDS_PER_PIECE}
    training = EpochTraining(
        replace(how, arguments=whole),
        iterative,
        seed,
        replace(
            data,
            train=data.train[~stopping.are_kept],
            held_out=data.train[stopping.are_kept],
            y=data.y[~stopping.are_kept],
        ),
        epochs=n_pieces,
        loss=stopping.loss,
    )
    done, best = 0, 1
    while done < n_pieces and best > _PATIENCE * done:
        if done and _GROWTH * (perf_counter() - started) > stopping.seconds:
            break
        done = min(max(_FEWEST_PIECES, int(_GROWTH * done)), n_pieces)
        training.advance(done)
        if training.trouble is not None:
            raise training.trouble
        is_flat = 0 < min(training.curve) == max(training.curve)
        best = done if is_flat else int(np.argmin(training.curve)) + 1
    estimator = training.estimator
    model, rounds = how.model_in(estimator), best * _ROUNDS_PER_PIECE
    if isinstance(model, Native):
        model.keep(rounds)
    else:
        del model.set_params(max_iter=rounds)._predictors[rounds:]  # noqa: SLF001
    model.early_stopped_rounds_ = rounds
    begun = perf_counter()
    predictions = predictions_of(estimator, data.held_out, data.classes, name=how.algorithm)
    ended = perf_counter()
    made = Made(
        {"estimator": estimator},
        MatrixSummary.of(data.train).to_json(),
        ended - started,
        held_out_seconds=ended - begun,
    )
    return made, predictions


def rounds_in(how: Recipe, estimator: Any) -> int | None:
    """Return the number of rounds that early stopping found; None without early stopping."""
    rounds: int | None = getattr(how.model_in(estimator), "early_stopped_rounds_", None)
    return rounds
