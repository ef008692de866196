"""A series is changed by one process at a time."""

from contextlib import closing

import pytest

from prefect_tune.flows.series.held import HeldSeries, SeriesBusy
from prefect_tune.optimizers import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.storage.series import Series


def test_a_series_is_held_by_one_run_at_a_time(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    held, series = HeldSeries(store, "n"), Series("n", 0.0, {})
    with pytest.raises(UnknownName, match="'n'"):
        held.read()
    with pytest.raises(SeriesBusy, match="process"):
        HeldSeries(store, "n")
    held.close()
    with pytest.raises(LeaseLost):
        held.table.save(series)
    with closing(HeldSeries(store, "n")) as again:
        held.close()  # a second time, which must not release what another run holds
        again.table.save(series)
        assert again.read() == series
    assert not store.leases.holder("series n")
