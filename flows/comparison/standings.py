"""Who leads a comparison of methods: medians, ranks and ties, from the curves of its replicates.

Curves are tables with the columns of `CURVE_COLUMNS`, one row per replicate and trial, and one for
the start of each. Several comparisons are pooled by concatenating their tables: methods are ranked
among all methods of the same data set and repeat. A missing loss is worse than all others.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from prefect_tune.flows.comparison.pairwise import Pairwise, pairwise
from prefect_tune.tasks.objective.declaration import METRICS


def quartiles(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lower quartile, median and upper quartile over the first axis, shape (3, ...).

    Args:
        losses: Shape (n, ...); inf where there is none. A quartile between it and a loss is inf or
            nan: no number.
    """
    with np.errstate(invalid="ignore"):  # between inf and inf
        found: NDArray[np.float64] = np.quantile(losses, (0.25, 0.5, 0.75), axis=0)
    return found


def finite(value: float) -> float | None:
    """Return a number, None for inf and nan."""
    return float(value) if isfinite(value) else None


FRACTIONS = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Fractions of a budget at which incumbents are looked at."""
CURVE_COLUMNS = (
    "comparison", "data", "dataset", "space", "metric", "method", "repeat", "seed", "study",
    "budget_seconds", "budget_trials", "trial", "trials", "seconds", "cost_seconds", "ask_seconds",
    "failure", "loss", "incumbent", "incumbent_loss", "test_loss", "test_rows",
)  # fmt: skip
_BLOCK = ["comparison", "dataset", "metric", "repeat"]
"""What replicates must have in common to be ranked with each other."""
_DATA_SET = "data_set_number"
"""Column with the position of a data set and metric among all that are pooled."""
SIGNIFICANCE = 0.05
_DRAWS = 10_000


def standings(
    curves: pd.DataFrame, fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> dict[str, Any]:
    """Rank methods at fractions of the budget.

    Args:
        curves: Curves of one comparison, or of several put together.
        fractions: Of the budget; test losses are there for `FRACTIONS`.
        seed: Of the test of who is behind.

    Returns:
        `methods`, where they stand at the end, best first; `pairs`, how sure it is that the one is
        better than the other (`Pairwise`), for each two in both orders; `fractions`, the same at
        each of them; `n_blocks`, how many data sets and repeats that is; with several data sets
        also `data_sets`, in the order of each pair's `on_data_sets`.

    Raises:
        ValueError: If a replicate of some method is missing, or there is none.
    """
    if curves.empty:
        raise ValueError("there is nothing to compare; the files hold no replicate")
    rng = np.random.default_rng(seed)
    data_set = curves.groupby(["dataset", "metric"], sort=False).ngroup()
    curves = curves.assign(**{_DATA_SET: data_set})
    stages = [
        {"fraction": fraction, **_stage(state_at(curves, fraction), rng)} for fraction in fractions
    ]
    document: dict[str, Any] = {
        "n_blocks": len(curves[_BLOCK].drop_duplicates()),
        **_stage(state_at(curves, 1.0), rng),
        "fractions": stages,
    }
    data_sets = [group for _, group in curves.groupby(_DATA_SET)]
    if len(data_sets) > 1:
        document["data_sets"] = [
            {
                "data": group["data"].iloc[0],
                "methods": _stage(state_at(group, 1.0), rng)["methods"],
            }
            for group in data_sets
        ]
    return document


def state_at(curves: pd.DataFrame, fraction: float) -> pd.DataFrame:
    """Return the last row of each replicate within a fraction of its budget."""
    seconds, trials = (
        curves[name].astype("float64").fillna(np.inf)
        for name in ("budget_seconds", "budget_trials")
    )
    is_within = (curves["seconds"] <= fraction * seconds) & (
        curves["trials"] <= np.ceil(fraction * trials)
    )
    replicates = (
        curves[is_within]
        .sort_values("trials", kind="stable")
        .groupby([*_BLOCK, "method"], sort=False)
    )
    return replicates.tail(1).reset_index(drop=True)


def rank_p_values(
    losses: NDArray[np.float64], rng: np.random.Generator, n_draws: int = _DRAWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average ranks, and how likely methods that are all alike would come to lie so far apart.

    Methods are ranked within each block (equal losses share the mean of their ranks). If they were
    all alike, every order of a block's ranks would be as likely as the one seen; p is the share of
    such reorderings in which the first and the last method are at least as far apart as the method
    and the leader are. So of methods that are all alike, one is found to be behind in 5 % of the
    comparisons at p = 0.05, however many there are and however few the blocks. (A bootstrap of the
    blocks finds one in most of them: of four methods in 70 % with three blocks, 44 % with 18.)

    Args:
        losses: Shape (n_blocks, n_methods); inf where there is none.
        rng: Source of the reorderings.
        n_draws: How many.

    Returns:
        Average ranks and p, each of shape (n_methods,). The leader's p is 1.
    """
    ranks = rankdata(losses, axis=1)
    average = ranks.mean(axis=0)
    drawn = np.zeros((n_draws, ranks.shape[1]))
    for block in ranks:
        drawn += rng.permuted(np.tile(block, (n_draws, 1)), axis=1)
    apart = np.ptp(drawn / len(ranks), axis=1)
    behind = average - average.min()
    as_far = (apart[:, None] >= behind - 1e-9).sum(axis=0)
    return average, (1 + as_far) / (1 + n_draws)


def least_p_value(n_blocks: int, n_methods: int) -> float:
    """Return the p of a method that is last in every block, where the leader is always first."""
    return float((n_methods * (n_methods - 1)) ** (1 - n_blocks)) if n_methods > 1 else 1.0


def _stage(state: pd.DataFrame, rng: np.random.Generator) -> dict[str, list[dict[str, Any]]]:
    """Methods by average rank of their test losses, each with its figures, and pairs of them."""
    table = _losses(state)
    ranks, p_values = rank_p_values(table.to_numpy(), rng)
    compared = _compared(state, table)
    rows = []
    for position, method in enumerate(table.columns):
        mine = state[state["method"] == method]
        rows.append(
            {
                "method": method,
                "average_rank": float(ranks[position]),
                "expected_rank": float(compared.expected_ranks[position]),
                "p_value": float(p_values[position]),
                "is_tied_with_best": bool(p_values[position] > SIGNIFICANCE),
                **_quartiles("loss", mine["incumbent_loss"]),
                **_quartiles("test_loss", mine["test_loss"]),
                "trials": float(mine["trials"].median()),
                "seconds": float(mine["seconds"].median()),
                "ask_seconds": float(mine["ask_seconds"].median()),
            }
        )
    order = np.argsort(ranks, kind="stable")
    pairs = [_pair(compared, list(table.columns), a, b) for a, b in permutations(order, 2)]
    return {"methods": [rows[position] for position in order], "pairs": pairs}


def _losses(state: pd.DataFrame) -> pd.DataFrame:
    """Return the test losses, a block a row and a method a column; inf where there is none.

    Raises:
        ValueError: If a replicate is missing.
    """
    losses = state.set_index([*_BLOCK, "method"])["test_loss"].astype(float).fillna(np.inf)
    table = losses.unstack("method")  # noqa: PD010 - each replicate is there once
    for block, found in table.isna().iterrows():
        if found.any():
            comparison, _, _, repeat = table.index[table.index.get_loc(block)]
            raise ValueError(
                f"comparison {comparison!r} has no replicate of {found.idxmax()!r} in repeat "
                f"{repeat}; methods are compared on the same data sets and repeats"
            )
    return table


def _compared(state: pd.DataFrame, table: pd.DataFrame) -> Pairwise:
    """Compare each pair; losses that count wrong test rows are turned into shares of them."""
    blocks = state.groupby(_BLOCK)[[_DATA_SET, "test_rows"]].first().reindex(table.index)
    metrics = blocks.index.get_level_values("metric")
    all_wrong = metrics.map(_losses_if_all_wrong(metrics.unique())).to_numpy(dtype=np.float64)
    is_count = np.isfinite(all_wrong)
    return pairwise(
        table.to_numpy() / np.where(is_count, all_wrong, 1.0)[:, None],
        blocks[_DATA_SET].to_numpy(),
        np.where(is_count, blocks["test_rows"].to_numpy(dtype=np.float64, na_value=np.nan), np.nan),
    )


def _losses_if_all_wrong(metrics: Iterable[str]) -> dict[str, float]:
    """Return by name the loss of metrics that count wrong rows, when all are wrong."""
    declared = (METRICS.get(name) for name in metrics)
    return {one.name: one.all_wrong for one in declared if one and one.all_wrong is not None}


def _pair(compared: Pairwise, methods: Sequence[str], a: int, b: int) -> dict[str, Any]:
    return {
        "method": methods[a],
        "other": methods[b],
        "win_frequency": float(compared.win_frequencies[a, b]),
        "n_won": int(compared.n_won[a, b]),
        "n_lost": int(compared.n_won[b, a]),
        "sign_test_p_value": float(compared.sign_test[a, b]),
        "poisson_binomial": float(compared.poisson_binomial[a, b]),
        "on_data_sets": compared.on_data_sets[:, a, b].tolist(),
    }


def _quartiles(name: str, losses: pd.Series) -> dict[str, Any]:
    """Median and quartiles; a replicate that has found nothing is worse than all others."""
    known = np.asarray(losses.astype(float).fillna(np.inf), dtype=np.float64)
    low, median, high = map(finite, quartiles(known))
    return {f"median_{name}": median, f"quartiles_{name}": [low, high]}
