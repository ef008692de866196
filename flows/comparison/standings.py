"""Who leads a comparison of methods: medians, ranks and ties, from the curves of its replicates.

Curves are tables with the columns of `CURVE_COLUMNS`, one row per replicate and trial, and one for
the start of each. Several comparisons are pooled by concatenating their tables: methods are ranked
among all methods of the same data set and repeat. A missing loss is worse than all others.
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


@dataclass(frozen=True, slots=True)
class MethodStanding:
    """Place of a method among all that are compared, and figures of its replicates.

    Attributes:
        method: The method, as users write it.
        average_rank: Mean rank of its test losses over the blocks.
        expected_rank: Rank by how often it wins (`Pairwise`).
        p_value: Probability that methods that are all alike lie so far apart (`rank_p_values`).
        is_tied_with_best: Whether it is not significantly behind the first.
        median_loss: Median of the incumbents' validation losses; None if it is not finite.
        quartiles_loss: Lower and upper quartile, likewise.
        median_test_loss: Median of the incumbents' test losses, likewise.
        quartiles_test_loss: Lower and upper quartile, likewise.
        trials: Median number of configurations.
        seconds: Median study time.
        ask_seconds: Median time spent in asks.
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
    """How sure it is that a method is better than another one; see `Pairwise` for the numbers."""

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
        """Probability that the method is better on the only data set, or on most of several."""
        return self.on_data_sets[0] if len(self.on_data_sets) == 1 else self.poisson_binomial


@dataclass(frozen=True, slots=True)
class Stage:
    """Methods, best first, and pairs of them at a fraction of the budget."""

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
    """Places of all methods of a comparison.

    Attributes:
        n_blocks: Number of data sets and repeats.
        methods: Methods at the end of the budget, best first.
        pairs: Each two of them, in both orders.
        fractions: The same at fractions of the budget.
        data_sets: Methods by data set, in the order of `on_data_sets`; empty for a single one.
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
    """The comparison that standings are of.

    Attributes:
        comparison: Name of the comparison.
        data: Name of the data.
        space: Name of the space.
        metric: Name of the metric.
        repeats: Repeats of each method.
        budget_seconds: Time of each replicate; None if trials are bounded.
        budget_trials: Trials of each replicate; None if time is bounded.
        out: File of the curves.
        undefined_test_losses: Replicates without a test loss, by the reason.
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
    """Files whose curves are pooled, and the metric they share; `loss` if they differ."""

    metric: str
    files: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonOutcome:
    """Standings with what they are of: the result of `prefect-tune compare` or `standings`."""

    subject: SingleComparison | PooledFiles
    standings: Standings

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` of the command prints."""
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
        """Reasons to read the standings with care, as sentences."""
        found = []
        if isinstance(self.subject, SingleComparison):
            for reason, n_replicates in self.subject.undefined_test_losses.items():
                of = counted(n_replicates, "replicate")
                found.append(f"The test loss of {of} is undefined: {reason}")
        n_blocks, n_methods = self.standings.n_blocks, len(self.standings.methods)
        if n_methods > 1 and least_p_value(n_blocks, n_methods) > SIGNIFICANCE:
            found.append(
                f"With {counted(n_blocks, 'block')} no difference between {n_methods} methods can "
                "be significant: more repeats tell more"
            )
        return found


def standings(
    curves: pd.DataFrame, fractions: Sequence[float] = FRACTIONS, seed: int = 0
) -> Standings:
    """Rank methods at fractions of the budget, and at its end.

    Args:
        curves: Curves of one comparison, or of several put together.
        fractions: Fractions of the budget; test losses are there for `FRACTIONS`.
        seed: Seed of the test of who is behind.

    Raises:
        ValueError: If a replicate of some method is missing, or there is none.
    """
    if curves.empty:
        raise ValueError("there is nothing to compare; the files hold no replicate")
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


def _stage(curves: pd.DataFrame, fraction: float, rng: np.random.Generator) -> Stage:
    """Return methods by average rank of their test losses, each with its figures, and pairs."""
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
    """Return the test losses, a block a row and a method a column; inf where there is none.

    Raises:
        ValueError: If a replicate is missing.
    """
    losses = state.set_index([*_BLOCK, "method"]).test_loss.astype(float).fillna(np.inf)
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
        np.where(is_count, blocks.test_rows.to_numpy(dtype=np.float64, na_value=np.nan), np.nan),
    )


def _losses_if_all_wrong(metrics: Iterable[str]) -> dict[str, float]:
    """Return by name the loss of metrics that count wrong rows, when all are wrong."""
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
    """Return median and quartiles; a replicate that has found nothing is worse than all others."""
    known = np.asarray(losses.astype(float).fillna(np.inf), dtype=np.float64)
    low, median, high = map(finite, quartiles(known))
    return median, [low, high]
