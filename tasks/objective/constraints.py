"""Constraints: bounds on quantities of a pipeline, measured on the held-out rows of one fold.

Examples are the latency per row and differences between groups of rows, where a group is a value of
a column or an interval of values. A trial's value is the mean over its folds (Ram et al. 2020,
equation A44).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Real
from pathlib import Path
from timeit import Timer
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.method import counted
from prefect_tune.tasks.bad_input import BadInput, need_column, shown_columns
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.row_reader import RowReader
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.metric import (
    OF_POSITIVES,
    Metric,
    Quantity,
    QuantityBound,
    metric_named,
)
from prefect_tune.tasks.objective.predictions import Predictions, with_reader
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import (
    follow,
    load_user_code,
    portable_pickle,
    read_user_code,
)

_OPTION = "constraint"
_MOST_NUMBERS = 20
"""Number of distinct numeric values above which a column needs bins."""
_BATCH = 1_000
"""Number of rows in a batch, unless there are fewer rows."""
_LEAST_REPEATS, _MOST_REPEATS = 5, 50
_SECONDS = 0.2
"""Time for which a measurement is repeated; a slow pipeline may take longer."""


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows of a fold with their predictions and the fitted `pipeline`."""

    dataset: Dataset
    rows: NDArray[np.intp]
    predictions: Predictions
    metric: Metric
    pipeline: Callable[[], Any]


def parse_constraint(text: str) -> QuantityBound:
    """Parse `QUANTITY<=VALUE`, or `QUANTITY>=VALUE` if more is better.

    Raises:
        BadInput: If the syntax is wrong, or the value is not a number >= 0.
        UnknownName: If the quantity or the metric does not exist.
    """
    match = re.fullmatch(r"\s*([^<>=(]+?)\s*(?:\((.*)\))?\s*([<>]=)\s*([^<>=]+?)\s*", text)
    if match is None:
        raise _wrong(
            text,
            "write QUANTITY<=VALUE, for instance latency_us<=5000 or "
            '"group_gap(age, bins=20:40:60, metric=auroc)<=0.1"',
        )
    name, arguments, operator, value = match.groups()
    bound = -1.0
    with suppress(ValueError):
        bound = float(value)
    if not 0 <= bound < inf:
        raise _wrong(text, f"the bound must be a finite number >= 0; got {value!r}")
    if name in OF_POSITIVES and bound > 1:
        raise _wrong(text, "the bound is a share from 0 to 1; write 5 percent as 0.05")
    bounded = QuantityBound(_parse_quantity(text, name, arguments), bound)
    if bounded.operator != operator:
        column, named = bounded.quantity.column, bounded.quantity.text
        ratio = (
            f"disparate_impact({column})>=0.8 is a ratio of selection rates, and a higher ratio is "
            f"better; the largest difference of a metric between groups is group_gap({column})<=0.1"
        )
        raise _wrong(text, ratio if column and operator == "<=" else f"write {named}<=VALUE")
    return bounded


def check_constraints(bounds: Sequence[QuantityBound], dataset: Dataset, split: Split) -> list[str]:
    """Return a note on the rows of the smallest group for each quantity that compares groups.

    Raises BadInput or UnknownName if a quantity cannot be measured or is bounded twice.
    """
    quantities, notes = [bounded.quantity for bounded in bounds], list[str]()
    for position, quantity in enumerate(quantities):
        check_measurable(quantity, dataset)
        if quantity in quantities[:position]:
            raise _wrong(quantity.text, "given twice", "drop one of them")
        if not quantity.column or dataset.columns is None:
            continue
        numbers, names = groups_of(dataset.columns[quantity.column], quantity.bins)
        least = counted(int(np.bincount(numbers[numbers >= 0]).min()), "row")
        notes.append(f"{quantity.text}: the smallest of {len(names)} groups has {least}")
        by_fold = [set(numbers[split.held_out(k)].tolist()) - {-1} for k in range(split.n_folds)]
        if min(map(len, by_fold)) < 2:
            rare = set(range(len(names))) - set.intersection(*by_fold)
            raise _wrong(
                quantity.text,
                "cannot compare groups: at least one fold holds out rows of fewer than two groups "
                f"(missing in at least one fold: {shown_columns(names[i] for i in sorted(rare))})",
                "use wider groups, fewer --folds or a larger --holdout",
            )
    return notes


def check_measurable(quantity: Quantity, dataset: Dataset) -> None:
    """Raise `BadInput` if a quantity cannot be measured on a data set."""
    text, name = quantity.text, quantity.column
    if quantity.name in OF_POSITIVES and len(dataset.classes) != 2:
        raise _wrong(text, f"needs two classes; the data has {len(dataset.classes) or 'numbers'}")
    if quantity.metric and metric_named(quantity.metric).target != dataset.target:
        raise _wrong(text, f"{quantity.metric} is not a metric for {dataset.target}")
    if not name:
        return
    if dataset.columns is None:
        raise _wrong(text, "groups need columns of a table; the data has events")
    if name not in dataset.columns:
        known = [c.name for c in (dataset.row_reader or RowReader.of(dataset.columns)).columns]
        need_column(name, known, "the table", option=_OPTION, value=text)
        raise _wrong(text, f"column {name!r} has dates or free text, and groups need categories")
    column = dataset.columns[name]
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
            f"column {name!r} has {n_groups} different numbers, too many for one group each",
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
    known = _ARGUMENTS.get(name, ())
    given = dict[str, Any]()
    for part in filter(None, map(str.strip, (arguments or "").split(","))):
        key, separator, value = map(str.strip, part.partition("="))
        key, value = (key, value) if separator else ("column", part)
        if key not in known or key in given:
            takes = ", ".join(known) or "nothing"
            raise _wrong(text, f"{name} takes {takes} once; got {part!r}")
        given[key] = _parse_bins(text, value) if key == "bins" else value
    if known and "column" not in given:
        raise _wrong(text, f"name the column of the groups, as in {name}(sex)")
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
    behind = follow(code, Path(file).expanduser())  # the user's code may have extended sys.path
    return Quantity(name, code=code, behind=behind)


def _wrong(text: str, reason: str, remedy: str = "") -> BadInput:
    return BadInput(reason, option=_OPTION, value=text, remedy=remedy)


def measure_quantity(quantity: Quantity, held_out: HeldOutRows) -> float:
    """Return the value of a quantity in one fold; nan if undefined.

    A user's function receives the pipeline in the form written by `export`, the rows, and the rows'
    targets.

    Raises:
        ValueError: If a user's function does not return a finite number.
    """
    if not quantity.code:
        return QUANTITIES[quantity.name](quantity, held_out)
    file, function = quantity.name.rsplit(":", 1)
    measure = getattr(load_user_code(quantity.code, file, quantity.behind), function)
    dataset, y = held_out.dataset, held_out.dataset.y[held_out.rows]
    targets = np.array(dataset.classes)[y] if dataset.classes else y
    pipeline = with_reader(held_out.pipeline(), dataset)
    returned = measure(pipeline, dataset.rows(held_out.rows), targets)
    value = np.asarray(returned).item() if np.size(returned) == 1 else returned
    if not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ValueError(f"{quantity.name} returned {value!r}; it must return a finite number")
    return float(value)


def groups_of(
    column: "pd.Series[Any]", bins: Sequence[float]
) -> tuple[NDArray[np.intp], list[str]]:
    """Return the group of each row, shape (n,), or -1 for no group, and the groups' names.

    Groups are the values of the column, or the intervals between ascending `bins` (the last
    interval is closed).
    """
    if bins:
        edges = [*bins[:-1], np.nextafter(bins[-1], inf)]
        names = [f"{low:g} to {high:g}" for low, high in pairwise(bins)]
        column = pd.cut(column.astype(float), edges, right=False, labels=names)
    numbers, found = pd.factorize(column, sort=True)
    return numbers, [str(value) for value in found]


def _latency_us(held_out: HeldOutRows, n_rows: int) -> float:
    """Return the microseconds per row, the median over calls with `n_rows` rows on one thread."""
    pipeline = with_reader(held_out.pipeline(), held_out.dataset)
    rows = held_out.dataset.rows(held_out.rows[:n_rows])
    calls = Timer(lambda: pipeline.predict(rows))
    with one_thread():
        calls.timeit(1)  # the first call imports modules
        n_calls = int(np.clip(_SECONDS / calls.timeit(1), _LEAST_REPEATS, _MOST_REPEATS))
        seconds = calls.repeat(n_calls, 1)
    return 1e6 * float(np.median(seconds)) / len(held_out.rows[:n_rows])


def _false_positive_rate(quantity: Quantity, held_out: HeldOutRows) -> float:  # noqa: ARG001
    positive = held_out.metric.positive
    is_negative = held_out.dataset.y[held_out.rows] != positive
    found = held_out.predictions.label[is_negative] == positive
    return float(found.mean()) if len(found) else 0.0


def _groups(quantity: Quantity, held_out: HeldOutRows) -> Iterator[NDArray[np.intp]]:
    """Yield the positions of each group's rows among the held-out rows."""
    columns = held_out.dataset.columns
    assert columns is not None  # noqa: S101 - checked before the study starts
    numbers, _ = groups_of(columns[quantity.column].iloc[held_out.rows], quantity.bins)
    return (np.flatnonzero(numbers == group) for group in np.unique(numbers[numbers >= 0]))


def _disparate_impact(quantity: Quantity, held_out: HeldOutRows) -> float:
    """Return the smallest rate of positive predictions in a group, divided by the largest rate.

    The result is nan if no row is predicted as positive.
    """
    is_found = held_out.predictions.label == held_out.metric.positive
    rates = [float(is_found[rows].mean()) for rows in _groups(quantity, held_out)]
    return min(rates) / max(rates) if any(rates) else float("nan")


def _group_gap(quantity: Quantity, held_out: HeldOutRows) -> float:
    """Return the largest difference of a metric between two groups (equation A43).

    Groups for which the metric is undefined are skipped; nan if fewer than two groups remain.
    """
    dataset, metric = held_out.dataset, held_out.metric
    if quantity.metric:
        metric = metric_named(quantity.metric, metric.positive)
    losses = []
    for of_group in _groups(quantity, held_out):
        y, predicted = dataset.y[held_out.rows[of_group]], held_out.predictions.take(of_group)
        try:
            losses.append(metric.loss(y, predicted, len(dataset.classes)))
        except ValueError:
            continue
    return max(losses) - min(losses) if len(losses) > 1 else float("nan")


_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "group_gap": ("column", "bins", "metric"),
    "disparate_impact": ("column", "bins"),
}
ON_PREDICTIONS = ("group_gap", *OF_POSITIVES)
"""Quantities measured on predictions alone; all others need the pipeline."""
QUANTITIES: Mapping[str, Callable[[Quantity, HeldOutRows], float]] = {
    "latency_us": lambda _, held_out: _latency_us(held_out, 1),
    "batch_latency_us": lambda _, held_out: _latency_us(held_out, _BATCH),
    "model_size_bytes": lambda _, held_out: float(len(portable_pickle(held_out.pipeline()))),
    "group_gap": _group_gap,
    "disparate_impact": _disparate_impact,
    "false_positive_rate": _false_positive_rate,
}
"""Quantities that a study may bound, by name: microseconds of a call that predicts one row, or per
row of a call that predicts 1,000; bytes of the pickled pipeline; the largest difference of a metric
between two groups of rows, in the metric's unit; the ratio of selection rates; the fraction of
negatives predicted as positive."""
