"""Standings of a comparison: medians, ranks and ties of methods, from the curves of replicates.

Curves are tables with the columns of `CURVE_COLUMNS` and one row per replicate and trial, plus one
row for the start of each replicate. To pool comparisons, concatenate their tables: methods are
ranked within each data set and repeat. A missing loss is worse than all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import isfinite
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from prefect_tune.flows.comparison.pairwise import Pairwise, pairwise
from prefect_tune.flows.text import counted, format_seconds
from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.tasks.objective.declaration import METRICS


def quartiles(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quartiles of losses over the first axis, shape (3, ...); missing losses are inf."""
    with np.errstate(invalid="ignore"):  # between inf and inf
        found: NDArray[np.float64] = np.quantile(losses, (0.25, 0.5, 0.75), axis=0)
    return found


def finite(value: float) -> float | None:
    """Return a number; None for inf and nan."""
    return float(value) if isfinite(value) else None


FRACTIONS = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Fractions of a budget at which incumbents are compared."""
CURVE_COLUMNS = (
    "comparison", "data", "dataset", "space", "metric", "method", "repeat", "seed", "study",
    "budget_seconds", "budget_trials", "trial", "trials", "seconds", "cost_seconds", "ask_seconds",
    "failure", "loss", "incumbent", "incumbent_loss", "test_loss", "test_rows",
)  # fmt: skip
_BLOCK = ["comparison", "dataset", "metric", "repeat"]
"""Columns that replicates must share to be ranked together."""
_DATA_SET = "data_set_number"
"""Column with the number of a data set and metric among the pooled ones."""
SIGNIFICANCE = 0.05
_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class MethodStanding:
    """Standing of a method, with statistics of its replicates.

    Attributes:
        average_rank: Mean rank of the method's test losses over the blocks.
        expected_rank: Rank by how often the method wins (`Pairwise`).
        p_value: Probability of at least this distance to the leader if all methods are equal
            (`rank_p_values`).
        is_tied_with_best: Whether the method is not significantly behind the leader.
        median_loss: Median validation loss of the incumbents; None if not finite.
        median_test_loss: Median test loss of the incumbents; None if not finite.
        trials: Median number of configurations.
    """

    method: str
    average_rank: float
    expected_rank: float
    p_value: float
    is_tied_with_best: bool
    median_loss: float | None
    quartiles_loss: Sequence[float | None]
    median_test_loss: float | None
    quartiles_test_loss: Sequence[float | None]
    trials: float
    seconds: float
    ask_seconds: float


@dataclass(frozen=True, slots=True)
class PairStanding:
    """Certainty that a method is better than another; see `Pairwise` for the numbers."""

    method: str
    other: str
    win_frequency: float
    n_won: int
    n_lost: int
    sign_test_p_value: float
    poisson_binomial: float
    on_data_sets: Sequence[float]

    @property
    def better(self) -> float:
        """Probability to be better on the single data set, or on most of several data sets."""
        return self.on_data_sets[0] if len(self.on_data_sets) == 1 else self.poisson_binomial


@dataclass(frozen=True, slots=True)
class Stage:
    """Methods, best first, and their pairs at a fraction of the budget."""

    fraction: float
    methods: Sequence[MethodStanding]
    pairs: Sequence[PairStanding]


@dataclass(frozen=True, slots=True)
class DataSetStandings:
    """Methods on one of several data sets at the end of the budget, best first."""

    data: str
    methods: Sequence[MethodStanding]


@dataclass(frozen=True, slots=True)
class Standings:
    """Standings of all methods of a comparison.

    Attributes:
        n_blocks: Number of blocks, one per data set and repeat.
        methods: Methods at the end of the budget, best first.
        data_sets: Methods by data set, in the order of `on_data_sets`; empty for one data set.
    """

    n_blocks: int
    methods: Sequence[MethodStanding]
    pairs: Sequence[PairStanding]
    fractions: Sequence[Stage]
    data_sets: Sequence[DataSetStandings] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the standings as JSON values."""
        document = to_document(self)
        if not self.data_sets:
            del document["data_sets"]
        return document


@dataclass(frozen=True, slots=True)
class SingleComparison:
    """The comparison that standings belong to.

    Attributes:
        undefined_test_losses: Number of replicates without a test loss, by reason.
    """

    comparison: str
    data: str
    space: str
    metric: str
    repeats: int
    budget_seconds: float | None
    budget_trials: int | None
    out: str
    undefined_test_losses: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PooledFiles:
    """Files whose curves are pooled, and their common metric; `loss` if the metrics differ."""

    metric: str
    files: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonOutcome:
    """Standings and their subject: the result of `prefect-tune compare` or `standings`."""

    subject: SingleComparison | PooledFiles
    standings: Standings

    def to_json(self) -> dict[str, Any]:
        """Return the output of the command with `--json`."""
        return {**to_document(self.subject), **self.standings.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_json`."""
        subject: SingleComparison | PooledFiles
        if "comparison" in document:
            subject = from_document(SingleComparison, document)
        else:
            subject = from_document(PooledFiles, document)
        return cls(subject, from_document(Standings, document))

    @property
    def warnings(self) -> list[str]:
        """Reasons to interpret the standings with care, as sentences."""
        found = []
        if isinstance(self.subject, SingleComparison):
            for reason, n_replicates in self.subject.undefined_test_losses.items():
                of = counted(n_replicates, "replicate")
                found.append(f"The test loss of {of} is undefined: {reason}")
        n_blocks, n_methods = self.standings.n_blocks, len(self.standings.methods)
        if n_methods > 1 and least_p_value(n_blocks, n_methods) > SIGNIFICANCE:
            found.append(
                f"With {counted(n_blocks, 'block')} no difference between {n_methods} methods can "
                "be significant: run more repeats"
            )
        return found


def standings(
    curves: pd.DataFrame, fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> Standings:
    """Rank methods at fractions of the budget and at its end.

    `curves` come from one or several comparisons, with test losses at `FRACTIONS`. `seed` is for
    the permutation test. Raises `ValueError` if a replicate is missing, or if there are none.
    """
    if curves.empty:
        raise ValueError("nothing to compare: the files contain no replicate")
    rng = np.random.default_rng(seed)
    data_set = curves.groupby(["dataset", "metric"], sort=False).ngroup()
    curves = curves.assign(**{_DATA_SET: data_set})
    stages = [_stage(curves, fraction, rng) for fraction in fractions]
    end = _stage(curves, 1.0, rng)
    data_sets = [group for _, group in curves.groupby(_DATA_SET)]
    by_data_set = [
        DataSetStandings(group.data.iloc[0], _stage(group, 1.0, rng).methods)
        for group in (data_sets if len(data_sets) > 1 else ())
    ]
    n_blocks = len(curves[_BLOCK].drop_duplicates())
    return Standings(n_blocks, end.methods, end.pairs, stages, by_data_set)


def replicate_budget(seconds: float | None, trials: int | None) -> str:
    """Return the budget of a replicate as text."""
    return counted(trials or 0, "trial") if seconds is None else format_seconds(seconds)


def state_at(curves: pd.DataFrame, fraction: float) -> pd.DataFrame:
    """Return the last row of each replicate within a fraction of its budget."""
    seconds, trials = (
        curves[name].astype("float64").fillna(np.inf)
        for name in ("budget_seconds", "budget_trials")
    )
    is_within = (curves.seconds <= fraction * seconds) & (
        curves.trials <= np.ceil(fraction * trials)
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
    """Return average ranks and the p values of their distances to the leader, each (n_methods,).

    `losses` has shape (n_blocks, n_methods), inf if missing. Equal losses of a block share their
    mean rank. p is the share of random orders in which the first and last method are at least as
    far apart as the method and the leader. At p = 0.05, comparisons of equal methods therefore
    wrongly find a method behind in 5 % of the cases. A bootstrap of the blocks errs more often:
    with four methods, in 70 % of the cases with three blocks, and in 44 % with 18 blocks.
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
    """Return the p value if one method is always last and the leader always first."""
    return float((n_methods * (n_methods - 1)) ** (1 - n_blocks)) if n_methods > 1 else 1.0


def _stage(curves: pd.DataFrame, fraction: float, rng: np.random.Generator) -> Stage:
    state = state_at(curves, fraction)
    table = _losses(state)
    names = list(table.columns)
    ranks, p_values = rank_p_values(table.to_numpy(), rng)
    compared = _compared(state, table)
    order = np.argsort(ranks, kind="stable")
    methods = []
    for position in order:
        mine = state[state.method == names[position]]
        median_loss, quartiles_loss = _median_quartiles(mine.incumbent_loss)
        median_test_loss, quartiles_test_loss = _median_quartiles(mine.test_loss)
        p_value = float(p_values[position])
        methods.append(
            MethodStanding(
                names[position],
                float(ranks[position]),
                float(compared.expected_ranks[position]),
                p_value,
                p_value > SIGNIFICANCE,
                median_loss,
                quartiles_loss,
                median_test_loss,
                quartiles_test_loss,
                *(float(mine[name].median()) for name in ("trials", "seconds", "ask_seconds")),
            )
        )
    pairs = [_pair(compared, names, a, b) for a, b in permutations(order, 2)]
    return Stage(fraction, methods, pairs)


def _losses(state: pd.DataFrame) -> pd.DataFrame:
    """Return test losses by block and method, inf if undefined; all replicates must exist."""
    losses = state.set_index([*_BLOCK, "method"]).test_loss.astype(float).fillna(np.inf)
    table = losses.unstack("method")  # noqa: PD010 - each replicate occurs once
    for block, found in table.isna().iterrows():
        if found.any():
            comparison, _, _, repeat = table.index[table.index.get_loc(block)]
            raise ValueError(
                f"comparison {comparison!r} has no replicate of {found.idxmax()!r} in repeat "
                f"{repeat}; methods are compared on the same data sets and repeats"
            )
    return table


def _compared(state: pd.DataFrame, table: pd.DataFrame) -> Pairwise:
    """Compare each pair; losses that count wrong rows are converted to shares."""
    blocks = state.groupby(_BLOCK)[[_DATA_SET, "test_rows"]].first().reindex(table.index)
    metrics = blocks.index.get_level_values("metric")
    all_wrong = metrics.map(_losses_if_all_wrong(metrics.unique())).to_numpy(dtype=np.float64)
    is_count = np.isfinite(all_wrong)
    return pairwise(
        table.to_numpy() / np.where(is_count, all_wrong, 1.0)[:, None],
        blocks[_DATA_SET].to_numpy(),
        np.where(is_count, blocks.test_rows.to_numpy(dtype=np.float64, na_value=np.nan), np.nan),
    )


def _losses_if_all_wrong(metrics: Iterable[str]) -> dict[str, float]:
    """Return, by metric name, the loss if all rows are wrong, for metrics that count wrong rows."""
    declared = (METRICS.get(name) for name in metrics)
    return {one.name: one.all_wrong for one in declared if one and one.all_wrong is not None}


def _pair(compared: Pairwise, methods: Sequence[str], a: int, b: int) -> PairStanding:
    return PairStanding(
        methods[a],
        methods[b],
        float(compared.win_frequencies[a, b]),
        int(compared.n_won[a, b]),
        int(compared.n_won[b, a]),
        float(compared.sign_test[a, b]),
        float(compared.poisson_binomial[a, b]),
        compared.on_data_sets[:, a, b].tolist(),
    )


def _median_quartiles(losses: pd.Series) -> tuple[float | None, list[float | None]]:
    """Return median and quartiles; a replicate without a loss is worse than all others."""
    known = np.asarray(losses.astype(float).fillna(np.inf), dtype=np.float64)
    low, median, high = map(finite, quartiles(known))
    return median, [low, high]
