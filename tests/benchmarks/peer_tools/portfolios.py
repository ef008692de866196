"""Portfolios picked from recorded losses of candidates on tables and event sets."""

import json
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from peer_tools.task import Task
from prefect_tune.optimizers import Space
from prefect_tune.optimizers.methods.flash.shared_values import with_choices
from prefect_tune.optimizers.space.configuration import Choice, default_configuration
from prefect_tune.tasks.catalogue.modern import portfolio_of
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, space_named, usable_part

__all__ = [
    "KINDS", "LOSSES", "Losses", "begins_with", "picked", "related", "start_without",
    "write_without",
]  # fmt: skip

KINDS: Mapping[str, str] = {
    "classes": "modern",
    "numbers": "modern_regression",
    "events": "events",
}
"""Space by what is predicted of a table, and that of events."""
LOSSES = Path(__file__).parent / "portfolio_losses.parquet"
_PRICE_POWER, _SHARE_OF_AVERAGE = 0.25, 0.2
_VERSIONS = frozenset({"reg", "10c", "meds", "omop"})
"""Parts of names that tell versions of one table or event set apart."""
_WORST = 1.0
"""Regret of what failed, and the most that any counts."""


class Losses:
    """Losses and seconds of candidates by table, as one Parquet file.

    Args:
        path: The file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frame = pd.read_parquet(path) if path.exists() else pd.DataFrame()

    def has(self, table: str, n: int) -> bool:
        """Whether all candidates of a table are there."""
        return len(self.frame) > 0 and int((self.frame["table"] == table).sum()) >= n

    def add(self, rows: pd.DataFrame) -> None:
        """Add a table's rows."""
        self.frame = pd.concat([self.frame, rows], ignore_index=True)
        unfinished = self.path.with_suffix(".part")
        self.frame.to_parquet(unfinished, index=False)
        unfinished.rename(self.path)

    def of(self, kind: str) -> pd.DataFrame:
        """Rows of one kind of target."""
        return self.frame[self.frame["kind"] == kind] if len(self.frame) else self.frame

    @staticmethod
    def regrets(rows: pd.DataFrame) -> pd.DataFrame:
        """Normalised regret, a candidate a row and a table a column: 0 the best, 1 the median."""
        losses = rows.pivot_table(index="configuration", columns="table", values="loss")
        losses = losses.reindex(rows["configuration"].unique())
        least, middle = losses.min(), losses.median()
        scale = (middle - least).where(middle > least, 1.0)
        return ((losses - least) / scale).fillna(_WORST).clip(upper=_WORST)


def picked(rows: pd.DataFrame, size: int, first: str | None = None) -> list[str]:
    """Configurations, as canonical JSON, in the order to run them.

    The next one is that of the largest gain for its price. The gain is by how much it lowers the
    mean regret of the best so far, and a share of what it is better than the median candidate on
    average, without which few tables decide; the price is a power of its seconds, relative to those
    of a table's median candidate and at least a tenth of them. Share and power were tried on the
    tables that are left out.

    Args:
        rows: Losses of candidates on tables.
        size: How many.
        first: The first one; None for the one of the largest gain.
    """
    regrets = Losses.regrets(rows)
    seconds = rows.pivot_table(index="configuration", columns="table", values="seconds")
    relative = (seconds / seconds.median()).reindex(regrets.index).mean(axis=1).fillna(10.0)
    price = (relative.clip(lower=0.1) ** _PRICE_POWER).to_numpy()
    values, chosen = regrets.to_numpy(), list[int]()
    on_average = _SHARE_OF_AVERAGE * (_WORST - values.mean(axis=1))
    best = np.full(values.shape[1], _WORST)
    while len(chosen) < min(size, len(values)):
        gain = (np.maximum(best - values, 0.0).mean(axis=1) + on_average) / price
        gain[chosen] = -1.0
        is_given = first is not None and not chosen
        chosen.append(int(regrets.index.get_loc(first) if is_given else gain.argmax()))
        best = np.minimum(best, values[chosen[-1]])
    return [str(regrets.index[i]) for i in chosen]


def begins_with(space: Space) -> str | None:
    """The first configuration of a portfolio, as canonical JSON; None where losses decide.

    Of large event sets, a short budget sees one or two configurations, and small sets do not show
    what is good and cheap there: boosted trees behind a few aggregations of each code.
    """
    if space.name != KINDS["events"]:
        return None
    model = space.searched[-1].algorithms[0].id
    path = space.canonical_path((*(step.simplest.id for step in space.searched[:-1]), model))
    default = default_configuration(space, path)
    (step, construction), *_ = default.choices
    values = {**dict(construction.values), "aggregations": "count_sum_mean", "levels": "code"}
    return with_choices(default, {step: Choice.of(construction.algorithm, values)}).canonical


def related(table: str, other: str) -> bool:
    """Whether two tables are versions of one: their names begin alike.

    The same holds for event sets: the forms of one, and the cohorts of one family.
    """
    return _stem(table) == _stem(other)


def start_without(task: Task, space: str | None) -> str | None:
    """A file with a portfolio made without a task's table; None where the space has none.

    Args:
        task: On a split of the table.
        space: Name of the space; None for the product's default.
    """
    searched = usable_part(space_named(space or DEFAULT_SPACES["table", task.kind]))
    portfolio = portfolio_of(searched)
    if not portfolio:
        return None
    table, path = Path(task.train).name.rsplit("-", 2)[0], Path(task.folder, "portfolio.json")
    write_without(table, task.kind, searched, len(portfolio), path)
    return str(path)


def write_without(table: str, kind: str, space: Space, size: int, path: Path) -> None:
    """Write a portfolio of what a space can run, made without a table and what is related to it.

    Args:
        table: Name of the table or event set.
        kind: A key of `KINDS`.
        space: The space, without what is not installed.
        size: How many configurations.
        path: The file to write.
    """
    rows = Losses(LOSSES).of(kind)
    models = {algorithm.id for algorithm in space.steps[-1].algorithms}
    rows = rows[rows["configuration"].map(partial(_has_model, space.steps[-1].name, models))]
    rows = rows[~rows["table"].map(partial(related, table))]
    chosen = picked(rows, size, begins_with(space))
    path.write_text(json.dumps([json.loads(c) for c in chosen]))


def _has_model(step: str, models: Collection[str], configuration: str) -> bool:
    return json.loads(configuration)[step]["algorithm"] in models


def _stem(name: str) -> str:
    table = name.partition(".")[0]
    return "_".join(part for part in table.split("_") if part not in _VERSIONS)
