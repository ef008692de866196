"""Lookup of studies by name or series, and of trials by cached steps."""

from dataclasses import replace

import pytest
from flow_studies import enter, entered, tell
from sqlalchemy import update
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.flows.reading.lookup import keys_of, trials_using
from prefect_tune.flows.reading.opened_study import study_or_newest
from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.schema import trial_table
from prefect_tune.storage.series import Series, SeriesRun, SeriesTable, series_lease


def test_name_of_a_series_refers_to_the_newest_study(tmp_path) -> None:
    context = context_of(tmp_path)
    store, series = store_of(context), Series("nights", 0.0, {})
    assert store.leases.acquire(series_lease("nights"))
    for number in (1, 2):
        enter(context, f"nights-{number}", series="nights")
        run = SeriesRun(study=f"nights-{number}", number=number, at=0.0, rows=9)
        SeriesTable(store.database).save(series, run)
    enter(context, "nights-3")  # by hand, of no series
    assert study_or_newest(store, "nights").name == "nights-2"


def test_damaged_study_hides_no_cached_step_of_another_study(tmp_path) -> None:
    context = context_of(tmp_path)
    store, key = store_of(context), "a" * 64
    step = StepCost("fit model", 0, 1.0, 0.0, hit=False, key=key)
    for name in ("good", "damaged"):
        with entered(context, name) as study:
            tell(study, replace(evaluation(1.0), steps=(step,)))
    damaged = update(trial_table).where(trial_table.c.study == "damaged").values(body={"a": 1})
    with store.database.write() as connection:
        connection.execute(damaged)
    with pytest.raises(DatabaseDamaged):
        keys_of(store, "damaged")
    assert trials_using(store, key) == [("good", 0)]
