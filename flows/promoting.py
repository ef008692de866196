"""The champion of a series set by hand: the flow `promote`, and both commands behind it."""

from typing import Any

from prefect_tune.flows.event_loop import loop_safe_flow
from prefect_tune.flows.options.form import documented
from prefect_tune.flows.prefect_events import NewChampion, send_event
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.series.champion import (
    copy_model,
    keep_champions,
    kept_champions,
    model_copy,
)
from prefect_tune.flows.series.series import HeldSeries, Series, held_series
from prefect_tune.flows.store_location import store_address
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
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

    Without a study, the model of the newest study with one becomes the champion.

    Returns:
        The series, its champion, and the former champion.

    Raises:
        BadInput: If the study has no model or is not of the series, or a run holds the series.
    """
    address = store_address(store, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"there is no store at {address.url}; the first study creates one")
    return promote_study(open_store(address), series, study)


def promote_study(store: ArtifactStore, series: str, study: str | None = None) -> dict[str, Any]:
    """Make the model of a study, by default the newest one with a model, the champion.

    Nothing changes if it already is. Raises `UnknownName` if the series or the study does not
    exist; `BadInput` if the study has no model or is not of the series, or a run holds the series.
    """
    with held_series(store, series) as held:
        state = held.read()
        chosen = _newest(store, state) if study is None else _checked(store, state, study)
        kept = kept_champions(store, state).get(chosen)
        is_kept = kept is not None and kept.record == model_copy(store, series, chosen)
        if is_kept and chosen == state.champion:
            return _change(state, chosen, "promote", is_changed=False)
        record = copy_model(store, series, chosen)
        reason = f"promoted by hand, in place of {state.champion or 'no champion'}"
        held.append_champion(chosen, "promote", {"model": record, "reason": reason})
        return _changed(held, state, chosen, "promote", reason)


def roll_back(store: ArtifactStore, series: str) -> dict[str, Any]:
    """Make the former champion the champion again.

    Raises `UnknownName` if the series does not exist; `BadInput` if no former champion is kept, or
    a run holds the series.
    """
    with held_series(store, series) as held:
        state = held.read()
        if not state.former:
            n_kept = f"keeps no champion before {state.champion}" if state.champion else "has none"
            raise BadInput(
                f"series {series!r} {n_kept}",
                remedy=f"name a study with `prefect-tune promote {series} STUDY`",
            )
        chosen, reason = state.former[0], f"rolled back from {state.champion}"
        held.append_champion(chosen, "rollback", {"reason": reason})
        return _changed(held, state, chosen, "rollback", reason)


def _newest(store: ArtifactStore, state: Series) -> str:
    """Return the newest study with a model."""
    for run in reversed(state.runs):
        if store.records.exists(model_record(run.study)):
            return run.study
    raise BadInput(f"no study of series {state.name!r} has a model yet")


def _checked(store: ArtifactStore, state: Series, study: str) -> str:
    open_study(store, study)
    if state.run_of(study) is None:
        known = ", ".join(run.study for run in state.runs[-5:]) or "none"
        raise BadInput(
            f"study {study!r} is not of series {state.name!r}; its newest studies: {known}"
        )
    if not store.records.exists(model_record(study)):
        raise BadInput(f"study {study!r} has no model yet; resume it, or name another study")
    return study


def _changed(held: HeldSeries, before: Series, study: str, by: str, reason: str) -> dict[str, Any]:
    """Keep the new champion's model, send the event, and return the change."""
    store = held.store
    keep_champions(store, held.read())
    metric = open_study(store, study).plan.metric
    send_event(
        NewChampion(
            series=before.name,
            study=study,
            former=before.champion,
            by=by,
            reason=reason,
            metric=metric,
        )
    )
    return _change(before, study, by)


def _change(before: Series, study: str, by: str, *, is_changed: bool = True) -> dict[str, Any]:
    former = before.champion
    return {
        "series": before.name,
        "champion": study,
        "former": former,
        "by": by,
        "is_changed": is_changed,
    }
