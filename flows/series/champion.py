"""Decisions on the champion of a series, and the models that the series keeps.

A model is copied when it is promoted, because a resumed study replaces its own. The copies of the
champion and of the former champions stay in the store's records, and their artifacts are pinned.
Cheap to import, because commands that show a series read decisions.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from prefect_tune.flows.series.series import Series
from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import ARTIFACTS, champion_record, model_record
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.series import SeriesLog
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    from prefect_tune.tasks.objective.paired_comparison import Estimate

_PIN_SECONDS = 1e11
"""Pins of champions do not expire; they are released when a champion is no longer kept."""

Outcome = Literal[
    "first", "always", "never", "better", "not better", "constraints", "too few rows",
    "not compared",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """A loss, or a difference of losses, with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, estimate: "Estimate", lower: float, upper: float) -> Self:
        """Return an estimate whose interval ends at the bounds of the metric."""
        return cls(estimate.value, max(estimate.low, lower), min(estimate.high, upper))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on the model of a study, as stored in the log of its series.

    Attributes:
        model: Record of the copy of the model, which exists if it was `promoted`.
        rule: Value of `--promotion`.
        champion: Study of the champion at the time; None if there was none.
        night: Number of the test since the champion last changed, from 1, if there was one.
        difference: Loss of the champion minus loss of the challenger.
        p: p-value of the hypothesis that the difference is at most the margin.
        level: Largest p-value that promotes the challenger on this night.
        n_rows: Number of fresh rows; None if they were not counted.
    """

    promoted: bool
    outcome: Outcome
    reason: str
    model: str
    rule: str
    margin: float
    metric: str
    champion: str | None = None
    night: int | None = None
    champion_loss: Interval | None = None
    challenger_loss: Interval | None = None
    difference: Interval | None = None
    p: float | None = None
    level: float | None = None
    n_rows: int | None = None
    n_blocks: int | None = None

    @property
    def uses_level(self) -> bool:
        """Whether the test decided, so that its level counts over the nights."""
        return self.outcome in {"better", "not better"}

    def to_json(self) -> dict[str, Any]:
        """Return the decision as JSON values."""
        return to_document(self)

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Return the inverse of `to_json`."""
        return from_document(cls, document)


def count_tests(series: Series) -> int:
    """Return the number of tests that have used a level since the champion last changed."""
    n = series.since_promotion
    last = series.decisions[len(series.decisions) - n :]
    return sum(Decision.from_json(decision.body).uses_level for decision in last)


@dataclass(frozen=True, slots=True)
class Champion:
    """A promoted model.

    Attributes:
        record: Record of the copy of its model.
        is_selected: Whether results on test rows of its study may have made it the champion.
    """

    study: str
    record: str
    is_selected: bool


def kept_champions(store: ArtifactStore, series: Series) -> dict[str, Champion]:
    """Return the champion and the former champions that are kept, by study."""
    found: dict[str, Champion] = {}
    for event in SeriesLog(store.database).events(series.name):
        study, body = event.study, event.body
        if study not in series.kept:
            continue
        if event.kind == "decision" and body["promoted"]:
            found[study] = Champion(study, body["model"], body["outcome"] == "better")
        elif event.kind == "champion" and body["action"] == "promote":
            found[study] = Champion(study, body["model"], is_selected=True)
    return found


def champion_of(store: ArtifactStore, series: Series) -> Champion:
    """Return the champion; raise `BadInput` if the series has none."""
    if series.champion is None:
        raise BadInput(
            f"series {series.name!r} has no champion yet",
            remedy=f"make the model of a study the champion with `prefect-tune promote "
            f"{series.name} STUDY`",
        )
    return kept_champions(store, series)[series.champion]


def model_copy(store: ArtifactStore, series: str, study: str) -> str:
    """Return the record for a copy of a study's current model; it differs for another model."""
    digest = store.records.parts(model_record(study))["model"].digest
    return champion_record(series, study, digest)


def copy_model(store: ArtifactStore, series: str, study: str) -> str:
    """Copy a study's current model for the series, unless that is done; return the record."""
    record = model_copy(store, series, study)
    if not store.records.exists(record):
        store.records.copy(model_record(study), record, user_of_records(series))
    return record


def user_of_records(series: str) -> str:
    """Return the name under which a series uses records; no study can have it."""
    return f"series {series}"


def release_champions(store: ArtifactStore, series: str) -> None:
    """Release models and artifacts of all champions, before the series is deleted."""
    store.index.pins.release(user_of_records(series))
    store.records.release(user_of_records(series))


def keep_champions(store: ArtifactStore, series: Series) -> None:
    """Keep models and artifacts of the kept champions, and release all others."""
    kept = kept_champions(store, series).values()
    user, records = user_of_records(series.name), {champion.record for champion in kept}
    artifacts: list[str] = []
    for record in records:
        with suppress(RecordDamaged):  # the next comparison reports it
            about = store.records.get(record, ["about"])["about"]
            artifacts += about.get(ARTIFACTS, ())  # models of earlier versions do not name them
    store.index.pins.set(artifacts, user, _PIN_SECONDS)
    store.records.release(user, [r for r in store.records.used_by(user) if r not in records])
