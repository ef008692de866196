"""A comparison of methods: which runs it is made of, and everything that can be wrong with it.

Each run is a study `<name>-<repeat>-<method>` of its own, so that the ledger alone says how far a
comparison is, and one of the same name goes on from there.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from prefect_tune.flows.comparison.curves import TEST_LOSSES, curve_of
from prefect_tune.flows.comparison.entrants import Entrant, entrant_of, parse_methods
from prefect_tune.flows.comparison.standings import standings
from prefect_tune.flows.preparation.options import COMPARE_OPTIONS, OPTIONS
from prefect_tune.flows.preparation.plan import Prepared, as_name, prepare
from prefect_tune.flows.preparation.settings import TuneSettings, check_study_name
from prefect_tune.flows.preparation.study_input import Read, read_input
from prefect_tune.optimizers.registry import METHODS, make_optimizer
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.atomic import atomic_file, check_writable
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.study_context import open_store
from prefect_tune.tasks.user_space import find_space, is_user_space

__all__ = [
    "Comparison",
    "Run",
    "comparison_prepared",
    "current_comparison",
    "prepare_comparison",
]

_DEFAULT_REPEATS = 3
_SHARED = (
    "space", "metric", "positive", "folds", "holdout", "test_size", "trial_seconds",
    "trial_memory_bytes",
)  # fmt: skip
"""Settings that all runs of a comparison have in common."""
_OPTION_OF = {"trial_seconds": "trial-timeout", "trial_memory_bytes": "trial-memory"}
"""Options that are not named like their setting."""


@dataclass(frozen=True)
class Run:
    """One method in one repeat.

    Attributes:
        entrant: The method.
        repeat: Number of the repeat, from 0.
        prepared: The study.
    """

    entrant: Entrant
    repeat: int
    prepared: Prepared

    @property
    def has_ended(self) -> bool:
        """Whether its search has ended, with or without a result."""
        stored = Ledger(self.prepared.store.database).study(self.prepared.study)
        return stored is not None and stored.state in {"complete", "failed"}

    @property
    def is_done(self) -> bool:
        """Whether it has ended with the budget that it has now, and its incumbents are scored."""
        stored = Ledger(self.prepared.store.database).study(self.prepared.study)
        if stored is None or stored.state not in {"complete", "failed"}:
            return False
        now, scores = self.prepared.resolved, stored.result.get(TEST_LOSSES, {})
        is_scored = None not in scores.values()
        same = all(stored.settings[name] == now[name] for name in ("trials", "budget_seconds"))
        return same and is_scored


@dataclass(frozen=True)
class Comparison:
    """A comparison in the ledger, ready to run.

    Attributes:
        name: Its name.
        settings: What its runs have in common.
        store: Where it is.
        runs: All its runs, repeat by repeat.
        out: File for the curves.
        notes: What a user should know of the data and of what was decided.
    """

    name: str
    settings: TuneSettings
    store: ArtifactStore
    runs: tuple[Run, ...]
    out: Path
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is run, for people."""
        return f"comparison {self.name}"

    @property
    def again(self) -> str:
        """The option that continues it."""
        return f"--name {self.name}"

    def finished(self) -> dict[str, Any] | None:
        """What came of it, if nothing is left to do."""
        return self.outcome() if all(run.is_done for run in self.runs) else None

    def curves(self) -> pd.DataFrame:
        """The curves of all runs, one after the other."""
        ledger = Ledger(self.store.database)
        curves = []
        for run in self.runs:
            stored = ledger.study(run.prepared.study)
            assert stored is not None  # noqa: S101 - it is being compared
            about = {"comparison": self.name, "method": run.entrant.label, "repeat": run.repeat}
            curves.append(curve_of(ledger, stored, **about))
        return pd.concat(curves, ignore_index=True)

    def outcome(self) -> dict[str, Any]:
        """What `prefect-tune compare --json` prints; the curves are written to their file."""
        curves = self.curves()
        with atomic_file(self.out) as path:
            curves.to_parquet(path, index=False)
        first = self.runs[0].prepared.resolved
        return {
            "comparison": self.name,
            "data": first["data_name"],
            "space": first["space"],
            "metric": first["metric"],
            "repeats": len({run.repeat for run in self.runs}),
            "budget_seconds": first["budget_seconds"],
            "budget_trials": first["trials"],
            "out": str(self.out),
            **standings(curves),
        }


def prepare_comparison(
    parameters: Mapping[str, Any], default_name: str | None = None
) -> Comparison:
    """Read and check the input, and enter the runs in the ledger or find them there.

    Args:
        parameters: Those of the flow `compare`.
        default_name: Name of a new comparison; by default made from the data and the time.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used.
    """
    if parameters["methods"] is not None:
        parse_methods(parameters["methods"])
    if parameters["repeats"] is not None and parameters["repeats"] < 1:
        raise BadInput(f"--repeats {parameters['repeats']}: at least 1")
    settings = _settings(parameters)
    store = open_store(settings.address)
    name = parameters["name"] or default_name
    former = {} if name is None else _former_runs(Ledger(store.database), name)
    entrants = _entrants(parameters["methods"], former)
    n_former = max(former.values(), default=0)
    n_repeats = max(parameters["repeats"] or n_former or _DEFAULT_REPEATS, n_former)
    if name is not None:
        studies = {_study_name(name, r, e): r for r in range(n_repeats) for e in entrants}
        settings = _as_before(Ledger(store.database), studies, settings)
    _check_budget(settings)
    read: Read = cache(read_source)
    found = read_input(settings, read)
    _check_options(entrants, found.space)
    if name is None:
        name = f"{as_name(found.dataset.name)}-compare-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    out = _writable(parameters["out"] or f"{name}.parquet")
    runs = tuple(
        Run(entrant, repeat, _prepared(settings, name, repeat, entrant, read))
        for repeat in range(n_repeats)
        for entrant in _rotated(entrants, repeat)  # or the same ones would always run together
    )
    return Comparison(name, settings, store, runs, out, _notes(name, runs))


_PREPARED: ContextVar[Comparison | None] = ContextVar("comparison", default=None)


@contextmanager
def comparison_prepared(comparison: Comparison) -> Iterator[None]:
    """Have the flow called in the body take over what was prepared before it."""
    token = _PREPARED.set(comparison)
    try:
        yield
    finally:
        _PREPARED.reset(token)


def current_comparison() -> Comparison | None:
    """What the caller of the flow has prepared."""
    return _PREPARED.get()


def _entrants(given: str | None, former: Mapping[str, int]) -> tuple[Entrant, ...]:
    """The methods that were given, and those that the comparison has already.

    Raises:
        UnknownName, BadInput: If they cannot be compared.
    """
    known = () if not former else parse_methods(",".join(former))
    entrants = parse_methods(given or ("" if former else _default_methods()))
    suffixes = {entrant.suffix for entrant in entrants}
    both = (*entrants, *(entrant for entrant in known if entrant.suffix not in suffixes))
    if len(both) < 2:
        raise BadInput(
            f"--methods {given}: a comparison takes two methods or more, divided by commas; known "
            f"are {', '.join(METHODS)}"
        )
    return both


def _default_methods() -> str:
    return ",".join(method.name for method in METHODS.values() if method.compared_by_default)


def _rotated(entrants: tuple[Entrant, ...], repeat: int) -> tuple[Entrant, ...]:
    first = repeat % len(entrants)
    return entrants[first:] + entrants[:first]


def _former_runs(ledger: Ledger, name: str) -> dict[str, int]:
    """What a comparison that is continued is made of: its methods, and how many repeats of each."""
    found: dict[str, int] = {}
    for study in ledger.study_names():
        match = re.fullmatch(rf"{re.escape(name)}-(\d+)-(.+)", study)
        stored = ledger.study(study) if match else None
        if match is None or stored is None:
            continue
        entrant = entrant_of(stored.settings["method"], stored.settings["option"])
        if entrant.suffix == match[2]:  # or it is a study that is named so by chance
            found[entrant.label] = max(found.get(entrant.label, 0), int(match[1]) + 1)
    return found


def _settings(parameters: Mapping[str, Any]) -> TuneSettings:
    """What the runs have in common."""
    given = {k: v for k, v in parameters.items() if k in OPTIONS and k in COMPARE_OPTIONS}
    settings = TuneSettings.parse(dict.fromkeys(OPTIONS) | given)
    if parameters["task_runs"] is None:
        settings = replace(settings, task_runs="trial")
    if settings.metric is not None:
        metric_named(settings.metric)
    if settings.space is not None:
        find_space(settings.space)
    return settings


def _as_before(ledger: Ledger, studies: Mapping[str, int], settings: TuneSettings) -> TuneSettings:
    """With what a comparison that is continued has, where nothing was given.

    Args:
        ledger: Where its runs are, if there are any.
        studies: Names of its runs, with their repeats.
        settings: As given.

    Raises:
        BadInput: If something was given that cannot change.
    """
    former = next((stored for name in studies if (stored := ledger.study(name))), None)
    if former is None:
        return settings
    known: dict[str, Any] = {name: former.settings[name] for name in _SHARED}
    known["seed"] = former.settings["seed"] - studies[former.name]
    for name, before in known.items():
        given = getattr(settings, name)
        if given not in {None, before} and not (name == "space" and is_user_space(given)):
            option = _OPTION_OF.get(name, name.replace("_", "-"))
            said = "its default" if before is None else before
            raise BadInput(
                f"the comparison has --{option} {said}, and cannot be continued with {given}; "
                "choose another --name"
            )
    if settings.use_cache != former.settings["use_cache"]:
        has = "a cache" if former.settings["use_cache"] else "--no-cache"
        raise BadInput(f"the comparison has {has}; continue it so, or choose another --name")
    if settings.trials is None and settings.budget_seconds is None:
        known |= {name: former.settings[name] for name in ("trials", "budget_seconds")}
    missing = {name: v for name, v in known.items() if getattr(settings, name) is None}
    return replace(settings, **missing)


def _check_budget(settings: TuneSettings) -> None:
    if (settings.trials is None) == (settings.budget_seconds is None):
        raise BadInput(
            "methods are compared at equal time or at equal trials: name --budget, for instance "
            "--budget 2m for each run, or --trials, and not both"
        )


def _check_options(entrants: tuple[Entrant, ...], space: Space) -> None:
    for entrant in entrants:
        try:
            make_optimizer(entrant.method, space, 0, None, entrant.options)
        except (TypeError, ValueError) as error:
            if isinstance(error, UnknownName | BadInput):
                raise
            raise BadInput(f"--methods {entrant.label}: {error}") from error


def _study_name(name: str, repeat: int, entrant: Entrant) -> str:
    return check_study_name(f"{name}-{repeat}-{entrant.suffix}", "name")


def _prepared(
    settings: TuneSettings,
    name: str,
    repeat: int,
    entrant: Entrant,
    read: Read,
) -> Prepared:
    """The study of one run."""
    mine = replace(
        settings,
        method=entrant.method,
        options=entrant.options,
        seed=(settings.seed or 0) + repeat,
        study=_study_name(name, repeat, entrant),
    )
    try:
        return prepare(mine, read=read)
    except BadInput as error:  # it knows of studies alone
        raise BadInput(str(error).replace("--study name", "--name")) from error


def _notes(name: str, runs: tuple[Run, ...]) -> tuple[str, ...]:
    """What is to be said of the data, once, and how far the comparison is."""
    said = dict.fromkeys(note for run in runs for note in run.prepared.notes)
    notes = [note for note in said if not note.startswith("continues study")]
    if len(notes) < len(said):
        n_done = sum(run.is_done for run in runs)
        notes.append(f"continues comparison {name}: {n_done} of {len(runs)} runs are done")
    return tuple(notes)


def _writable(out: str) -> Path:
    """The file for the curves.

    Raises:
        BadInput: If it cannot be written.
    """
    path = Path(out).expanduser().absolute()
    try:
        check_writable(path)
    except OSError as error:
        raise BadInput(f"--out {out} cannot be written: {error}; name another file") from error
    return path
