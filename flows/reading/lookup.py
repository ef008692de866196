"""Finds studies, their trials, and the artifacts they made or used."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.series.series import find_series
from prefect_tune.flows.study.lease import held_study, study_lease
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.database import DatabaseDamaged
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.series import SeriesLog
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput


def find_study(store: ArtifactStore, name: str) -> StoredStudy:
    """Return a study by name; raise `UnknownName` if it does not exist."""
    ledger = Ledger(store.database)
    stored = ledger.study(name)
    if stored is None:
        raise UnknownName(f"study in the store {store.address.url}:", name, ledger.study_names())
    return stored


def study_or_newest(store: ArtifactStore, name: str) -> str:
    """Return the name of a study, or of the newest study of a series; `UnknownName` if neither."""
    ledger = Ledger(store.database)
    if ledger.study(name) is None and SeriesLog(store.database).series(name) is not None:
        for newest in ledger.study_names():
            stored = ledger.study(newest)
            if stored is not None and StudyPlan.from_stored(stored).options.series == name:
                return newest
    return find_study(store, name).name


def list_trials(store: ArtifactStore, name: str) -> list[TrialView]:
    """Return all trials of a study by number; `UnknownName` or `DatabaseDamaged` on failure."""
    find_study(store, name)
    with documents_of(name):
        return [
            TrialView({**document, "query": {**query, "folds": query.get("folds")}})
            for document in map(_checked, Ledger(store.database).trials(name))
            for query in [document["query"]]
        ]


def _checked(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return TrialView(document).checked()


def failed_trials(store: ArtifactStore, name: str) -> list[int]:
    """Return the numbers of a study's failed trials; raise `UnknownName` if it does not exist."""
    trials = list_trials(store, name)
    return [trial.number for trial in trials if trial.state == TrialState.FAILED]


def keys_of(store: ArtifactStore, name: str) -> list[str]:
    """Return the keys of the artifacts that a study made or its completed trials used.

    Raises `UnknownName` if the study does not exist.
    """
    steps = (step for trial in list_trials(store, name) for step in trial.steps)
    return list(dict.fromkeys([*store.index.keys_of(name), *(step["key"] for step in steps)]))


def trials_using(store: ArtifactStore, key: str) -> list[tuple[str, int]]:
    """Return study and number of the completed trials that made or used an artifact.

    Damaged studies are skipped.
    """
    users = []
    for study in Ledger(store.database).study_names():
        with suppress(DatabaseDamaged):  # another study must not hide the artifact
            trials = list_trials(store, study)
            users += [
                (study, trial.number)
                for trial in trials
                if any(step["key"] == key for step in trial.steps)
            ]
    return users


def load_code_of(store: ArtifactStore, entry: Entry) -> None:
    """Load the user's code of an artifact, if a study still has it."""
    users = (study for study, _ in trials_using(store, entry.key))
    for name in dict.fromkeys([entry.study, *users]):
        stored, problem = Ledger(store.database).study(name), None
        with suppress(DatabaseDamaged):  # the code of another study may serve
            problem = None if stored is None else StudyPlan.from_stored(stored).problem
        if problem is not None and (problem.space_code or problem.behind.modules):
            problem.find_space()
            return


def remove_study(store: ArtifactStore, name: str) -> list[str]:
    """Remove a study, and return the ids of its records.

    Raises `BadInput` if a process runs it, or its series needs it.
    """
    _check_unused(store, find_study(store, name))
    with held_study(store, name):
        lease = study_lease(name)
        # Records go first: after an interrupt, the rest can still be found by the study's name.
        gone = store.records.release(name, lease=lease)
        Ledger(store.database, lease).delete_study(name)
        return gone


def _check_unused(store: ArtifactStore, stored: StoredStudy) -> None:
    """Raise `BadInput` if a study is a kept champion or the newest study of its series."""
    series = None
    with suppress(DatabaseDamaged):  # a damaged study can be removed
        name = StudyPlan.from_stored(stored).options.series
        series = None if name is None else find_series(store, name)
    if series is None:
        return
    why = ""
    if series.last is not None and series.last.study == stored.name:
        why = f"the newest study of series {series.name}, and its next run starts from it"
    if stored.name in series.kept:
        why = f"{'the' if stored.name == series.champion else 'a former'} champion of series "
        why += series.name
    if why:
        raise BadInput(
            f"study {stored.name!r} is {why}",
            remedy=f"first remove the series with `prefect-tune series {series.name} --remove`, "
            "which keeps its studies",
        )
