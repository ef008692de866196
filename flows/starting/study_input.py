"""A request for a study, and the input of the study: data, space and metric."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.flows.options.store_location import home, store_address
from prefect_tune.flows.study.plan import documents_of
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.local_files import make_private
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.spaces import (
    DEFAULT_SPACES,
    algorithms_of,
    missing_libraries,
    space_named,
    usable_part,
)
from prefect_tune.tasks.data.dataset import Dataset, Label
from prefect_tune.tasks.data.formats.format import FORMATS
from prefect_tune.tasks.data.notation import as_number
from prefect_tune.tasks.data.source import FRAME, Source
from prefect_tune.tasks.fitting.epochs import (
    iterative_algorithms,
)
from prefect_tune.tasks.objective.metric import (
    DEFAULT_METRICS,
    OF_POSITIVES,
    Metric,
    metric_named,
)
from prefect_tune.tasks.problem import Problem, check_plugins, open_store
from prefect_tune.tasks.user_code import NO_CODE_BEHIND, CodeBehind
from prefect_tune.tasks.user_space import SpaceCode, find_space, is_user_space


@dataclass(frozen=True)
class StudyRequest:
    """Options of a study to start or resume, with the metric and space that the options name.

    Attributes:
        space_code: Source code of the user's file that declares the space; empty for other spaces.
        behind: Modules and data files that the space uses, unless installed from a wheel.
        texts: Columns that were strings in any earlier study of the series, as in `Source`.
    """

    options: StudyOptions
    metric: Metric | None = None
    space: Space | None = None
    space_code: str = ""
    behind: CodeBehind = NO_CODE_BEHIND
    texts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Self:
        """Parse parameters, and look up metric and space. May raise `BadInput` or `UnknownName`."""
        return cls.of(StudyOptions.parse(parameters))

    @classmethod
    def of(cls, options: StudyOptions) -> Self:
        """Look up the metric and space of options. May raise `BadInput` or `UnknownName`."""
        try:
            metric = None if options.metric is None else metric_named(options.metric)
            named = options.space
            space, code = (None, SpaceCode()) if named is None else find_space(named)
        except UnknownName:
            _check_plugins(options)  # a study to be resumed may need a plugin that is missing here
            raise
        if unfollowed_code(code.behind, options):
            options = replace(options, no_cache=True)
        return cls(options, metric, space, *code)

    def with_options(self, **changes: Any) -> Self:
        """Return the request with changed options. Metric and space must not change."""
        return replace(self, options=replace(self.options, **changes))

    @property
    def predicts(self) -> Literal["classification", "regression"] | None:
        """Kind of target that the metric or space implies; None if both are omitted."""
        if self.metric is not None:
            return self.metric.target
        return None if self.space is None else self.space.target

    @property
    def source(self) -> Source:
        """Source of the data for a new study."""
        return replace(self.options.source, predicts=self.predicts, texts=self.texts)

    def open_store(self) -> ArtifactStore:
        """Open or create the store; raise `BadInput` or `StoreRefused` if the store is unusable."""
        address = store_address(self.options.store, self.options.database)
        if Path(address.url).is_relative_to(home()):
            with suppress(OSError):  # opening the store reports the error
                make_private(home())
        return open_store(address)


def _check_plugins(options: StudyOptions) -> None:
    """Raise `BadInput` if a plugin of the study is missing or has changed."""
    address = store_address(options.store, options.database)
    if options.study is None or not ArtifactStore.exists(address):
        return
    stored = Ledger(open_store(address).database).study(options.study)
    if stored is not None:
        with documents_of(stored.name):
            used = Problem.from_json(stored.problem).plugins
        check_plugins(used)


def unfollowed_code(behind: CodeBehind, options: StudyOptions) -> list[str]:
    """Return untracked modules of a space or constraint, each with the reason."""
    behinds = (behind, *(bounded.quantity.behind for bounded in options.bounds))
    return sorted({entry for one in behinds for entry in one.unfollowed})


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the user on a resolved option, printed as `reason; remedy`.

    Attributes:
        value: Resolved value of the option, as a string.
        remedy: Advice on changing the decision; empty if unnecessary.
    """

    reason: str
    option: str = ""
    value: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


InputReader = Callable[[Source], Dataset]
"""Reads the input of a study."""

_SHOWN_CLASSES = 8
_OWN = "FILE.py:NAME, which you declare"


def read_input(
    request: StudyRequest, reader: InputReader
) -> tuple[Dataset, str, Space, tuple[Note, ...]]:
    """Read the data of a new study, and find a space. May raise `BadInput` or `UnknownName`.

    Returns the data, the name of the space, the part of the space that this machine can use, and
    notes for the user.
    """
    options = request.options
    dataset = reader(request.source)
    space_name = options.space or DEFAULT_SPACES.get((dataset.kind, dataset.target))
    if space_name is None:
        raise BadInput(
            f"no space supports {dataset.target} on {dataset.kind}", remedy=f"use --space {_OWN}"
        )
    whole = request.space or space_named(space_name)
    if (whole.data, whole.target) != (dataset.kind, dataset.target):
        raise BadInput(
            f"the space is for {whole.target} on {whole.data}, but the study is {dataset.target} "
            f"on {dataset.kind}",
            option="space",
            value=whole.name,
            remedy=f"use --space {DEFAULT_SPACES.get((dataset.kind, dataset.target), _OWN)}",
        )
    missing, space = missing_libraries(algorithms_of(whole)), usable_part(whole)
    models, n_classes = space.steps[-1], len(dataset.classes)
    # `iterative_algorithms` imports the libraries of all models, which takes time.
    if options.epochs is not None and not iterative_algorithms(models, n_classes):
        raise BadInput(
            f"no model of space {space.name!r} trains in epochs",
            option="epochs",
            value=options.epochs,
            remedy="use --space 'modern', or search without --epochs",
        )
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
    return dataset, space_name, space, notes


def _how_read(source: Source, dataset: Dataset) -> Note:
    reader, what = dataset.row_reader, "event codes" if dataset.kind == "events" else "columns"
    n_columns = dataset.n_features if reader is None else len(reader.columns)
    is_given = source.format or source.data.startswith(FRAME)
    found_out = "" if is_given else " (override with --format)"
    target = f"numbers from {dataset.y.min():.4g} to {dataset.y.max():.4g}"
    if dataset.classes:
        counts = [
            f"{label}: {(dataset.y == i).sum()}"
            for i, label in enumerate(dataset.classes[:_SHOWN_CLASSES])
        ]
        more = ", ..." * (len(dataset.classes) > _SHOWN_CLASSES)
        target = f"classes {', '.join(counts)}{more}"
    described = (
        f"reading {dataset.name} as {FORMATS[dataset.format].description}{found_out}: "
        f"{len(dataset)} rows, {n_columns} {what}; {target}"
    )
    return Note(described, "format", dataset.format)


def find_metric(
    request: StudyRequest, dataset: Dataset, y: NDArray[Any]
) -> tuple[Metric, list[Note]]:
    """Return the metric, with a note on the positive class if the class affects the metric.

    `y` contains the classes of the n training rows, shape (n,). Raises `BadInput` if the positive
    class is not one of two classes.
    """
    options, classes = request.options, dataset.classes
    metric = request.metric or metric_named(DEFAULT_METRICS[dataset.target])
    labels = [str(label) for label in classes]
    wanted = options.positive or ("case" if options.data.startswith("cohort:") else None)
    given = None if wanted is None else _class_written(wanted, classes)
    if wanted is not None and (len(classes) != 2 or given is None):
        raise BadInput(
            f"needs one of two classes, and the target has {', '.join(labels[:8]) or 'numbers'}",
            option="positive",
            value=wanted,
        )
    if len(classes) != 2:
        return metric, []
    rarer = int(np.argmin(np.bincount(y, minlength=2)[::-1]) == 0)
    positive = rarer if given is None else given
    metric = replace(metric, positive=positive)
    is_bounded = any(b.quantity.name in OF_POSITIVES for b in options.bounds)
    if wanted is not None or not (is_bounded or metric.declared.asks_positive):
        return metric, []
    text = f"the positive class is {labels[positive]}, the rarer one (override with --positive)"
    return metric, [Note(text, "positive", labels[positive])]


def _class_written(text: str, classes: Sequence[Label]) -> int | None:
    """Return the position of a class, given as a string; None if no class matches.

    An exact match takes precedence over a class with the same numeric value (`true` counts as 1,
    `false` as 0), and that class takes precedence over a class that differs only in case.

    >>> _class_written("1.0", [0, 1]), _class_written("TRUE", [False, True])
    (1, 1)
    >>> _class_written("1", ["01", "1"]), _class_written("1", ["01", "02"])
    (1, 0)
    """
    labels, number = [str(label) for label in classes], as_number(text)
    if text in labels:
        return labels.index(text)
    have_number = [number < inf and as_number(label) == number for label in labels]
    have_text = [label.casefold() == text.casefold() for label in labels]
    for is_match in (have_number, have_text):
        if sum(is_match) == 1:
            return is_match.index(True)
    return None
