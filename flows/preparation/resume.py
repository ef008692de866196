"""A study in the ledger is continued: what may change, and what must be the same."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prefect_tune.flows.preparation.constraints import (
    constraint_notes,
    find_constraints,
    quantity_digests,
)
from prefect_tune.flows.preparation.notes import Note
from prefect_tune.flows.preparation.options import flag_of
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.preparation.study_input import Read
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.split import import_split, load_split, make_split
from prefect_tune.tasks.objective.constraint import kept_aside
from prefect_tune.tasks.user_space import find_space, is_user_space

__all__ = ["CannotContinue", "resume"]

_ANOTHER = "choose another --study name"


class CannotContinue(BadInput):
    """A study in the ledger is not what is asked for; another name is a way out."""


Merge = Callable[[StudyPlan, TuneSettings], dict[str, Any]]
"""Returns the fields of a plan that what is given now changes."""


def _if_given(field: str) -> Merge:
    def merge(plan: StudyPlan, settings: TuneSettings) -> dict[str, Any]:  # noqa: ARG001
        value = getattr(settings, field)
        return {} if value is None else {field: value}

    return merge


FIXED = ("space", "method", "metric", "positive", "seed", "folds", "holdout", "test_size")
"""Fields that stay as they are; giving another value is refused."""
CHANGING: Mapping[str, Merge] = {
    "stop_rule": lambda _, given: {} if given.stop_rule.is_open else {"stop_rule": given.stop_rule},
    "trial_seconds": _if_given("trial_seconds"),
    "trial_memory_bytes": _if_given("trial_memory_bytes"),
    "ensemble": _if_given("ensemble"),
    "use_cache": lambda _, given: {"use_cache": given.use_cache},
    "execution": lambda _, given: {"execution": given.execution},
}
"""Fields that may change, with what they become; constraints may too, after a look at the data."""


def resume(
    stored: StoredStudy, settings: TuneSettings, store: ArtifactStore, read: Read
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan that a study is continued with, and what a user should know of it.

    Args:
        stored: The study.
        settings: What is given now.
        store: Where its data is.
        read: Reads the input.

    Raises:
        CannotContinue, BadInput, UnknownName: If something is given that cannot change or be used.
    """
    plan = StudyPlan.from_stored(stored)
    _check_fixed(stored.name, plan, settings)
    _check_same_data(stored.name, plan, settings, store, read)
    changes: dict[str, Any] = {}
    for merge in CHANGING.values():
        changes |= merge(plan, settings)
    # One that was entered and never run is not continued: this is its first session.
    notes = [Note(f"continues study {stored.name}", "study", stored.name)] * bool(plan.flow_run_id)
    if settings.constraints is not None:
        found, more = _with_constraints(stored.name, plan, settings.constraints, store)
        changes |= found
        notes += more
    return replace(plan, **changes), notes


def _check_fixed(name: str, plan: StudyPlan, settings: TuneSettings) -> None:
    """Check that no fixed field is given another value.

    Raises:
        CannotContinue: If one is; names it.
    """
    for field in FIXED:
        given, current = getattr(settings, field), getattr(plan, field)
        if field == "space" and given is not None and is_user_space(given):
            _check_same_code(name, plan, given)
        elif given is not None and given != current:
            raise CannotContinue(
                f"study {name!r} has {flag_of(field)} {current}, and cannot be continued with "
                f"{given}",
                remedy=_ANOTHER,
            )
    if settings.options and dict(settings.options) != dict(plan.options):
        raise CannotContinue(
            f"study {name!r} has the options {dict(plan.options)} of its method, and cannot be "
            f"continued with {dict(settings.options)}",
            remedy=_ANOTHER,
        )


def _with_constraints(
    name: str, plan: StudyPlan, texts: tuple[str, ...], store: ArtifactStore
) -> tuple[dict[str, Any], list[Note]]:
    """Return the fields that other constraints change, with notes; nothing if they are the same.

    Raises:
        BadInput: If one needs a column that is gone, or is of a function that has changed.
    """
    problem = plan.problem
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for column in kept_aside(texts, plan.source.drop):
        if dataset.columns is not None and column not in dataset.columns:
            raise BadInput(
                f"--constraint of column {column!r}: study {name!r} left it out with --drop and "
                "kept no values",
                remedy="choose another --study, with the constraint from its start",
            )
    bounds = find_constraints(texts, dataset, split)
    digests = quantity_digests(bounds)
    for text, digest in digests.items():
        if plan.quantity_digests.get(text, digest) != digest:
            raise BadInput(
                f"the function's file has changed since study {name!r} measured it",
                option="constraint",
                value=text,
                remedy=f"give the function another name, or {_ANOTHER}",
            )
    if bounds == plan.bounds:
        return {}, []
    changes = {"bounds": bounds, "quantity_digests": {**plan.quantity_digests, **digests}}
    return changes, constraint_notes(bounds, dataset, split, plan.method)


def _check_same_code(name: str, plan: StudyPlan, space: str) -> None:
    """Check that the file of a user's own space says what it said.

    Raises:
        CannotContinue: If it does not.
    """
    found, code = find_space(space)
    digest = plan.problem.as_started(found).digest
    if (code, digest) != (plan.problem.space_code, plan.problem.space_digest):
        raise CannotContinue(
            f"study {name!r} was made with another space than what {space} now holds, and cannot "
            "be continued with it",
            remedy=_ANOTHER,
        )


def _check_same_data(
    name: str, plan: StudyPlan, settings: TuneSettings, store: ArtifactStore, read: Read
) -> None:
    """Check that the input is the same, and restore what is damaged of its imported copy.

    Of the same input by name the imported copy counts; of another one the content must be equal.

    Raises:
        CannotContinue: If it is not.
        RecordDamaged: If the split is damaged and cannot be made again.
    """
    problem, former = plan.problem, plan.source
    data, split = problem.records
    given = replace(settings.source, predicts=former.predicts, aside=former.aside)
    if given != former or not store.records.is_whole(data):
        dataset = read(given)
        if dataset.digest() != problem.dataset:
            raise CannotContinue(
                f"study {name!r} was made with other data ({former.data}) than "
                f"{settings.source.data} holds",
                remedy=_ANOTHER,
            )
        import_dataset(dataset, store)
    if not store.records.is_whole(split):
        dataset = load_dataset(store, problem.dataset)
        again = make_split(dataset, plan.folds, plan.test_size, plan.seed, plan.holdout)
        if again.digest() != problem.split:
            raise RecordDamaged(f"record {split} is damaged, and this version splits otherwise")
        import_split(again, store)
