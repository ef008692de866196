"""Prepares a comparison: checks all input, then enters the replicates in the ledger."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from prefect_tune.flows.comparison.comparison import (
    Comparison,
    Entrant,
    Replicate,
    entrant_of,
    parse_methods,
)
from prefect_tune.flows.options.declared import (
    COMPARE_OPTIONS,
    OPTIONS,
    CompareOptions,
    StudyOptions,
)
from prefect_tune.flows.output_files import check_output, input_files
from prefect_tune.flows.preparation.handover import Handover
from prefect_tune.flows.preparation.prepare import PreparedStudy, prepare, study_name_from
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.resolve import check_method, evaluation_setup
from prefect_tune.flows.preparation.resume import (
    CannotContinue,
    check_options_known,
    check_same_data,
    check_unchanged,
    is_continued,
)
from prefect_tune.flows.preparation.study_input import InputReader, Note, StudyInput, read_input
from prefect_tune.flows.study.lease import StudyBusy
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.source_state import NOTHING_KNOWN, SourceStates

HANDOVER: Handover[Comparison] = Handover()
"""Passes a comparison from the command `compare` to its flow."""

_DEFAULT_REPEATS: int = COMPARE_OPTIONS["repeats"].standard
_ANOTHER = "choose another --name"


def prepare_comparison(
    parameters: Mapping[str, Any], default_name: str | None = None, flow_run_id: str | None = None
) -> Comparison:
    """Read and check the input, and enter the replicates in the ledger or find them there.

    By default, a comparison is named after data and time. `flow_run_id` is None for a command,
    which prepares before its flow run. Raises `BadInput`, `UnknownName` or `StoreRefused` if an
    option cannot be used.
    """
    own = CompareOptions.parse(parameters)
    if own.methods is not None:
        parse_methods(own.methods)
    given = {option: value for option, value in parameters.items() if option in OPTIONS}
    given["task_runs"] = given.get("task_runs") or COMPARE_OPTIONS["task_runs"].default_text
    request = StudyRequest.parse(given)
    store = request.open_store()
    name = own.name or default_name
    former = [] if name is None else _former_replicates(store, name)
    design = _Design.of(own, former)
    request = _completed(request, former[0]) if former else request
    _check_comparable(request.options)
    has_all = len(former) == len(list(design))
    is_same_run = has_all and any(
        is_continued(one.stored(), one.plan, request.options, flow_run_id) for one in former
    )
    reader, remarks = _common_reader(request, store, former, is_same_run=is_same_run)
    if name is None or not has_all:
        found = read_input(request, reader)
        _check_entrants(request, design, found)  # all of them, before any study is entered
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = name or f"{study_name_from(found.dataset.name)}-compare-{now}"
    race = request.options.race
    named = input_files(vars(request.options))
    out = check_output(own.out or f"{name}.parquet", named, store)
    races = {one.entrant.suffix: one.plan.options.race for one in former}
    replicates = tuple(
        Replicate(
            entrant,
            repeat,
            _prepare_replicate(
                request.with_options(
                    method=entrant.method,
                    option=entrant.options,
                    seed=_first_seed(request) + repeat,
                    study=_study_name(name, repeat, entrant),
                    race=races.get(entrant.suffix) if race is None else race,
                ),
                store,
                reader,
            ),
        )
        for repeat, entrant in design
    )
    notes = tuple(dict.fromkeys((*_notes(name, replicates), *remarks)))
    return Comparison(name, request.options, store, replicates, out, notes)


@dataclass(frozen=True)
class _Design:
    entrants: tuple[Entrant, ...]
    n_repeats: int

    @classmethod
    def of(cls, options: CompareOptions, former: Sequence[Replicate]) -> "_Design":
        """Return the given methods and repeats, merged with a resumed comparison's."""
        given = options.methods
        by_default = ",".join(m.name for m in METHODS.without_plugins() if m.compared_by_default)
        entrants = parse_methods(given or ("" if former else by_default))
        both: dict[str, Entrant] = {}
        for entrant in (*entrants, *(one.entrant for one in former)):
            both.setdefault(entrant.suffix, entrant)
        if len(both) < 2:
            raise BadInput(
                "a comparison needs at least two methods, separated by commas; known methods: "
                f"{', '.join(METHODS)}",
                option="methods",
                value=given,
            )
        n_former = max((one.repeat + 1 for one in former), default=0)
        return cls(
            tuple(both.values()), max(options.repeats or n_former or _DEFAULT_REPEATS, n_former)
        )

    def __iter__(self) -> Iterator[tuple[int, Entrant]]:
        for repeat in range(self.n_repeats):
            first = repeat % len(self.entrants)  # so that not always the same methods run together
            for entrant in self.entrants[first:] + self.entrants[:first]:
                yield repeat, entrant


def _former_replicates(store: ArtifactStore, name: str) -> list[Replicate]:
    found, ledger = [], Ledger(store.database)
    for study in ledger.study_names():
        match = re.fullmatch(rf"{re.escape(name)}-(\d+)-(.+)", study)
        stored = ledger.study(study) if match else None
        if match is None or stored is None:
            continue
        plan = StudyPlan.from_stored(stored)
        entrant = entrant_of(plan.method, plan.options.option)
        if entrant.suffix == match[2]:  # else a study that has this name by chance
            check_options_known(study, plan)
            found.append(Replicate(entrant, int(match[1]), PreparedStudy(study, plan, store)))
    return found


def _completed(request: StudyRequest, former: Replicate) -> StudyRequest:
    """Complete the request with shared options; raise `BadInput` if a given one cannot change."""
    given, seed = request.options, former.plan.seed - former.repeat
    plan = replace(former.plan, options=replace(former.plan.options, seed=seed))
    shared = ["seed", *(name for name, option in OPTIONS.items() if option.is_shared)]
    named = [name for name in shared if given.is_given(name)]
    check_unchanged("the comparison", plan, request, [*named, "no_cache"], _ANOTHER)
    changes = {name: getattr(plan.options, name) for name in shared if name not in named}
    if given.stop_rule.is_open:
        changes |= {"trials": plan.options.trials, "budget": plan.options.budget}
    options = replace(given, **changes)
    return request if options == given else StudyRequest.of(options)


def _common_reader(
    request: StudyRequest, store: ArtifactStore, former: Sequence[Replicate], *, is_same_run: bool
) -> tuple[InputReader, list[Note]]:
    """Return the reader that all replicates share; it reads the input or its imported copy."""
    reader, options = InputReader().cached(), request.options
    if not former and options.input is not None:
        raise BadInput(
            "a new comparison has no stored copy",
            option="input",
            value=options.input,
            remedy="name an existing comparison with --name, or omit the option",
        )
    if not former:
        return reader, []
    plan = former[0].plan
    states, notes = check_same_data(
        "the comparison", plan, request, store, reader, is_same_run=is_same_run, another=_ANOTHER
    )

    def read(_: Source) -> Dataset:
        dataset = load_dataset(store, plan.problem.dataset)
        read_as = plan.options.format or dataset.kind
        return replace(dataset, name=plan.data_name, format=read_as)

    def known_or_found(_: Source, known: SourceStates) -> SourceStates:
        return states if known == NOTHING_KNOWN else known

    return InputReader(read, known_or_found), notes


def _check_comparable(options: StudyOptions) -> None:
    if (options.trials is None) == (options.budget is None):
        raise BadInput(
            "methods are compared at equal time or at equal trials: set either --budget, for "
            "instance --budget 2m for each replicate, or --trials"
        )
    if options.test_size == 0:
        reason = "methods are compared on test rows"
        raise BadInput(reason, option="test-size", value=0, remedy="use a share above 0")


def _check_entrants(request: StudyRequest, design: _Design, found: StudyInput) -> None:
    seeds = [_first_seed(request) + repeat for repeat in range(design.n_repeats)]
    objectives = [
        evaluation_setup(request.with_options(seed=seed), found).objective for seed in seeds
    ]
    for repeat, entrant in design:
        check_method(
            entrant.method,
            entrant.options,
            found.space,
            objectives[repeat],
            option="methods",
            value=entrant.label,
            race=bool(request.options.race),
        )


def _first_seed(request: StudyRequest) -> int:
    given = request.options.seed
    return OPTIONS["seed"].standard if given is None else given


def _study_name(name: str, repeat: int, entrant: Entrant) -> str:
    full = f"{name}-{repeat}-{entrant.suffix}"
    CompareOptions.parse({"name": full})
    return full


def _prepare_replicate(
    request: StudyRequest, store: ArtifactStore, reader: InputReader
) -> PreparedStudy:
    try:
        return prepare(request, store, reader=reader, is_compared=True)
    except CannotContinue as error:  # its remedy is written for studies
        raise error.with_remedy(_ANOTHER) from error
    except StudyBusy as error:
        raise error.with_remedy(f"wait for it, end it, or {_ANOTHER}") from error


def _notes(name: str, replicates: tuple[Replicate, ...]) -> tuple[Note, ...]:
    """Return the notes on the data without duplicates, and the progress of the comparison."""
    found = dict.fromkeys(note for r in replicates for note in r.prepared.notes)
    notes = [note for note in found if note.option != "study"]
    if len(notes) < len(found):
        n_done = sum(replicate.is_done() for replicate in replicates)
        how_far = f"{n_done} of {len(replicates)} replicates are done"
        notes.append(Note(f"resuming comparison {name}: {how_far}", "name", name))
    return tuple(notes)
