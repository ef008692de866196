"""A series whose lease this process holds, so that no other process may change the series."""

from time import monotonic, sleep

from prefect_tune.flows.reading.lookup import find_series
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import champion_record, model_record
from prefect_tune.storage.series import Champion, Series, SeriesTable, series_lease
from prefect_tune.tasks.bad_input import BadInput

_POLL_SECONDS = 0.5


class SeriesBusy(BadInput):
    """Another run of the series is in progress."""


class LockedSeries:
    """A series, existing or new, whose lease this process holds until `close` is called.

    Changes raise `LeaseLost` if another process has taken the lease.

    Args:
        store: Store that contains the series.
        name: Name of the series.
        seconds: Maximum time to wait for another process that holds the series.

    Raises:
        SeriesBusy: If another run holds the series.
    """

    def __init__(self, store: ArtifactStore, name: str, seconds: float = 0.0) -> None:
        self.store, self.name, self._is_locked = store, name, True
        self.table = SeriesTable(store.database)
        until = monotonic() + seconds
        while not store.leases.acquire(series_lease(name)):
            if monotonic() >= until:
                holder = store.leases.holder(series_lease(name)) or "another process"
                raise SeriesBusy(
                    f"series {name!r} is in use by {holder}, and only one run may change it",
                    remedy="wait for that run, or end it",
                )
            sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Release the lease, unless it was already released."""
        if self._is_locked:  # another run in this process may hold the lease by now
            self._is_locked = False
            self.store.leases.release(series_lease(self.name))

    def read(self) -> Series:
        """Return the current series; raise `UnknownName` if the series does not exist."""
        return find_series(self.store, self.name)

    def model_copy(self, study: str) -> str:
        """Return the record id for a copy of a study's current model."""
        digest = self.store.records.parts(model_record(study))["model"].digest
        return champion_record(self.name, study, digest)

    def keep_model(self, champion: Champion) -> None:
        """Store a copy of a champion's model, unless a copy exists."""
        if not self.store.records.exists(champion.record):
            self.store.records.copy(model_record(champion.study), champion.record, self._user)

    def release_models(self) -> None:
        """Release copies of models that are no longer champions."""
        series, records = self.table.find(self.name), self.store.records
        kept = {champion.record for champion in series.champions} if series else set()
        records.release(self._user, [r for r in records.used_by(self._user) if r not in kept])

    def delete(self) -> None:
        """Delete the series and the copies of its champions, but not its studies."""
        self.table.delete(self.name)
        self.release_models()

    @property
    def _user(self) -> str:
        """Name under which the series uses records. No study can have the same name."""
        return f"series {self.name}"
