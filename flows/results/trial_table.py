"""The trials of a study as a table, with the columns of Optuna's `trials_dataframe`."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from prefect_tune.flows.reading.opened_study import Moments, open_study, params_of
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore

_ALWAYS = ("number", "value", "datetime_start", "datetime_complete", "duration", "state")
_ORDER = (
    "number", "value", "datetime_start", "datetime_complete", "duration", "params_", "user_attrs_",
    "system_attrs_", "state",
)  # fmt: skip
"""Prefixes of column names, in display order."""


def trial_table(store: ArtifactStore, study: str) -> pd.DataFrame:
    """Return a table with one row per trial, ordered by number, and the columns of Optuna.

    The columns are `number`, `value` (the loss), `datetime_start`, `datetime_complete` (UTC) and
    `duration` (without waiting) of the latest attempt, `params_<step>` (the algorithm),
    `params_<step>__<hyperparameter>`, `user_attrs_...` and `system_attrs_...` (further properties),
    and `state` (Optuna's name of the state). Raises `UnknownName` if the study does not exist.
    """
    opened = open_study(store, study)
    with documents_of(study):
        return table_of(list(opened.trials()), opened.plan, opened.moments())


def table_of(
    trials: Sequence[TrialView], plan: StudyPlan, moments: Mapping[int, Moments]
) -> pd.DataFrame:
    """Return the table of the given trials, ordered by number.

    `user_attrs_configuration` is the number of the first trial of the same configuration.
    """
    firsts: dict[bytes, int] = {}
    columns: dict[str, list[Any]] = {name: [None] * len(trials) for name in _ALWAYS}
    for position, trial in enumerate(trials):
        first = firsts.setdefault(trial.configuration_text, trial.number)
        row = _row(trial, plan, moments.get(trial.number)) | {"user_attrs_configuration": first}
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * len(trials)
            columns[name][position] = value
    steps = list(trials[0].configuration) if trials else []

    def rank(name: str) -> tuple[int, int]:  # follows the order of the steps
        place = next(place for place, start in enumerate(_ORDER) if name.startswith(start))
        step = name.removeprefix("params_").partition("__")[0]
        is_step = name.startswith("params_") and step in steps
        return place, steps.index(step) if is_step else 0

    ordered = sorted(columns, key=rank)
    return pd.DataFrame({name: columns[name] for name in ordered})


def attributes_of(
    trial: TrialView, plan: StudyPlan, moments: Moments | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return further properties of a trial, as user attributes and system attributes.

    Constraints have Optuna's form: a constraint is met if its value is at most 0.
    """
    found, failure = trial.document["evaluation"] or {}, trial.failure
    has_ended = bool(found) or failure is not None
    ours: dict[str, Any] = {
        "state": str(trial.state),
        "is_partial": trial.is_partial,
        "fidelity": plan.whole.part(trial.query) or "full",
        "subset": float(trial.query.get("subset", 1.0)),
        "folds": trial.query.get("folds") or plan.options.folds,
        "epochs": trial.query.get("epochs") or plan.options.epochs,
        "best_epoch": found.get("best_epoch"),
        "rounds": found.get("rounds"),
        **{f"loss_fold_{i}": loss for i, loss in enumerate(trial.fold_losses)},
        **trial.quantities,
        "cost_seconds": trial.cost_seconds if has_ended else None,
        "cost_uncached_seconds": found.get("cost_uncached_seconds"),
        "load_seconds": trial.load_seconds if has_ended else None,
        "cache_hits": sum(step["hit"] for step in trial.steps) if found else None,
        "cache_steps": len(trial.steps) if found else None,
        "attempts": trial.attempts,
        "reason": (moments.reason or {}).get("phase") if moments else None,
        "failure_kind": str(failure.kind) if failure else None,
        "failure_step": failure.step if failure else None,
        "failure_fold": failure.fold if failure else None,
        "failure_message": failure.message if failure else None,
    }
    system: dict[str, Any] = {"task_run_id": moments.task_run_id if moments else None}
    if plan.options.bounds and found:
        excess = [bounded.constraint.excess(trial.quantities) for bounded in plan.options.bounds]
        system["constraints"] = excess
    return ours, system


def writable(table: pd.DataFrame) -> pd.DataFrame:
    """Convert columns with values of several types to strings, so that a file can store them."""
    made = table.copy()
    for name in table:
        is_object = table[name].dtype == object
        if is_object and len({type(value) for value in table[name].dropna()}) > 1:
            made[name] = table[name].map(str, na_action="ignore")
    return made


def _row(trial: TrialView, plan: StudyPlan, moments: Moments | None) -> dict[str, Any]:
    span = (None, None) if moments is None else moments.span(trial.cost_seconds)
    start, complete = map(_time, span)
    ours, system = attributes_of(trial, plan, moments)
    return {
        "number": trial.number,
        "value": trial.loss if trial.has_loss else None,
        "datetime_start": start,
        "datetime_complete": complete,
        "duration": complete - start if start is not None and complete is not None else None,
        **{f"params_{name}": value for name, value in params_of(trial.configuration).items()},
        **{f"user_attrs_{name}": value for name, value in ours.items()},
        **{f"system_attrs_{name}": value for name, value in system.items()},
        "state": optuna_state(trial),
    }


def optuna_state(trial: TrialView) -> str:
    """Return Optuna's name of a trial's state. A partial trial is PRUNED."""
    if trial.is_partial:
        return "PRUNED"
    return "FAIL" if trial.state == TrialState.FAILED else trial.state.upper()


def _time(seconds: float | None) -> pd.Timestamp | None:
    return None if seconds is None else pd.Timestamp(round(seconds * 1e6), unit="us", tz="UTC")
