"""Choice of an ensemble's members and weights from predictions of the held-out rows.

Greedy selection with replacement follows Caruana et al., "Ensemble selection from libraries of
models" (ICML 2004), as in Ram et al. (2020), appendix 8. Agnostic Bayes weighs each model by how
often it is the best in bootstraps of half of the examples: Lacoste et al., "Sequential model-based
ensemble optimization" (UAI 2014), equations 4 and 5. More bootstraps are drawn than the search
uses, because their number sets the resolution of the weights.

The kind with the least loss on the rows that built it looks better than it is, so the nested
estimate builds each kind on four parts of the held-out rows and judges it on the fifth.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Self, get_args

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.losses import frequencies_of_few, is_least
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Metric, Predictions
from prefect_tune.tasks.objective.risk import Resampling, is_quick

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FitLimit:
    """Limit `most` on the fitting seconds of the members, given `seconds` per candidate, (n,).

    The first candidate is always allowed.
    """

    seconds: Array
    most: float

    def of(self, candidates: Sequence[int] | NDArray[np.intp]) -> "FitLimit":
        """Return the limit for some candidates only, in their order."""
        return FitLimit(self.seconds[candidates], self.most)

    def may_join(self, members: Collection[int]) -> NDArray[np.bool_]:
        """Return a mask of candidates that may join the members, shape (n,); members always may."""
        chosen = sorted(set(members))
        within: NDArray[np.bool_] = self.seconds[chosen].sum() + self.seconds <= self.most
        within[chosen] = True
        return within

    def kept(self, order: Iterable[int]) -> list[int]:
        """Return the candidates, in order, that still fit within the limit."""
        members: list[int] = []
        for candidate in order:
            if not members or self.may_join(members)[candidate]:
                members.append(candidate)
        return members


def greedy_picks(
    members: Sequence[Array],
    loss: Callable[[Array], float],
    size: int,
    limit: FitLimit | None = None,
) -> tuple[list[int], list[float]]:
    """Pick up to `size` members with replacement; each pick improves the ensemble most.

    `members` are contributions of one shape, with the best single member first. Returns picks by
    position, up to the best size, and the loss after each. The first candidate wins a tie.
    """
    picks, losses = [0], [loss(members[0])]
    total = members[0].copy()
    while len(picks) < size:
        may_join = np.ones(len(members), bool) if limit is None else limit.may_join(picks)
        tried = np.array(
            [
                loss((total + member) / (len(picks) + 1)) if may else np.inf
                for member, may in zip(members, may_join, strict=True)
            ]
        )
        best = int(np.argmax(is_least(tried)))
        picks.append(best)
        losses.append(float(tried[best]))
        total = total + members[best]
    n = int(np.argmax(is_least(np.array(losses)))) + 1
    return picks[:n], losses[:n]


def weights_of(picks: Sequence[int]) -> Mapping[int, float]:
    """Return the share of the picks that each member has."""
    return {member: n / len(picks) for member, n in sorted(Counter(picks).items())}


BOOTSTRAPS = Bootstraps(500, 0.5)
"""More bootstraps would not change the weights noticeably; these cost little next to training."""
MOST_MEMBERS = 32
"""Most members of an agnostic ensemble; greedy selection picks no more either. Each member is
refitted on all rows and called in each prediction. After a search, about a hundred models are best
in some bootstrap, many of them alike; this number of models predicts as well."""

_SLOW_BOOTSTRAPS = Bootstraps(50, 0.5)
"""Bootstraps for metrics that need a millisecond per model, fold and bootstrap."""


def bootstraps_for(metric: Metric) -> Bootstraps:
    """Return the bootstraps to build an ensemble on; fewer if the metric is slow."""
    return BOOTSTRAPS if is_quick(metric) else _SLOW_BOOTSTRAPS


def agnostic_weights(held_out: HeldOut, bootstraps: Bootstraps, rng: Generator) -> Array:
    """Return the agnostic weights of the candidates, shape (n,), which sum to 1."""
    resampling = Resampling.of(held_out.dataset, held_out.split, held_out.metric, bootstraps, rng)
    risks = []
    for predicted in held_out.predictions:
        held_out.check_time()
        risks.append(resampling.risks(predicted))
    return frequencies_of_few(np.array(risks), MOST_MEMBERS)


Kind = Literal["single", "greedy", "agnostic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Simplest kind first."""
MOST_PICKS = 32
"""Default number of members greedy selection picks."""
CANDIDATES = 32
"""Number of best candidates to pick from (Ram et al. 2020, appendix 8)."""


@dataclass(frozen=True)
class EnsembleChoice:
    """An ensemble of candidates; its kind is single if greedy selection found nothing better.

    Attributes:
        weights: Weights by candidate, summing to 1; best first, or heaviest first if agnostic.
        losses: Mean loss over the folds; greedy selection has one for each size from 1.
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
    """Build an ensemble of one kind from candidates whose losses are finite.

    `size` limits greedy selection; `bootstraps` are for the agnostic ensemble, drawn with `rng`.
    """
    if kind == "greedy":
        return _greedy(held_out, size, limit)
    if kind == "agnostic":
        return _agnostic(held_out, bootstraps, rng, limit)
    return _single(held_out)


def predict_held_out(choice: EnsembleChoice, held_out: HeldOut) -> tuple[Predictions, ...]:
    """Return the ensemble's predictions of held-out rows, by fold; a single model's unchanged."""
    if choice.kind == "single":
        return held_out.predictions[next(iter(choice.weights))]
    weights = np.zeros(len(held_out))
    weights[list(choice.weights)] = list(choice.weights.values())
    return held_out.blended(weights)


def _single(held_out: HeldOut) -> EnsembleChoice:
    losses = held_out.losses
    best = int(np.argmax(is_least(losses)))
    return EnsembleChoice("single", {best: 1.0}, (float(losses[best]),))


def _greedy(held_out: HeldOut, size: int, limit: FitLimit | None) -> EnsembleChoice:
    order = np.argsort(held_out.losses, kind="stable")[:CANDIDATES]
    members = [held_out.contributed(candidate) for candidate in order]
    picks, losses = greedy_picks(
        members,
        lambda mean: float(held_out.fold_losses(held_out.by_fold(mean)).mean()),
        size,
        None if limit is None else limit.of(order),
    )
    if losses[-1] >= held_out.losses.min():
        return _single(held_out)
    weights = {int(order[i]): weight for i, weight in weights_of(picks).items()}
    return EnsembleChoice("greedy", weights, tuple(losses))


def _agnostic(
    held_out: HeldOut, bootstraps: Bootstraps, rng: Generator, limit: FitLimit | None
) -> EnsembleChoice:
    weights = agnostic_weights(held_out, bootstraps, rng)
    order = [i for i in np.argsort(-weights, kind="stable") if weights[i]]
    if limit is not None:
        order = limit.kept(order)
        weights = np.where(np.isin(np.arange(len(weights)), order), weights, 0.0)
        weights = weights / weights.sum()
    loss = held_out.fold_losses(held_out.blended(weights)).mean()
    return EnsembleChoice("agnostic", {int(i): float(weights[i]) for i in order}, (float(loss),))


N_PARTS = 5


def nested_losses(
    held_out: HeldOut,
    size: int,
    bootstraps: Bootstraps,
    sequence: np.random.SeedSequence,
    *,
    limit: FitLimit | None = None,
) -> Mapping[Kind, float]:
    """Return the loss of each kind on rows it was not built on; nothing is trained.

    The loss is the mean over parts and folds. A part of a fold that lacks a class the metric needs
    is skipped for every kind. The result is empty if too few rows are held out to judge any part.
    """
    dealing, *streams = sequence.spawn(1 + N_PARTS)
    parts = deal(held_out, N_PARTS, np.random.default_rng(dealing))
    fewer = Bootstraps(max(1, bootstraps.n // N_PARTS), bootstraps.share)
    judged = []
    for part, stream in enumerate(streams):
        built_on, left_out = held_out.within(parts != part), held_out.within(parts == part)
        if not np.isfinite(built_on.losses).all():
            continue
        rng = np.random.default_rng(stream)
        choices = [choose(kind, built_on, size, fewer, rng, limit=limit) for kind in KINDS]
        judged.append([left_out.fold_losses(predict_held_out(c, left_out)) for c in choices])
    if not judged:
        return {}
    losses = np.concatenate(judged, axis=1)  # kinds, parts and folds
    losses = losses[:, np.isfinite(losses).all(axis=0)]
    if not losses.size:
        return {}
    return dict(zip(KINDS, map(float, losses.mean(axis=1)), strict=True))


def best_kind(losses: Mapping[Kind, float]) -> Kind:
    """Return the kind with the least loss; the simplest wins a tie.

    >>> best_kind({"single": 0.2, "greedy": 0.1, "agnostic": 0.1})
    'greedy'
    """
    is_best = is_least(np.array([losses[kind] for kind in KINDS]))
    return KINDS[int(is_best.argmax())]


_TIMED_SECONDS = 0.1
"""Time to measure calls; it spans several turns of other processes on a busy machine."""


def _seconds(work: Callable[[], object]) -> float:
    """Return the mean seconds of calls after the first, which may import."""
    work()
    n, begun = 0, perf_counter()
    while perf_counter() - begun < _TIMED_SECONDS:
        work()
        n += 1
    return (perf_counter() - begun) / n


@dataclass(frozen=True, slots=True)
class ChoiceCosts:
    """Measured seconds of the parts of a choice.

    Attributes:
        of_candidate: Seconds to load the predictions of a candidate.
        of_loss: Seconds to blend an ensemble and compute its loss.
        of_draw: Seconds to draw a bootstrap.
        of_risk: Seconds of a candidate's loss in a bootstrap.
    """

    of_candidate: float
    of_loss: float
    of_draw: float
    of_risk: float

    @classmethod
    def measured(cls, held_out: HeldOut, bootstraps: Bootstraps, of_candidate: float) -> Self:
        """Measure the parts on the first candidate, with a tenth of the bootstraps."""
        few = Bootstraps(max(1, bootstraps.n // 10), bootstraps.share)

        def draw() -> Resampling:
            drawn = held_out.dataset, held_out.split, held_out.metric, few
            return Resampling.of(*drawn, np.random.default_rng(0))

        resampling = draw()
        return cls(
            of_candidate,
            _seconds(lambda: held_out.fold_losses(held_out.by_fold(held_out.contributed(0)))),
            _seconds(draw) / few.n,
            _seconds(lambda: resampling.risks(held_out.predictions[0])) / few.n,
        )

    def seconds(self, kind: str, n: int, size: int, n_bootstraps: int) -> float:
        """Return the predicted seconds of a choice among n candidates, nested for `auto`."""
        greedy = self.of_loss * (min(size, n) * min(n, CANDIDATES) + 2 * n)
        agnostic = n_bootstraps * (self.of_draw + n * self.of_risk) + n * self.of_loss
        built = {"greedy": greedy, "agnostic": agnostic, "auto": N_PARTS * greedy + 2 * agnostic}
        return n * self.of_candidate + built.get(kind, 0.0)


def deal(held_out: HeldOut, n_parts: int, rng: Generator) -> NDArray[np.intp]:
    """Deal each fold's rows into parts, stratified, groups kept together; -1 if not held out."""
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
