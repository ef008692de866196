"""Resumption of a study: merges options that may change, and rejects other changes."""

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, replace

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.starting.resolve import split_of
from prefect_tune.flows.starting.study_input import InputReader, Note, StudyRequest
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.code_digest import code_digest
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import import_split
from prefect_tune.tasks.problem import check_plugins
from prefect_tune.tasks.user_code import changed_libraries
from prefect_tune.tasks.user_space import is_user_space, load_user_space

_ANOTHER = "choose another --study name"
_STORED = "resume on the stored copy with --input 'stored'"
_OF_SOURCE = tuple(one.name for one in fields(Source) if one.name in OPTIONS)
_HOW_READ = tuple(name for name in _OF_SOURCE if name not in {"data", "labels", "test"})
UNFINISHED = frozenset({"new", "running", "interrupted"})
"""Ledger states that mean, if no process runs the study, that its last run ended early."""


class CannotContinue(BadInput):
    """The request does not fit the study in the ledger. A new study name avoids the error."""


def resume(
    stored: StoredStudy,
    request: StudyRequest,
    store: ArtifactStore,
    reader: InputReader,
    flow_run_id: str | None = None,
) -> tuple[StudyPlan, list[Note]]:
    """Return the plan of a resumed study, and notes for the user.

    Allowed changes of options are not noted, because progress and summary show the current values.
    `flow_run_id` is None if a command prepares the study before its flow run. Raises
    `CannotContinue`, `BadInput` or `UnknownName` if a given option cannot change or is invalid.
    """
    plan, given = StudyPlan.from_stored(stored), request.options
    check_plugins(plan.problem.running_plugins)
    same = (name for name, option in OPTIONS.items() if option.on_resume == "same")
    subject = f"study {stored.name!r}"
    check_unchanged(subject, plan, request, filter(given.is_given, same))
    is_same_run = is_continued(stored, plan, given, flow_run_id)
    remarks = check_same_data(subject, plan, request, store, reader, is_same_run=is_same_run)
    plan = replace(plan, options=replace(merged(plan.options, given), study=stored.name))
    remarks += map(Note, changed_libraries(stored.result.get("versions", {})))
    return plan, [Note(f"resuming study {stored.name}", "study", stored.name), *remarks]


def merged(known: StudyOptions, given: StudyOptions) -> StudyOptions:
    """Return the options of a study, updated by the given options that may change."""
    changes = {
        name: getattr(given, name)
        for name, option in OPTIONS.items()
        if option.on_resume == "anew" or (option.on_resume == "changed" and given.is_given(name))
    }
    if not given.stop_rule.is_open:  # a new bound replaces both previous bounds
        changes |= {"trials": given.trials, "budget": given.budget}
    return replace(known, **changes)


def check_unchanged(
    subject: str,
    plan: StudyPlan,
    request: StudyRequest,
    names: Iterable[str],
    remedy: str = _ANOTHER,
) -> None:
    """Raise `CannotContinue` if an option in `names` differs from the existing study.

    `subject` names the study or comparison in messages. For a comparison, `plan` is the plan of any
    study in the comparison.
    """
    for name in names:
        option, texts = OPTIONS[name], list[str]()
        for options in (request.options, plan.options):
            words = (word for pair in option.words(getattr(options, name)) for word in pair if word)
            texts.append(shlex.join(words) or f"no {option.flag}")
        given, current = texts
        if given != current:
            text = f"{subject} has {current} and cannot be resumed with {given}"
        elif name == "space" and is_user_space(plan.space) and has_other_code(plan, request):
            text = f"{subject} was started with a different version of {plan.space}"
        elif (
            name == "constraint"
            and request.options.quantity_digests != plan.options.quantity_digests
        ):
            text = f"{subject} was started with a different version of the function in {given}"
        else:
            continue
        if name == "constraint":
            remedy += f" and start from its best trials with --start {plan.options.study!r}"
        raise CannotContinue(text, remedy=remedy)


def has_other_code(plan: StudyPlan, request: StudyRequest) -> bool:
    """Return whether the user's space, a module that it imports, or a data file has changed."""
    problem, behind = plan.problem, request.behind
    known, now = problem.behind, replace(behind, nonce=problem.behind.nonce)
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
    """Return whether a request continues an earlier run rather than extending the study.

    A request continues a run if it is a retry by Prefect, which has the same flow run id, or if the
    run was killed or interrupted and the search is not extended.
    """
    if flow_run_id is not None and flow_run_id == plan.flow_run_id:
        return True
    return stored.state in UNFINISHED and not has_grown(plan.options.stop_rule, given.stop_rule)


def has_grown(former: StopRule, given: StopRule) -> bool:
    """Return whether a stop rule allows more trials or more time than the former stop rule."""
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
) -> list[Note]:
    """Check that the input is the data of the study; return notes for the user.

    The input is read, and digests of the rows are compared. Damaged records of the stored copy are
    restored. With `--input stored`, no file is read. If the request continues a run, changed rows
    only cause a note. In error messages, `another` tells how to start a new study. Raises
    `CannotContinue` if the data has changed, `BadInput` if the stored copy is requested but
    damaged, and `RecordDamaged` if the split cannot be restored.
    """
    former, options = plan.source, request.options
    named = {name for name in _OF_SOURCE if name == "data" or options.is_given(name)}
    # Omitted options keep the values of the study.
    given = replace(former, **{name: getattr(options, name) for name in named})
    is_whole, notes = store.records.is_whole(plan.problem.records[0]), list[Note]()
    if options.input == "stored":
        check_unchanged(subject, plan, request, filter(options.is_given, _HOW_READ), another)
        if not is_whole:
            raise BadInput(
                f"the stored copy of {subject} is damaged",
                option="input",
                value="stored",
                remedy="omit --input to import the data again",
            )
        notes = [Note(f"using the stored copy of {former.data}", "input", "stored")]
    elif is_whole and given == former and not given.files:
        pass  # generated data never changes
    elif is_whole and given == former and (lost := _unreachable(given)):
        notes = [Note(f"{lost} cannot be found or reached; {subject} uses its stored copy")]
    elif changed := _read_again(subject, plan, given, store, reader):
        if not (is_same_run and is_whole and given == former):
            has_copy = is_whole and not {*_differing(given, former)} & {*_HOW_READ}
            remedy = f"{another}, or {_STORED}" if has_copy else another
            raise CannotContinue(changed, remedy=remedy)
        notes = [Note(f"{changed}; the study continues on its stored copy")]
    record = plan.problem.records[1]
    if not store.records.is_whole(record):
        split_options = replace(plan.options, seed=plan.seed)
        split = split_of(split_options, load_dataset(store, plan.problem.dataset), plan.fixed_test)
        if split.digest() != plan.problem.split:
            damaged = f"record {record} is damaged, and cannot be restored because this version"
            raise RecordDamaged(f"{damaged} of prefect-tune splits the data differently")
        import_split(split, store)
    return notes


def _unreachable(source: Source) -> str:
    """Return the first missing or unreachable file of a source; empty if all can be read."""
    for file in source.files:
        with suppress(BadInput):
            if Location.at(file).exists() or Location.at(source.data).below(file).exists():
                continue
        return file
    return ""


def _differing(given: Source, former: Source) -> list[str]:
    return [name for name in _OF_SOURCE if getattr(given, name) != getattr(former, name)]


def _read_again(
    subject: str, plan: StudyPlan, given: Source, store: ArtifactStore, reader: InputReader
) -> str:
    """Read the input, and restore a damaged copy; return a sentence if the rows differ."""
    former, cause = plan.source, ""
    check_plugins(plan.problem.plugins)
    try:
        dataset = reader(given)
    except Exception as error:  # any class: a file may be truncated, or a library missing
        if given != former:
            raise
        cause = f", and cannot be used: {error}"
    else:
        if dataset.digest() == plan.problem.dataset:
            if not store.records.is_whole(plan.problem.records[0]):
                import_dataset(dataset, store)
            return ""
    if given == former:
        files = " or ".join(given.files)
        return f"the content of {files} has changed since {subject} was started{cause}"
    flags = " and ".join(OPTIONS[name].flag for name in _differing(given, former))
    if given.data == former.data:
        return f"{subject} was started with different {flags}, so its data are different"
    return f"{subject} was started with the data of {former.data}, which differs from {given.data}"
