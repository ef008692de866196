"""Limits on quantities besides the loss: how they are written, and what is measured.

A quantity is a number that a fitted pipeline has on the held-out rows of a fold; that of a trial is
the mean over its folds (Ram et al. 2020, equation A44). The smaller, the better.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.trials.constraint import Constraint
from prefect_tune.storage.key import content_digest
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.objective.groups import groups_of
from prefect_tune.tasks.objective.latency import latency_us
from prefect_tune.tasks.objective.metric import Metric, Predictions, metric_named
from prefect_tune.tasks.user_code import load_user_code, portable_pickle, read_user_code

__all__ = [
    "QUANTITIES",
    "HeldOut",
    "Quantity",
    "digests_of",
    "given_limits",
    "kept_aside",
    "limits_of",
    "parse_constraint",
    "written_limits",
]

Needs = Literal["predictions", "pipeline"]
_MOST_NUMBERS = 20
"""A column of numbers with more values than this has no group for each."""


@dataclass(frozen=True)
class HeldOut:
    """The held-out rows of a fold, and what a fitted pipeline makes of them.

    Attributes:
        X: The rows as they were read.
        columns: What groups are taken from, columns kept aside too; None for events.
        y: Their classes by position, or their numbers, shape (n,).
        classes: The classes; empty for numbers.
        predictions: The model's.
        metric: The study's.
        pipeline: Puts the fitted steps together.
    """

    X: Any
    columns: pd.DataFrame | None
    y: NDArray[Any]
    classes: tuple[Any, ...]
    predictions: Predictions
    metric: Metric
    pipeline: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that can be limited.

    Attributes:
        name: One of `QUANTITIES`, or `FILE.py:FUNCTION`.
        column: The column whose values or bins are the groups; empty where there are none.
        bins: Edges of the bins, rising; empty to take each value as a group.
        metric: Name of the metric that groups are compared by; empty for the study's.
        code: Text of the user's file.
    """

    name: str
    column: str = ""
    bins: tuple[float, ...] = ()
    metric: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """As one writes it, and as `Evaluation.constraints` names it."""
        given = [self.column] if self.column else []
        given += [f"bins={':'.join(f'{edge:.15g}' for edge in self.bins)}"] if self.bins else []
        given += [f"metric={self.metric}"] if self.metric else []
        return f"{self.name}({', '.join(given)})" if given else self.name

    @property
    def digest(self) -> str:
        """What is measured, the user's code included."""
        return content_digest("quantity", [self.text.encode(), self.code.encode()])

    @property
    def needs(self) -> Needs:
        """What it is measured of."""
        return "pipeline" if self.code else QUANTITIES[self.name].needs

    def measure(self, held_out: HeldOut) -> float:
        """Its value in one fold; nan where it is not defined.

        Raises:
            ValueError: If a user's function gives no finite number.
        """
        if not self.code:
            return QUANTITIES[self.name].measure(self, held_out)
        file, function = self.name.rsplit(":", 1)
        ask = getattr(load_user_code(self.code, file), function)
        labels = np.array(held_out.classes)[held_out.y] if held_out.classes else held_out.y
        value = float(ask(held_out.pipeline(), held_out.X, labels))
        if not np.isfinite(value):
            raise ValueError(f"{self.name} gave {value}; a quantity is a finite number")
        return value

    def check(self, dataset: Dataset) -> None:
        """Check that it can be measured on a data set.

        Raises:
            BadInput: If it cannot; says why.
        """
        if self.name == "false_positive_rate" and len(dataset.classes) != 2:
            raise BadInput(
                "--constraint false_positive_rate: takes two classes, and the data has "
                f"{len(dataset.classes) or 'numbers'}"
            )
        if self.metric and metric_named(self.metric).target != dataset.target:
            raise BadInput(
                f"--constraint {self.text}: {self.metric} is no metric of {dataset.target}, which "
                "the data has"
            )
        if not self.column:
            return
        columns = dataset.columns
        if columns is None:
            raise BadInput(
                f"--constraint {self.text}: groups are columns of a table, not of events"
            )
        need_column(self.column, columns.columns, f"the table (--constraint {self.text})")
        is_number = pd.api.types.is_numeric_dtype(columns[self.column].dtype)
        if self.bins and not is_number:
            raise BadInput(
                f"--constraint {self.text}: column {self.column!r} holds categories, and bins are "
                "of numbers; leave bins out to take each category as a group"
            )
        n_groups = len(groups_of(columns[self.column], self.bins)[1])
        if is_number and n_groups > _MOST_NUMBERS and not self.bins:
            raise BadInput(
                f"--constraint {self.text}: column {self.column!r} has {n_groups} different "
                f"numbers, too many to take each for a group; write bins, for instance "
                f"{self.name}({self.column}, bins=20:40:60)"
            )
        if n_groups < 2:
            raise BadInput(
                f"--constraint {self.text}: column {self.column!r} has fewer than two groups there "
                f"({n_groups}), and groups are compared; name other bins or another column"
            )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is known of a quantity by name."""

    needs: Needs
    measure: Callable[[Quantity, HeldOut], float]
    takes: tuple[str, ...]
    meaning: str


def parse_constraint(text: str) -> tuple[Quantity, Constraint]:
    """A constraint from `QUANTITY<=VALUE`.

    Raises:
        BadInput: If it is written in another way, or its value is no number from 0.
        UnknownName: If there is no such quantity or metric.
    """
    match = re.fullmatch(r"\s*([^<>=(]+?)\s*(?:\((.*)\))?\s*<=\s*([^<>=]+?)\s*", text)
    if match is None:
        raise BadInput(
            f"--constraint {text}: write QUANTITY<=VALUE, for instance latency_us<=10 or "
            '"disparate_impact(age, bins=20:40:60, metric=auroc)<=0.1"'
        )
    name, arguments, value = match[1], match[2], match[3]
    try:
        bound = float(value)
    except ValueError:
        raise BadInput(f"--constraint {text}: {value!r} is no number") from None
    if not 0 <= bound < np.inf:
        raise BadInput(f"--constraint {text}: a limit is a number from 0")
    if name == "false_positive_rate" and bound > 1:
        raise BadInput(f"--constraint {text}: it is a share, from 0 to 1; 5 percent are 0.05")
    quantity = _quantity(text, name, arguments)
    return quantity, Constraint(quantity.text, bound)


def given_limits(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    """What `--constraint` says: None where it was not given, nothing for `none`.

    Raises:
        BadInput: If `none` is given with others.
    """
    if texts is None or list(texts) == ["none"]:
        return None if texts is None else ()
    if "none" in texts:
        raise BadInput("--constraint none takes all limits away; leave it out, or the others")
    return tuple(texts)


def digests_of(limits: Iterable[tuple[Quantity, Constraint]]) -> dict[str, str]:
    """By text of what is limited, the digest of what is measured."""
    return {quantity.text: quantity.digest for quantity, _ in limits}


def limits_of(settings: Mapping[str, Any]) -> list[tuple[Quantity, Constraint]]:
    """What is limited in a study, from its settings in the ledger."""
    limits = []
    for document in settings.get("constraint") or ():
        bins = tuple(document["quantity"]["bins"])
        quantity = Quantity(**{**document["quantity"], "bins": bins})
        limits.append((quantity, Constraint(quantity.text, document["bound"])))
    return limits


def written_limits(limits: Iterable[tuple[Quantity, Constraint]]) -> list[dict[str, Any]]:
    """The inverse of `limits_of`."""
    return [{"quantity": asdict(quantity), "bound": c.bound} for quantity, c in limits]


def kept_aside(texts: Iterable[str], drop: Sequence[str]) -> tuple[str, ...]:
    """Of the columns to leave out, those that a limit takes its groups from.

    Raises:
        BadInput, UnknownName: If a limit cannot be read.
    """
    named = {parse_constraint(text)[0].column for text in texts}
    return tuple(column for column in drop if column in named)


def _quantity(text: str, name: str, arguments: str | None) -> Quantity:
    if ".py:" in name:
        if arguments:
            raise BadInput(f"--constraint {text}: a function of your own takes no arguments here")
        return _user_quantity(name)
    if name not in QUANTITIES:
        raise UnknownName("quantity of --constraint:", name, tuple(QUANTITIES))
    given: dict[str, Any] = {}
    for part in filter(None, map(str.strip, (arguments or "").split(","))):
        key, separator, value = map(str.strip, part.partition("="))
        key, value = (key, value) if separator else ("column", part)
        if key not in QUANTITIES[name].takes or key in given:
            takes = ", ".join(QUANTITIES[name].takes) or "nothing"
            raise BadInput(f"--constraint {text}: {name} takes {takes} once; got {part!r}")
        given[key] = _bins(text, value) if key == "bins" else value
    if "column" in QUANTITIES[name].takes and "column" not in given:
        raise BadInput(f"--constraint {text}: name the column of the groups, {name}(COLUMN)<=...")
    if "metric" in given:
        metric_named(given["metric"])
    return Quantity(name, **given)


def _bins(text: str, value: str) -> tuple[float, ...]:
    try:
        edges = tuple(map(float, value.split(":")))
    except ValueError:
        edges = ()
    if len(edges) < 3 or list(edges) != sorted(set(edges)):
        raise BadInput(
            f"--constraint {text}: bins are three or more rising edges, for instance bins=20:40:60"
        )
    return edges


def _user_quantity(name: str) -> Quantity:
    file, function = name.rsplit(":", 1)
    code = read_user_code(name, "constraint")
    if not callable(getattr(load_user_code(code, file), function, None)):
        raise BadInput(f"--constraint {name}: {file} has no function {function!r}")
    return Quantity(name, code=code)


def _latency(quantity: Quantity, held_out: HeldOut) -> float:  # noqa: ARG001 - of a table
    return latency_us(held_out.pipeline(), held_out.X)


def _size(quantity: Quantity, held_out: HeldOut) -> float:  # noqa: ARG001 - of a table
    return float(len(portable_pickle(held_out.pipeline())))


def _false_positive_rate(quantity: Quantity, held_out: HeldOut) -> float:  # noqa: ARG001
    is_negative = held_out.y != held_out.metric.positive
    found = held_out.predictions.label[is_negative] == held_out.metric.positive
    return float(found.mean()) if len(found) else 0.0


def _disparate_impact(quantity: Quantity, held_out: HeldOut) -> float:
    """Largest difference of a metric between two groups (equation A43).

    A group on whose rows the metric is not defined is left out of that fold; it is nan when that
    leaves fewer than two.
    """
    metric = metric_named(quantity.metric, held_out.metric.positive) if quantity.metric else None
    metric = metric or held_out.metric
    assert held_out.columns is not None  # noqa: S101 - checked before the study
    numbers, _ = groups_of(held_out.columns[quantity.column], quantity.bins)
    losses = []
    for group in np.unique(numbers[numbers >= 0]):
        rows = np.flatnonzero(numbers == group)
        score = held_out.predictions.score
        predictions = Predictions(
            held_out.predictions.label[rows], None if score is None else score[rows]
        )
        try:
            losses.append(metric.loss(held_out.y[rows], predictions, len(held_out.classes)))
        except ValueError:
            continue
    return max(losses) - min(losses) if len(losses) > 1 else float("nan")


QUANTITIES: Mapping[str, _Kind] = {
    "latency_us": _Kind("pipeline", _latency, (), "microseconds per row, predicting 1,000 at once"),
    "model_size_bytes": _Kind("pipeline", _size, (), "bytes of the pickled pipeline"),
    "disparate_impact": _Kind(
        "predictions",
        _disparate_impact,
        ("column", "bins", "metric"),
        "largest difference of a metric between two groups of rows, in the metric's unit",
    ),
    "false_positive_rate": _Kind(
        "predictions", _false_positive_rate, (), "share of negatives that are taken for positive"
    ),
}
"""What can be limited, by name."""
