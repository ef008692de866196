"""Building an ensemble of one kind from the candidates' predictions of the held-out rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from prefect_tune.optimizers.trials.losses import is_least
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.agnostic import agnostic_weights
from prefect_tune.tasks.ensembling.fit_limit import FitLimit
from prefect_tune.tasks.ensembling.greedy import greedy_picks, weights_of
from prefect_tune.tasks.ensembling.held_out import HeldOut
from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["CANDIDATES", "KINDS", "MOST_PICKS", "Choice", "Kind", "choose", "predict_held_out"]

Kind = Literal["single", "greedy", "agnostic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The simplest first."""
MOST_PICKS = 32
"""How many members greedy selection picks if nobody says."""
CANDIDATES = 32
"""How many of the best candidates it picks from (Ram et al. 2020, appendix 8)."""


@dataclass(frozen=True)
class Choice:
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
    rng: np.random.Generator,
    *,
    limit: FitLimit | None = None,
) -> Choice:
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


def predict_held_out(choice: Choice, held_out: HeldOut) -> tuple[Predictions, ...]:
    """Return what the ensemble predicts of held-out rows, by fold.

    A single model's are its own, which need not be probabilities to order rows.
    """
    if choice.kind == "single":
        return held_out.predictions[next(iter(choice.weights))]
    weights = np.zeros(len(held_out))
    weights[list(choice.weights)] = list(choice.weights.values())
    return held_out.blended(weights)


def _single(held_out: HeldOut) -> Choice:
    losses = held_out.losses
    best = int(np.argmax(is_least(losses)))
    return Choice("single", {best: 1.0}, (float(losses[best]),))


def _greedy(held_out: HeldOut, size: int, limit: FitLimit | None) -> Choice:
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
    return Choice("greedy", weights, tuple(losses))


def _agnostic(
    held_out: HeldOut, bootstraps: Bootstraps, rng: np.random.Generator, limit: FitLimit | None
) -> Choice:
    weights = agnostic_weights(held_out, bootstraps, rng)
    order = [i for i in np.argsort(-weights, kind="stable") if weights[i]]
    if limit is not None:
        order = limit.kept(order)
        weights = np.where(np.isin(np.arange(len(weights)), order), weights, 0.0)
        weights = weights / weights.sum()
    loss = held_out.fold_losses(held_out.blended(weights)).mean()
    return Choice("agnostic", {int(i): float(weights[i]) for i in order}, (float(loss),))
