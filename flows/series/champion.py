"""Changes the champion of a series: after a decision, by the flow `promote`, or by a rollback."""

from contextlib import closing
from dataclasses import replace
from typing import Any

from prefect_tune.flows.flow_run_page import send_event
from prefect_tune.flows.options.form import documented
from prefect_tune.flows.options.store_location import existing_store
from prefect_tune.flows.running.event_loop import loop_safe_flow
from prefect_tune.flows.series.locked import LockedSeries
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.series import Champion, Series, SeriesRun
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import open_store


@loop_safe_flow("promote")
@documented
def promote(
    series: str,
    study: str | None = None,
    store: str | None = None,
    database: str | None = None,
) -> dict[str, Any]:
    """Make the model of a study the champion of its series.

    If no study is named, the newest study with a model is used.

    Returns:
        The series, its champion, and the former champion.

    Raises:
        UnknownName, BadInput: If the series does not exist or has no such study, if the study has
            no model, or if a run holds the series.
    """
    return promote_study(open_store(existing_store(store, database)), series, study)


def promote_study(store: ArtifactStore, series: str, study: str | None = None) -> dict[str, Any]:
    """Make the model of a study, by default the newest model, the champion of its series.

    If the model is already the champion, nothing changes. Raises `UnknownName` if the series does
    not exist or has no such study, and `BadInput` if the study has no model or a run holds the
    series.
    """
    with closing(LockedSeries(store, series)) as locked:
        before = locked.read()
        studies = [run.study for run in reversed(before.runs)]
        if study is not None and study not in studies:
            raise UnknownName(f"study of series {series!r}:", study, studies)
        candidates = studies if study is None else [study]
        with_model = (one for one in candidates if store.records.exists(model_record(one)))
        if (chosen := next(with_model, None)) is None:
            problem = f"no study of series {series!r} has a model yet"
            if study is not None:
                problem = f"study {study!r} has no model yet"
            raise BadInput(problem, remedy="resume a study, or name another study")
        champion = Champion(chosen, locked.model_copy(chosen), "hand")
        return _set_by_hand(locked, before, champion, "promote", "promoted by hand")


def roll_back(store: ArtifactStore, series: str) -> dict[str, Any]:
    """Make the former champion the champion again, and drop the current champion.

    Raises `UnknownName` if the series does not exist, and `BadInput` if no former champion is
    stored or a run holds the series.
    """
    with closing(LockedSeries(store, series)) as locked:
        before, remedy = locked.read(), f"name a study with `prefect-tune promote {series} STUDY`"
        if len(before.champions) < 2:
            raise BadInput(f"series {series!r} keeps no former champion", remedy=remedy)
        former = before.champions[1]
        if not store.records.exists(former.record):
            raise BadInput(f"the stored model of study {former.study} is missing", remedy=remedy)
        return _set_by_hand(locked, before, former, "rollback", "restored by hand")


def set_champion(
    locked: LockedSeries,
    before: Series,
    champion: Champion,
    run: SeriesRun | None = None,
    *,
    by: str,
    reason: str,
) -> None:
    """Save a series with a new champion, keep a copy of the model, and send an event.

    `run` is the run with a new decision, or None. The copy of the model is needed because a resumed
    study replaces its own model.
    """
    decision = None if run is None else run.decision
    compared = None if decision is None else decision.compared
    current = before.champion
    others = before.champions[1:] if by == "rollback" else before.champions
    locked.keep_model(champion)
    locked.table.save(replace(before, champions=others).with_champion(champion), run)
    send_event(
        "series",
        before.name,
        "champion-changed",
        study=champion.study,
        former=None if current is None else current.study,
        by=by,
        reason=reason,
        metric=str(before.question["metric"]),
        loss=None if compared is None else compared["challenger"]["value"],
        former_loss=None if compared is None else compared["champion"]["value"],
        rows=None if decision is None else decision.n_rows,
    )


def _set_by_hand(
    locked: LockedSeries, before: Series, champion: Champion, by: str, reason: str
) -> dict[str, Any]:
    """Make a model the champion by hand, unless it already is the champion; return the change."""
    current = before.champion
    former = None if current is None else current.study
    is_changed = current is None or current.record != champion.record
    if is_changed:
        reason += f", in place of {former}" if former else ""
        set_champion(locked, before, champion, by=by, reason=reason)
        locked.release_models()
    return {
        "series": before.name,
        "champion": champion.study,
        "former": former,
        "by": by,
        "is_changed": is_changed,
    }
