"""The question of a series, fixed by its first study, and changes between its data sets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.wording.text import counted
from prefect_tune.optimizers.documents import json_values
from prefect_tune.storage.series import Changes
from prefect_tune.tasks.bad_input import BadInput, shown_columns
from prefect_tune.tasks.data.dataset import (
    Dataset,
    common_columns,
    content_ids,
    label_text,
    row_ids,
    settled_columns,
    value_bits,
)
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.objective.metric import OF_POSITIVES

_FIXED = ("target", "metric", "positive", "group", "key", "time", "test_size")
"""Options with the same value in all studies. If a run omits such an option, the series sets it."""
_FREE = frozenset(
    {"data", "labels", "test", "trials", "budget", "promotion", "margin", "series", "no_cache"}
)
"""Other options whose change does not require a new study, because data is compared by content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The settings that all studies of a series share.

    Attributes:
        kind: Kind of data: `table` or `events`.
        predicts: Kind of target: `classification` or `regression`.
        has_test: Whether test rows come from a separate file.
        looks_forward: Whether test rows are the newest rows.
        identity: Columns that identify a row, fixed by the first study; unused if a group or key
            identifies rows.
    """

    kind: str
    predicts: Literal["classification", "regression"]
    metric: str
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    key: tuple[str, ...] | None = None
    time: str | None = None
    test_size: float | None = None
    has_test: bool = False
    looks_forward: bool = False
    identity: tuple[str, ...] = ()

    @classmethod
    def of_study(cls, plan: StudyPlan, dataset: Dataset) -> Self:
        """Return the question of a series from its first study."""
        options = plan.options
        is_bounded = any(b.quantity.name in OF_POSITIVES for b in options.bounds)
        is_asked = is_bounded or plan.problem.find_metric().declared.asks_positive
        asks_positive = options.positive is not None or (len(dataset.classes) == 2 and is_asked)
        positive = str(dataset.classes[plan.problem.positive]) if asks_positive else None
        fixed: dict[str, Any] = {name: getattr(options, name) for name in _FIXED}
        return cls(
            **{**fixed, "metric": plan.metric, "positive": positive},
            kind=dataset.kind,
            predicts=dataset.target,
            has_test=options.test is not None,
            looks_forward=plan.looks_forward,
            identity=plan.fixed_test or (),
        )

    def completed(self, series: str, options: StudyOptions) -> StudyOptions:
        """Fill in options from the question; raise `BadInput` if a given option differs."""
        for name in _FIXED:
            given, known = getattr(options, name), getattr(self, name)
            if given is not None and given != known:
                raise _another(series, OPTIONS[name].flag.removeprefix("--"), given, known)
        if self.has_test != (options.test is not None):
            given, known = ("a file", "none") if options.test else ("none", "a file")
            raise _another(series, "test", given, known)
        if options.gap is not None and not self.looks_forward:
            raise _another(series, "gap", f"{options.gap:g} s", None)
        gap = options.gap
        if gap is None and self.looks_forward and self.time is None:
            gap = 0.0  # for events, only --gap orders folds by time
        return replace(options, gap=gap, **{name: getattr(self, name) for name in _FIXED})

    def check_data(self, series: str, dataset: Dataset) -> None:
        """Raise `BadInput` if new data differs in kind from the data of the series."""
        for what, given, known in (
            ("data", dataset.kind, self.kind),
            ("target", dataset.target, self.predicts),
        ):
            if given != known:
                new = f"but the new {what} is of kind {given}"
                reason = f"the {what} of series {series!r} is of kind {known}, {new}"
                raise BadInput(reason, remedy="choose another --series name")


def _another(series: str, option: str, given: object, known: object) -> BadInput:
    shown = "none" if known is None else known
    return BadInput(
        f"series {series!r} has --{option} {shown}, which cannot change within a series",
        option=option,
        value=given,
        remedy="omit the option, or choose another --series name",
    )


def comparable(options: StudyOptions) -> dict[str, Any]:
    """Return given options that require a new study when they change, as JSON values."""
    stored = json_values(options.to_json())
    names = (name for name in stored if name not in _FREE and name not in _FIXED)
    return {name: stored[name] for name in names if options.is_given(name)}


_NAMED = 10
"""Maximum number of columns named as differing in nearly all rows."""


def changes_between(old: Dataset, new: Dataset) -> Changes:
    """Return the differences between an old and a new data set of the same kind."""
    has_key = old.groups is None and old.ids is not None
    common = () if has_key else common_columns(old, new)
    settled = settled_columns(old, new, common)
    added, removed, relabeled = _row_changes(old, new, settled)
    columns = _column_names(old), _column_names(new)
    classes = [{label_text(label) for label in dataset.classes} for dataset in (old, new)]
    differing = [name.removesuffix(".days") for name in common if name not in settled]
    return Changes(
        rows_added=added,
        rows_removed=removed,
        targets_changed=relabeled,
        columns_added=len(columns[1] - columns[0]),
        columns_removed=len(columns[0] - columns[1]),
        classes_added=len(classes[1] - classes[0]),
        classes_removed=len(classes[0] - classes[1]),
        columns_differing=tuple(differing[:_NAMED]),
    )


def check_needs(champion: str, known: Dataset, new: Dataset) -> None:
    """Raise `BadInput` if new data lacks columns of the `known` data that a champion uses."""
    if lost := sorted(_column_names(known) - _column_names(new)):
        notes = [note for note in new.notes if any(name in note for name in lost)]
        raise BadInput(
            f"the data lacks {counted(len(lost), 'column')} that champion {champion} reads: "
            f"{shown_columns(lost)}" + "".join(f" ({note})" for note in notes[:1]),
            remedy="add them to the data, or start another series with another --series name",
        )


def _column_names(dataset: Dataset) -> set[str]:
    reader = dataset.row_reader
    return set() if reader is None else {column.name for column in reader.columns}


def _row_changes(old: Dataset, new: Dataset, columns: Sequence[str]) -> tuple[int, int, int]:
    """Count added rows, removed rows, and rows in which only the target changed.

    Each copy of a row counts separately. `columns` identify the rows of a table without a key.
    """
    if isinstance(old.X, EventRows) and isinstance(new.X, EventRows):
        both = [_event_row_hashes(old.X), _event_row_hashes(new.X)]
    elif isinstance(old.X, pd.DataFrame) and isinstance(new.X, pd.DataFrame):
        both = [content_ids(one, columns) if columns else row_ids(one) for one in (old, new)]
    else:
        return len(new), len(old), 0
    added, removed = _differences(*both)
    labeled = []
    for rows, dataset in zip(both, (old, new), strict=True):
        targets = pd.Series(dataset.y)
        if dataset.classes:  # two data sets may number classes differently
            names = pd.Index([label_text(label) for label in dataset.classes])
            codes = dataset.y.astype(np.intp)
            targets = pd.Series(pd.Categorical.from_codes(codes, names))
        labeled.append(rows ^ value_bits(targets))
    return added, removed, _differences(*labeled)[0] - added


def _differences(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> tuple[int, int]:
    """Return the numbers of added and removed row hashes."""
    before, now = pd.Series(old).value_counts(), pd.Series(new).value_counts()
    growth = now.sub(before, fill_value=0)
    return int(growth.clip(lower=0).sum()), int(-growth.clip(upper=0).sum())


def _event_row_hashes(X: EventRows) -> NDArray[np.uint64]:
    """Return a hash of each row's patient, prediction time and events, shape (n,)."""
    of_event = _hashes(X.events[["time", "code", "value"]])
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(of_event, dtype=np.uint64)])
    of_row = _hashes(X.rows.astype({"subject_id": str}))
    return np.bitwise_xor(of_row, np.subtract(sums[X.stop], sums[X.start]), dtype=np.uint64)


def _hashes(frame: pd.DataFrame) -> NDArray[np.uint64]:
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)
