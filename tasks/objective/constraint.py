"""Constraints as users write them, and checks against a data set."""

import re
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd

from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.code_behind import follow
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.declaration import Quantity, QuantityBound
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.quantities import QUANTITIES, absent_groups, groups_of
from prefect_tune.tasks.user_code import load_user_code, read_user_code

_OPTION = "constraint"
_SHOWN_GROUPS = 5
_MOST_NUMBERS = 20
"""A column with more different numbers than this needs bins."""


def parse_constraint(text: str) -> QuantityBound:
    """Parse `QUANTITY<=VALUE`.

    Raises:
        BadInput: If the syntax differs, or the value is not a number >= 0.
        UnknownName: If the quantity or the metric does not exist.
    """
    match = re.fullmatch(r"\s*([^<>=(]+?)\s*(?:\((.*)\))?\s*<=\s*([^<>=]+?)\s*", text)
    if match is None:
        raise _wrong(
            text,
            "write QUANTITY<=VALUE, for instance latency_us<=5000 or "
            '"disparate_impact(age, bins=20:40:60, metric=auroc)<=0.1"',
        )
    name, arguments, value = match[1], match[2], match[3]
    try:
        bound = float(value)
    except ValueError:
        raise _wrong(text, f"{value!r} is not a number") from None
    if not 0 <= bound < inf:
        raise _wrong(text, "the bound must be >= 0 and finite")
    if name == "false_positive_rate" and bound > 1:
        raise _wrong(text, "the bound is a share from 0 to 1; write 5 percent as 0.05")
    return QuantityBound(_parse_quantity(text, name, arguments), bound)


def check_constraints(bounds: Sequence[QuantityBound], dataset: Dataset, split: Split) -> None:
    """Raise BadInput or UnknownName if a quantity cannot be measured or is bounded twice."""
    for position, bounded in enumerate(bounds):
        quantity = bounded.quantity
        check_measurable(quantity, dataset)
        absent_groups_in(quantity, dataset, split)
        if any(quantity == other.quantity for other in bounds[:position]):
            raise BadInput(
                "given twice", option=_OPTION, value=quantity.text, remedy="drop one of them"
            )


def absent_groups_in(quantity: Quantity, dataset: Dataset, split: Split) -> dict[str, list[int]]:
    """Return, by group, the folds without held-out rows of it; BadInput if a fold has too few."""
    if not quantity.column or dataset.columns is None:
        return {}
    absent, fewest = absent_groups(dataset.columns[quantity.column], quantity.bins, split)
    if fewest < 2:
        raise BadInput(
            f"cannot compare groups: at least one fold holds out rows of only {fewest} "
            f"group{'s' * (fewest != 1)} (missing in one fold or another: "
            f"{shown_groups(absent)})",
            option=_OPTION,
            value=quantity.text,
            remedy="use wider groups, fewer --folds or a larger --holdout",
        )
    return absent


def shown_groups(names: Iterable[str]) -> str:
    """Return the first names of groups, for a message."""
    first = list(names)
    return ", ".join(first[:_SHOWN_GROUPS]) + ", ..." * (len(first) > _SHOWN_GROUPS)


def check_measurable(quantity: Quantity, dataset: Dataset) -> None:
    """Raise BadInput if a quantity cannot be measured on a data set."""
    if quantity.name == "false_positive_rate" and len(dataset.classes) != 2:
        n_classes = len(dataset.classes) or "numbers"
        raise _wrong(quantity.text, f"needs two classes; the data has {n_classes}")
    if quantity.metric and metric_named(quantity.metric).target != dataset.target:
        raise _wrong(
            quantity.text, f"{quantity.metric} is no metric for {dataset.target}, the data's target"
        )
    if not quantity.column:
        return
    if dataset.columns is None:
        raise _wrong(quantity.text, "groups need columns of a table; the data has events")
    where = f"the table (--{_OPTION} {quantity.text})"
    need_column(quantity.column, dataset.columns.columns, where)
    _check_groups(quantity, dataset.columns[quantity.column])


def _check_groups(quantity: Quantity, column: pd.Series) -> None:
    text, name = quantity.text, quantity.column
    is_number = pd.api.types.is_numeric_dtype(column.dtype)
    if quantity.bins and not is_number:
        raise _wrong(
            text,
            f"column {name!r} has categories; bins need numbers",
            "drop bins to make each category a group",
        )
    n_groups = len(groups_of(column, quantity.bins)[1])
    if is_number and n_groups > _MOST_NUMBERS and not quantity.bins:
        raise _wrong(
            text,
            f"column {name!r} has {n_groups} different numbers, too many to make each a group",
            f"write bins, for instance {quantity.name}({name}, bins=20:40:60)",
        )
    if n_groups < 2:
        raise _wrong(
            text,
            f"column {name!r} has fewer than two groups ({n_groups}) to compare",
            "use other bins or another column",
        )


def _parse_quantity(text: str, name: str, arguments: str | None) -> Quantity:
    if ".py:" in name:
        if arguments:
            raise _wrong(text, "a function of your own takes no arguments here")
        return _user_quantity(name)
    if name not in QUANTITIES:
        raise UnknownName("quantity of --constraint:", name, tuple(QUANTITIES))
    known, given = QUANTITIES[name].arguments, dict[str, Any]()
    for part in filter(None, map(str.strip, (arguments or "").split(","))):
        key, separator, value = map(str.strip, part.partition("="))
        key, value = (key, value) if separator else ("column", part)
        if key not in known or key in given:
            takes = ", ".join(known) or "nothing"
            raise _wrong(text, f"{name} takes {takes} once; got {part!r}")
        given[key] = _parse_bins(text, value) if key == "bins" else value
    if "column" in known and "column" not in given:
        raise _wrong(text, f"name the column of the groups, {name}(COLUMN)<=...")
    if "metric" in given:
        metric_named(given["metric"])
    return Quantity(name, **given)


def _parse_bins(text: str, value: str) -> tuple[float, ...]:
    try:
        edges = tuple(map(float, value.split(":")))
    except ValueError:
        edges = ()
    if len(edges) < 3 or list(edges) != sorted(set(edges)):
        raise _wrong(text, "bins must be three or more ascending edges, such as bins=20:40:60")
    return edges


def _user_quantity(name: str) -> Quantity:
    file, function = name.rsplit(":", 1)
    code = read_user_code(name, _OPTION)
    behind = follow(code, Path(file).expanduser())
    if not callable(getattr(load_user_code(code, file, behind), function, None)):
        raise _wrong(name, f"{file} has no function {function!r}")
    wider = follow(code, Path(file).expanduser())  # its code may have extended the path
    if (wider.texts, wider.unfollowed) != (behind.texts, behind.unfollowed):
        behind = wider
    return Quantity(name, code=code, behind=behind)


def _wrong(text: str, reason: str, remedy: str = "") -> BadInput:
    return BadInput(reason, option=_OPTION, value=text, remedy=remedy)
