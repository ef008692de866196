"""Portfolios picked from recorded losses of candidates on tables and event sets."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from prefect_tune.optimizers import Space
from prefect_tune.optimizers.methods.flash.shared_values import with_choices
from prefect_tune.optimizers.space.configuration import Choice, default_configuration
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.tasks.catalogue.modern import portfolio_of

__all__ = [
    "KINDS", "LOSSES", "LOSSES_ON_MANY_ROWS", "first_of", "model_of", "picked",
    "picked_for_many_rows", "regrets", "unrelated", "without",
]  # fmt: skip

KINDS: Mapping[str, str] = {
    "classes": "modern",
    "numbers": "modern_regression",
    "events": "events",
}
"""Space by kind of target of a table, and the space of events."""
LOSSES = Path(__file__).parent / "portfolio_losses.parquet"
LOSSES_ON_MANY_ROWS = LOSSES.with_stem("portfolio_losses_large")
_PRICE_POWER, _SHARE_OF_AVERAGE = 0.25, 0.2
_QUICK_SECONDS = 3.0
"""Mean CPU seconds of the first configuration for many rows, at most."""
_VERSIONS = frozenset({"reg", "10c", "meds", "omop"})
"""Parts of names that tell versions of one table or event set apart."""
_WORST = 1.0
"""Regret of a failure, and the largest regret that counts."""


def regrets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return normalized regrets by candidate and table: 0 for the best, 1 for the median."""
    losses = rows.pivot_table(index="configuration", columns="table", values="loss")
    losses = losses.reindex(rows["configuration"].unique())
    least, middle = losses.min(), losses.median()
    scale = (middle - least).where(middle > least, 1.0)
    return ((losses - least) / scale).fillna(_WORST).clip(upper=_WORST)


def picked(
    rows: pd.DataFrame, size: int, first: str | None = None, power: float = _PRICE_POWER
) -> list[str]:
    """Return configurations, as canonical JSON, in the order to run them.

    The next configuration has the largest gain for its price. The gain is the decrease of the mean
    regret of the best configuration so far, plus a share of the average advantage over the median
    candidate; without this share, few tables would decide. The price is a power of the
    configuration's seconds, relative to the median candidate of each table and clipped at a tenth.
    Share and power were chosen on the tables that are left out.

    Args:
        rows: Losses of candidates on tables.
        size: Number of configurations.
        first: First configuration; None for the configuration with the largest gain.
        power: Exponent of the seconds in the price.
    """
    table = regrets(rows)
    seconds = rows.pivot_table(index="configuration", columns="table", values="seconds")
    relative = (seconds / seconds.median()).reindex(table.index).mean(axis=1).fillna(10.0)
    price = (relative.clip(lower=0.1) ** power).to_numpy()
    values, chosen = table.to_numpy(), list[int]()
    on_average = _SHARE_OF_AVERAGE * (_WORST - values.mean(axis=1))
    best = np.full(values.shape[1], _WORST)
    while len(chosen) < min(size, len(values)):
        gain = (np.maximum(best - values, 0.0).mean(axis=1) + on_average) / price
        gain[chosen] = -1.0
        is_given = first is not None and not chosen
        chosen.append(int(table.index.get_loc(first) if is_given else gain.argmax()))
        best = np.minimum(best, values[chosen[-1]])
    return [str(table.index[i]) for i in chosen]


def picked_for_many_rows(rows: pd.DataFrame, size: int) -> list[str]:
    """Return configurations by gain per second, after the best of the quick ones."""
    seconds = rows.groupby("configuration")["seconds"].mean()
    quick = seconds.index[seconds <= _QUICK_SECONDS]
    return picked(rows, size, regrets(rows).loc[quick].mean(axis=1).idxmin(), power=1.0)


def first_of(space: Space) -> str | None:
    """Return the fixed first configuration of a portfolio; None if losses decide.

    For event sets, the first configuration is boosted trees after a few aggregations of each code.
    On large sets, a short budget evaluates only one or two configurations, and losses on small sets
    do not show which configurations are good and cheap on large sets.
    """
    if space.name != KINDS["events"]:
        return None
    model = space.searched[-1].algorithms[0].id
    path = space.canonical_path((*(step.simplest.id for step in space.searched[:-1]), model))
    default = default_configuration(space, path)
    (step, construction), *_ = default.choices
    values = {**dict(construction.values), "aggregations": "count_sum_mean", "levels": "code"}
    return with_choices(default, {step: Choice.of(construction.algorithm, values)}).canonical


def unrelated(rows: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows of tables unrelated to a table, whose names begin differently.

    All formats of an event set are related, and so are the cohorts of a family.
    """
    return rows[rows["table"].map(_stem) != _stem(table)]


def without(
    table: str, kind: str, space: Space, path: Path, objective: Objective | None = None
) -> str | None:
    """Write a portfolio of feasible configurations, made without a table and its versions.

    Args:
        table: Name of the table or event set.
        kind: A key of `KINDS`.
        space: The space, without missing libraries.
        path: The file to write.
        objective: Size of the data, by which the portfolio for many rows is chosen; None for few.

    Returns:
        The file; None if the space has no portfolio.
    """
    if not (portfolio := portfolio_of(space, objective)):
        return None
    is_large = set(portfolio) != set(portfolio_of(space))
    rows = pd.read_parquet(LOSSES_ON_MANY_ROWS if is_large else LOSSES)
    models = {algorithm.id for algorithm in space.steps[-1].algorithms}
    rows = rows[(rows["kind"] == kind) & model_of(rows, space).isin(models)]
    rows = unrelated(rows, table)
    chosen = picked(rows, len(portfolio), first_of(space))
    if is_large:
        chosen = picked_for_many_rows(rows, len(portfolio))
    path.write_text(json.dumps([json.loads(c) for c in chosen]))
    return str(path)


def model_of(rows: pd.DataFrame, space: Space) -> pd.Series:
    """Return the model of each row's configuration."""
    step = space.steps[-1].name
    return rows["configuration"].map(lambda c: json.loads(c)[step]["algorithm"])


def _stem(name: str) -> str:
    table = name.partition(".")[0]
    return "_".join(part for part in table.split("_") if part not in _VERSIONS)
