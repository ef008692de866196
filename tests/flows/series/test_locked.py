"""A series is changed by one process at a time."""

from contextlib import closing

import pytest

from prefect_tune.flows.series.locked import LockedSeries, SeriesBusy
from prefect_tune.optimizers import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.storage.series import Series


def test_series_is_locked_by_one_run_at_a_time(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    locked, series = LockedSeries(store, "n"), Series("n", 0.0, {})
    with pytest.raises(UnknownName, match="'n'"):
        locked.read()
    with pytest.raises(SeriesBusy, match="process"):
        LockedSeries(store, "n")
    locked.close()
    with pytest.raises(LeaseLost):
        locked.table.save(series)
    with closing(LockedSeries(store, "n")) as again:
        locked.close()  # a second time, which must not release what another run holds
        again.table.save(series)
        assert again.read() == series
    assert not store.leases.holder("series n")
