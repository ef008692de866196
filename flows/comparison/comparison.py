"""A comparison of methods. Only the ledger records how far each of its studies has come."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.options.values import parse_assignment
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.starting.prepare import PreparedStudy
from prefect_tune.flows.starting.study_input import Note
from prefect_tune.flows.study.study import StudyFailed
from prefect_tune.optimizers.registry import METHODS, method_named
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.local_files import atomic_file
from prefect_tune.tasks.bad_input import BadInput


@dataclass(frozen=True)
class Entrant:
    """A method with its options; `label` is the text the user wrote, also shown in results."""

    label: str
    method: str
    options: Mapping[str, Any]

    def study(self, comparison: str, repeat: int) -> str:
        """Return the name of the method's study in a repeat of a comparison."""
        return f"{comparison}-{repeat}-{re.sub(r'[^A-Za-z0-9._-]+', '-', self.label).strip('-')}"


def parse_methods(text: str) -> tuple[Entrant, ...]:
    """Parse `flash,flash:variant=paper,random`; values are parsed as JSON if possible.

    Raises `UnknownName` if a method does not exist, and `BadInput` if an option is not written
    NAME=VALUE, a method occurs twice, or fewer than two methods are given.
    """
    entrants = tuple(_entrant(part.strip()) for part in text.split(",") if part.strip())
    if len({entrant.study("", 0) for entrant in entrants}) < max(len(entrants), 2):
        raise BadInput(
            "a comparison needs at least two different methods, separated by commas; known "
            f"methods: {', '.join(METHODS)}",
            option="methods",
            value=text,
        )
    return entrants


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
    """The study of one method in one repeat; `parameters` are those of its flow `tune`."""

    entrant: Entrant
    repeat: int
    prepared: PreparedStudy
    parameters: Mapping[str, Any]

    def is_done(self) -> bool:
        """Return whether the study has met the current stop rule, with or without a model."""
        opened = open_study(self.prepared.store, self.prepared.name)
        has_ended = opened.row.state in {"complete", "failed"}
        return has_ended and opened.plan.options.stop_rule == self.prepared.options.stop_rule


@dataclass(frozen=True)
class Comparison:
    """A comparison whose studies are in the ledger, ready to run.

    Attributes:
        options: Options that all studies share, and options of the session.
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

    def to_do(self) -> list[Replicate]:
        """Return the replicates that are not done."""
        return [replicate for replicate in self.replicates if not replicate.is_done()]

    def finished(self) -> dict[str, Any] | None:
        """Return the outcome if all replicates are done."""
        return None if self.to_do() else self.outcome()

    def outcome(self) -> dict[str, Any]:
        """Write the curves of all studies to their file, and return the standings as JSON values.

        Raises `StudyFailed` if not a single trial was completed.
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
