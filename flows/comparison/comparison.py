"""A comparison of methods; only the ledger records how far each replicate has come.

Each replicate is a study named `<name>-<repeat>-<method>`; existing studies are resumed.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.comparison.standings import ComparisonOutcome, SingleComparison, standings
from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.options.values import parse_assignment, write_assignments
from prefect_tune.flows.preparation.prepare import PreparedStudy
from prefect_tune.flows.preparation.study_input import Note
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.study.facts import StudyFacts
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.registry import method_named
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.local_files import atomic_file
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.split import TEST, load_split


@dataclass(frozen=True)
class Entrant:
    """A method with its options; `label` is the text the user wrote, also shown in results."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """Label in the form that ends a study name."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", self.label).strip("-")


def parse_methods(text: str) -> tuple[Entrant, ...]:
    """Parse `flash,flash:variant=paper,random`; values are parsed as JSON if possible.

    Raises `UnknownName` if a method does not exist, and `BadInput` if an option is not written
    NAME=VALUE, or a method occurs twice.
    """
    entrants = tuple(_entrant(part.strip()) for part in text.split(",") if part.strip())
    seen: set[str] = set()
    for entrant in entrants:
        if entrant.suffix in seen:
            raise BadInput(
                f"{entrant.label} occurs twice",
                option="methods",
                value=text,
                remedy="drop one of them",
            )
        seen.add(entrant.suffix)
    return entrants


def entrant_of(method: str, options: Mapping[str, Any]) -> Entrant:
    """Return an entrant whose label is the text a user would write."""
    return Entrant(":".join((method, *write_assignments(options))), method, options)


def _entrant(label: str) -> Entrant:
    method, *assignments = label.split(":")
    method_named(method)
    try:
        options = dict(map(parse_assignment, assignments))
    except ValueError:
        raise BadInput("write METHOD:NAME=VALUE", option="methods", value=label) from None
    return Entrant(label, method, options)


@dataclass(frozen=True)
class Replicate:
    """One method's study in one repeat of a comparison."""

    entrant: Entrant
    repeat: int
    prepared: PreparedStudy

    @property
    def plan(self) -> StudyPlan:
        """Plan of the study."""
        return self.prepared.plan

    def stored(self) -> StoredStudy:
        """Return the current study from the ledger; raise `UnknownName` if it was removed."""
        return open_study(self.prepared.store, self.prepared.name).row

    def has_ended(self) -> bool:
        """Return whether the search has ended, with or without a result."""
        return self.stored().state in {"complete", "failed"}

    def is_done(self) -> bool:
        """Return whether the search met the current stop rule and its incumbents are scored."""
        stored = self.stored()
        facts = StudyFacts.from_stored(stored)
        losses, undefined = facts.test_losses, facts.test_losses_undefined
        is_scored = all(loss is not None or number in undefined for number, loss in losses.items())
        stop_rule = StudyPlan.from_stored(stored).options.stop_rule
        return self.has_ended() and is_scored and stop_rule == self.plan.options.stop_rule


@dataclass(frozen=True)
class Comparison:
    """A comparison in the ledger, ready to run.

    Attributes:
        options: Options that all replicates share, and options of the session.
        out: File for the curves.
        notes: Notes on the data and on decisions, for the user.
    """

    name: str
    options: StudyOptions
    store: ArtifactStore
    replicates: tuple[Replicate, ...]
    out: Path
    notes: tuple[Note, ...]

    @property
    def title(self) -> str:
        """Human-readable name."""
        return f"comparison {self.name}"

    @property
    def again(self) -> str:
        """Option that resumes the comparison."""
        return f"--name {self.name}"

    def finished(self) -> dict[str, Any] | None:
        """Return the outcome if all replicates are done."""
        return self.outcome().to_json() if all(r.is_done() for r in self.replicates) else None

    def curves(self) -> pd.DataFrame:
        """Return the concatenated curves of all replicates."""
        ledger = Ledger(self.store.database)
        curves = []
        for replicate in self.replicates:
            about = {"method": replicate.entrant.label, "repeat": replicate.repeat}
            split = load_split(self.store, replicate.plan.problem.split)
            n_rows = len(split.held_out(TEST))
            stored = replicate.stored()
            curves.append(curve_of(ledger, stored, n_rows, comparison=self.name, **about))
        return pd.concat(curves, ignore_index=True)

    def outcome(self) -> ComparisonOutcome:
        """Write the curves to their file and rank the methods."""
        curves = self.curves()
        with atomic_file(self.out) as path:
            curves.to_parquet(path, index=False)
        plan = self.replicates[0].plan
        facts = (StudyFacts.from_stored(replicate.stored()) for replicate in self.replicates)
        reasons = (of_study.test_losses_undefined for of_study in facts)
        undefined = Counter(reason for found in reasons for reason in set(found.values()))
        compared = SingleComparison(
            comparison=self.name,
            data=plan.data_name,
            space=plan.space,
            metric=plan.metric,
            repeats=len({replicate.repeat for replicate in self.replicates}),
            budget_seconds=plan.options.budget,
            budget_trials=plan.options.trials,
            out=str(self.out),
            undefined_test_losses=undefined,
        )
        return ComparisonOutcome(compared, standings(curves))
