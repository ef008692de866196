"""The nested estimate: how good a kind of ensemble is on rows that it was not built on.

Whichever kind has the least loss on the rows that built it is flattered by them, most of all the
kind that fits them best. So each is built on four parts of the held-out rows and judged on the
fifth.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.losses import is_least
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.ensembling.choosing import KINDS, FitLimit, Kind, choose, predict_held_out
from prefect_tune.tasks.ensembling.held_out import HeldOut

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


def deal(held_out: HeldOut, n_parts: int, rng: np.random.Generator) -> NDArray[np.intp]:
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
