"""Lookup of series, and of cached step results and their code; removal of studies."""

from contextlib import suppress

from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.study.lease import locked_study, study_lease
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.index import Entry
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.series import Champion, Series, SeriesTable
from prefect_tune.tasks.bad_input import BadInput


def find_series(store: ArtifactStore, name: str) -> Series:
    """Return a series by name; raise `UnknownName` if the series does not exist."""
    table = SeriesTable(store.database)
    series = table.find(name)
    if series is None:
        raise UnknownName(f"series in the store {store.address.url}:", name, table.names())
    return series


def champion_of(store: ArtifactStore, name: str) -> Champion:
    """Return the champion of a series. May raise `UnknownName` or `BadInput`."""
    champion = find_series(store, name).champion
    if champion is None:
        remedy = f"choose the model of a study with `prefect-tune promote {name} STUDY`"
        raise BadInput(f"series {name!r} has no champion yet", remedy=remedy)
    return champion


def keys_of(store: ArtifactStore, name: str) -> list[str]:
    """Return the keys of step results that a study made or its completed trials used.

    Raises `UnknownName` if the study does not exist.
    """
    study = open_study(store, name)
    with documents_of(name):
        used = (step["key"] for trial in study.trials() for step in trial.steps)
        return list(dict.fromkeys([*store.index.keys_of(name), *used]))


def trials_using(store: ArtifactStore, key: str) -> list[tuple[str, int]]:
    """Return study name and number of each completed trial that made or used a step result.

    Damaged studies are skipped.
    """
    users = []
    for name in Ledger(store.database).study_names():
        # A damaged study must not hide other studies.
        with suppress(DatabaseDamaged), documents_of(name):
            trials = open_study(store, name).trials()
            users += [(name, t.number) for t in trials if any(s["key"] == key for s in t.steps)]
    return users


def load_code_of(store: ArtifactStore, entry: Entry) -> None:
    """Load the user's code that a step result needs, if any study still has the code."""
    known = Ledger(store.database).study_names()
    users = (study for study, _ in trials_using(store, entry.key))
    for name in dict.fromkeys([entry.study, *users]):
        with suppress(DatabaseDamaged):  # another study may have the code
            problem = open_study(store, name).plan.problem if name in known else None
            if problem is not None and problem.space_code:
                problem.find_space()
                return


def remove_study(store: ArtifactStore, name: str) -> list[str]:
    """Remove a study; return the ids of the records that were deleted.

    Raises `BadInput` if a process runs the study, or if a series needs the study.
    """
    study = open_study(store, name)
    series, why = None, ""
    with suppress(DatabaseDamaged):  # a damaged study can be removed
        named = study.plan.options.series
        series = None if named is None else SeriesTable(store.database).find(named)
    if series is not None and series.runs[-1].study == study.name:
        why = f"the newest study of series {series.name}, from which the next run starts"
    if series is not None and study.name in {champion.study for champion in series.champions}:
        why = f"a champion of series {series.name}, whose model the series keeps"
    if series is not None and why:
        raise BadInput(
            f"study {study.name!r} is {why}",
            remedy=f"first remove the series with `prefect-tune series {series.name} --remove`, "
            "which keeps its studies",
        )
    with locked_study(store, name):
        lease = study_lease(name)
        # Records go first: after an interruption, the study's name still leads to the rest.
        gone = store.records.release(name, lease=lease)
        Ledger(store.database, lease).delete_study(name)
        return gone
