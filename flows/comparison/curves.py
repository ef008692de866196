"""Curves of studies (tables with the best loss after each trial), and standings from them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import ArrowInvalid

from prefect_tune.flows.comparison.standings import (
    CURVE_COLUMNS,
    ComparisonOutcome,
    PooledFiles,
    standings,
)
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.tasks.bad_input import BadInput

_TYPES = {
    "trial": "Int64",
    "incumbent": "Int64",
    "budget_trials": "Int64",
    "budget_seconds": "Float64",
    "loss": "Float64",
    "incumbent_loss": "Float64",
    "test_loss": "Float64",
    "test_rows": "Int64",
}


def curve_of(
    ledger: Ledger, stored: StoredStudy, test_rows: int | None = None, **about: Any
) -> pd.DataFrame:
    """Return one row for the start of a study and one for each ended trial, in order.

    Returns the columns of `CURVE_COLUMNS`; `about` gives further columns, constant over all rows.
    `trials` counts each configuration once. `trials`, `seconds` and `ask_seconds` are totals from
    the start of the study to the end of the trial. `loss` is given for full trials. `incumbent` is
    the trial chosen at that time, and `test_loss` is its loss on the test rows, if measured.
    `incumbent_loss` is given for full incumbents only, as other losses are not comparable.
    """
    plan = StudyPlan.from_stored(stored)
    with documents_of(stored.name):
        rows = list(_progress(ledger, stored))
    common = {
        "data": plan.data_name,
        "dataset": plan.problem.dataset,
        "space": plan.space,
        "metric": plan.metric,
        "seed": plan.seed,
        "study": stored.name,
        "budget_seconds": plan.options.budget,
        "budget_trials": plan.options.trials,
        "test_rows": test_rows,
        **about,
    }
    curve = pd.DataFrame(rows).assign(**common)
    return curve.reindex(columns=list(CURVE_COLUMNS)).astype(_TYPES)


def _progress(ledger: Ledger, stored: StoredStudy) -> Iterator[dict[str, Any]]:
    """Yield the varying columns for the start and for each ended trial."""
    tested = StudyFacts.from_stored(stored).test_losses
    seconds = asking = 0.0
    configurations = set[bytes]()
    losses: dict[int, float] = {}
    yield {
        **dict.fromkeys(("trial", "failure", "loss", "incumbent", "incumbent_loss", "test_loss")),
        "trials": 0,
        "seconds": 0.0,
        "cost_seconds": 0.0,
        "ask_seconds": 0.0,
    }
    for event in ledger.events(stored.name):
        if event.kind == Asked.kind:
            asking += event.body["seconds"]
        if event.kind == Told.kind:
            told = TrialView(event.body)
            failure, incumbent, elapsed = (
                told.document[name] for name in ("failure", "incumbent", "elapsed_seconds")
            )
            configurations.add(told.configuration_text)
            losses |= {told.number: told.loss} if told.is_full else {}
            # A killed process may not have recorded its last seconds.
            seconds = max(seconds, elapsed)
            yield {
                "trial": told.number,
                "trials": len(configurations),
                "seconds": seconds,
                "cost_seconds": told.cost_seconds,
                "ask_seconds": asking,
                "failure": failure and failure["kind"],
                "loss": told.loss if told.is_full else None,
                "incumbent": incumbent,
                "incumbent_loss": losses.get(incumbent),
                "test_loss": tested.get(str(incumbent)),
            }


_STUDY = ["comparison", "dataset", "study"]


def read_curves(files: Sequence[str]) -> pd.DataFrame:
    """Return the curves of all files; raise `BadInput` if a file is invalid or repeats another."""
    tables = [_read(file) for file in files]
    studies = pd.concat([t[_STUDY].drop_duplicates() for t in tables], ignore_index=True)
    if studies.duplicated().any():
        raise BadInput("two files contain the same comparison; name each comparison once")
    return pd.concat(tables, ignore_index=True)


def pooled_standings(files: Sequence[str]) -> ComparisonOutcome:
    """Return the outcome of `prefect-tune standings`; raise `BadInput` if files do not match."""
    curves = read_curves(files)
    try:
        found = standings(curves)
    except ValueError as error:
        raise BadInput(str(error)) from error
    metrics = curves.metric.unique()
    return ComparisonOutcome(
        PooledFiles(metrics[0] if len(metrics) == 1 else "loss", list(files)), found
    )


def _read(file: str) -> pd.DataFrame:
    if not Path(file).exists():
        raise BadInput(f"file {file} does not exist")
    try:
        curves = pd.read_parquet(file)
    except (ArrowInvalid, OSError) as error:
        raise BadInput(f"{file} is not a Parquet file: {error}") from error
    missing = [column for column in CURVE_COLUMNS if column not in curves]
    if missing:
        raise BadInput(
            f"{file} has no column {missing[0]!r}; name a file written by `prefect-tune compare`"
        )
    return curves
