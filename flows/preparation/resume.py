"""A study in the ledger is continued: what may change, and what must be the same."""

from dataclasses import dataclass, replace
from typing import Any

from prefect_tune.flows.preparation.constraints import (
    check_constraints,
    constraint_notes,
    quantity_digests,
)
from prefect_tune.flows.preparation.options import flag_of
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.preparation.study_input import Note, Read
from prefect_tune.flows.study.command import removed_option
from prefect_tune.flows.study.plan import StopRule, StudyPlan
from prefect_tune.storage.key import code_digest
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.split import import_split, load_split, make_split
from prefect_tune.tasks.objective.constraint import kept_aside
from prefect_tune.tasks.objective.quantity import QuantityBound
from prefect_tune.tasks.user_space import find_space, is_user_space

_ANOTHER = "choose another --study name"


class CannotContinue(BadInput):
    """A study in the ledger is not what is asked for; another name is a way out."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A field of the plan, and whether it may change when a study is continued.

    A change is not remarked upon: progress and summary show what holds. What may not change is
    refused, with the value that the study has.

    Attributes:
        field: The field, of the plan and of the settings.
        may_change: Whether another value is taken; it is refused otherwise.
    """

    field: str
    may_change: bool = False

    def given(self, settings: TuneSettings) -> Any:
        """Return what is given now; None if it was left out."""
        value = getattr(settings, self.field)
        return None if value == StopRule() or value == {} else value


RULES = (
    Rule("space"),  # of a user's own, what its file says
    Rule("method"),
    Rule("options"),
    Rule("metric"),
    Rule("positive"),
    Rule("seed"),
    Rule("folds"),
    Rule("holdout"),
    Rule("test_size"),
    Rule("epochs"),
    Rule("race"),
    Rule("start_from"),
    Rule("stop_rule", may_change=True),
    Rule("trial_seconds", may_change=True),
    Rule("trial_memory_bytes", may_change=True),
    Rule("ensemble", may_change=True),
    Rule("use_cache", may_change=True),
    Rule("execution", may_change=True),
)
"""Of each field that can be given again; constraints and data are looked at besides."""


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
    check_options_known(stored.name, plan)
    for rule in RULES:
        if not rule.may_change:
            _check_same(stored.name, plan, rule.field, rule.given(settings))
    _check_same_data(stored.name, plan, settings, store, read)
    given = {rule.field: rule.given(settings) for rule in RULES if rule.may_change}
    changed = replace(plan, **{field: v for field, v in given.items() if v is not None})
    notes = [Note(f"continues study {stored.name}", "study", stored.name)]
    if settings.bounds is None:
        return changed, notes
    changed, more = _with_constraints(stored.name, changed, settings.bounds, store)
    return changed, notes + more


def check_options_known(name: str, plan: StudyPlan) -> None:
    """Check that the method still takes the options with which a study was started.

    Its results stay readable: readers take options as they are stored.

    Raises:
        CannotContinue: If an option, or a value of one, was removed since; names it.
    """
    if removed := removed_option(plan):
        raise CannotContinue(
            f"study {name!r} was started with {removed} of method {plan.method}, which this "
            "version no longer has, so it cannot be extended",
            option="option",
            value=removed,
            remedy="read its results with show, trials, report and export, or start a new "
            "study without that option",
        )


def _check_same(name: str, plan: StudyPlan, field: str, given: Any) -> None:
    """Check that a field is left out, or given the value that the study has.

    Raises:
        CannotContinue: If it is given another one.
    """
    current = getattr(plan, field)
    if field == "space" and given is not None and is_user_space(given):
        _check_same_code(name, plan, given)
    elif given is True and not current:
        raise CannotContinue(
            f"study {name!r} was begun without {flag_of(field)}, and cannot be continued with it",
            remedy=_ANOTHER,
        )
    elif given is False and current is True:
        raise CannotContinue(
            f"study {name!r} was begun with {flag_of(field)}, and cannot be continued without it",
            remedy=_ANOTHER,
        )
    elif given is not None and given != current:
        has = (
            f"{f'the options {dict(current)}' if current else 'no options'} of its method"
            if field == "options"
            else f"{flag_of(field)} {current}"
        )
        raise CannotContinue(
            f"study {name!r} has {has}, and cannot be continued with {given}", remedy=_ANOTHER
        )


def _with_constraints(
    name: str, plan: StudyPlan, bounds: tuple[QuantityBound, ...], store: ArtifactStore
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan with other constraints, and what is to be known of them.

    Raises:
        BadInput: If one needs a column that is gone, or is of a function that has changed.
    """
    problem = plan.problem
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for column in kept_aside(bounds, plan.source.drop):
        if dataset.columns is not None and column not in dataset.columns:
            raise BadInput(
                f"--constraint of column {column!r}: study {name!r} left it out with --drop and "
                "kept no values",
                remedy="choose another --study, with the constraint from its start",
            )
    check_constraints(bounds, dataset, split)
    digests = quantity_digests(bounds)
    for text, digest in digests.items():
        if plan.quantity_digests.get(text, digest) != digest:
            raise BadInput(
                f"the function's file has changed since study {name!r} measured it",
                option="constraint",
                value=text,
                remedy=f"give the function another name, or {_ANOTHER}",
            )
    known = {**plan.quantity_digests, **digests}
    notes = constraint_notes(bounds, dataset, split, plan.method)
    return replace(plan, bounds=bounds, quantity_digests=known), notes


def _check_same_code(name: str, plan: StudyPlan, space: str) -> None:
    """Check that the code in the file of a user's own space is the same as at the start.

    Raises:
        CannotContinue: If it is not.
    """
    found, code = find_space(space)
    codes = {code_digest("space", [text]) for text in (code, plan.problem.space_code)}
    if len(codes) > 1 or plan.problem.as_started(found).digest != plan.problem.space_digest:
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
