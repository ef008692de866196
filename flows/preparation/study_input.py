"""Input of a new study: the data, and a space and metric that fit the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.preparation.request import StudyRequest
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.libraries import (
    MissingLibrary,
    algorithms_of,
    missing_libraries,
    usable_part,
)
from prefect_tune.tasks.catalogue.spaces import DEFAULT_SPACES, space_named
from prefect_tune.tasks.code_behind import NO_CODE_BEHIND, CodeBehind
from prefect_tune.tasks.data.dataset import Dataset, Label
from prefect_tune.tasks.data.formats.registry import FORMATS
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.source_state import NOTHING_KNOWN, SourceStates, source_states
from prefect_tune.tasks.data.table_source import FRAME
from prefect_tune.tasks.fitting.iterative import (
    ITERATIVE,
    iterative_algorithms,
    reasons_at_once,
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
    states: Callable[[Source, SourceStates], SourceStates] = source_states

    def cached(self) -> Self:
        """Return a reader that reads each input once, for several studies."""
        return replace(self, read=cache(self.read), states=cache(self.states))


_SHOWN_CLASSES = 8
_TRUTH = {"false": 0.0, "true": 1.0}
_WITHOUT_EPOCHS = "search without --epochs, with a method such as smac or fabolas"


@dataclass(frozen=True)
class StudyInput:
    """Data and space of a study, read and checked.

    Attributes:
        source: Source of the data, with the kind of target found.
        space: Part of the space whose libraries are available here.
        missing: Libraries missing for the rest of the space.
        states: States of the files read.
        behind: Modules and data files that the space uses and no wheel installed.
    """

    source: Source
    dataset: Dataset
    space_name: str
    space: Space
    space_code: str
    missing: tuple[MissingLibrary, ...] = ()
    states: SourceStates = NOTHING_KNOWN
    behind: CodeBehind = NO_CODE_BEHIND

    def notes(self) -> list[Note]:
        """Return notes on how the data was read."""
        dataset = self.dataset
        reader, what = dataset.row_reader, "event codes" if dataset.kind == "events" else "columns"
        n_columns = dataset.n_features if reader is None else len(reader.columns)
        is_given = self.source.format or self.source.data.startswith(FRAME)
        found_out = "" if is_given else " (override with --format)"
        described = (
            f"reading {dataset.name} as {FORMATS[dataset.format].description}{found_out}: "
            f"{len(dataset)} rows, {n_columns} {what}; {_describe_target(dataset)}"
        )
        of_data = [Note(described, "format", dataset.format), *map(Note, dataset.notes)]
        return of_data + [_left_out(self.space, library) for library in self.missing]


def read_input(request: StudyRequest, reader: InputReader) -> StudyInput:
    """Read the data of a new study and find a space; `BadInput` or `UnknownName` on failure."""
    options = request.options
    source = request.source
    states = reader.states(source, NOTHING_KNOWN)  # first, so that later changes are noticed
    dataset = reader.read(source)
    space_name = options.space or _default_space(dataset)
    whole = request.space or space_named(space_name)
    _check_space(whole, options.data, dataset)
    missing, space = missing_libraries(algorithms_of(whole)), usable_part(whole)
    if not is_user_space(space_name):  # missing optional libraries need no note
        missing = tuple(library for library in missing if not library.is_optional)
    if options.epochs is not None:
        _check_epochs(space, options.epochs, len(dataset.classes))
    code, behind = request.space_code, request.behind
    return StudyInput(source, dataset, space_name, space, code, missing, states, behind)


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


def _default_space(dataset: Dataset) -> str:
    """Return the default space for the data; raise `BadInput` if the catalogue has none."""
    fitting = DEFAULT_SPACES.get((dataset.kind, dataset.target))
    if fitting is None:
        raise BadInput(
            f"no space predicts {dataset.target} from {dataset.kind}",
            remedy="provide your own with --space FILE.py:NAME",
        )
    return fitting


def _check_space(space: Space, data: str, dataset: Dataset) -> None:
    """Raise `BadInput` if the space does not fit the data and its target."""
    if (space.data, space.target) == (dataset.kind, dataset.target):
        return
    reason = (
        f"the space takes {space.data}, but {data} is {dataset.kind}"
        if space.data != dataset.kind
        else f"the space predicts {space.target}, but the target of {data} is {dataset.target}"
    )
    remedy = f"use --space {_default_space(dataset)}"
    raise BadInput(reason, option="space", value=space.name, remedy=remedy)


def _left_out(space: Space, library: MissingLibrary) -> Note:
    return Note(
        f"space {space.name} is searched without {library.package}, which {library.reason}",
        "space",
        space.name,
        library.remedy,
    )


def _check_epochs(space: Space, epochs: int, n_classes: int) -> None:
    """Raise `BadInput` if no model of the space trains in epochs; suggest models and a space."""
    if iterative_algorithms(space.steps[-1], n_classes):
        return
    fitting = DEFAULT_SPACES.get((space.data, space.target))
    is_serving = fitting and iterative_algorithms(
        usable_part(space_named(fitting)).steps[-1], n_classes
    )
    names = sorted(path.rsplit(".", 1)[1] for path in ITERATIVE)
    models = [name for name in names if name.endswith("Regressor") == (not n_classes)]
    reasons = reasons_at_once(space.steps[-1], n_classes)
    own = [
        reasons.get(a.id) or str(a.estimator).rsplit(".", 1)[-1] for a in space.steps[-1].algorithms
    ]
    raise BadInput(
        f"no model of space {space.name!r} trains in epochs ({', '.join(own)}); in scikit-learn, "
        f"{', '.join(models)} do",
        option="epochs",
        value=epochs,
        remedy=f"use --space {fitting}, or {_WITHOUT_EPOCHS}" if is_serving else _WITHOUT_EPOCHS,
    )


def _describe_target(dataset: Dataset) -> str:
    if not dataset.classes:
        return f"numbers from {dataset.y.min():.4g} to {dataset.y.max():.4g}"
    shares = ", ".join(
        f"{label}: {int((dataset.y == i).sum())}"
        for i, label in enumerate(dataset.classes[:_SHOWN_CLASSES])
    )
    return f"classes {shares}" + (", ..." if len(dataset.classes) > _SHOWN_CLASSES else "")
