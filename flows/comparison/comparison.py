"""A comparison of methods: checks all input, then creates the studies in the ledger.

The state of a comparison is the state of its studies; nothing else is stored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.flows.options.declared import (
    COMPARE_OPTIONS,
    OPTIONS,
    CompareOptions,
    StudyOptions,
)
from prefect_tune.flows.options.values import ASSIGNED, parse_assignment
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.starting.output_files import check_output, input_files
from prefect_tune.flows.starting.prepare import Handover, PreparedStudy, prepare, study_name_from
from prefect_tune.flows.starting.resolve import resolve
from prefect_tune.flows.starting.resume import (
    CannotContinue,
    check_same_data,
    check_unchanged,
    is_continued,
)
from prefect_tune.flows.starting.study_input import InputReader, Note, StudyRequest
from prefect_tune.flows.study.lease import StudyBusy
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.optimizers.registry import METHODS, method_named
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.local_files import atomic_file
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source


@dataclass(frozen=True)
class Entrant:
    """A method with its options. `label` shows the method and its non-default options."""

    label: str
    method: str
    options: Mapping[str, Any]

    def study(self, comparison: str, repeat: int) -> str:
        """Return the name of the method's study in one repeat of a comparison."""
        return f"{comparison}-{repeat}-{re.sub(r'[^A-Za-z0-9._-]+', '-', self.label).strip('-')}"


def parse_methods(text: str) -> tuple[Entrant, ...]:
    """Parse methods such as `flash,flash:variant=paper,random`. Values may be JSON.

    Raises `UnknownName` if a method does not exist, and `BadInput` if an option is not written as
    NAME=VALUE, a method occurs twice, or fewer than two methods are given.
    """
    entrants = []
    for part in filter(None, map(str.strip, text.split(","))):
        method, *assignments = part.split(":")
        defaults = method_named(method).options()
        try:
            options = dict(map(parse_assignment, assignments))
        except ValueError:
            raise BadInput("write METHOD:NAME=VALUE", option="methods", value=part) from None
        chosen = sorted(n for n, value in options.items() if getattr(defaults, n, ...) != value)
        named = (f"{name}={ASSIGNED.write(options[name])}" for name in chosen)
        entrants.append(Entrant(":".join([method, *named]), method, options))
    if len({entrant.study("", 0) for entrant in entrants}) < max(len(entrants), 2):
        raise BadInput(
            "a comparison needs at least two different methods, separated by commas; known "
            f"methods: {', '.join(METHODS)}",
            option="methods",
            value=text,
        )
    return tuple(entrants)


@dataclass(frozen=True)
class Replicate:
    """A method's study in one repeat. `parameters` are the parameters of the flow `tune`."""

    entrant: Entrant
    repeat: int
    prepared: PreparedStudy
    parameters: Mapping[str, Any]

    def is_done(self) -> bool:
        """Return whether the study has met its current stop rule, with or without a model."""
        opened = open_study(self.prepared.store, self.prepared.name)
        has_ended = opened.row.state in {"complete", "failed"}
        return has_ended and opened.plan.options.stop_rule == self.prepared.plan.options.stop_rule


@dataclass(frozen=True)
class Comparison:
    """A comparison whose studies are in the ledger, ready to run.

    Attributes:
        options: Options that all studies share, including options of the session.
        out: File to which the curves are written.
        notes: Notes for the user about data and decisions.
    """

    name: str
    options: StudyOptions
    store: ArtifactStore
    replicates: tuple[Replicate, ...]
    out: Path
    notes: tuple[Note, ...]

    @property
    def title(self) -> str:
        """Human-readable name of the comparison."""
        return f"comparison {self.name}"

    @property
    def again(self) -> str:
        """Command-line option that resumes the comparison."""
        return f"--name {self.name}"

    def to_do(self) -> list[Replicate]:
        """Return the replicates that are not done."""
        return [replicate for replicate in self.replicates if not replicate.is_done()]

    def finished(self) -> dict[str, Any] | None:
        """Return the outcome of the comparison if all replicates are done; otherwise None."""
        return None if self.to_do() else self.outcome()

    def outcome(self) -> dict[str, Any]:
        """Write the curves of all studies to a file, and return the standings as JSON values.

        Raises `StudyFailed` if no trial was completed.
        """
        curves = pd.concat(
            [
                curve_of(self.store, one.prepared.name, self.name, one.entrant.label, one.repeat)
                for one in self.replicates
            ],
            ignore_index=True,
        )
        if curves.incumbent.isna().all():
            raise StudyFailed(f"comparison {self.name!r} ended without a completed trial")
        with atomic_file(self.out) as path:
            curves.to_parquet(path, index=False)
        return {**standings(curves).to_json(), "out": str(self.out)}


HANDOVER: Handover[Comparison] = Handover()
"""Handover of a comparison from the command `compare` to the flow."""

_ANOTHER = "choose another --name"


def prepare_comparison(
    parameters: Mapping[str, Any], default_name: str | None = None, flow_run_id: str | None = None
) -> Comparison:
    """Read and check the input, and create the studies in the ledger or find existing studies.

    By default, a comparison is named after data and time. `flow_run_id` is None if a command
    prepares the comparison before its flow run. Raises `BadInput`, `UnknownName` or `StoreRefused`
    if an option is invalid.
    """
    own = CompareOptions.parse(parameters)
    by_default = (m.name for m in METHODS.without_plugins() if m.compared_by_default)
    entrants = parse_methods(own.methods or ",".join(by_default))
    given = {option: value for option, value in parameters.items() if option in OPTIONS}
    given["task_runs"] = given.get("task_runs") or COMPARE_OPTIONS["task_runs"].default_text
    given["ensemble"] = "single"
    request = StudyRequest.parse(given)
    store, name = request.open_store(), own.name or default_name
    read: InputReader = cache(read_source)
    ledger, notes = Ledger(store.database), list[Note]()
    design = list(product(range(own.repeats or COMPARE_OPTIONS["repeats"].standard), entrants))
    studies = [entrant.study(name, repeat) for repeat, entrant in design] if name else []
    former = {study: stored for study in studies if (stored := ledger.study(study)) is not None}
    plans = {study: StudyPlan.from_stored(stored) for study, stored in former.items()}
    if plans:
        first = next(iter(plans.values()))
        asked = request.options
        shared = [option.name for option in OPTIONS.values() if option.is_shared]
        chosen = [option for option in shared if asked.is_given(option)]
        check_unchanged("the comparison", first, request, [*chosen, "no_cache"], _ANOTHER)
        kept = {one: getattr(first.options, one) for one in shared if one not in chosen}
        if asked.seed is None:
            kept["seed"] = first.seed
        if asked.stop_rule.is_open:
            kept |= {"trials": first.options.trials, "budget": first.options.budget}
        request = StudyRequest.of(replace(asked, **kept))
        is_same_run = len(plans) == len(design) and any(
            is_continued(former[study], plan, request.options, flow_run_id)
            for study, plan in plans.items()
        )
        notes = check_same_data(
            "the comparison",
            first,
            request,
            store,
            read_source,
            is_same_run=is_same_run,
            another=_ANOTHER,
        )

        def read_copy(_: Source) -> Dataset:
            data = load_dataset(store, first.problem.dataset)
            return replace(data, name=first.data_name, format=first.options.format or data.kind)

        read = cache(read_copy)
        request = request.with_options(input=None)
    if (request.options.trials is None) == (request.options.budget is None):
        reason = "methods are compared at equal time or at equal trials"
        remedy = "set either --budget, for instance 2m for each study, or --trials"
        raise BadInput(reason, option="budget", value=request.options.budget, remedy=remedy)
    if request.options.test_size == 0:
        reason = "methods are compared on test rows"
        raise BadInput(reason, option="test-size", value=0, remedy="use a share above 0")
    if name is None or len(plans) < len(design):
        for entrant in entrants:  # check all methods before creating any study
            changed = request.with_options(method=entrant.method, option=entrant.options)
            try:
                data_name = resolve(changed, store, read).plan.data_name
            except BadInput as error:
                if error.option != "option":
                    raise
                raise BadInput(error.reason, option="methods", value=entrant.label) from error
        now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = name or f"{study_name_from(data_name)}-compare-{now}"
    slots = {entrant.study(name, repeat): (repeat, entrant) for repeat, entrant in design}
    for study in slots:
        CompareOptions.parse({"name": study})
    named = input_files(vars(request.options))
    out = check_output(own.out or f"{name}.parquet", named, store)
    replicates = []
    for study, (repeat, entrant) in sorted(slots.items(), key=lambda slot: slot[0] not in plans):
        race, first_plan = request.options.race, plans.get(entrant.study(name, 0))
        if race is None and first_plan is not None:
            race = first_plan.options.race
        changes = {
            "method": entrant.method,
            "option": entrant.options,
            "seed": (request.options.seed or OPTIONS["seed"].standard) + repeat,
            "study": study,
            "race": race,
            # The input was checked once for all studies.
            "input": "stored" if study in plans else request.options.input,
        }
        try:
            prepared = prepare(
                request.with_options(**changes), store, reader=read, is_compared=True
            )
        # The remedies in these errors refer to single studies.
        except (CannotContinue, StudyBusy) as error:
            raise error.with_remedy(_ANOTHER) from error
        written = {**dict.fromkeys(OPTIONS), **given, **changes, "workers": 1}
        prepared = replace(prepared, is_compared=True)
        replicates.append(Replicate(entrant, repeat, prepared, written))
    of_studies = (note for one in replicates for note in one.prepared.notes)
    notes += [note for note in of_studies if note.option not in {"study", "input"}]
    if plans:
        text = f"resuming comparison {name}: {len(plans)} of {len(design)} studies exist"
        notes.append(Note(text, "name", name))
    notes = list(dict.fromkeys(notes))
    return Comparison(name, request.options, store, tuple(replicates), out, tuple(notes))
