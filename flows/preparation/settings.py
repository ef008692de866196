"""Settings of a study: the flow's parameters, parsed and checked before any work starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.store_address import store_address
from prefect_tune.flows.units import format_bytes, parse_bytes, parse_seconds
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.storage.cache.policies import POLICIES
from prefect_tune.storage.store import StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.constraint import given_constraints, kept_aside

__all__ = ["TaskRuns", "TuneSettings", "check_study_name"]

TaskRuns = Literal["auto", "steps", "misses", "trial"]

_LEAST_MEMORY_BYTES = 500_000_000
_LARGEST_SEED = 2**32 - 2
"""scikit-learn's limit is one more, and a study uses the next seed too."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_study_name(name: str, option: str = "study") -> str:
    """The name, if it is one.

    Raises:
        BadInput: If it holds other characters than letters, digits, dots, dashes and underscores.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"--{option} {name!r}: a study's name is made of letters, digits, dots, dashes and "
            "underscores, at most 100 of them, and begins with a letter or digit"
        )
    return name


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """What a study is started with.

    What is None is the study's own when it is continued, else the default.

    Attributes:
        source: What to read.
        test_size: Share of test rows.
        folds: Folds of cross-validation.
        holdout: Share of training rows held out instead.
        space: Name of the space.
        method: Name of the method.
        metric: Name of the metric.
        positive: Of two classes, the one to be found.
        constraints: Limits as they were written; None is the study's own.
        ensemble: Most picks of the final model's ensemble.
        seed: Source of randomness.
        options: The method's own options.
        trials: Trials in all.
        budget_seconds: Time in all.
        trial_seconds: Time of one trial.
        trial_memory_bytes: Memory of one trial.
        study: Name of the study.
        workers: Trials at the same time; by default one per core, or per worker of the scheduler.
        dask: Address of a Dask scheduler.
        address: Where the store is.
        cache_budget_bytes: New budget of the store's cache.
        eviction: New policy of eviction of the store's cache.
        use_cache: Whether to use the cache.
        task_runs: Which steps are task runs.
    """

    source: Source
    test_size: float | None = None
    folds: int | None = None
    holdout: float | None = None
    space: str | None = None
    method: str | None = None
    metric: str | None = None
    positive: str | None = None
    constraints: tuple[str, ...] | None = None
    ensemble: int | None = None
    seed: int | None = None
    options: Mapping[str, Any]
    trials: int | None = None
    budget_seconds: float | None = None
    trial_seconds: float | None = None
    trial_memory_bytes: int | None = None
    study: str | None = None
    workers: int | None = None
    dask: str | None = None
    address: StoreAddress
    cache_budget_bytes: int | None = None
    eviction: str | None = None
    use_cache: bool = True
    task_runs: TaskRuns = "auto"

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Self:
        """From the flow's parameters.

        Raises:
            BadInput, UnknownName: If one of them cannot be used.
        """
        p = dict(parameters)
        for name in ("trials", "workers", "ensemble"):
            if p[name] is not None and p[name] < 1:
                raise BadInput(f"--{name} {p[name]}: at least 1")
        if p["ensemble"] is not None and p["trials"] is not None and p["ensemble"] > p["trials"]:
            raise BadInput(
                f"--ensemble {p['ensemble']}: more than the {p['trials']} trials of the study; "
                "name a smaller one"
            )
        if p["seed"] is not None and not 0 <= p["seed"] <= _LARGEST_SEED:
            raise BadInput(f"--seed {p['seed']}: a seed is between 0 and {_LARGEST_SEED}")
        if (p["store"] or "").startswith("memory:"):
            raise BadInput(
                f"--store {p['store']} is the memory of one process, and trials run in others; "
                "name a folder"
            )
        _check_alternatives(p)
        task_runs: Any = p["task_runs"] or "auto"
        if task_runs not in get_args(TaskRuns):
            raise UnknownName("value of --task-runs", task_runs, get_args(TaskRuns))
        budget, cache_budget = p["budget"], p["cache_budget"]
        timeout, memory = p["trial_timeout"], p["trial_memory"]
        return cls(
            source=Source(
                data=p["data"],
                target=p["target"],
                labels=p["labels"],
                format=p["format"],
                test=p["test"],
                group=p["group"],
                drop=tuple(p["drop"] or ()),
                categorical=tuple(p["categorical"] or ()),
                drop_missing_target=bool(p["drop_missing_target"]),
                aside=kept_aside(given_constraints(p["constraint"]) or (), p["drop"] or ()),
            ),
            test_size=p["test_size"],
            folds=p["folds"],
            holdout=p["holdout"],
            space=p["space"],
            method=p["method"],
            metric=p["metric"],
            positive=p["positive"],
            constraints=given_constraints(p["constraint"]),
            ensemble=p["ensemble"],
            seed=p["seed"],
            options=dict(p["option"] or {}),
            trials=p["trials"],
            budget_seconds=parse_seconds(budget, "budget") if budget else None,
            trial_seconds=parse_seconds(timeout, "trial-timeout") if timeout else None,
            trial_memory_bytes=_trial_memory(memory) if memory else None,
            study=check_study_name(p["study"]) if p["study"] else None,
            workers=p["workers"],
            dask=p["dask"],
            address=store_address(p["store"], p["database"]),
            cache_budget_bytes=parse_bytes(cache_budget, "cache-budget") if cache_budget else None,
            eviction=_known_policy(p["eviction"]),
            use_cache=not p["no_cache"],
            task_runs=task_runs,
        )


def _trial_memory(text: str) -> int:
    memory_bytes = parse_bytes(text, "trial-memory")
    if memory_bytes < _LEAST_MEMORY_BYTES:
        raise BadInput(
            f"--trial-memory {text}: a worker that has loaded its libraries takes some 300MB; "
            f"name at least {format_bytes(_LEAST_MEMORY_BYTES)}"
        )
    return memory_bytes


def _known_policy(name: str | None) -> str | None:
    if name is not None and name not in POLICIES:
        raise UnknownName("policy of --eviction", name, POLICIES)
    return name


def _check_alternatives(parameters: Mapping[str, Any]) -> None:
    """Of two options that say the same thing in two ways only one may be given."""
    for one, other in (("test", "test_size"), ("folds", "holdout")):
        if parameters[one] is not None and parameters[other] is not None:
            flags = [OPTIONS[name].flag for name in (one, other)]
            values = [parameters[name] for name in (one, other)]
            raise BadInput(f"{flags[0]} {values[0]} with {flags[1]} {values[1]}: take one of them")
