"""From settings to a study in the ledger: everything that can be wrong is found here, first."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.resume import (
    changed_settings,
    continued,
    split_of,
)
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.preparation.store_address import store_address
from prefect_tune.flows.preparation.study_input import (
    Read,
    constraint_notes,
    find_constraints,
    find_metric,
    read_input,
)
from prefect_tune.flows.study.lease import check_not_busy
from prefect_tune.flows.study.lookup import failed_trials, find_study
from prefect_tune.flows.study.summary import summarize
from prefect_tune.flows.units import format_bytes
from prefect_tune.optimizers.registry import DEFAULT_METHOD, make_optimizer
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset
from prefect_tune.tasks.data.formats.registry import FORMATS
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import TEST, import_split
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.problem import Problem, records_of
from prefect_tune.tasks.study_context import open_store
from prefect_tune.tasks.user_space import find_space
from prefect_tune.tasks.worker.trial_limits import TrialLimits, share_of_memory

__all__ = [
    "Prepared",
    "as_name",
    "current_preparation",
    "prepare",
    "prepare_retry",
    "prepared",
]

DEFAULTS: Mapping[str, Any] = {
    "method": DEFAULT_METHOD,
    "seed": 0,
    "folds": 3,
    "holdout": None,
    "test_size": 0.2,
}
_DEFAULT_BUDGET_SECONDS = 600.0
_DEMO = {"trials": 20, "budget_seconds": 120.0}
"""What a study of the demo cohort gets when no budget is given."""
_SHORTEST_TRIAL_SECONDS = 10.0
_LONGEST_TRIAL_SECONDS = 900.0


@dataclass(frozen=True)
class Prepared:
    """A study in the ledger, ready to run.

    Attributes:
        settings: As given.
        store: Where it is.
        study: Its name.
        resolved: The study's settings from now on.
        trials: Trials in all, if limited.
        budget_seconds: Time in all, if limited.
        notes: What a user should know of the data and of what was decided.
    """

    settings: TuneSettings
    store: ArtifactStore
    study: str
    resolved: Mapping[str, Any]
    trials: int | None
    budget_seconds: float | None
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is run, for people."""
        return f"study {self.study}"

    @property
    def again(self) -> str:
        """The option that continues it."""
        return f"--study {self.study}"

    def finished(self) -> dict[str, Any] | None:
        """What came of it, if nothing is left to do."""
        summary = summarize(self.store, self.study)
        return summary if summary["state"] == "complete" else None

    @property
    def trial_limits(self) -> TrialLimits:
        """What each trial may take: by default a tenth of the budget, 10 s to 15 min.

        Of memory an equal share of this machine, or what another cluster's workers have.
        """
        seconds = self.resolved.get("trial_seconds")
        if seconds is None:
            share = 0.1 * (self.resolved["budget_seconds"] or 10 * _LONGEST_TRIAL_SECONDS)
            seconds = min(max(share, _SHORTEST_TRIAL_SECONDS), _LONGEST_TRIAL_SECONDS)
        memory_bytes = self.resolved.get("trial_memory_bytes")
        if memory_bytes is None and not self.settings.dask:
            memory_bytes = share_of_memory(self.settings.workers or os.cpu_count() or 1)
        return TrialLimits(seconds, memory_bytes)


def prepare(
    settings: TuneSettings,
    default_name: str | None = None,
    read: Read = read_source,
) -> Prepared:
    """Read and check the input, and enter the study in the ledger or find it there.

    Args:
        settings: What to start it with.
        default_name: Name for a new study that was given none; by default made from the data, the
            method and the time.
        read: Reads the input.

    Raises:
        BadInput, UnknownName, StoreRefused: If something cannot be used.
    """
    if settings.metric is not None:
        metric_named(settings.metric)
    if settings.space is not None:
        find_space(settings.space)
    store = open_store(settings.address)
    ledger = Ledger(store.database)
    name = settings.study or default_name
    notes: list[str] = []
    stored = ledger.study(name) if name else None
    if stored is None:
        resolved = _new(settings, store, notes, read)
        problem = resolved.pop("problem")
        free = (name,) if name else _default_names(resolved)
        created = next((n for n in free if ledger.create_study(n, problem, resolved)), None)
        if created is not None:
            store.records.link(records_of(problem), created)
        stored = ledger.study(created or name or "")
        is_new = created is not None
    else:
        is_new = False
    if stored is None:
        raise BadInput(f"study {name!r} was removed while it was being started")
    if not is_new:
        check_not_busy(store, stored.name)
        notes = [f"continues study {stored.name}"]
        resolved = continued(stored, settings, store, notes, read)
    if settings.cache_budget_bytes is not None:
        before = store.index.budget_bytes()
        store.set_budget(settings.cache_budget_bytes)
        if before != settings.cache_budget_bytes:
            budgets = (format_bytes(b) for b in (before, settings.cache_budget_bytes))
            notes.append("the store's cache may now hold {1}, before {0}".format(*budgets))
    if settings.eviction is not None and store.index.totals().policy != settings.eviction:
        store.cache.set_policy(settings.eviction)
        notes.append(f"the store's cache now evicts by {settings.eviction}")
    return Prepared(
        settings,
        store,
        stored.name,
        resolved,
        resolved["trials"],
        resolved["budget_seconds"],
        tuple(notes),
    )


def prepare_retry(
    study: str,
    trials: Sequence[int] | None = None,
    *,
    workers: int | None = None,
    dask: str | None = None,
    store: str | None = None,
    database: str | None = None,
    task_runs: str | None = None,
    trial_timeout: str | None = None,
    trial_memory: str | None = None,
) -> Prepared:
    """Find a study whose failed trials are to run again.

    Raises:
        UnknownName, BadInput, StoreRefused: If there is no such study or failed trial, or an option
            cannot be used.
    """
    opened = open_store(store_address(store, database))
    stored = find_study(opened, study)
    check_not_busy(opened, study)
    failed = failed_trials(opened, study)
    for number in trials or ():
        if number not in failed:
            raise BadInput(
                f"trial {number} of study {study!r} has not failed; failed ones: "
                f"{', '.join(map(str, failed)) or 'none'}"
            )
    parameters = dict.fromkeys(OPTIONS) | {
        "data": stored.settings["source"]["data"],
        "workers": workers,
        "dask": dask,
        "store": store,
        "database": database,
        "task_runs": task_runs,
        "trial_timeout": trial_timeout,
        "trial_memory": trial_memory,
        "no_cache": not stored.settings["use_cache"],
    }
    settings = TuneSettings.parse(parameters)
    resolved = {**stored.settings, **changed_settings(settings)}
    return Prepared(settings, opened, study, resolved, None, None, ())


_PREPARED: ContextVar[Prepared | None] = ContextVar("prepared", default=None)


@contextmanager
def prepared(preparation: Prepared) -> Iterator[None]:
    """Have the flow called in the body take over what was prepared before it, not read it again."""
    token = _PREPARED.set(preparation)
    try:
        yield
    finally:
        _PREPARED.reset(token)


def current_preparation() -> Prepared | None:
    """What the caller of the flow has prepared."""
    return _PREPARED.get()


def _new(
    settings: TuneSettings, store: ArtifactStore, notes: list[str], read: Read
) -> dict[str, Any]:
    resolved = {k: _given(settings, k, default) for k, default in DEFAULTS.items()}
    if settings.holdout is not None:
        resolved["folds"] = None
    if settings.source.test is not None:
        resolved["test_size"] = None
    found = read_input(settings, read)
    source, dataset = found.source, found.dataset
    split = split_of(dataset, resolved)
    bounds = find_constraints(settings.constraints or (), dataset, split)
    y = dataset.y[split.fold != TEST]
    metric, said = find_metric(settings, dataset, y)
    notes += said
    objective = metric.objective(y, len(dataset.classes))
    objective = replace(objective, constraints=tuple(b.constraint for b in bounds))
    make_optimizer(resolved["method"], found.space, resolved["seed"], objective, settings.options)
    problem = Problem(
        dataset=import_dataset(dataset, store),
        split=import_split(split, store),
        space=found.named,
        space_digest=found.space.digest,
        metric=metric.name,
        seed=resolved["seed"],
        space_code=found.space_code,
        positive=metric.positive,
    )
    notes += [_describe(dataset, settings.source), *dataset.notes]
    notes += constraint_notes(bounds, dataset, split, resolved["method"])
    trials, budget_seconds = settings.trials, settings.budget_seconds
    if trials is None and budget_seconds is None:
        is_demo = settings.source.data.startswith("cohort:demo")
        trials = int(_DEMO["trials"]) if is_demo else None
        budget_seconds = _DEMO["budget_seconds"] if is_demo else _DEFAULT_BUDGET_SECONDS
    return {
        **resolved,
        "source": source.to_json(),
        "metric": metric.name,
        "positive": settings.positive,
        "data_name": dataset.name,
        "chance_loss": objective.chance,
        "space": problem.space,
        "option": dict(settings.options),
        "use_cache": settings.use_cache,
        "trials": trials,
        "budget_seconds": budget_seconds,
        "constraint": [b.to_json() for b in bounds],
        "quantity_digests": {b.quantity.text: b.quantity.digest for b in bounds},
        "ensemble": settings.ensemble,
        "trial_seconds": settings.trial_seconds,
        "trial_memory_bytes": settings.trial_memory_bytes,
        "problem": problem.to_json(),
    }


def _given(settings: TuneSettings, name: str, default: Any) -> Any:
    given = getattr(settings, name)
    return default if given is None else given


def _default_names(resolved: Mapping[str, Any]) -> Iterator[str]:
    """Names for a study that was given none; more than one, since others may start meanwhile."""
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{as_name(resolved['data_name'])}-{resolved['method']}-{now}"
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def as_name(text: str) -> str:
    """A text as the beginning of a study's name."""
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in text)
    return plain.lstrip("._-")[:50] or "data"


def _describe(dataset: Dataset, source: Source) -> str:
    what = "columns" if dataset.kind == "table" else "event codes"
    kind = FORMATS[dataset.format].description
    found_out = "" if source.format else " (--format overrides)"
    return (
        f"{dataset.name} is taken for {kind}{found_out}: {len(dataset)} rows, "
        f"{dataset.n_features} {what}; {_describe_target(dataset)}"
    )


def _describe_target(dataset: Dataset) -> str:
    if not dataset.classes:
        return f"numbers from {dataset.y.min():.4g} to {dataset.y.max():.4g}"
    shares = ", ".join(
        f"{label}: {int((dataset.y == i).sum())}" for i, label in enumerate(dataset.classes[:8])
    )
    return f"classes {shares}" + (", ..." if len(dataset.classes) > 8 else "")
