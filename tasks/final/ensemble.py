"""Ensembles of pipelines: selection by held-out predictions, and ensembles as scikit-learn models.

Greedy selection with replacement follows Caruana et al., "Ensemble selection from libraries of
models" (ICML 2004), as in Ram et al. (2020), appendix 8. Agnostic Bayes weights each model by the
number of bootstraps (each of half of the examples) in which the model is best: Lacoste et al.,
"Sequential model-based ensemble optimization" (UAI 2014), equations 4 and 5. More bootstraps are
drawn than in the search, because their number determines the resolution of the weights.

On the rows used for its selection, an ensemble looks better than on new rows. To compare kinds of
ensembles, a nested estimate therefore builds each kind on four parts of the held-out rows and
scores the ensemble on the fifth part.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf
from time import monotonic
from timeit import Timer
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from prefect_tune.optimizers.trials.history import frequencies_of_few, is_least
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import LEARN, Split
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions, predicted_labels, predicted_scores
from prefect_tune.tasks.objective.risk import Resampling

Array = NDArray[np.float64]

_TIE = 1e-12
"""Difference below which sums of weights count as equal, because last digits depend on the order of
addition."""


def member_output(predictions: Predictions, n_classes: int) -> Array:
    """Return a model's probabilities or votes, shape (n, c), or numbers, shape (n, 1)."""
    found = predictions if predictions.are_probabilities else Predictions(predictions.label)
    return found.outputs(n_classes)


def blend(mean: Array, n_classes: int) -> Predictions:
    """Return predictions from the weighted mean of the members' contributions."""
    if not n_classes:
        return Predictions(mean[:, 0])
    return Predictions(heaviest_class(mean).astype(np.int32), mean)


def heaviest_class(mean: Array) -> NDArray[np.intp]:
    """Return the class with the largest weight in each row, shape (n,), given weights (n, c).

    Ties go to the lowest class (Lacoste et al. 2014, equation 4).

    >>> heaviest_class(np.array([[0.3, 0.1 + 0.2, 0.4], [0.3, 0.1 + 0.2, 0.0]]))
    array([2, 0])
    """
    return np.argmax(mean >= mean.max(axis=1, keepdims=True) - _TIE, axis=1)


@dataclass(frozen=True)
class HeldOut:
    """Predictions of several candidates for the m rows held out by the folds of a split.

    `predictions` are indexed by candidate and fold. Computing a loss raises `TimeoutError` once the
    clock `monotonic` passes `until`.
    """

    dataset: Dataset
    split: Split
    metric: Metric
    predictions: tuple[tuple[Predictions, ...], ...]
    until: float = inf

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def rows(self) -> tuple[NDArray[np.intp], ...]:
        """Held-out rows of each fold."""
        return tuple(self.split.held_out(fold) for fold in range(self.split.n_folds))

    def output(self, candidate: int) -> Array:
        """Return a candidate's contribution to an ensemble, with rows by fold, shape (m, c)."""
        n_classes = len(self.dataset.classes)
        return np.concatenate([member_output(p, n_classes) for p in self.predictions[candidate]])

    @cached_property
    def losses(self) -> Array:
        """Loss of each candidate, averaged over folds, shape (n,); nan if undefined."""
        return np.array([self.fold_losses(p).mean() for p in self.predictions])

    def fold_losses(self, predictions: Sequence[Predictions]) -> Array:
        """Return the loss of predictions in each fold, shape (n_folds,); nan if undefined."""
        self.check_time()
        found = zip(self.rows, predictions, strict=True)
        return np.array([self._loss(rows, predicted) for rows, predicted in found])

    def check_time(self) -> None:
        """Raise `TimeoutError` if the time for the choice is up."""
        if monotonic() > self.until:
            raise TimeoutError("choosing the ensemble took longer than the time left")

    def blended(self, weights: Array) -> tuple[Predictions, ...]:
        """Return an ensemble's predictions by fold, given weights (n,) that sum to 1."""
        members = np.flatnonzero(weights).tolist()
        mean: Array = np.sum([weights[i] * self.output(i) for i in members], axis=0)
        return self.by_fold(mean)

    def by_fold(self, mean: Array) -> tuple[Predictions, ...]:
        """Convert a mean of contributions, shape (m, c), to predictions by fold."""
        ends = np.cumsum([len(rows) for rows in self.rows])[:-1]
        return tuple(blend(part, len(self.dataset.classes)) for part in np.split(mean, ends))

    def within(self, is_kept: NDArray[np.bool_]) -> "HeldOut":
        """Return the predictions for a subset of rows, given as a mask of shape (n_rows,)."""
        kept = [is_kept[rows] for rows in self.rows]
        split = replace(self.split, fold=np.where(is_kept, self.split.fold, LEARN))
        predictions = tuple(
            tuple(predicted.take(keep) for predicted, keep in zip(of_folds, kept, strict=True))
            for of_folds in self.predictions
        )
        return replace(self, split=split, predictions=predictions)

    def _loss(self, rows: NDArray[np.intp], predicted: Predictions) -> float:
        if not len(rows):
            return float("nan")
        y, n_classes = self.dataset.y[rows], len(self.dataset.classes)
        try:
            if not self.metric.declared.is_quick:
                return self.metric.loss(y, predicted, n_classes)
            alike = np.full((1, len(y)), 1 / len(y))  # ten times faster than a scorer
            return float(self.metric.weighted_losses(y, predicted, n_classes, alike)[0])
        except ValueError:
            return float("nan")


@dataclass(frozen=True)
class FitLimit:
    """Limit `most` on the total fitting time of members; `seconds` by candidate, shape (n,).

    The first candidate is always allowed.
    """

    seconds: Array
    most: float

    def allows(self, members: Collection[int], candidate: int) -> bool:
        """Return whether the limit allows adding a candidate to the members."""
        joined = sorted({*members, candidate})
        return candidate in members or bool(self.seconds[joined].sum() <= self.most)


def greedy_picks(
    members: Sequence[Array],
    loss: Callable[[Array], float],
    size: int,
    limit: FitLimit | None = None,
) -> tuple[list[int], list[float]]:
    """Pick up to `size` members with replacement, each time the most helpful member.

    `members` are contributions of equal shape. The first pick is the best single member, and each
    further pick improves the ensemble most. Returns the positions of the picks, up to the size with
    the lowest loss, and the loss after each pick. Ties go to the first member.
    """
    picks, losses = [0], [loss(members[0])]
    total = members[0].copy()
    while len(picks) < size:
        tried = np.full(len(members), inf)
        for i, member in enumerate(members):
            if limit is None or limit.allows(picks, i):
                tried[i] = loss((total + member) / (len(picks) + 1))
        best = int(np.argmax(is_least(tried)))
        picks.append(best)
        losses.append(float(tried[best]))
        total = total + members[best]
    n = int(np.argmax(is_least(np.array(losses)))) + 1
    return picks[:n], losses[:n]


BOOTSTRAPS = Bootstraps(500, 0.5)
"""Bootstraps for agnostic weights. More bootstraps would not change the weights noticeably, and the
time is small compared with training."""
MOST_MEMBERS = 32
"""Maximum number of members of an agnostic ensemble; greedy selection has the same limit. Each
member is refitted on all rows and called in each prediction. After a search, about a hundred models
are best in at least one bootstrap, but many are similar, so fewer models predict just as well."""

_SLOW_BOOTSTRAPS = Bootstraps(50, 0.5)
"""Bootstraps for slow metrics, which need a millisecond per model, fold and bootstrap."""


def bootstraps_for(metric: Metric) -> Bootstraps:
    """Return the bootstraps for building an agnostic ensemble; fewer if the metric is slow."""
    return BOOTSTRAPS if metric.declared.is_quick else _SLOW_BOOTSTRAPS


def agnostic_weights(held_out: HeldOut, bootstraps: Bootstraps, rng: Generator) -> Array:
    """Return the candidates' agnostic Bayes weights, shape (n,), which sum to 1."""
    resampling = Resampling.of(held_out.dataset, held_out.split, held_out.metric, bootstraps, rng)
    risks = []
    for predicted in held_out.predictions:
        held_out.check_time()
        risks.append(resampling.risks(predicted))
    return frequencies_of_few(np.array(risks), MOST_MEMBERS)


Kind = Literal["single", "greedy", "agnostic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of ensembles, simplest first."""
MOST_PICKS = 32
"""Default number of picks of greedy selection."""
CANDIDATES = 32
"""Number of best candidates to pick from (Ram et al. 2020, appendix 8)."""


@dataclass(frozen=True)
class EnsembleChoice:
    """An ensemble of candidates; its kind is `single` if greedy selection found nothing better.

    Attributes:
        weights: Weights by candidate, summing to 1; best candidate first, or heaviest first if
            agnostic.
        losses: Mean losses over the folds; for greedy selection, one loss per size from 1.
    """

    kind: Kind
    weights: Mapping[int, float]
    losses: tuple[float, ...]


def choose(
    kind: Kind,
    held_out: HeldOut,
    size: int,
    bootstraps: Bootstraps,
    rng: Generator,
    *,
    limit: FitLimit | None = None,
) -> EnsembleChoice:
    """Build an ensemble of the given kind; the losses of all candidates must be finite.

    `size` limits the picks of greedy selection. `bootstraps` and `rng` are used by the agnostic
    ensemble.
    """
    found = held_out.losses
    best = int(np.argmax(is_least(found)))
    single = EnsembleChoice("single", {best: 1.0}, (float(found[best]),))
    if kind == "single":
        return single
    if kind == "greedy":
        order = np.argsort(found, kind="stable")[:CANDIDATES]
        picks, losses = greedy_picks(
            [held_out.output(candidate) for candidate in order],
            lambda mean: float(held_out.fold_losses(held_out.by_fold(mean)).mean()),
            size,
            None if limit is None else FitLimit(limit.seconds[order], limit.most),
        )
        if losses[-1] >= found.min():
            return single
        counts = sorted(Counter(picks).items())
        of_candidates = {int(order[i]): n / len(picks) for i, n in counts}
        return EnsembleChoice("greedy", of_candidates, tuple(losses))
    weights, members = agnostic_weights(held_out, bootstraps, rng), list[int]()
    for i in np.argsort(-weights, kind="stable").tolist():
        if weights[i] and (not members or limit is None or limit.allows(members, i)):
            members.append(i)
    if limit is not None:
        weights = np.where(np.isin(np.arange(len(weights)), members), weights, 0.0)
        weights = weights / weights.sum()
    loss = held_out.fold_losses(held_out.blended(weights)).mean()
    return EnsembleChoice("agnostic", {i: float(weights[i]) for i in members}, (float(loss),))


def predict_held_out(choice: EnsembleChoice, held_out: HeldOut) -> tuple[Predictions, ...]:
    """Return the held-out predictions of an ensemble by fold; unchanged for a single model."""
    if choice.kind == "single":
        return held_out.predictions[next(iter(choice.weights))]
    weights = np.zeros(len(held_out))
    weights[list(choice.weights)] = list(choice.weights.values())
    return held_out.blended(weights)


N_PARTS = 5


def nested_losses(
    held_out: HeldOut,
    size: int,
    bootstraps: Bootstraps,
    sequence: np.random.SeedSequence,
    *,
    limit: FitLimit | None = None,
) -> Mapping[Kind, float]:
    """Return the loss of each kind of ensemble on rows not used for its selection.

    Nothing is trained. The loss is the mean over parts and folds. If a part of a fold lacks a class
    that the metric needs, the part is skipped for all kinds. The result is empty if all parts are
    skipped.
    """
    dealing, *streams = sequence.spawn(1 + N_PARTS)
    parts = stratified_parts(held_out, N_PARTS, np.random.default_rng(dealing))
    fewer = Bootstraps(max(1, bootstraps.n // N_PARTS), bootstraps.share)
    part_losses = []
    for part, stream in enumerate(streams):
        built_on, left_out = held_out.within(parts != part), held_out.within(parts == part)
        if not np.isfinite(built_on.losses).all():
            continue
        rng = np.random.default_rng(stream)
        choices = [choose(kind, built_on, size, fewer, rng, limit=limit) for kind in KINDS]
        part_losses.append([left_out.fold_losses(predict_held_out(c, left_out)) for c in choices])
    losses = np.hstack([np.empty((len(KINDS), 0)), *part_losses])  # shape (kinds, parts * folds)
    losses = losses[:, np.isfinite(losses).all(axis=0)]
    if not losses.size:
        return {}
    return dict(zip(KINDS, map(float, losses.mean(axis=1)), strict=True))


def best_kind(losses: Mapping[Kind, float]) -> Kind:
    """Return the kind with the lowest loss; ties go to the simplest kind.

    >>> best_kind({"single": 0.2, "greedy": 0.1, "agnostic": 0.1})
    'greedy'
    """
    is_best = is_least(np.array([losses[kind] for kind in KINDS]))
    return KINDS[int(is_best.argmax())]


@dataclass(frozen=True, slots=True)
class ChoiceCosts:
    """Measured times of the operations in choosing an ensemble.

    Attributes:
        of_candidate: Seconds to load the predictions of a candidate.
        of_loss: Seconds to blend an ensemble and compute its loss.
        of_risk: Seconds to draw a bootstrap and compute a candidate's loss in the bootstrap.
    """

    of_candidate: float
    of_loss: float
    of_risk: float

    @classmethod
    def measured(cls, held_out: HeldOut, bootstraps: Bootstraps, of_candidate: float) -> Self:
        """Measure the operations on the first candidate, with a tenth of the bootstraps."""
        few = Bootstraps(max(1, bootstraps.n // 10), bootstraps.share)
        one = replace(held_out, predictions=held_out.predictions[:1])
        loss = Timer(lambda: one.fold_losses(one.by_fold(one.output(0))))
        risks = Timer(lambda: agnostic_weights(one, few, np.random.default_rng(0)))
        of_loss, of_risks = (seconds / n for n, seconds in (loss.autorange(), risks.autorange()))
        return cls(of_candidate, of_loss, of_risks / few.n)

    def seconds(self, kind: str, n: int, size: int, n_bootstraps: int) -> float:
        """Predict the seconds of a choice among n candidates; `auto` adds the nested estimate."""
        greedy = self.of_loss * (size * min(n, CANDIDATES) + 2 * n)
        agnostic = n * (n_bootstraps * self.of_risk + self.of_loss)
        built = {"greedy": greedy, "agnostic": agnostic, "auto": N_PARTS * greedy + 2 * agnostic}
        return n * self.of_candidate + built.get(kind, 0.0)


MOST_ROWS, _RAREST = 10_000, 100
"""Largest number of held-out rows used to choose an ensemble, and the smallest number of rows of
each class among them."""


def sample(held_out: HeldOut, rng: Generator) -> HeldOut:
    """Return a stratified sample of the held-out rows; all rows if they or a class are few."""
    rows = np.concatenate(held_out.rows)
    _, counts = np.unique(held_out.dataset.strata[rows], return_counts=True)
    n_parts = min(ceil(len(rows) / MOST_ROWS), int(counts.min()) // _RAREST)
    if n_parts < 2:
        return held_out
    return held_out.within(stratified_parts(held_out, n_parts, rng) == 0)


def stratified_parts(held_out: HeldOut, n_parts: int, rng: Generator) -> NDArray[np.intp]:
    """Divide each fold's rows into stratified parts by group; return each row's part, or -1."""
    dataset = held_out.dataset
    parts = np.full(len(dataset), -1)
    for rows in held_out.rows:
        groups = rows if dataset.groups is None else dataset.groups[rows]
        _, first, group_of_row = np.unique(groups, return_index=True, return_inverse=True)
        order = rng.permutation(len(first))
        order = order[np.argsort(dataset.strata[rows[first[order]]], kind="stable")]
        part_of_group = np.empty(len(first), dtype=np.intp)
        part_of_group[order] = np.arange(len(first)) % n_parts
        parts[rows] = part_of_group[group_of_row]
    return parts


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
        """Build an ensemble of fitted members, without training.

        By default, `classes` are the members' classes. Raises `ValueError` if the number of weights
        is wrong, or if members have different classes.
        """
        ensemble = cls(members, weights)
        ensemble._take(list(members), classes)
        return ensemble

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a clone of each member; may raise `ValueError` for wrong weights or targets."""
        _normalized(self.weights, len(self.members))
        target = y if y is None else column_or_1d(y, warn=True)  # warns once
        self._take([clone(member).fit(X, target) for member in self.members], ())
        return self

    @property
    def n_features_in_(self) -> int:
        return int(self.members_[0].n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        names: NDArray[Any] = self.members_[0].feature_names_in_
        return names

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        of_members = [get_tags(member).input_tags for member in self.members]
        tags.input_tags.sparse = all(given.sparse for given in of_members)
        tags.input_tags.allow_nan = all(given.allow_nan for given in of_members)
        return tags

    def _take(self, fitted: list[Any], classes: Sequence[Any] | NDArray[Any]) -> None:  # noqa: ARG002
        self.weights_ = _normalized(self.weights, len(fitted))
        self.members_ = fitted


class ClassEnsemble(ClassifierMixin, _Ensemble):
    """Weighted mean of the probabilities of classifiers, or of votes if a classifier has none.

    Args:
        members: Classifiers to combine.
        weights: Non-negative weights, one per member; equal by default.

    Attributes:
        members_: Fitted members, which all have the same `classes_`.
        weights_: Weights of the members, summing to 1, shape (k,).
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the weighted probability of each class, shape (n, c)."""
        check_is_fitted(self)
        weighted = zip(self.members_, self.weights_, strict=True)
        mean: NDArray[np.float64] = np.sum(
            [weight * self._output(member, X) for member, weight in weighted], axis=0
        )
        # Rounding may push probabilities slightly above 1.
        return mean / mean.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, shape (n,); ties go to the lowest class."""
        return self.labels_of_probabilities(self.predict_proba(X))

    def labels_of_probabilities(self, probabilities: NDArray[np.float64]) -> NDArray[Any]:
        """Return the most probable classes, shape (n,); ties go to the lowest class."""
        return self.classes_[heaviest_class(probabilities)]

    def _output(self, member: Any, X: Any) -> NDArray[np.float64]:
        if callable(getattr(member, "predict_proba", None)):
            with suppress(NotImplementedError):  # some models signal missing probabilities this way
                score = predicted_scores(member, X, self.classes_, "predict_proba")
                if Predictions(score.argmax(axis=1), score).are_probabilities:
                    return score
        return member_output(
            Predictions(predicted_labels(member, X, self.classes_)), len(self.classes_)
        )

    def _take(self, fitted: list[Any], classes: Sequence[Any] | NDArray[Any]) -> None:
        self.classes_ = np.array(classes) if len(classes) else _common_classes(fitted)
        super()._take(fitted, classes)


class NumberEnsemble(RegressorMixin, _Ensemble):
    """Weighted mean of the predictions of regressors.

    Args:
        members: Regressors to combine.
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


def _normalized(weights: Sequence[float] | None, n_members: int) -> NDArray[np.float64]:
    """Return weights that sum to 1, shape (k,); `ValueError` if the given weights are unusable."""
    if not n_members:
        raise ValueError("an ensemble needs at least one member; got none")
    given = np.ones(n_members) if weights is None else np.asarray(weights, dtype=np.float64)
    is_right = np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0
    if given.shape != (n_members,) or not is_right:
        raise ValueError(
            f"expected {n_members} non-negative weights, not all 0; got {given.tolist()}"
        )
    return given / given.sum()


def _common_classes(fitted: Sequence[Any]) -> NDArray[Any]:
    """Return the sorted classes of the members; `ValueError` if they differ or are missing."""
    classes = [np.sort(getattr(member, "classes_", [])) for member in fitted]
    for position, (member, own) in enumerate(zip(fitted, classes, strict=True)):
        if not len(own) or not np.array_equal(own, classes[0]):
            raise ValueError(
                f"member {position} ({type(member).__name__}) predicts the classes {own.tolist()}, "
                f"but all members must have the classes of the first member: {classes[0].tolist()}"
            )
    return classes[0]
