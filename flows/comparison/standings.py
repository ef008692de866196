"""Standings of a comparison: ranks and losses of methods, and a permutation test of the ranks.

Curves are tables with the columns `CURVE_COLUMNS`, one row per study and trial, and one row for the
start of each study. To pool comparisons, concatenate their curves. Methods are ranked within each
block, which is one repeat on one data set. A missing loss counts as the worst loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from prefect_tune.flows.wording.text import counted
from prefect_tune.optimizers.documents import to_document
from prefect_tune.tasks.bad_input import BadInput

CURVE_COLUMNS = (
    "comparison", "data", "dataset", "space", "metric", "method", "repeat", "seed", "study",
    "budget_seconds", "budget_trials", "trial", "trials", "seconds", "cost_seconds", "ask_seconds",
    "failure", "loss", "incumbent", "incumbent_loss", "test_loss",
)  # fmt: skip
_BLOCK = ["comparison", "dataset", "metric", "repeat"]
"""Columns in which studies must agree to be ranked together."""
SIGNIFICANCE = 0.05
_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Standings:
    """Standings of the methods of one or several comparisons.

    Properties that differ between pooled comparisons are None. If the metrics differ, the metric is
    called `loss`.

    Attributes:
        n_blocks: Number of blocks, which are pairs of a data set and a repeat.
        methods: Table with one row per method, the best method first. The columns are `method`,
            `average_rank` (over the blocks), `p_value` (of the distance to the leader),
            `is_tied_with_best`, medians and quartiles of the losses of incumbents and final models
            (None if not finite), and medians of `trials` (configurations), `seconds` and
            `ask_seconds`.
        pairs: Table with one row per pair of methods. The columns are `method`, `other`, the
            numbers of blocks that `method` won and lost, and `p_value` of the distance between the
            ranks.
        untested: Names of studies without a test loss, which rank last.
    """

    comparison: str | None
    data: str | None
    space: str | None
    metric: str
    budget_seconds: float | None
    budget_trials: int | None
    repeats: int
    n_blocks: int
    methods: pd.DataFrame
    pairs: pd.DataFrame
    untested: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the standings as JSON values."""
        known = self.methods.astype(object).where(self.methods.notna(), None)
        return to_document(
            self, methods=known.to_dict("records"), pairs=self.pairs.to_dict("records")
        )

    @property
    def warnings(self) -> list[str]:
        """Reasons to interpret the standings with care, as sentences."""
        n, found = len(self.methods), list[str]()
        if self.untested:
            found.append(f"Without a test score, and therefore last: {', '.join(self.untested)}")
        # The smallest possible p: the same method is first, and another method last, in each block.
        if n > 1 and (n * (n - 1)) ** (1 - self.n_blocks) > SIGNIFICANCE:
            found.append(
                f"With {counted(self.n_blocks, 'block')}, no difference between {n} methods can be "
                "significant: run more repeats"
            )
        return found


def standings(curves: pd.DataFrame, seed: int = 0) -> Standings:
    """Rank methods by the test losses of their final models. `seed` is for the permutation test.

    `curves` come from one or several comparisons. Raises `BadInput` if a study is missing, or if
    there are no studies.
    """
    if curves.empty:
        raise BadInput("nothing to compare: the files contain no study")
    ends = curves.groupby([*_BLOCK, "method"], sort=False).tail(1)
    losses = _test_losses(ends)
    ranks, p_values = permutation_test(losses.to_numpy(), np.random.default_rng(seed))
    by_method = ends.groupby("method")  # in the order of the columns of `losses`
    methods = by_method[["trials", "seconds", "ask_seconds"]].median().astype(float)
    for name, column in (("loss", "incumbent_loss"), ("test_loss", "test_loss")):
        quartiles = by_method[column].apply(_quartiles)
        methods[f"median_{name}"] = quartiles.str[1]
        methods[f"quartiles_{name}"] = quartiles.str[::2]
    methods = methods.assign(average_rank=ranks, p_value=p_values[ranks.argmin()])
    methods["is_tied_with_best"] = methods.p_value > SIGNIFICANCE
    facts: dict[str, Any] = {
        name: values[0] if len(values := ends[name].dropna().unique().tolist()) == 1 else None
        for name in ("comparison", "data", "space", "metric", "budget_seconds", "budget_trials")
    }
    names, table = losses.columns, losses.to_numpy()
    won = (table[:, :, None] < table[:, None, :]).sum(axis=0)
    pairs = [
        (names[a], names[b], won[a, b], won[b, a], p_values[a, b])
        for a, b in permutations(np.argsort(ranks, kind="stable"), 2)
    ]
    return Standings(
        **{**facts, "metric": facts["metric"] or "loss"},
        repeats=ends.repeat.nunique(),
        n_blocks=len(losses),
        methods=methods.sort_values("average_rank", kind="stable").reset_index(),
        pairs=pd.DataFrame(pairs, columns=["method", "other", "n_won", "n_lost", "p_value"]),
        untested=ends.study[ends.test_loss.isna()].tolist(),
    )


def permutation_test(
    losses: NDArray[np.float64], rng: np.random.Generator, n_draws: int = _DRAWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return average ranks, shape (k,), and p values of their differences, shape (k, k).

    `losses` has shape (n_blocks, k), with inf for missing losses. Equal losses in a block share
    their mean rank. The p value of two methods is the share of random permutations in which the
    best and the worst method are at least as far apart as the two methods. If all methods are
    equal, at most 5% of comparisons find any pair with p <= 0.05. A bootstrap of the blocks would
    find pairs with p <= 0.05 far more often: with four methods, in 70% of comparisons with three
    blocks and in 44% of comparisons with 18 blocks.
    """
    ranks = rankdata(losses, axis=1)
    average = ranks.mean(axis=0)
    drawn = np.zeros((n_draws, ranks.shape[1]))
    for block in ranks:
        drawn += rng.permuted(np.tile(block, (n_draws, 1)), axis=1)
    spread = np.ptp(drawn / len(ranks), axis=1)
    distances = np.abs(average[:, None] - average)
    as_far = (spread[:, None, None] >= distances - 1e-9).sum(axis=0)
    return average, (1 + as_far) / (1 + n_draws)


def _test_losses(ends: pd.DataFrame) -> pd.DataFrame:
    """Return test losses by block and method, with inf if undefined. All studies must exist."""
    losses = ends.set_index([*_BLOCK, "method"]).test_loss.astype(float).fillna(np.inf)
    table = losses.unstack("method")  # noqa: PD010 - each study occurs once
    for block, method in np.argwhere(table.isna())[:1]:
        comparison, _, _, repeat = table.index[block]
        raise BadInput(
            f"comparison {comparison!r} has no study of {table.columns[method]!r} in repeat "
            f"{repeat}; methods are compared on the same data sets and repeats"
        )
    return table


def _quartiles(losses: pd.Series) -> list[float | None]:
    """Return the quartiles and the median. A missing loss counts as the worst loss."""
    with np.errstate(invalid="ignore"):  # between inf and inf
        found = np.quantile(losses.astype(float).fillna(np.inf), (0.25, 0.5, 0.75))
    return [float(value) if isfinite(value) else None for value in found]
