"""The curve of a study as a table: its best loss after each trial, from what the ledger has."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from prefect_tune.flows.comparison.standings import CURVE_COLUMNS
from prefect_tune.flows.study.documents import TrialDocument, documents_of
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.events import Asked, Told
from prefect_tune.storage.ledger import Ledger, StoredStudy

__all__ = ["TEST_LOSSES", "UNDEFINED_TEST_LOSSES", "curve_of"]

TEST_LOSSES = "test_losses"
"""In the result of a study: test losses of its incumbents, by the number of the trial as text."""
UNDEFINED_TEST_LOSSES = "test_losses_undefined"
"""In the same place: reasons why test losses are undefined, by the same numbers."""
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
    """Return a row for the start of a study, and one for each trial that has ended, in that order.

    Args:
        ledger: Where the study is.
        stored: The study.
        test_rows: How many test rows it has, if that is to be said.
        about: Further columns, the same in all rows.

    Returns:
        The columns of `CURVE_COLUMNS`. `trials` counts configurations, however many stretches they
        have, and like `seconds` and `ask_seconds` from the start of the study to the end of the
        trial. `loss` is that of a full trial; `incumbent` is what the method would have chosen
        then, and `test_loss` its loss on the test rows where that was measured. `incumbent_loss` is
        that of a full incumbent alone: losses of subsets, folds or epochs are not to be compared.
    """
    plan = StudyPlan.from_stored(stored)
    common = {
        "data": plan.data_name,
        "dataset": plan.problem.dataset,
        "space": plan.space,
        "metric": plan.metric,
        "seed": plan.seed,
        "study": stored.name,
        "budget_seconds": plan.stop_rule.seconds,
        "budget_trials": plan.stop_rule.trials,
        "test_rows": test_rows,
        **about,
    }
    tested = stored.result.get(TEST_LOSSES, {})
    with documents_of(stored.name):
        rows = [{**common, **row} for row in _progress(ledger, stored.name)]
    for row in rows:
        row["test_loss"] = tested.get(str(row["incumbent"]))
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS)).astype(_TYPES)


def _progress(ledger: Ledger, study: str) -> list[dict[str, Any]]:
    row: dict[str, Any] = {
        "trial": None,
        "trials": 0,
        "seconds": 0.0,
        "cost_seconds": 0.0,
        "ask_seconds": 0.0,
        "failure": None,
        "loss": None,
        "incumbent": None,
        "incumbent_loss": None,
    }
    rows, asking, configurations = [row], 0.0, set[bytes]()
    losses: dict[int, float] = {}
    for event in ledger.events(study):
        if event.kind == Asked.kind:
            asking += event.body["seconds"]
        if event.kind == Told.kind:
            told = TrialDocument(event.body)
            configurations.add(told.configuration_text)
            losses |= {told.number: told.loss} if told.is_full else {}
            row = _after(row, told, losses)
            row |= {"trials": len(configurations), "ask_seconds": asking}
            rows.append(row)
    return rows


def _after(row: dict[str, Any], told: TrialDocument, losses: Mapping[int, float]) -> dict[str, Any]:
    """Return the row of a trial that has ended, from the row before it and the full losses."""
    failure = told.document["failure"]
    incumbent = told.document["incumbent"]
    return {
        **row,
        "trial": told.number,
        # A killed process may have forgotten some seconds of its session.
        "seconds": max(row["seconds"], told.document["elapsed_seconds"]),
        "cost_seconds": told.cost_seconds,
        "failure": failure["kind"] if failure else None,
        "loss": told.loss if told.is_full else None,
        "incumbent": incumbent,
        "incumbent_loss": losses.get(incumbent),
    }
