"""Input of a new study: the data, and a space and metric that fit the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.starting.request import StudyRequest
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.libraries import (
    algorithms_of,
    missing_libraries,
    usable_part,
)
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, space_named
from prefect_tune.tasks.data.dataset import Dataset, Label
from prefect_tune.tasks.data.formats.registry import FORMATS
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table_source import FRAME
from prefect_tune.tasks.fitting.iterative import (
    ITERATIVE,
    iterative_algorithms,
)
from prefect_tune.tasks.objective.declaration import DEFAULT_METRICS
from prefect_tune.tasks.objective.metric import Metric, metric_named
from prefect_tune.tasks.user_space import is_user_space


@dataclass(frozen=True, slots=True)
class Note:
    """A note to the user; its text is `reason; remedy`.

    Attributes:
        value: Resulting value of the option, as text.
        remedy: How to change the decision; empty if unnecessary.
    """

    reason: str
    option: str = ""
    value: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True)
class InputReader:
    """Reader of an input."""

    read: Callable[[Source], Dataset] = read_source

    def cached(self) -> Self:
        """Return a reader that reads each input once, for several studies."""
        return replace(self, read=cache(self.read))


_SHOWN_CLASSES = 8
_OWN = "FILE.py:NAME, which you declare"


@dataclass(frozen=True)
class StudyInput:
    """Data and space of a study, read and checked, with notes on them.

    Attributes:
        space: Part of the space whose libraries are available here.
    """

    dataset: Dataset
    space_name: str
    space: Space
    notes: tuple[Note, ...]


def read_input(request: StudyRequest, reader: InputReader) -> StudyInput:
    """Read the data of a new study and find a space; `BadInput` or `UnknownName` on failure."""
    options = request.options
    dataset = reader.read(request.source)
    space_name = options.space or DEFAULT_SPACES.get((dataset.kind, dataset.target))
    if space_name is None:
        raise BadInput(
            f"no space predicts {dataset.target} from {dataset.kind}", remedy=f"use --space {_OWN}"
        )
    whole = request.space or space_named(space_name)
    _check_space(whole, dataset)
    missing, space = missing_libraries(algorithms_of(whole)), usable_part(whole)
    if options.epochs is not None:
        _check_epochs(space, options.epochs, len(dataset.classes))
    left_out = (
        Note(
            f"space {space.name} is searched without {library.package}, which {library.reason}",
            "space",
            space.name,
            library.remedy,
        )
        for library in missing
        if is_user_space(space_name) or not library.is_optional
    )
    notes = (_how_read(request.source, dataset), *map(Note, dataset.notes), *left_out)
    return StudyInput(dataset, space_name, space, notes)


def _how_read(source: Source, dataset: Dataset) -> Note:
    reader, what = dataset.row_reader, "event codes" if dataset.kind == "events" else "columns"
    n_columns = dataset.n_features if reader is None else len(reader.columns)
    is_given = source.format or source.data.startswith(FRAME)
    found_out = "" if is_given else " (override with --format)"
    described = (
        f"reading {dataset.name} as {FORMATS[dataset.format].description}{found_out}: "
        f"{len(dataset)} rows, {n_columns} {what}; {_describe_target(dataset)}"
    )
    return Note(described, "format", dataset.format)


def find_metric(
    request: StudyRequest, dataset: Dataset, y: NDArray[Any]
) -> tuple[Metric, list[Note]]:
    """Return the metric, with a note on the positive class if it matters.

    `y` are the classes of the training rows, shape (n,). Raises `BadInput` if the positive class is
    not one of two classes.
    """
    options, classes = request.options, dataset.classes
    metric = request.metric or metric_named(DEFAULT_METRICS[dataset.target])
    labels = [str(label) for label in classes]
    given = None if options.positive is None else _class_written(options.positive, classes)
    if options.positive is not None and (len(classes) != 2 or given is None):
        raise BadInput(
            f"not one of two classes; the target has {', '.join(labels[:8]) or 'numbers'}",
            option="positive",
            value=options.positive,
        )
    if len(classes) != 2:
        return metric, []
    rarer = int(np.argmin(np.bincount(y, minlength=2)[::-1]) == 0)
    positive = rarer if given is None else given
    metric = replace(metric, positive=positive)
    is_bounded = any(b.quantity.name == "false_positive_rate" for b in options.bounds)
    if options.positive is not None or not (is_bounded or metric.declared.asks_positive):
        return metric, []
    text = f"the positive class is {labels[positive]}, the rarer one (override with --positive)"
    return metric, [Note(text, "positive", labels[positive])]


_TRUTH = {"false": 0.0, "true": 1.0}


def _class_written(text: str, classes: Sequence[Label]) -> int | None:
    """Return the position of a class by its text; None if no class matches.

    Exact text has priority, then an equal number, then a truth value in other capitals.

    >>> _class_written("1.0", [0, 1]), _class_written("TRUE", [False, True])
    (1, 1)
    >>> _class_written("1", ["01", "1"]), _class_written("1", ["01", "02"])
    (1, 0)
    """
    labels = [str(label) for label in classes]
    if text in labels:
        return labels.index(text)
    for reading in (_as_number, str.casefold):
        found = [i for i, label in enumerate(labels) if reading(label) == reading(text) is not None]
        if len(found) == 1:
            return found[0]
    return None


def _as_number(text: str) -> float | None:
    if text.casefold() in _TRUTH:
        return _TRUTH[text.casefold()]
    try:
        return float(text)
    except ValueError:
        return None


def _check_space(space: Space, dataset: Dataset) -> None:
    """Raise `BadInput` if the space does not fit the data and its target."""
    if (space.data, space.target) != (dataset.kind, dataset.target):
        raise BadInput(
            f"the space predicts {space.target} from {space.data}, and the data is {dataset.kind} "
            f"whose target is {dataset.target}",
            option="space",
            value=space.name,
            remedy=f"use --space {DEFAULT_SPACES.get((dataset.kind, dataset.target), _OWN)}",
        )


def _check_epochs(space: Space, epochs: int, n_classes: int) -> None:
    """Raise `BadInput` if no model of the space trains in epochs."""
    if iterative_algorithms(space.steps[-1], n_classes):
        return
    names = sorted(path.rsplit(".", 1)[1] for path in ITERATIVE)
    models = [name for name in names if name.endswith("Regressor") == (not n_classes)]
    raise BadInput(
        f"no model of space {space.name!r} trains in epochs; in scikit-learn, "
        f"{', '.join(models)} do",
        option="epochs",
        value=epochs,
        remedy="use --space modern, or search without --epochs, with a method such as smac",
    )


def _describe_target(dataset: Dataset) -> str:
    if not dataset.classes:
        return f"numbers from {dataset.y.min():.4g} to {dataset.y.max():.4g}"
    shares = ", ".join(
        f"{label}: {int((dataset.y == i).sum())}"
        for i, label in enumerate(dataset.classes[:_SHOWN_CLASSES])
    )
    return f"classes {shares}" + (", ..." if len(dataset.classes) > _SHOWN_CLASSES else "")
