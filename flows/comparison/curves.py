"""Curves of studies: tables with the best loss after each trial, in memory and in files."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from pyarrow import ArrowInvalid

from prefect_tune.flows.comparison.standings import CURVE_COLUMNS
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput

_TYPES = {
    **dict.fromkeys(("trial", "incumbent", "budget_trials"), "Int64"),
    **dict.fromkeys(("budget_seconds", "loss", "incumbent_loss", "test_loss"), "Float64"),
}
_CONFIGURATION = "configuration"


def curve_of(
    store: ArtifactStore, study: str, comparison: str, method: str, repeat: int
) -> pd.DataFrame:
    """Return the curve of a study: one row for its start and one row for each ended trial.

    The columns are `CURVE_COLUMNS`. `trials` counts each configuration once. `trials`, `seconds`
    and `ask_seconds` are totals from the start of the study to the end of the trial. `loss` is
    given only for full trials. `incumbent` is the best trial so far. `incumbent_loss` is given only
    for full incumbents, because losses of partial trials are not comparable. `test_loss` is the
    test loss of the final model, repeated in all rows.
    """
    opened = open_study(store, study)
    plan, facts = opened.plan, opened.facts
    asking = 0.0
    rows: list[dict[str, Any]] = [{"seconds": 0.0, "cost_seconds": 0.0, "ask_seconds": 0.0}]
    with documents_of(study):
        for event in opened.ledger.each_event(study):
            if event.kind == Asked.kind:
                asking += event.body["seconds"]
            if event.kind == Told.kind:
                told = TrialView(event.body)
                row = {
                    "trial": told.number,
                    "seconds": event.body["elapsed_seconds"],
                    "cost_seconds": told.cost_seconds,
                    "ask_seconds": asking,
                    "failure": (event.body["failure"] or {}).get("kind"),
                    "loss": told.loss if told.is_full else None,
                    "incumbent": event.body["incumbent"],
                    _CONFIGURATION: told.configuration_text,
                }
                rows.append(row)
    curve = pd.DataFrame(rows, columns=[*CURVE_COLUMNS, _CONFIGURATION]).assign(
        comparison=comparison,
        method=method,
        repeat=repeat,
        data=plan.data_name,
        dataset=plan.problem.dataset,
        space=plan.space,
        metric=plan.metric,
        seed=plan.seed,
        study=study,
        budget_seconds=plan.options.budget,
        budget_trials=plan.options.trials,
        test_loss=None if facts.no_model else facts.model.test_loss,
    )
    curve["trials"] = (~curve[_CONFIGURATION].duplicated()).cumsum() - 1
    curve["seconds"] = curve.seconds.cummax()  # a killed process loses its last seconds
    losses = curve.dropna(subset="loss").groupby("trial").loss.last()
    curve["incumbent_loss"] = curve.incumbent.map(losses)
    return curve[list(CURVE_COLUMNS)].astype(_TYPES)


def read_curves(files: Sequence[str]) -> pd.DataFrame:
    """Read the curves of all files; raise `BadInput` if a file is invalid or a duplicate."""
    tables = []
    for file in files:
        try:
            table = pd.read_parquet(file)
        except FileNotFoundError as error:
            raise BadInput(f"there is no file {file}") from error
        except (ArrowInvalid, OSError) as error:
            raise BadInput(f"{file} cannot be read as a Parquet file: {error}") from error
        for column in CURVE_COLUMNS:
            if column not in table:
                remedy = "name a file written by `prefect-tune compare`"
                raise BadInput(f"{file} has no column {column!r}", remedy=remedy)
        tables.append(table)
    studies = [one[["comparison", "dataset", "study"]].drop_duplicates() for one in tables]
    if pd.concat(studies).duplicated().any():
        raise BadInput("two files contain the same comparison; name each comparison once")
    return pd.concat(tables, ignore_index=True)
