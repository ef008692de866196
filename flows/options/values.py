"""Types of option values other than strings and numbers, and the written forms of the values.

The module is cheap to import, because the values are part of a study's plan.
"""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from prefect_tune.flows.options.store_location import check_no_password
from prefect_tune.flows.wording.text import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_bytes,
    parse_bytes,
    parse_seconds,
)
from prefect_tune.optimizers.options import Option, Written
from prefect_tune.storage.masking import without_signature
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.metric import QuantityBound

if TYPE_CHECKING:
    from collections.abc import Sequence

TaskRuns = Literal["auto", "steps", "misses", "trial"]


@dataclass(frozen=True, slots=True)
class StopRule:
    """Bounds on the search of a study. The search ends when the first bound is reached.

    Attributes:
        trials: Maximum number of configurations, including earlier runs; None if unbounded.
        seconds: Maximum study time, including earlier runs; None if unbounded.
    """

    trials: int | None = None
    seconds: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the search has no bound."""
        return self.trials is None and self.seconds is None


EnsembleKind = Literal["single", "greedy", "agnostic", "auto"]
ENSEMBLE_KINDS: tuple[EnsembleKind, ...] = get_args(EnsembleKind)


@dataclass(frozen=True, slots=True)
class EnsembleRule:
    """Rule by which the final model of a study is composed from trials.

    Attributes:
        kind: Kind of ensemble: `single` for the best trial alone; `greedy` for greedy selection
            with replacement on held-out predictions (Caruana et al. 2004); `agnostic` for trials
            weighted by how often each is best in bootstrap samples of the held-out rows (Lacoste et
            al. 2014); `auto` for the kind that is best on held-out rows.
        size: Maximum number of picks of a greedy ensemble; None for the default.
    """

    kind: EnsembleKind
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise ValueError(f"an ensemble needs at least 1 pick; got {self.size}")

    @classmethod
    def parse(cls, value: int | str) -> Self:
        """Return the rule for a number of picks or a kind of ensemble.

        >>> EnsembleRule.parse("8")
        EnsembleRule(kind='greedy', size=8)
        >>> EnsembleRule.parse(1).kind
        'single'

        Raises `ValueError` for any other value.
        """
        for kind in ENSEMBLE_KINDS:
            if value == kind:
                return cls(kind)
        try:
            size = int(value)
        except ValueError:
            raise ValueError("neither a number of picks nor a kind of ensemble") from None
        return cls("single") if size == 1 else cls("greedy", size)

    def __str__(self) -> str:
        return self.kind if self.size is None else str(self.size)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return the name and value of NAME=VALUE. The value is parsed as JSON if possible.

    Raises `ValueError` if the text does not have the form NAME=VALUE.
    """
    match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", text)
    if match is None:
        raise ValueError(f"{text}: write NAME=VALUE")
    try:
        return match[1], json.loads(match[2])
    except ValueError:
        return match[1], match[2]


def bad_value(option: Option, reason: str, value: Any, remedy: str = "") -> BadInput:
    """Return the error for an invalid value of an option."""
    name = option.flag.removeprefix("--")
    return BadInput(reason, option=name, value=value, remedy=remedy)


def _parse_location(text: str, option: Option) -> str:
    text = without_signature(text) if option.group == "Data" else text
    check_no_password(option.name, text)
    return text


def _parse_store(text: str, option: Option) -> str:
    check_no_password(option.name, text)
    if text.startswith("memory:"):
        reason = "trials run in other processes, which cannot read this process's memory"
        raise bad_value(option, reason, text, "name a folder")
    return text


def _parse_duration(text: str, option: Option) -> float | None:
    return parse_seconds(text, option.flag.removeprefix("--")) if text else None


def _parse_size(text: str, option: Option) -> int | None:
    return parse_bytes(text, option.flag.removeprefix("--")) if text else None


_LEAST_MEMORY_BYTES = 500_000_000


def _parse_memory(text: str, option: Option) -> int | None:
    memory_bytes = _parse_size(text, option)
    if memory_bytes is not None and memory_bytes < _LEAST_MEMORY_BYTES:
        reason = "a trial needs about 300MB for its libraries alone"
        remedy = f"set the limit to at least {format_bytes(_LEAST_MEMORY_BYTES)}"
        raise bad_value(option, reason, text, remedy)
    return memory_bytes


def _parse_ensemble(value: int | str, option: Option) -> EnsembleRule:
    try:
        return EnsembleRule.parse(value)
    except ValueError as error:
        *kinds, last = ENSEMBLE_KINDS
        remedy = f"use {', '.join(kinds)} or {last}, or a number of picks (1 or more)"
        raise bad_value(option, str(error), value, remedy) from None


def _parse_constraints(texts: "Sequence[str]", _: Option) -> tuple[QuantityBound, ...]:
    from prefect_tune.tasks.objective.constraints import (  # noqa: PLC0415 - loads pandas
        parse_constraint,
    )

    return tuple(map(parse_constraint, texts))


def _write_bytes(size_bytes: int) -> str:
    return f"{size_bytes}B"


LOCATION = Written(_parse_location)
"""A path or URL without a password."""
STORE = Written(_parse_store)
DURATION = Written(_parse_duration, lambda seconds: f"{seconds:.15g}s", DURATION_PATTERN)
SIZE = Written(_parse_size, _write_bytes, SIZE_PATTERN)
MEMORY = Written(_parse_memory, _write_bytes, SIZE_PATTERN)
ENSEMBLE = Written(_parse_ensemble, str)
CONSTRAINTS = Written(_parse_constraints, lambda one: one.text)
COLUMNS = Written(lambda texts, _: tuple(name for text in texts for name in text.split(",")))
ASSIGNED = Written(
    lambda values, _: dict(values), lambda one: one if isinstance(one, str) else json.dumps(one)
)
