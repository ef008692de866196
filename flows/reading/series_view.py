"""A series, read for people and programs; the content of `series NAME --json`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prefect_tune.flows.reading.opened_study import OpenedStudy
from prefect_tune.flows.series.series import (
    ChampionByHand,
    Changes,
    Reused,
    Series,
    SeriesRun,
    find_series,
    open_series,
)
from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.optimizers.converter import json_values, to_document
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.series import SeriesLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run of a series that started a study.

    Attributes:
        state: running, complete, interrupted, failed or removed.
        decision: Reason of the last decision on its model; None without one.
        is_promoted: Whether this decision made it the champion; None without one.
        champion: `champion`, `former` if its model is kept for a rollback, or empty.
        skipped: Number of later runs that ended because nothing had changed since.
    """

    study: str
    number: int
    at: float
    state: str
    rows: int
    changes: Changes | None
    loss: float | None
    test_loss: float | None
    reused: Reused
    decision: str | None = None
    is_promoted: bool | None = None
    champion: str = ""
    skipped: int = 0

    @property
    def changes_text(self) -> str:
        """Differences from the data before in a few words."""
        if self.changes is None:
            return "first study" if self.number == 1 else "unknown"
        return ", ".join(self.changes.texts()) or "same rows"

    @property
    def reused_text(self) -> str:
        """Trials taken over from earlier studies, in a few words."""
        reused = self.reused
        if not reused.observations:
            return ""
        text = f"{reused.starts} of {counted(reused.observations, 'trial')} repeated"
        if reused.weight is None:
            return text
        return f"{text}, weight {reused.weight:.2g}" if reused.weight else f"{text}, dropped"

    @property
    def model_text(self) -> str:
        """Place of its model in the series, in a few words."""
        if self.champion:
            return "former champion" if self.champion == "former" else self.champion
        if self.is_promoted is None:
            return ""
        return "was champion" if self.is_promoted else "not promoted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesView:
    """A series for people and programs; the fields are the JSON fields of `series NAME --json`.

    Attributes:
        question: Common terms of its studies: target, metric, test rows and others.
        former: Former champions for a rollback, newest first.
        decisions: All decisions in full, each with its study and time.
        by_hand: Champions set with `promote` or `rollback`, oldest first.
    """

    series: str
    created: float
    metric: str
    question: Mapping[str, Any]
    store_options: tuple[str, ...]
    champion: str | None
    former: tuple[str, ...]
    runs: tuple[RunView, ...]
    decisions: tuple[Mapping[str, Any], ...]
    by_hand: tuple[ChampionByHand, ...] = ()

    @property
    def losses(self) -> LossWords:
        """Formatting of losses in the metric of the series."""
        return LossWords(self.metric)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        document: dict[str, Any] = json_values(to_document(self))
        return document


def read_series(store: ArtifactStore, name: str) -> SeriesView:
    """Read a series; raise `UnknownName` if it does not exist."""
    series = open_series(store, name)
    return SeriesView(
        series=series.name,
        created=series.created,
        metric=str(series.question["metric"]),
        question=series.question,
        store_options=tuple(store_options(store.address)),
        champion=series.champion,
        former=series.former,
        runs=tuple(_runs(store, series)),
        decisions=tuple({"study": d.study, "at": d.at, **d.body} for d in series.decisions),
        by_hand=series.by_hand,
    )


def series_of(store: ArtifactStore, plan: StudyPlan) -> SeriesView | None:
    """Read the series of a study; None if the study has none, or its series was removed."""
    name = plan.options.series
    return None if name is None or find_series(store, name) is None else read_series(store, name)


def list_series(store: ArtifactStore) -> list[SeriesView]:
    """Read all series, newest first."""
    return [read_series(store, name) for name in SeriesLog(store.database).names()]


def _runs(store: ArtifactStore, series: Series) -> Iterator[RunView]:
    ledger = Ledger(store.database)
    decisions = {decision.study: decision for decision in series.decisions}
    places = dict.fromkeys(series.former, "former") | {series.champion or "": "champion"}
    for run in series.runs:
        decision, stored = decisions.get(run.study), ledger.study(run.study)
        yield RunView(
            **_facts(run),
            state=OpenedStudy(store, stored).state if stored else "removed",
            decision=None if decision is None else str(decision.body.get("reason", "")),
            is_promoted=None if decision is None else decision.is_promoted,
            champion=places.get(run.study, ""),
            skipped=sum(skipped.study == run.study for skipped in series.skipped),
        )


_FACTS = ("study", "number", "at", "rows", "changes", "loss", "test_loss", "reused")


def _facts(run: SeriesRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _FACTS}
