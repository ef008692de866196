"""Resumes a study in the ledger: merges options that may change, checks that others have not."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.preparation.constraints import (
    constraint_notes,
    quantity_digests,
)
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.resolve import gap_seconds
from prefect_tune.flows.preparation.study_input import InputReader, Note
from prefect_tune.flows.reading.commands import removed_option
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.key import code_digest
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.code_behind import NO_CODE_BEHIND
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.forward_split import study_split
from prefect_tune.tasks.data.row_ids import FixedTestRows
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.source_state import NOTHING_KNOWN, SourceStates
from prefect_tune.tasks.data.split import import_split, load_split
from prefect_tune.tasks.objective.constraint import check_constraints
from prefect_tune.tasks.plugins import check_plugins
from prefect_tune.tasks.user_space import is_user_space, load_user_space

_ANOTHER = "choose another --study name"
_STORED = "resume on the stored copy with --input stored"
_OF_SOURCE = tuple(one.name for one in fields(Source) if one.name in OPTIONS)
_HOW_READ = tuple(name for name in _OF_SOURCE if name not in {"data", "labels", "test"})
UNFINISHED = frozenset({"new", "running", "interrupted"})
"""Ledger states of a study whose run ended early, given that no other process runs it."""


class CannotContinue(BadInput):
    """The study in the ledger does not match the request; another study name avoids this."""


def resume(
    stored: StoredStudy,
    request: StudyRequest,
    store: ArtifactStore,
    reader: InputReader,
    flow_run_id: str | None = None,
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan of a resumed study and notes for the user.

    Allowed changes need no note, because progress and summary show the current values.
    `flow_run_id` is None for a command, which prepares before its flow run. Raises
    `CannotContinue`, `BadInput` or `UnknownName` if a given option cannot change or cannot be used.
    """
    plan = StudyPlan.from_stored(stored)
    check_options_known(stored.name, plan)
    given = request.options
    same = (name for name, option in OPTIONS.items() if option.on_resume == "same")
    subject = f"study {stored.name!r}"
    check_unchanged(subject, plan, request, filter(given.is_given, same))
    is_same_run = is_continued(stored, plan, given, flow_run_id)
    states, remarks = check_same_data(
        subject, plan, request, store, reader, is_same_run=is_same_run
    )
    options = replace(merged(plan.options, given), study=stored.name)
    plan = replace(plan, options=options, source_states=states)
    notes = [Note(f"resuming study {stored.name}", "study", stored.name), *remarks]
    if given.constraint is None:
        return plan, notes
    plan, more = _with_constraints(stored.name, plan, given, store)
    return plan, notes + more


def merged(known: StudyOptions, given: StudyOptions) -> StudyOptions:
    """Return the options of a study, updated by given options that may change."""
    rules = {name: option.on_resume for name, option in OPTIONS.items()}
    changes = {
        name: getattr(given, name)
        for name, rule in rules.items()
        if rule == "anew" or (rule == "changed" and given.is_given(name))
    }
    if not given.stop_rule.is_open:  # a new bound replaces both old ones
        changes |= {"trials": given.trials, "budget": given.budget}
    return replace(known, **changes)


def check_options_known(name: str, plan: StudyPlan) -> None:
    """Check that the method still has the options of an existing study; its results stay readable.

    Raises `CannotContinue`, naming the option, if an option or one of its values was removed, and
    `BadInput` if a plugin of the study differs here.
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
    """Raise `CannotContinue` if a named option differs from the existing study or comparison.

    `subject` names the study or comparison in messages. For a comparison, `plan` is the plan of any
    of its studies.
    """
    for name in names:
        flag, current = OPTIONS[name].flag, getattr(plan.options, name)
        given: Any = getattr(request.options, name)
        known, offered = "", "with it"
        if name == "space" and is_user_space(given):
            if has_other_code(plan, request):
                known = f"was started with a different version of {given}"
        elif given is True and not current:
            known = f"was started without {flag}"
        elif given is False and current is True:
            known, offered = f"was started with {flag}", "without it"
        elif given != current:
            offered = f"with {given}"
            if name == "option":
                known = (
                    f"has {f'method options {dict(current)}' if current else 'no method options'}"
                )
            else:
                known = f"has no {flag}" if current is None else f"has {flag} {current}"
        if known:
            text = f"{subject} {known} and cannot be resumed {offered}"
            raise CannotContinue(text, remedy=remedy)


def _with_constraints(
    name: str, plan: StudyPlan, given: StudyOptions, store: ArtifactStore
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan with new constraints, and notes; raise `BadInput` if one is unusable."""
    problem, bounds = plan.problem, given.bounds
    dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
    for column in replace(plan.options, constraint=bounds).source.aside:
        if dataset.columns is not None and column not in dataset.columns:
            raise BadInput(
                f"--constraint of column {column!r}: study {name!r} excluded it with --drop and "
                "stored no values",
                remedy="start another --study with the constraint",
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


def has_other_code(plan: StudyPlan, request: StudyRequest) -> bool:
    """Return whether the user's space, a module it imports or a data file it names has changed."""
    problem, behind = plan.problem, request.behind
    known, now = problem.behind, replace(behind, nonce=problem.behind.nonce)
    if known == NO_CODE_BEHIND:  # nothing to track, or an older version that tracked nothing
        now = known
    codes = {
        code_digest("space", [text, *one.texts, *(file.digest for file in one.files)])
        for text, one in ((request.space_code, now), (problem.space_code, known))
    }
    if len(codes) > 1 or now.unfollowed != known.unfollowed:
        return True
    space = load_user_space(request.space_code, request.options.space or "", now)
    return problem.as_started(space).digest != problem.space_digest


def is_continued(
    stored: StoredStudy, plan: StudyPlan, given: StudyOptions, flow_run_id: str | None
) -> bool:
    """Return whether this request continues an earlier run; if not, a person extends the study.

    A retry by Prefect has the same flow run id. Options that do not extend the search continue a
    killed or interrupted run.
    """
    if flow_run_id is not None and flow_run_id == plan.flow_run_id:
        return True
    return stored.state in UNFINISHED and not has_grown(plan.options.stop_rule, given.stop_rule)


def has_grown(former: StopRule, given: StopRule) -> bool:
    """Return whether a given stop rule allows more trials or time than the former one."""
    bounds = ((former.trials, given.trials), (former.seconds, given.seconds))
    return not given.is_open and any(
        old is not None and (new is None or new > old) for old, new in bounds
    )


def check_same_data(
    subject: str,
    plan: StudyPlan,
    request: StudyRequest,
    store: ArtifactStore,
    reader: InputReader,
    *,
    is_same_run: bool,
    another: str = _ANOTHER,
) -> tuple[SourceStates, list[Note]]:
    """Check that the input is unchanged; return file states to record, and notes on files.

    Damaged records of the imported copy are restored. Files with unchanged states are not read, and
    with `--input stored`, no file is accessed. If the same run continues, changed files are only
    noted. `another` is the remedy in errors: how to start a new study. Raises `CannotContinue` if
    the data have changed, `BadInput` if the stored copy is requested and damaged, and
    `RecordDamaged` if the split cannot be restored.
    """
    former, options = plan.source, request.options
    named = {name for name in _OF_SOURCE if name == "data" or options.is_given(name)}
    # Options that are left out keep the values of the study.
    given = replace(former, **{name: getattr(options, name) for name in named})
    is_whole = store.records.is_whole(plan.problem.records[0])
    states, notes = plan.source_states, list[Note]()
    if options.input == "stored":
        check_unchanged(subject, plan, request, filter(options.is_given, _HOW_READ), another)
        if not is_whole:
            raise BadInput(
                f"the stored copy of {subject} is damaged",
                option="input",
                value="stored",
                remedy="omit the option to import the data again",
            )
        notes = [Note(f"using the stored copy of {former.data}", "input", "stored")]
    elif given != former or not is_whole:
        _import_again(subject, plan, given, store, reader, another)
    else:
        remedy = f"{another}, or {_STORED}"
        states, notes = check_files(subject, plan, reader, is_same_run=is_same_run, remedy=remedy)
    _restore_split(plan, store)
    return states, notes


def _import_again(  # noqa: PLR0917
    subject: str,
    plan: StudyPlan,
    given: Source,
    store: ArtifactStore,
    reader: InputReader,
    another: str,
) -> None:
    """Import the input again; raise `CannotContinue` if the plan has another data set."""
    check_plugins(plan.problem.plugins)
    dataset, former = reader.read(given), plan.source
    if dataset.digest() != plan.problem.dataset:
        differing = [name for name in _OF_SOURCE if getattr(given, name) != getattr(former, name)]
        flags = " and ".join(OPTIONS[name].flag for name in differing)
        is_whole = store.records.is_whole(plan.problem.records[0])
        has_copy = is_whole and not set(differing) & set(_HOW_READ)
        raise CannotContinue(
            f"{subject} was started with other data ({former.data}) than {given.data} contains"
            + (f" with this {flags}" if flags and given.data == former.data else ""),
            remedy=f"{another}, or {_STORED}" if has_copy else another,
        )
    import_dataset(dataset, store)


def _restore_split(plan: StudyPlan, store: ArtifactStore) -> None:
    """Restore a damaged split; raise `RecordDamaged` if this version splits differently."""
    problem, options = plan.problem, plan.options
    _, split = problem.records
    if store.records.is_whole(split):
        return
    dataset = load_dataset(store, problem.dataset)
    gap = gap_seconds(options, dataset)
    fixed = None if plan.fixed_test is None else FixedTestRows(plan.fixed_test)
    again = study_split(
        dataset, options.folds, options.test_size, plan.seed, options.holdout, gap, fixed
    )
    if again.digest() != problem.split:
        raise RecordDamaged(f"record {split} is damaged, and this version splits differently")
    import_split(again, store)


def check_files(
    subject: str, plan: StudyPlan, reader: InputReader, *, is_same_run: bool, remedy: str = ""
) -> tuple[SourceStates, list[Note]]:
    """Check that the files still contain the data; return file states to record, and notes.

    If the same run continues, changed files are only noted, not read. Plans of earlier versions
    have no file states and pass. Raises `CannotContinue` if the files contain other data.
    """
    known, source = plan.source_states, plan.source
    if known == NOTHING_KNOWN:
        return known, []
    found = reader.states(source, known)
    changed, lost = (
        " and ".join(dict.fromkeys(str(getattr(source, name)) for name in names))
        for names in (found.changed_since(known), found.lost_since(known))
    )
    notes = []
    if lost:
        notes.append(Note(f"{lost} cannot be found or reached; {subject} uses its stored copy"))
    if not changed:
        return found.completed_by(known), notes
    text = f"the content of {changed} has changed since {subject} was started"
    if is_same_run:
        return known, [*notes, Note(f"{text}; the study continues on its stored copy")]
    check_plugins(plan.problem.plugins)
    try:
        digest = reader.read(source).digest()
    except (BadInput, UnknownName) as error:
        raise CannotContinue(f"{text}, and cannot be used: {error}", remedy=remedy) from error
    if digest != plan.problem.dataset:
        raise CannotContinue(text, remedy=remedy)
    return found.completed_by(known), notes
