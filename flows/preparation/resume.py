"""A study in the ledger is resumed: what may change, and what must be the same."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.preparation.constraints import (
    constraint_notes,
    quantity_digests,
)
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.study_input import Note, Read
from prefect_tune.flows.reading.commands import removed_option
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.key import code_digest
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.split import import_split, load_split, make_split
from prefect_tune.tasks.objective.constraint import check_constraints
from prefect_tune.tasks.plugins import check_plugins
from prefect_tune.tasks.user_space import is_user_space

_ANOTHER = "choose another --study name"


class CannotContinue(BadInput):
    """A study in the ledger is not what is asked for; another name is a way out."""


def resume(
    stored: StoredStudy, request: StudyRequest, store: ArtifactStore, read: Read
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan that a study is resumed with, and what a user should know of it.

    A change that is allowed is not remarked upon: progress and summary show what holds.

    Args:
        stored: The study.
        request: The request.
        store: Where its data is.
        read: Reads the input.

    Raises:
        CannotContinue, BadInput, UnknownName: If something is given that cannot change or be used.
    """
    plan = StudyPlan.from_stored(stored)
    check_options_known(stored.name, plan)
    given = request.options
    same = (name for name, option in OPTIONS.items() if option.on_resume == "same")
    check_unchanged(f"study {stored.name!r}", plan, request, filter(given.is_given, same))
    _check_same_data(stored.name, plan, given, store, read)
    options = replace(merged(plan.options, given), study=stored.name)
    plan = replace(plan, options=options)
    notes = [Note(f"continues study {stored.name}", "study", stored.name)]
    if given.constraint is None:
        return plan, notes
    plan, more = _with_constraints(stored.name, plan, given, store)
    return plan, notes + more


def merged(known: StudyOptions, given: StudyOptions) -> StudyOptions:
    """Return the options of a study with those that are given now and may change."""
    rules = {name: option.on_resume for name, option in OPTIONS.items()}
    changes = {
        name: getattr(given, name)
        for name, rule in rules.items()
        if rule == "anew" or (rule == "changed" and given.is_given(name))
    }
    if not given.stop_rule.is_open:  # one of the two bounds lifts the other
        changes |= {"trials": given.trials, "budget": given.budget}
    return replace(known, **changes)


def check_options_known(name: str, plan: StudyPlan) -> None:
    """Check that the method still takes the options with which a study was started.

    Its results stay readable: readers take options as they are stored.

    Raises:
        CannotContinue: If an option, or a value of one, was removed since; names it.
        BadInput: If a plugin that the study uses is another one here.
    """
    check_plugins(plan.problem.running_plugins)
    if removed := removed_option(plan):
        raise CannotContinue(
            f"study {name!r} was started with {removed} of method {plan.method}, which this "
            "version no longer has, so it cannot be extended",
            option="option",
            value=removed,
            remedy="read its results with show, trials, report and export, or start a new "
            "study without that option",
        )


def check_unchanged(
    subject: str,
    plan: StudyPlan,
    request: StudyRequest,
    names: Iterable[str],
    remedy: str = _ANOTHER,
) -> None:
    """Check that options are given the values with which a study or comparison was begun.

    Args:
        subject: The study or comparison, as people call it.
        plan: Plan of the study, or of one in the comparison.
        request: The request.
        names: Names of the options to check.
        remedy: The way out.

    Raises:
        CannotContinue: If one is given another value.
    """
    for name in names:
        flag, current = OPTIONS[name].flag, getattr(plan.options, name)
        given: Any = getattr(request.options, name)
        known, offered = "", "with it"
        if name == "space" and is_user_space(given):
            if _has_other_code(plan, request):
                known = f"was made with another space than what {given} now holds"
        elif given is True and not current:
            known = f"was begun without {flag}"
        elif given is False and current is True:
            known, offered = f"was begun with {flag}", "without it"
        elif given != current:
            offered = f"with {given}"
            if name == "option":
                known = f"has {f'the options {dict(current)}' if current else 'no options'}"
                known += " of its method"
            else:
                known = f"has no {flag}" if current is None else f"has {flag} {current}"
        if known:
            text = f"{subject} {known}, and cannot be continued {offered}"
            raise CannotContinue(text, remedy=remedy)


def _with_constraints(
    name: str, plan: StudyPlan, given: StudyOptions, store: ArtifactStore
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan with other constraints, and what is to be known of them.

    Raises:
        BadInput: If one needs a column that is gone, or is of a function that has changed.
    """
    problem, bounds = plan.problem, given.bounds
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for column in replace(plan.options, constraint=bounds).source.aside:
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
    options = replace(plan.options, constraint=bounds)
    return replace(plan, options=options, quantity_digests=known), notes


def _has_other_code(plan: StudyPlan, request: StudyRequest) -> bool:
    """Return whether the file of a user's own space has changed since the start."""
    texts = (request.space_code, plan.problem.space_code)
    codes = {code_digest("space", [text]) for text in texts}
    assert request.space is not None  # noqa: S101 - it is given
    started = plan.problem.as_started(request.space)
    return len(codes) > 1 or started.digest != plan.problem.space_digest


def _check_same_data(
    name: str, plan: StudyPlan, options: StudyOptions, store: ArtifactStore, read: Read
) -> None:
    """Check that the input is the same, and restore what is damaged of its imported copy.

    Of the same input by name the imported copy counts; of another one the content must be equal.

    Raises:
        CannotContinue: If it is not.
        RecordDamaged: If the split is damaged and cannot be made again.
    """
    problem, former = plan.problem, plan.source
    data, split = problem.records
    given = replace(options.source, predicts=former.predicts, aside=former.aside)
    if given != former or not store.records.is_whole(data):
        check_plugins(problem.plugins)
        dataset = read(given)
        if dataset.digest() != problem.dataset:
            flags = [
                one.flag
                for one in OPTIONS.values()
                if getattr(given, one.name, None) != getattr(former, one.name, None)
            ]
            how = f" with this {' and '.join(flags)}" if given.data == former.data else ""
            raise CannotContinue(
                f"study {name!r} was made with other data ({former.data}) than "
                f"{options.data} holds{how}",
                remedy=_ANOTHER,
            )
        import_dataset(dataset, store)
    if not store.records.is_whole(split):
        dataset = load_dataset(store, problem.dataset)
        options = plan.options
        again = make_split(dataset, options.folds, options.test_size, plan.seed, options.holdout)
        if again.digest() != problem.split:
            raise RecordDamaged(f"record {split} is damaged, and this version splits otherwise")
        import_split(again, store)
