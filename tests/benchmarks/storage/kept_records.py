"""Bytes of held-out predictions that a study leaves, and those of one that kept them all.

    tests/benchmarks/run storage/kept_records [--trials 300] [--rows 1000]

Random trials of small models on a table, each evaluated in this process, in one study twice: as it
is, and with room for all predictions.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from machine import Goals, describe
from studies import context_of, draw, outcome, store_of

from prefect_tune.flows.study import retention as kept_predictions
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Evaluation
from prefect_tune.storage import Ledger
from prefect_tune.storage.key import PREDICTIONS
from prefect_tune.tasks.data.source import Source


def records_bytes(folder: Path, n_trials: int, n_rows: int) -> tuple[int, int]:
    """Run a study; the bytes of its records, and how many predictions are among them."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 6)), columns=list("abcdef"))
    frame["target"] = np.where(frame["a"] + rng.normal(size=n_rows) > 0, "yes", "no")
    frame.to_csv(folder / "table.csv", index=False)
    context = replace(context_of(folder, data=folder / "table.csv"), study="s")
    store = store_of(context)
    plan = StudyPlan(
        source=Source("table.csv", target="target"), data_name="table", problem=context.problem,
        folds=3, holdout=None, test_size=0.2, positive=None, chance_loss=40.0, method="random",
    )  # fmt: skip
    Ledger(store.database).create_study("s", plan.problem.to_json(), plan.to_json())
    with Study.opened(store, "s", plan) as study, study.session():
        for seed in range(n_trials):
            query = draw(context, seed)
            study.optimizer._propose = lambda *_, query=query: query  # type: ignore[method-assign]
            trial = study.start(study.ask(Budget()))
            came = outcome(context, query)
            is_loss = isinstance(came, Evaluation)
            study.tell(trial.ended(came) if is_loss else trial.failed(came))
    return store.records.size_bytes(), len(store.records.used_by("s", PREDICTIONS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        few, n_few = records_bytes(Path(folder, "few"), arguments.trials, arguments.rows)
        kept_predictions._BEST = arguments.trials
        every, n_every = records_bytes(Path(folder, "all"), arguments.trials, arguments.rows)
    print(f"{arguments.trials} trials: {n_few} predictions, {few:,} bytes of records")
    print(f"with all of them kept: {n_every} predictions, {every:,} bytes")
    print(describe())
    goals = Goals()
    goals.at_most("predictions kept of a fold", n_few / 3, 60 + 20)
    goals.end()


if __name__ == "__main__":
    main()
