"""Choice of an ensemble's members and weights from predictions of the held-out rows.

Greedy selection with replacement follows Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble
selection from libraries of models" (ICML 2004), as in Ram et al. (2020), appendix 8.

Agnostic Bayes weighs each model by how often it is the best in bootstraps: Lacoste, Larochelle,
Marchand and Laviolette, "Sequential model-based ensemble optimization" (UAI 2014), equations 4 and
5. As in the authors' code a bootstrap is half of the examples. The bootstraps are drawn anew, more
than the search uses, because their number is the step of the weights.

Whichever kind has the least loss on the rows that built it is flattered by them, most of all the
kind that fits them best. So the nested estimate builds each on four parts of the held-out rows and
judges it on the fifth.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

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
    """Seconds that members may take together.

    Attributes:
        seconds: That each of n candidates takes, shape (n,).
        most: That members may take; the first one may always be a member.
    """

    seconds: Array
    most: float

    def of(self, candidates: Sequence[int] | NDArray[np.intp]) -> "FitLimit":
        """Return the same of some candidates only, in their order."""
        return FitLimit(self.seconds[candidates], self.most)

    def may_join(self, members: Collection[int]) -> NDArray[np.bool_]:
        """Return which candidates may be picked beside members, shape (n,); members always may."""
        chosen = sorted(set(members))
        within: NDArray[np.bool_] = self.seconds[chosen].sum() + self.seconds <= self.most
        within[chosen] = True
        return within

    def kept(self, order: Iterable[int]) -> list[int]:
        """Return those of some candidates, in their order, that fit in beside those before them."""
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
    """Pick members with replacement, each the one that improves the ensemble so far most.

    Args:
        members: What each contributes, all of one shape; the first one is the best alone.
        loss: Loss of the mean of some of them.
        size: How many to pick at most.
        limit: On what the picked ones take to fit.

    Returns:
        The picks by position up to the size that is best, and the ensemble's loss after each. Of
        equals, the first.
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
    """Return each picked member's share of the picks."""
    return {member: n / len(picks) for member, n in sorted(Counter(picks).items())}


BOOTSTRAPS = Bootstraps(500, 0.5)
"""More than these change no weight by what matters, and cost little beside a training."""
MOST_MEMBERS = 32
"""Each member is trained again on all rows and asked in each prediction. After a search there are a
hundred models that are the best now and then, many of them alike; so many picked among them
predict as well. Greedy selection picks no more either."""

_SLOW_BOOTSTRAPS = Bootstraps(50, 0.5)
"""Where a metric is computed once per model, fold and bootstrap, a millisecond each."""


def bootstraps_for(metric: Metric) -> Bootstraps:
    """Return the bootstraps that an ensemble is built on: fewer where they cost much."""
    return BOOTSTRAPS if is_quick(metric) else _SLOW_BOOTSTRAPS


def agnostic_weights(held_out: HeldOut, bootstraps: Bootstraps, rng: Generator) -> Array:
    """Return the weights of the candidates, shape (n,), together 1.

    Args:
        held_out: The candidates' predictions.
        bootstraps: How many, and how large.
        rng: Source of their draws.
    """
    resampling = Resampling.of(held_out.dataset, held_out.split, held_out.metric, bootstraps, rng)
    risks = np.array([resampling.risks(predicted) for predicted in held_out.predictions])
    return frequencies_of_few(risks, MOST_MEMBERS)


Kind = Literal["single", "greedy", "agnostic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The simplest first."""
MOST_PICKS = 32
"""How many members greedy selection picks if nobody says."""
CANDIDATES = 32
"""How many of the best candidates it picks from (Ram et al. 2020, appendix 8)."""


@dataclass(frozen=True)
class EnsembleChoice:
    """An ensemble of candidates.

    Attributes:
        kind: Single if greedy selection found nothing better.
        weights: By position of the candidate, together 1; the best one alone first, and of an
            agnostic ensemble the heaviest.
        losses: Mean over the folds of the loss; of greedy selection, at each size from 1.
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
    """Build an ensemble of one kind.

    Args:
        kind: Which.
        held_out: The candidates' predictions, their losses finite.
        size: How many members greedy selection may pick.
        bootstraps: Of the agnostic ensemble: how many, and how large.
        rng: Source of their draws.
        limit: On what the members take to fit.
    """
    if kind == "greedy":
        return _greedy(held_out, size, limit)
    if kind == "agnostic":
        return _agnostic(held_out, bootstraps, rng, limit)
    return _single(held_out)


def predict_held_out(choice: EnsembleChoice, held_out: HeldOut) -> tuple[Predictions, ...]:
    """Return what the ensemble predicts of held-out rows, by fold.

    A single model's are its own, which need not be probabilities to order rows.
    """
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
    """Return the loss of each kind on rows that it was not built on.

    The mean over parts and folds; a part of a fold in which the metric is not defined, as it lacks
    a class, counts for no kind. Nothing is trained.

    Args:
        held_out: The candidates' predictions.
        size: How many members greedy selection may pick.
        bootstraps: Of the agnostic ensemble; each part gets its share of their number.
        sequence: Source of how rows are dealt and bootstraps are drawn.
        limit: On what the members take to fit.

    Returns:
        Empty if too few rows are held out for any part to be judged.
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
    """Return the kind with the least loss, of equals the simplest.

    >>> best_kind({"single": 0.2, "greedy": 0.1, "agnostic": 0.1})
    'greedy'
    """
    is_best = is_least(np.array([losses[kind] for kind in KINDS]))
    return KINDS[int(is_best.argmax())]


def deal(held_out: HeldOut, n_parts: int, rng: Generator) -> NDArray[np.intp]:
    """Deal the rows of each fold into parts, stratified, rows of one group together.

    Args:
        held_out: Whose rows.
        n_parts: How many parts.
        rng: Source of the order in which they are dealt.

    Returns:
        The part of each row of the data set, shape (n_rows,); -1 of those that no fold holds out.
    """
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
