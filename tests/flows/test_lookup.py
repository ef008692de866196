"""Studies by their name, or by the name of their series."""

import pytest
from flow_studies import enter
from studies import context_of, store_of

from prefect_tune.flows.reading.lookup import study_or_newest
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.series import SeriesLog


def test_a_series_stands_for_its_newest_study(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    enter(context, "nights-1", series="nights")
    enter(context, "nights-2", series="nights")
    enter(context, "nights-3")  # by hand, of no series
    with pytest.raises(UnknownName, match="nights"):
        study_or_newest(store, "nights")
    SeriesLog(store.database).create("nights", {})
    assert study_or_newest(store, "nights") == "nights-2"
    assert study_or_newest(store, "nights-1") == "nights-1"
