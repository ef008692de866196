"""What a new study learns from, searches and is judged by: all of it must fit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.units import counted
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.constraint import check_measurable, parse_constraint
from prefect_tune.tasks.objective.groups import absent_groups
from prefect_tune.tasks.objective.metric import DEFAULT_METRICS, Metric, metric_named
from prefect_tune.tasks.objective.quantity import Quantity, QuantityBound
from prefect_tune.tasks.user_space import find_space

__all__ = [
    "Read",
    "StudyInput",
    "constraint_notes",
    "find_constraints",
    "find_metric",
    "read_input",
]

_SHOWN_GROUPS = 5

Read = Callable[[Source], Dataset]
"""What reads the input; for several studies of the same one, so that it is read once."""


@dataclass(frozen=True)
class StudyInput:
    """What a study learns from and searches, read and checked.

    Attributes:
        source: What was read.
        dataset: What it holds.
        named: Name of the space.
        space: The space.
        space_code: Text of the user's file; empty for a space of the catalogue.
    """

    source: Source
    dataset: Dataset
    named: str
    space: Space
    space_code: str


def read_input(settings: TuneSettings, read: Read = read_source) -> StudyInput:
    """Read what a new study is to learn from, and find a space that fits.

    Raises:
        BadInput, UnknownName: If something cannot be used.
    """
    source = replace(settings.source, predicts=_predicted(settings))
    dataset = read(source)
    named = settings.space or _fitting_space(dataset)
    space, space_code = find_space(named)
    _check_space(space, settings, dataset)
    return StudyInput(source, dataset, named, space, space_code)


def find_constraints(
    texts: Sequence[str], dataset: Dataset, split: Split
) -> tuple[QuantityBound, ...]:
    """Return what `--constraint` bounds, checked against the data and its folds.

    Raises:
        BadInput, UnknownName: If one of them cannot be read or measured, or two are of the same
            quantity.
    """
    bounds = tuple(parse_constraint(text) for text in texts)
    for position, bounded in enumerate(bounds):
        quantity = bounded.quantity
        check_measurable(quantity, dataset)
        _absent_groups(quantity, dataset, split)
        if any(quantity == other.quantity for other in bounds[:position]):
            raise BadInput(
                "given twice", option="constraint", value=quantity.text, remedy="leave one out"
            )
    return bounds


def constraint_notes(
    bounds: Sequence[QuantityBound], dataset: Dataset, split: Split, method: str
) -> list[str]:
    """Return what a user should know of how constraints are kept."""
    if not bounds:
        return []
    features = set(dataset.X) if isinstance(dataset.X, pd.DataFrame) else set()
    notes = [
        f"column {column} gives the groups of a limit, and is a feature too; --drop {column} "
        "leaves it out of the features alone"
        for column in dict.fromkeys(b.quantity.column for b in bounds)
        if column in features
    ]
    notes += [
        f"{counted(len(absent), 'group')} of {b.quantity.text} ({_shown(absent)}) without a row in "
        "some fold: compared in the others only; take wider groups or fewer --folds to compare "
        "them in all"
        for b in bounds
        if (absent := _absent_groups(b.quantity, dataset, split))
    ]
    if not METHODS[method].honours_constraints:
        honouring = " or ".join(m.name for m in METHODS.values() if m.honours_constraints)
        notes.append(
            f"{method} looks for the least loss, and the limits choose among its trials; --method "
            f"{honouring} searches inside of them"
        )
    return notes


def _absent_groups(quantity: Quantity, dataset: Dataset, split: Split) -> dict[str, list[int]]:
    """By group of a quantity that some folds hold out no row of, those folds.

    Raises:
        BadInput: If a fold has no two groups to compare.
    """
    if not quantity.column or dataset.columns is None:
        return {}
    absent, fewest = absent_groups(dataset.columns[quantity.column], quantity.bins, split)
    if fewest < 2:
        raise BadInput(
            f"--constraint {quantity.text}: groups are compared, and some fold holds out rows of "
            f"{counted(fewest, 'group')} (in one or another there is none of {_shown(absent)}); "
            "take wider groups, fewer --folds or a larger --holdout"
        )
    return absent


def _shown(names: Iterable[str]) -> str:
    first = list(names)
    return ", ".join(first[:_SHOWN_GROUPS]) + ", ..." * (len(first) > _SHOWN_GROUPS)


def find_metric(
    settings: TuneSettings, dataset: Dataset, y: NDArray[Any]
) -> tuple[Metric, list[str]]:
    """The metric, and which class it takes to be positive where that matters.

    Args:
        settings: As given.
        dataset: What is to be learned.
        y: Classes of its training rows.

    Raises:
        BadInput: If the positive class is none of two.
    """
    name, classes = settings.metric or DEFAULT_METRICS[dataset.target], dataset.classes
    texts = [str(label) for label in classes]
    if settings.positive is not None and (len(classes) != 2 or settings.positive not in texts):
        raise BadInput(
            f"--positive {settings.positive}: one of two classes, and the target has "
            f"{', '.join(texts[:8]) or 'numbers'}"
        )
    if len(classes) != 2:
        return metric_named(name), []
    rarer = int(np.argmin(np.bincount(y, minlength=2)[::-1]) == 0)
    positive = rarer if settings.positive is None else texts.index(settings.positive)
    metric = metric_named(name, positive)
    is_symmetric = name in {"error", "auroc", "accuracy", "roc_auc"}
    is_limited = any(t.startswith("false_positive_rate") for t in settings.constraints or ())
    matters = settings.positive is None and (is_limited or not is_symmetric)
    said = f"the positive class is {texts[positive]}, the rarer one (--positive overrides)"
    return metric, [said] if matters else []


def _predicted(settings: TuneSettings) -> Literal["classes", "numbers"] | None:
    """What the metric or the space that is named judges or predicts; None when neither is named."""
    if settings.metric is not None:
        return metric_named(settings.metric).target
    return None if settings.space is None else find_space(settings.space)[0].target


def _fitting_space(dataset: Dataset) -> str:
    """The space that a study of this data searches unless told otherwise.

    Raises:
        BadInput: If no space of the catalogue can.
    """
    fitting = DEFAULT_SPACES.get((dataset.kind, dataset.target))
    if fitting is None:
        raise BadInput(
            f"no space predicts {dataset.target} from {dataset.kind}; bring one of your own with "
            "--space FILE.py:NAME"
        )
    return fitting


def _check_space(space: Space, settings: TuneSettings, dataset: Dataset) -> None:
    """The space must take the data and predict what is asked for."""
    target = dataset.target
    if (space.data, space.target) == (dataset.kind, target):
        return
    remedy = f"take --space {_fitting_space(dataset)}"
    if space.data != dataset.kind:
        raise BadInput(
            f"--space {space.name} takes {space.data}, and {settings.source.data} is "
            f"{dataset.kind}; {remedy}"
        )
    raise BadInput(
        f"--space {space.name} predicts {space.target}, and the target of "
        f"{settings.source.data} is {target}; {remedy}"
    )
