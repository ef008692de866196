"""A series, prepared for people and programs. This module is cheap to import."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from prefect_tune.flows.options.store_location import store_options
from prefect_tune.flows.reading.lookup import find_series
from prefect_tune.flows.reading.opened_study import OpenedStudy
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.wording.text import LossWords, counted
from prefect_tune.optimizers.documents import to_document
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.series import Changes, Reused, Series, SeriesRun, SeriesTable


def read_series(store: ArtifactStore, name: str) -> Series:
    """Read a series with the states of its studies; raise `UnknownName` if there is none."""
    series, ledger = find_series(store, name), Ledger(store.database)
    studies = [(run, ledger.study(run.study)) for run in series.runs]
    runs = (
        replace(run, state=OpenedStudy(store, stored).state if stored else "removed")
        for run, stored in studies
    )
    return replace(series, runs=tuple(runs))


def series_of(store: ArtifactStore, plan: StudyPlan) -> Series | None:
    """Read the series of a study; None if the study has no series or the series was removed."""
    name = plan.options.series
    if name is None or SeriesTable(store.database).find(name) is None:
        return None
    return read_series(store, name)


def series_json(store: ArtifactStore, series: Series) -> dict[str, Any]:
    """Return a series as the JSON values that `series NAME --json` prints."""
    studies = [champion.study for champion in series.champions]
    document: dict[str, Any] = {
        "series": series.name,
        "store_options": store_options(store.address),
    }
    document |= to_document(series) | {"champion": next(iter(studies), None), "former": studies[1:]}
    document["decisions"] = [
        {"study": run.study} | to_document(run.decision) for run in series.runs if run.decision
    ]
    del document["name"]
    return document


def losses_of(series: Series) -> LossWords:
    """Return the formatter of losses in the metric of a series."""
    return LossWords(str(series.question["metric"]))


def run_cells(series: Series, run: SeriesRun) -> dict[str, str]:
    """Return the table cells that describe a run, by column heading."""
    losses, changes = losses_of(series), "first study" if run.number == 1 else "unknown"
    if run.changes is not None:
        changes = ", ".join(change_texts(run.changes)) or "same rows"
    return {
        "study": run.study,
        "started": datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%M"),
        "state": run.state,
        "rows": f"{run.rows:,}",
        "changes": changes,
        losses.name: losses.of(run.loss),
        "test rows": losses.of(run.test_loss),
        "reused": _reused_text(run.reused),
        "model": _model_text(series, run),
    }


def change_texts(changes: Changes) -> Iterator[str]:
    """Yield short descriptions of changes in the data, such as `+12 rows` and `-1 column`."""
    for n_added, n_removed, word in (
        (changes.rows_added, changes.rows_removed, "row"),
        (changes.columns_added, changes.columns_removed, "column"),
        (changes.classes_added, changes.classes_removed, "class"),
    ):
        for sign, n in (("+", n_added), ("-", n_removed)):
            if n:
                yield f"{sign}{counted(n, word)}".replace("classs", "classes")
    if changes.targets_changed:
        yield f"{counted(changes.targets_changed, 'target')} changed"
    if names := changes.columns_differing:
        yield f"columns not used to match rows, as nearly all rows differ: {', '.join(names)}"


def _reused_text(reused: Reused) -> str:
    if not reused.observations:
        return ""
    text = f"{reused.starts} of {counted(reused.observations, 'trial')} repeated"
    if reused.weight is None:
        return text
    return f"{text}, weight {reused.weight:.2g}" if reused.weight else f"{text}, dropped"


def _model_text(series: Series, run: SeriesRun) -> str:
    """Describe the role of a study's model in the series."""
    for champion in series.champions:
        if champion.study == run.study:
            place = "champion" if champion == series.champion else "former champion"
            return f"{place}, set by hand" if champion.by == "hand" else place
    if run.decision is None:
        return ""
    return "was champion" if run.decision.promoted else "not promoted"
