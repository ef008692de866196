"""Studies by their name, or by the name of their series."""

from dataclasses import replace

import pytest
from flow_studies import enter, entered, tell
from sqlalchemy import update
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.flows.reading.lookup import keys_of, trials_using
from prefect_tune.flows.reading.opened_study import study_or_newest
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.schema import trial_table
from prefect_tune.storage.series import Series, SeriesRun, SeriesTable, series_lease


def test_a_series_stands_for_its_newest_study(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    enter(context, "nights-1", series="nights")
    enter(context, "nights-2", series="nights")
    enter(context, "nights-3")  # by hand, of no series
    with pytest.raises(UnknownName, match="nights"):
        study_or_newest(store, "nights")
    series = Series("nights", 0.0, {})
    assert store.leases.acquire(series_lease("nights"))
    for number in (1, 2):
        run = SeriesRun(study=f"nights-{number}", number=number, at=0.0, rows=9)
        SeriesTable(store.database).save(series, run)
    assert study_or_newest(store, "nights").name == "nights-2"
    assert study_or_newest(store, "nights-1").name == "nights-1"


def test_a_damaged_study_hides_no_artifact_of_another(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    key = "a" * 64
    for name in ("good", "damaged"):
        with entered(context, name) as study:
            step = StepCost("fit model", 0, 1.0, 0.0, hit=False, key=key)
            tell(study, replace(evaluation(1.0), steps=(step,)))
    with store.database.write() as connection:
        connection.execute(
            update(trial_table).where(trial_table.c.study == "damaged").values(body={"a": 1})
        )
    with pytest.raises(DatabaseDamaged):
        keys_of(store, "damaged")
    assert trials_using(store, key) == [("good", 0)]
