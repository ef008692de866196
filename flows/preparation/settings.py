"""Settings of a study: the flow's parameters, parsed and checked before any work starts."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args

from prefect_tune.flows.preparation.options import flag_of
from prefect_tune.flows.store_location import check_no_password, store_address
from prefect_tune.flows.study.ensemble_rule import ENSEMBLE_KINDS, EnsembleRule
from prefect_tune.flows.study.plan import Execution, StopRule, TaskRuns
from prefect_tune.flows.text import format_bytes, parse_bytes, parse_seconds
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.opening import StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.constraint import given_constraints, kept_aside
from prefect_tune.tasks.objective.quantity import QuantityBound


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return name and value; a value is JSON where it reads as such, and text otherwise.

    Raises:
        ValueError: If the text is not of the form NAME=VALUE.
    """
    match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text)
    if match is None:
        raise ValueError(f"{text}: write NAME=VALUE")
    try:
        return match[1], json.loads(match[2])
    except ValueError:
        return match[1], match[2]


def write_assignments(values: Mapping[str, Any]) -> list[str]:
    """Return each value as NAME=VALUE, the inverse of `parse_assignment`."""
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    ]


_LEAST_MEMORY_BYTES = 500_000_000
_LEAST_EPOCHS = 5
_MOST_EPOCHS = 1000
"""Each stretch looks for a checkpoint at every epoch."""
_LARGEST_SEED = 2**32 - 2
"""scikit-learn's limit is one more, and a study uses the next seed too."""
_OF_URLS = ("data", "labels", "test", "dask")
"""Parameters that may be URLs, beside those of the store."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_study_name(name: str, option: str = "study") -> str:
    """Return the name if it can be a study's.

    Raises:
        BadInput: If it holds other characters than letters, digits, dots, dashes and underscores.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            "a study's name is made of letters, digits, dots, dashes and underscores, at most 100 "
            "of them, and begins with a letter or digit",
            option=option,
            value=repr(name),
        )
    return name


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """Settings that a user gives to start or continue a study, parsed.

    None stands for what was left out: the study's own when it is continued, else the default.

    Attributes:
        source: What to read.
        test_size: Share of test rows.
        folds: Folds of cross-validation.
        holdout: Share of training rows held out instead.
        space: Name of the space.
        method: Name of the method.
        metric: Name of the metric.
        positive: Of two classes, the one to be found.
        bounds: Constraints; None for the study's own.
        ensemble: How the final model is made of the trials.
        seed: Source of randomness.
        options: The method's own options.
        stop_rule: When the search ends.
        trial_seconds: Seconds that a trial may take.
        trial_memory_bytes: Memory that a trial may take.
        study: Name of the study.
        execution: Where its trials run.
        address: Where the store is.
        cache_budget_bytes: New budget of the store's cache.
        use_cache: Whether to use the cache.
        epochs: Epochs of a full training.
        race: Whether configurations that are clearly behind end after their first fold.
        start_from: File or study with the configurations to begin with.
    """

    source: Source
    test_size: float | None = None
    folds: int | None = None
    holdout: float | None = None
    space: str | None = None
    method: str | None = None
    metric: str | None = None
    positive: str | None = None
    bounds: tuple[QuantityBound, ...] | None = None
    ensemble: EnsembleRule | None = None
    seed: int | None = None
    options: Mapping[str, Any]
    stop_rule: StopRule = field(default_factory=StopRule)
    trial_seconds: float | None = None
    trial_memory_bytes: int | None = None
    study: str | None = None
    execution: Execution = field(default_factory=Execution)
    address: StoreAddress
    cache_budget_bytes: int | None = None
    use_cache: bool = True
    epochs: int | None = None
    race: bool | None = None
    start_from: str | None = None

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Self:
        """Parse the flow's parameters.

        Raises:
            BadInput, UnknownName: If one of them cannot be used.
        """
        p = dict(parameters)
        for name in _OF_URLS:
            check_no_password(name, p[name])
        _check_values(p)
        bounds, budget = given_constraints(p["constraint"]), p["cache_budget"]
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
                aside=kept_aside(bounds or (), p["drop"] or ()),
            ),
            test_size=p["test_size"],
            folds=p["folds"],
            holdout=p["holdout"],
            space=p["space"],
            method=p["method"],
            metric=p["metric"],
            positive=p["positive"],
            bounds=bounds,
            ensemble=_parse_ensemble(p["ensemble"]),
            seed=p["seed"],
            options=dict(p["option"] or {}),
            stop_rule=StopRule(
                p["trials"], parse_seconds(p["budget"], "budget") if p["budget"] else None
            ),
            trial_seconds=parse_trial_seconds(p["trial_timeout"]),
            trial_memory_bytes=parse_trial_memory(p["trial_memory"]),
            study=check_study_name(p["study"]) if p["study"] else None,
            execution=parse_execution(p["workers"], p["dask"], p["task_runs"]),
            address=store_address(p["store"], p["database"]),
            cache_budget_bytes=parse_bytes(budget, "cache-budget") if budget else None,
            use_cache=not p["no_cache"],
            epochs=p["epochs"],
            race=p["race"],
            start_from=p.get("start"),
        )


def parse_execution(workers: int | None, dask: str | None, task_runs: str | None) -> Execution:
    """Parse where trials run.

    Raises:
        BadInput, UnknownName: If one of the values cannot be used.
    """
    if workers is not None and workers < 1:
        raise BadInput("must be at least 1", option="workers", value=workers)
    which: Any = task_runs or "auto"
    if which not in get_args(TaskRuns):
        raise UnknownName("value of --task-runs", which, get_args(TaskRuns))
    return Execution(workers, dask, which)


def parse_trial_seconds(text: str | None) -> float | None:
    """Parse `--trial-timeout`.

    Raises:
        BadInput: If it is not a duration.
    """
    return parse_seconds(text, "trial-timeout") if text else None


def parse_trial_memory(text: str | None) -> int | None:
    """Parse `--trial-memory`.

    Raises:
        BadInput: If it is not a size, or less than a worker takes before any trial.
    """
    if not text:
        return None
    memory_bytes = parse_bytes(text, "trial-memory")
    if memory_bytes < _LEAST_MEMORY_BYTES:
        raise BadInput(
            "a worker that has loaded its libraries takes some 300MB",
            option="trial-memory",
            value=text,
            remedy=f"name at least {format_bytes(_LEAST_MEMORY_BYTES)}",
        )
    return memory_bytes


def _parse_ensemble(value: int | str | None) -> EnsembleRule | None:
    """Parse `--ensemble`.

    Raises:
        BadInput: If it is neither a kind nor a number of picks.
    """
    if value is None:
        return None
    try:
        return EnsembleRule.parse(value)
    except ValueError as error:
        *kinds, last = ENSEMBLE_KINDS
        raise BadInput(
            str(error),
            option="ensemble",
            value=value,
            remedy=f"name a whole number from 1, or {', '.join(kinds)} or {last}",
        ) from None


def _check_values(parameters: Mapping[str, Any]) -> None:
    """Check the values that no parser reads.

    Raises:
        BadInput: If one of them cannot be used.
    """
    trials, seed = parameters["trials"], parameters["seed"]
    if trials is not None and trials < 1:
        raise BadInput("must be at least 1", option="trials", value=trials)
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise BadInput(f"a seed is between 0 and {_LARGEST_SEED}", option="seed", value=seed)
    if (parameters["store"] or "").startswith("memory:"):
        raise BadInput(
            "it is the memory of one process, and trials run in others",
            option="store",
            value=parameters["store"],
            remedy="name a folder",
        )
    epochs = parameters["epochs"]
    if epochs is not None and epochs < _LEAST_EPOCHS:
        raise BadInput(
            f"a curve of fewer than {_LEAST_EPOCHS} epochs says little",
            option="epochs",
            value=epochs,
            remedy=f"name {_LEAST_EPOCHS} or more",
        )
    if epochs is not None and epochs > _MOST_EPOCHS:
        raise BadInput(f"must be at most {_MOST_EPOCHS}", option="epochs", value=epochs)
    _check_alternatives(parameters)


def _check_alternatives(parameters: Mapping[str, Any]) -> None:
    """Check that nothing is given that excludes what else is given.

    Raises:
        BadInput: If it is.
    """
    for one, other in (("test", "test_size"), ("folds", "holdout")):
        if parameters[one] is not None and parameters[other] is not None:
            flags = [flag_of(name) for name in (one, other)]
            values = [parameters[name] for name in (one, other)]
            raise BadInput(
                f"{flags[0]} {values[0]} with {flags[1]} {values[1]}: use only one of them"
            )
