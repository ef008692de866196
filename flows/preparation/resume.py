"""A study that is in the ledger already: what may change in its life, and what must be the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.preparation.study_input import Read, constraint_notes, find_constraints
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.split import Split, import_split, load_split, make_split
from prefect_tune.tasks.objective.constraint import kept_aside
from prefect_tune.tasks.problem import Problem, records_of
from prefect_tune.tasks.user_space import find_space, is_user_space

__all__ = ["changed_settings", "continued", "split_of"]

_FIXED = ("space", "method", "metric", "positive", "seed", "folds", "holdout", "test_size")
"""Settings that may not change in the life of a study."""


def continued(
    stored: StoredStudy, settings: TuneSettings, store: ArtifactStore, notes: list[str], read: Read
) -> dict[str, Any]:
    """The study's settings with a new budget, after checking that nothing else changes.

    Args:
        stored: The study.
        settings: What is given now.
        store: Where its data is.
        notes: Gets what a user should know.
        read: Reads the input.

    Raises:
        BadInput, UnknownName: If something cannot change or be used.
    """
    former = stored.settings
    for name in _FIXED:
        given = getattr(settings, name)
        if name == "space" and given is not None and is_user_space(given):
            _check_same_code(stored, given)
        elif given is not None and given != former[name]:
            raise BadInput(
                f"study {stored.name!r} has --{name.replace('_', '-')} {former[name]}, and cannot "
                f"be continued with {given}; choose another --study name"
            )
    if settings.options and dict(settings.options) != former["option"]:
        raise BadInput(
            f"study {stored.name!r} has the options {former['option']} of its method, and cannot "
            f"be continued with {dict(settings.options)}; choose another --study name"
        )
    _check_same_data(stored, settings, store, read)
    trials, budget_seconds = settings.trials, settings.budget_seconds
    if trials is None and budget_seconds is None:
        trials, budget_seconds = former["trials"], former["budget_seconds"]
    if settings.constraints is not None:
        former = _with_limits(stored, settings.constraints, store, notes)
    return {
        **former,
        **changed_settings(settings),
        "trials": trials,
        "budget_seconds": budget_seconds,
        "use_cache": settings.use_cache,
    }


def _with_limits(
    stored: StoredStudy, texts: Sequence[str], store: ArtifactStore, notes: list[str]
) -> dict[str, Any]:
    """The study's settings with other limits.

    Raises:
        BadInput: If one needs a column that is gone, or is of a function that has changed.
    """
    problem, former = Problem.from_json(stored.problem), stored.settings
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for column in kept_aside(texts, former["source"]["drop"]):
        if dataset.columns is not None and column not in dataset.columns:
            raise BadInput(
                f"--constraint of column {column!r}: study {stored.name!r} left it out with "
                "--drop and kept no values; choose another --study, with the limit from its start"
            )
    bounds = find_constraints(texts, dataset, split)
    measured = former["quantity_digests"]
    digests = {b.quantity.text: b.quantity.digest for b in bounds}
    for text, digest in digests.items():
        if measured.get(text, digest) != digest:
            raise BadInput(
                f"--constraint {text}: the function's file has changed since study "
                f"{stored.name!r} measured it; give the function another name, or choose another "
                "--study name"
            )
    notes += constraint_notes(bounds, dataset, split, former["method"])
    return {
        **former,
        "constraint": [b.to_json() for b in bounds],
        "quantity_digests": {**measured, **digests},
    }


def changed_settings(settings: TuneSettings) -> dict[str, Any]:
    """What may change in a study's life and is given anew; what is left out stays the study's."""
    names = ("trial_seconds", "trial_memory_bytes", "ensemble")
    given = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _check_same_code(stored: StoredStudy, space: str) -> None:
    """A user's own space is what its file says: the text must be the same."""
    found, code = find_space(space)
    problem = Problem.from_json(stored.problem)
    if (code, found.digest) != (problem.space_code, problem.space_digest):
        raise BadInput(
            f"study {stored.name!r} was made with another space than what {space} now holds, and "
            "cannot be continued with it; choose another --study name"
        )


def _check_same_data(
    stored: StoredStudy, settings: TuneSettings, store: ArtifactStore, read: Read
) -> None:
    """Same input by name: the imported copy counts. Other input: its content must be the same.

    What is damaged of the imported data and of the split is written again.
    """
    problem = Problem.from_json(stored.problem)
    data, split = records_of(stored.problem)
    former = stored.settings["source"]
    given = replace(
        settings.source, predicts=former["predicts"], aside=tuple(former.get("aside", ()))
    )
    is_same_input = given.to_json() == stored.settings["source"]
    if not is_same_input or not store.records.is_whole(data):
        dataset = read(given)
        if dataset.digest() != problem.dataset:
            raise BadInput(
                f"study {stored.name!r} was made with other data "
                f"({stored.settings['source']['data']}) than {settings.source.data} holds; choose "
                "another --study name"
            )
        import_dataset(dataset, store)
    if not store.records.is_whole(split):
        again = split_of(load_dataset(store, problem.dataset), stored.settings)
        if again.digest() != problem.split:
            raise RecordDamaged(f"record {split} is damaged, and this version splits otherwise")
        import_split(again, store)


def split_of(dataset: Dataset, resolved: Mapping[str, Any]) -> Split:
    """The split that settings of a study say."""
    return make_split(
        dataset,
        resolved["folds"],
        resolved["test_size"],
        resolved["seed"],
        resolved["holdout"],
    )
