"""The state of a series, folded from its log, and the only way to change it.

Cheap to import, because listings and completion read series.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any, Literal, Self

from prefect_tune.flows.text import counted
from prefect_tune.optimizers.converter import from_document
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.database import as_written
from prefect_tune.storage.series import SeriesEvent, SeriesLog, StoredSeries, series_lease
from prefect_tune.tasks.bad_input import BadInput

FORMER_CHAMPIONS = 3
"""Number of former champions that are kept for a rollback."""
_POLL_SECONDS = 0.5
NAMED_CHANGES = 10
"""Most names stored of each kind of change."""
_SHOWN_NAMES = 2
"""Most names in a text."""


class SeriesBusy(BadInput):
    """Another run holds the series."""


@dataclass(frozen=True, slots=True)
class Names:
    """Added or removed names: their number, and the first of them in order."""

    count: int = 0
    first: tuple[str, ...] = ()

    @classmethod
    def missing(cls, names: Iterable[object], among: Collection[object]) -> Self:
        """Return the names that are not among others."""
        found = [str(name) for name in names if name not in among]
        return cls(len(found), tuple(found[:NAMED_CHANGES]))

    def __str__(self) -> str:
        shown = self.first[:_SHOWN_NAMES]
        return f"{', '.join(shown)}{', ...' * (self.count > len(shown))}"


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences of a data set from an earlier one.

    A row is identified by its key, or else by its values in the columns that both have, without the
    target and the columns that differ in nearly all rows; a row of events by patient, prediction
    time and events. A changed row counts as removed and added, unless only its target changed.
    """

    rows_added: int = 0
    rows_removed: int = 0
    columns_added: Names = Names()
    columns_removed: Names = Names()
    classes_added: Names = Names()
    classes_removed: Names = Names()
    codes_added: Names = Names()
    codes_removed: Names = Names()
    targets_changed: int = 0
    columns_differing: Names = Names()

    def texts(self) -> Iterator[str]:
        """Yield the changes in a few words each, such as `+12 rows` and `-1 column (age)`."""
        for sign, count in (("+", self.rows_added), ("-", self.rows_removed)):
            if count:
                yield f"{sign}{counted(count, 'row')}"
        for what, word in (("columns", "column"), ("classes", "class"), ("codes", "code")):
            for sign, change in (("+", "added"), ("-", "removed")):
                names: Names = getattr(self, f"{what}_{change}")
                if names.count:
                    number = f"1 {word}" if names.count == 1 else f"{names.count:,} {what}"
                    yield f"{sign}{number} ({names})"
        if self.targets_changed:
            yield f"{counted(self.targets_changed, 'target')} changed"
        if self.columns_differing.count:
            yield f"{self.columns_differing} differs in nearly all rows and does not identify them"


@dataclass(frozen=True, slots=True)
class Reused:
    """Results of earlier studies that a study started from.

    Attributes:
        studies: The earlier studies, newest first.
        observations: Number of their trials given to the method as prior knowledge.
        starts: Number of their configurations to evaluate first.
        weight: Weight of the prior after the re-evaluations, 0 if it was dropped; None if unknown.
    """

    studies: tuple[str, ...] = ()
    observations: int = 0
    starts: int = 0
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRun:
    """A study of a series.

    Attributes:
        number: Number of the study in the series, from 1.
        at: Start of the study, in seconds since 1970.
        flow_run_id: Flow run that started the study; None for a command.
        changes: Differences of its data from the data of the study before; None for the first.
        options: Given options that make another study if they change, as JSON values.
        state: State after its last session; "new" before the first has ended.
    """

    study: str
    number: int
    at: float
    flow_run_id: str | None = None
    rows: int = 0
    changes: Changes | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    reused: Reused = Reused()
    state: str = "new"
    loss: float | None = None
    test_loss: float | None = None


@dataclass(frozen=True, slots=True)
class SkippedRun:
    """A run that ended because nothing had changed since the last study."""

    study: str
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class SeriesDecision:
    """A decision on the model of a study; `body` is the decision in full."""

    study: str
    at: float
    is_promoted: bool
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChampionByHand:
    """A champion that a person set with `promote` or `rollback`."""

    study: str
    at: float
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series after all events so far.

    Attributes:
        question: Common terms of all studies, as a document (see `Question`).
        champion: Study whose model is in use, if any.
        former: Former champions for a rollback, newest first.
        since_promotion: Number of decisions since the champion last changed.
    """

    name: str
    created: float
    question: Mapping[str, Any]
    runs: tuple[SeriesRun, ...] = ()
    skipped: tuple[SkippedRun, ...] = ()
    decisions: tuple[SeriesDecision, ...] = ()
    by_hand: tuple[ChampionByHand, ...] = ()
    champion: str | None = None
    former: tuple[str, ...] = ()
    since_promotion: int = 0

    @property
    def last(self) -> SeriesRun | None:
        """The newest run."""
        return self.runs[-1] if self.runs else None

    @property
    def kept(self) -> frozenset[str]:
        """Studies whose models are kept: the champion and the former champions."""
        return frozenset(self.former) | ({self.champion} if self.champion else set())

    def run_of(self, study: str) -> SeriesRun | None:
        """Return the run of a study; None if the study is not of the series."""
        return next((run for run in self.runs if run.study == study), None)

    def after(self, event: SeriesEvent) -> Self:
        """Return the series after one more event; unknown kinds change nothing."""
        fold = _FOLDS.get(event.kind)
        return self if fold is None else replace(self, **fold(self, event))

    def promoting(self, study: str) -> dict[str, Any]:
        """Return the fields that change if a study becomes the champion."""
        if study == self.champion:
            return {"since_promotion": 0}
        before = (self.champion,) if self.champion else ()
        former = [*before, *(name for name in self.former if name != study)]
        kept = tuple(former[:FORMER_CHAMPIONS])
        return {"champion": study, "former": kept, "since_promotion": 0}


def _run(series: Series, event: SeriesEvent) -> dict[str, Any]:
    """Add a run; a second event of a study replaces the first, whose process was killed."""
    run = from_document(SeriesRun, {**event.body, "study": event.study, "at": event.at})
    return {"runs": (*(other for other in series.runs if other.study != run.study), run)}


def _ended(series: Series, event: SeriesEvent) -> dict[str, Any]:
    body = event.body

    def updated(run: SeriesRun) -> SeriesRun:
        reused = replace(run.reused, weight=body.get("prior_weight", run.reused.weight))
        loss, test_loss = body["loss"], body["test_loss"]
        return replace(run, state=body["state"], loss=loss, test_loss=test_loss, reused=reused)

    runs = (updated(run) if run.study == event.study else run for run in series.runs)
    return {"runs": tuple(runs)}


def _skipped(series: Series, event: SeriesEvent) -> dict[str, Any]:
    skipped = SkippedRun(event.study, event.at, event.body["reason"])
    return {"skipped": (*series.skipped, skipped)}


def _decision(series: Series, event: SeriesEvent) -> dict[str, Any]:
    decision = SeriesDecision(event.study, event.at, event.body["promoted"], event.body)
    count = {"since_promotion": series.since_promotion + 1}
    change = series.promoting(event.study) if decision.is_promoted else count
    return {"decisions": (*series.decisions, decision), **change}


def _champion(series: Series, event: SeriesEvent) -> dict[str, Any]:
    action = event.body["action"]
    by_hand = (*series.by_hand, ChampionByHand(event.study, event.at, action))
    if action != "rollback":
        return {**series.promoting(event.study), "by_hand": by_hand}
    older = series.former[series.former.index(event.study) + 1 :]
    return {"champion": event.study, "former": older, "since_promotion": 0, "by_hand": by_hand}


_FOLDS: Mapping[str, Callable[[Series, SeriesEvent], dict[str, Any]]] = {
    "run": _run,
    "ended": _ended,
    "skipped": _skipped,
    "decision": _decision,
    "champion": _champion,
}
"""Function that returns the changed fields, by kind of event."""


def open_series(store: ArtifactStore, name: str) -> Series:
    """Return a series by name; raise `UnknownName` if it does not exist."""
    if (found := find_series(store, name)) is None:
        known = SeriesLog(store.database).names()
        raise UnknownName(f"series in the store {store.address.url}:", name, known)
    return found


def find_series(store: ArtifactStore, name: str) -> Series | None:
    """Return a series by name; None if it does not exist."""
    log = SeriesLog(store.database)
    stored = log.series(name)
    return None if stored is None else _folded(stored, log.events(name))


def _folded(stored: StoredSeries, events: Iterable[SeriesEvent]) -> Series:
    series = Series(name=stored.name, created=stored.created, question=stored.question)
    remedy = f", or remove the series with `prefect-tune series {stored.name} --remove`"
    with as_written(f"series {stored.name}", remedy):
        for event in events:
            series = series.after(event)
    return series


class HeldSeries:
    """A series whose lease this process holds; all changes go through it.

    Each `append_...` raises `LeaseLost` if another process has taken the lease.
    """

    def __init__(self, store: ArtifactStore, name: str) -> None:
        self.store, self.name, self._is_held = store, name, True
        self._log = SeriesLog(store.database)

    @classmethod
    def acquire(cls, store: ArtifactStore, name: str, seconds: float = 0.0) -> Self:
        """Acquire the lease of a series, which need not exist yet, within some seconds.

        Raises `SeriesBusy` if another run holds the series.
        """
        until = monotonic() + seconds
        while not store.leases.acquire(series_lease(name)):
            if monotonic() < until:
                sleep(_POLL_SECONDS)
                continue
            holder = store.leases.holder(series_lease(name)) or "another process"
            raise SeriesBusy(
                f"series {name!r} is in use by {holder}, and only one run may change it",
                remedy="wait for that run, or end it",
            )
        return cls(store, name)

    def release(self) -> None:
        """Release the lease; do nothing if it is released already."""
        if self._is_held:  # meanwhile, another run of this process may hold it
            self._is_held = False
            self.store.leases.release(series_lease(self.name))

    def read(self) -> Series:
        """Return the current state; raise `UnknownName` if the series does not exist."""
        return open_series(self.store, self.name)

    def create(self, question: Mapping[str, Any]) -> bool:
        """Enter the series; return False and change nothing if it exists."""
        return self._log.create(self.name, question)

    def append_run(self, study: str, body: Mapping[str, Any]) -> None:
        """Record a new study before it is entered; `body` has the fields of `SeriesRun`."""
        self._log.append(self.name, "run", study, body)

    def append_ended(self, study: str, body: Mapping[str, Any]) -> None:
        """Record state, loss, test loss and weight of the prior after a session of a study."""
        self._log.append(self.name, "ended", study, body)

    def append_skipped(self, study: str, reason: str) -> None:
        """Record a run that ended because nothing had changed since `study`."""
        self._log.append(self.name, "skipped", study, {"reason": reason})

    def append_decision(self, study: str, body: Mapping[str, Any], *, once: bool = True) -> bool:
        """Record a decision, once per study; `body["promoted"]` makes the study the champion."""
        return self._log.append(self.name, "decision", study, body, once=once)

    def append_champion(
        self, study: str, action: Literal["promote", "rollback"], body: Mapping[str, Any]
    ) -> None:
        """Record a champion set by hand; a rollback names one of the former champions."""
        self._log.append(self.name, "champion", study, {**body, "action": action})

    def delete(self) -> None:
        """Delete the log of the series; its studies stay."""
        self._log.delete(self.name)


@contextmanager
def held_series(store: ArtifactStore, name: str) -> Iterator[HeldSeries]:
    """Hold the lease of a series in the body; raise `SeriesBusy` if another run holds it.

    Raises `UnknownName` if the series does not exist.
    """
    open_series(store, name)
    held = HeldSeries.acquire(store, name)
    try:
        yield held
    finally:
        held.release()
