"""Epoch-by-epoch training of a fold's model, from the start or from a checkpoint.

A training that is interrupted, pickled and resumed gives the same model and curve to the last bit.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from prefect_tune.tasks.fitting.fitting import (
    FoldData,
    check_fits,
    class_weights,
    quick_weighted_bins,
    sample_weights,
    transformed,
)
from prefect_tune.tasks.fitting.iterative import (
    Iterative,
    MemberSum,
    epoch_seed,
    rounds_after,
    staged_predictions,
)
from prefect_tune.tasks.fitting.recipe import Recipe, build
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

Loss = Callable[[Predictions], float]
"""Returns the loss of the predictions of the held-out rows; ValueError if it is not finite."""

_DIVERGED = (ArithmeticError, ValueError, np.linalg.LinAlgError)
"""Exceptions of estimators and metrics when numbers are no longer finite."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model, behind its repairs, after some epochs.

    Attributes:
        curve: Loss on the held-out rows after each epoch; empty if not measured.
        history: Stored predictions of the held-out rows, by pass.
    """

    epochs: int
    estimator: Any
    curve: tuple[float, ...] = ()
    history: Mapping[int, Predictions] = field(default_factory=dict)


class EpochTraining:
    """Training of one fold's model, for up to `epochs` epochs.

    Args:
        how: Recipe whose estimator trains in epochs.
        iterative: Way in which it trains in epochs.
        seed: Source of randomness.
        data: The fold.
        epochs: Number of epochs of a full training.
        loss: Loss to measure after each epoch; None to train without a curve.
        start: Checkpoint to resume from, which is copied; None to start anew.
        keeps_history: Whether to store the predictions after each pass, if there is a loss.

    Attributes:
        curve: Finite losses so far, one per epoch.
        seconds: Time spent on training and judging in this process.
        trouble: Reason training cannot continue beyond `curve`; None if it can.
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
        keeps_history: bool = False,
    ) -> None:
        started = perf_counter()
        check_fits(how, data)
        self._iterative, self._loss, self._data, self._of = iterative, loss, data, epochs
        self._how, self._initial = how, build(how, seed)
        initial, rounds = how.model_in(self._initial), iterative.rounds
        self._seed: int = initial.random_state
        self._total = int(getattr(initial, rounds)) if rounds else 0
        self.epochs, self.curve = (start.epochs, list(start.curve)) if start else (0, [])
        # A pickle's arrays may be read-only, and a shared copy must not be trained.
        self.estimator = pickle.loads(pickle.dumps(start.estimator)) if start else self._initial
        self._model = how.model_in(self.estimator)
        self._train, self._held_out = self._repaired(how, is_new=start is None)
        if start is None:
            self._model.set_params(**iterative.settings)
            word = getattr(self._model, "class_weight", None)
            takes_no_word = not rounds and isinstance(word, str) and word == "balanced"
            if how.weights == "class_weight" or takes_no_word:  # `partial_fit` rejects "balanced"
                self._model.set_params(class_weight=class_weights(data.y))
        self._weights = {"sample_weight": sample_weights(data.y)} if how.weight_argument else {}
        self._latest: Predictions | None = None
        self._keeps_history, self._history = keeps_history, dict(start.history) if start else {}
        self._sum = MemberSum()
        self.trouble: Exception | None = None
        self.seconds = perf_counter() - started

    def advance(self, to: int) -> None:
        """Train up to an epoch, or to the last one with finite numbers; raise if none has them."""
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
        """Number of epochs before numbers were no longer finite."""
        return self.epochs if self._loss is None else len(self.curve)

    def predictions(self, epoch: int) -> Predictions | None:
        """Return the held-out predictions after an epoch; None for a pass that was not stored.

        Raises InvalidPredictions if they are not finite.
        """
        if self._iterative.rounds:
            return next(self._staged([epoch]))
        if epoch != self.epochs:
            return self._history.get(epoch)
        if self._latest is None:
            self._latest = self._predict()
        return self._latest

    def checkpoint(self) -> Checkpoint:
        """Return the current state, which shares objects that further training changes."""
        history = dict(self._history) if self._keeps_history else {}
        return Checkpoint(self.epochs, self.estimator, tuple(self.curve), history)

    def _pass_over(self, to: int) -> None:
        """Make passes over the rows, each with its own seed."""
        classes = {"classes": self._data.classes} if len(self._data.classes) else {}
        for epoch in range(self.epochs + 1, to + 1):
            self._model.set_params(random_state=epoch_seed(self._seed, epoch))
            known = {} if epoch > 1 else classes
            self._model.partial_fit(self._train, self._data.y, **known, **self._weights)
            self._model.set_params(random_state=self._seed)
            self._latest = None
            if self._loss is not None:
                found = self._predict()
                self.curve.append(self._loss(found))
                self._latest = found
                if self._keeps_history:
                    self._history[epoch] = found
            self.epochs = epoch

    def _add_rounds(self, to: int) -> None:
        """Add the rounds of some epochs in one fit, which is cheaper than a fit per epoch."""
        done = self._rounds(self.epochs) if self.epochs else 0
        if self._rounds(to) > done:  # with more epochs than rounds, some epochs add none
            counted = {self._iterative.rounds: self._rounds(to)}
            self._model.set_params(warm_start=True, **counted)
            threads = self._data.threads_for(self._model, self._how)
            bins = quick_weighted_bins(self._model) if self._weights else nullcontext()
            with threads, bins:
                self._model.fit(self._train, self._data.y, **self._weights)
            # Otherwise the user's next `fit` would not start anew.
            self._model.set_params(warm_start=False)
        new = range(self.epochs + 1, to + 1)
        self.epochs = to
        if self._loss is not None:
            for predictions in self._staged(new, self._sum):
                self.curve.append(self._loss(predictions))

    def _predict(self) -> Predictions:
        classes, name = self._data.classes, self._how.algorithm
        return predictions_of(self._model, self._held_out, classes, name=name)

    def _staged(
        self, epochs: Sequence[int], begun: MemberSum | None = None
    ) -> Iterator[Predictions]:
        rounds = [self._rounds(epoch) for epoch in epochs]
        return staged_predictions(self._model, self._held_out, self._data.classes, rounds, begun)

    def _rounds(self, epoch: int) -> int:
        return rounds_after(epoch, self._of, self._total)

    def _repaired(self, how: Recipe, *, is_new: bool) -> tuple[Any, Any]:
        if not how.repairs:
            return self._data.train, self._data.held_out
        repairs = self.estimator[:-1]
        if is_new:
            repairs.fit(self._data.train, self._data.y)
        train = repairs.transform(self._data.train)
        return train, transformed(repairs, self._data.held_out, train)
