"""From parameters to a comparison in the ledger: everything that can be wrong is found here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
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
from prefect_tune.flows.preparation.handover import Handover
from prefect_tune.flows.preparation.prepare import PreparedStudy, prepare, study_name_from
from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.flows.preparation.resolve import check_method, pose
from prefect_tune.flows.preparation.resume import CannotContinue, check_options_known
from prefect_tune.flows.preparation.study_input import Note, Read, StudyInput, read_input
from prefect_tune.flows.study.lease import StudyBusy
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.local_files import check_writable
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.user_space import is_user_space

HANDOVER: Handover[Comparison] = Handover()
"""From the command `compare` to its flow."""

_DEFAULT_REPEATS: int = COMPARE_OPTIONS["repeats"].standard
_ANOTHER = "choose another --name"


def prepare_comparison(
    parameters: Mapping[str, Any], default_name: str | None = None
) -> Comparison:
    """Read and check the input, and enter the replicates in the ledger or find them there.

    Args:
        parameters: Those of the flow `compare`.
        default_name: Name of a new comparison; by default made from the data and the time.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used.
    """
    own = CompareOptions.parse(parameters)
    if own.methods is not None:
        parse_methods(own.methods)
    request = _parse(parameters)
    store = request.open_store()
    ledger = Ledger(store.database)
    name = own.name or default_name
    design = _Design.of(own, {} if name is None else _former_methods(ledger, name))
    if name is not None:
        options = _as_before(ledger, design.studies(name), request.options)
        request = request if options == request.options else StudyRequest.of(options)
    _check_stop_rule(request.options)
    if request.options.test_size == 0:
        reason = "methods are compared by test rows"
        raise BadInput(reason, option="test-size", value=0, remedy="hold some back")
    read: Read = cache(read_source)
    if name is None or not set(design.studies(name)) <= set(ledger.study_names()):
        found = read_input(request, read)
        _check_entrants(request, design, found)  # all of them, before any study is entered
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = name or f"{study_name_from(found.dataset.name)}-compare-{now}"
    out = _writable(own.out or f"{name}.parquet")
    requests = {
        entrant.suffix: _as_repeats(ledger, design, name, entrant, request)
        for entrant in design.entrants
    }
    replicates = tuple(
        Replicate(
            entrant,
            repeat,
            _prepare_replicate(
                requests[entrant.suffix].with_options(
                    method=entrant.method,
                    option=entrant.options,
                    seed=_first_seed(request) + repeat,
                    study=_study_name(name, repeat, entrant),
                ),
                store,
                read,
            ),
        )
        for repeat, entrant in design
    )
    notes = _notes(name, replicates)
    return Comparison(name, request.options, store, replicates, out, notes)


@dataclass(frozen=True)
class _Design:
    """Which methods are compared, and how often each runs."""

    entrants: tuple[Entrant, ...]
    n_repeats: int

    @classmethod
    def of(cls, options: CompareOptions, former: Mapping[str, int]) -> "_Design":
        """Return the methods and repeats that are given, and those that are there already.

        Args:
            options: Options of the comparison.
            former: Of a comparison that is continued, its methods and how many repeats of each.

        Raises:
            UnknownName, BadInput: If the methods cannot be compared.
        """
        given = options.methods
        known = parse_methods(",".join(former))
        own = METHODS.without_plugins()
        by_default = ",".join(m.name for m in own if m.compared_by_default)
        entrants = parse_methods(given or ("" if former else by_default))
        suffixes = {entrant.suffix for entrant in entrants}
        both = (*entrants, *(entrant for entrant in known if entrant.suffix not in suffixes))
        if len(both) < 2:
            raise BadInput(
                "a comparison takes two methods or more, separated by commas; known are "
                f"{', '.join(METHODS)}",
                option="methods",
                value=given,
            )
        n_former = max(former.values(), default=0)
        return cls(both, max(options.repeats or n_former or _DEFAULT_REPEATS, n_former))

    def __iter__(self) -> Iterator[tuple[int, Entrant]]:
        """Yield repeat and method, repeat by repeat."""
        for repeat in range(self.n_repeats):
            first = repeat % len(self.entrants)  # or the same ones would always run together
            for entrant in self.entrants[first:] + self.entrants[:first]:
                yield repeat, entrant

    def studies(self, name: str) -> dict[str, int]:
        """Return the names of the studies of a comparison, each with its repeat."""
        return {_study_name(name, repeat, entrant): repeat for repeat, entrant in self}


def _former_methods(ledger: Ledger, name: str) -> dict[str, int]:
    """Return the methods of a comparison that is there, and how many repeats of each."""
    found: dict[str, int] = {}
    for study in ledger.study_names():
        match = re.fullmatch(rf"{re.escape(name)}-(\d+)-(.+)", study)
        stored = ledger.study(study) if match else None
        if match is None or stored is None:
            continue
        plan = StudyPlan.from_stored(stored)
        entrant = entrant_of(plan.method, plan.options.option)
        if entrant.suffix == match[2]:  # or it is a study that is named so by chance
            check_options_known(study, plan)
            found[entrant.label] = max(found.get(entrant.label, 0), int(match[1]) + 1)
    return found


def _parse(parameters: Mapping[str, Any]) -> StudyRequest:
    """Parse the options that the replicates have in common."""
    given = {name: value for name, value in parameters.items() if name in OPTIONS}
    return StudyRequest.parse(
        {**given, "task_runs": given.get("task_runs") or COMPARE_OPTIONS["task_runs"].default_text}
    )


def _as_before(ledger: Ledger, studies: Mapping[str, int], options: StudyOptions) -> StudyOptions:
    """Return the options, completed by those of an existing comparison of that name.

    Args:
        ledger: Where its replicates are, if there are any.
        studies: Names of its replicates, with their repeats.
        options: As given.

    Raises:
        BadInput: If something was given that cannot change.
    """
    stored = next((found for name in studies if (found := ledger.study(name))), None)
    if stored is None:
        return options
    plan = StudyPlan.from_stored(stored)
    shared = (name for name, option in OPTIONS.items() if option.is_shared)
    known: dict[str, Any] = {name: getattr(plan.options, name) for name in shared}
    known["seed"] = plan.seed - studies[stored.name]
    for name, before in known.items():
        given, flag = getattr(options, name), OPTIONS[name].flag
        if given not in {None, before} and not (name == "space" and is_user_space(given)):
            if given is True:
                raise BadInput(
                    f"the comparison was begun without {flag}, and cannot be continued with it",
                    remedy=_ANOTHER,
                )
            current = "its default" if before is None else before
            raise BadInput(
                f"the comparison has {flag} {current}, and cannot be continued with {given}",
                remedy=_ANOTHER,
            )
    if options.use_cache != plan.options.use_cache:
        current = "a cache" if plan.options.use_cache else "--no-cache"
        raise BadInput(f"the comparison has {current}", remedy=f"continue it so, or {_ANOTHER}")
    if options.stop_rule.is_open:
        options = replace(options, trials=plan.options.trials, budget=plan.options.budget)
    missing = {name: value for name, value in known.items() if getattr(options, name) is None}
    return replace(options, **missing)


def _check_stop_rule(options: StudyOptions) -> None:
    if (options.trials is None) == (options.budget is None):
        raise BadInput(
            "methods are compared at equal time or at equal trials: name --budget, for instance "
            "--budget 2m for each replicate, or --trials, and not both"
        )


def _check_entrants(request: StudyRequest, design: _Design, found: StudyInput) -> None:
    """Check that each method can minimise what each repeat asks of it.

    Raises:
        BadInput, UnknownName: If one cannot.
    """
    seeds = [_first_seed(request) + repeat for repeat in range(design.n_repeats)]
    objectives = [pose(request.with_options(seed=seed), found).objective for seed in seeds]
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


def _as_repeats(
    ledger: Ledger, design: _Design, name: str, entrant: Entrant, request: StudyRequest
) -> StudyRequest:
    """Return the request by which a method races as in its repeats, where nothing was given."""
    names = (_study_name(name, repeat, entrant) for repeat in range(design.n_repeats))
    stored = next((found for study in names if (found := ledger.study(study))), None)
    if stored is None or request.options.race is not None:
        return request
    return request.with_options(race=StudyPlan.from_stored(stored).options.race)


def _first_seed(request: StudyRequest) -> int:
    given = request.options.seed
    return OPTIONS["seed"].standard if given is None else given


def _study_name(name: str, repeat: int, entrant: Entrant) -> str:
    full = f"{name}-{repeat}-{entrant.suffix}"
    CompareOptions.parse({"name": full})
    return full


def _prepare_replicate(request: StudyRequest, store: ArtifactStore, read: Read) -> PreparedStudy:
    try:
        return prepare(request, store, read=read, is_compared=True)
    except CannotContinue as error:  # it knows of studies alone
        raise error.with_remedy(_ANOTHER) from error
    except StudyBusy as error:
        raise error.with_remedy(f"wait for it, end it, or {_ANOTHER}") from error


def _notes(name: str, replicates: tuple[Replicate, ...]) -> tuple[Note, ...]:
    """Return what is to be known of the data, once, and how far the comparison is."""
    found = dict.fromkeys(note for r in replicates for note in r.prepared.notes)
    notes = [note for note in found if note.option != "study"]
    if len(notes) < len(found):
        n_done = sum(replicate.is_done() for replicate in replicates)
        how_far = f"{n_done} of {len(replicates)} replicates are done"
        notes.append(Note(f"continues comparison {name}: {how_far}", "name", name))
    return tuple(notes)


def _writable(out: str) -> Path:
    """Return the file for the curves.

    Raises:
        BadInput: If it cannot be written.
    """
    path = Path(out).expanduser().absolute()
    try:
        check_writable(path)
    except OSError as error:
        reason = f"cannot be written: {error}"
        raise BadInput(reason, option="out", value=out, remedy="name another file") from error
    return path
