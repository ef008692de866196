"""From patient events to a matrix as clinical modellers build one: windows, recency, values, age.

A block of columns is one aggregation of the events of one level of codes in one window, which looks
back from the prediction time of each row. Cells without such an event are 0, so each window has a
column `has` or `count` for each code, which tells a value of 0 from none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from prefect_tune.tasks.catalogue.construction import Cells, offsets_of
from prefect_tune.tasks.data.events import is_birth_code, positions

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows

ALL = None
"""The window that reaches back to the first event."""
WINDOWS: Mapping[str, tuple[int | None, ...]] = {
    "all": (ALL,),
    "30": (30, ALL),
    "30_365": (30, 365, ALL),
    "7_30_90_365_1095": (7, 30, 90, 365, 1095, ALL),
}
"""Days that the windows of each set look back."""
AGGREGATIONS: Mapping[str, tuple[str, ...]] = {
    "count": ("count",),
    "count_recency": ("count", "recency"),
    "count_sum_mean": ("count", "sum", "mean"),
    "count_recency_sum_mean": ("count", "recency", "sum", "mean"),
    "count_recency_mean_min_max_last": ("count", "recency", "mean", "min", "max", "last"),
    "every": ("has", "count", "recency", "sum", "mean", "min", "max", "last", "slope"),
}
"""Aggregations of each set."""
LEVELS = ("code", "prefixes", "both")
SCALINGS = ("none", "log1p", "binary", "tfidf")

_OF_EVENTS = ("has", "count", "recency")
"""Aggregations that need no values."""
_OF_LAST = ("recency", "last")
"""Aggregations of the last event, which is the same in each window that has it."""
_SEPARATORS, _SEPARATORS_OF_TEXT = re.compile(r"[/.]+"), re.compile(r"//+")
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
"""Microseconds."""
_YEAR = 365.25 * _DAY
_NO_TIME = np.iinfo(np.int64).min
_LARGEST = 1e18
"""Sums of squares of values up to this fit into float32."""


class EventWindows(TransformerMixin, BaseEstimator):
    """Aggregations of each code in windows that look back from the prediction time.

    Codes are those that enough patients of the training rows have. Besides their columns there are
    always the age at the prediction time, the days since the first event, the numbers of events and
    of days with events in each window, and a column for each fact: a code of events without a time.
    Births count for the age only. Values have columns where they differ between events of the
    training rows; events without a value are left out there. Of events at the same time, the last
    is the one that comes last in the data.

    Args:
        windows: Name of a set of windows, one of `WINDOWS`. An event that is exactly as many days
            old as a window is long is in it.
        aggregations: Name of a set of aggregations, one of `AGGREGATIONS`. `recency` is 1 / (1 +
            days since the last event), so nearer is larger and never is 0. `slope` is the
            least-squares slope of the values per day, 0 where they are less than an hour apart.
            `recency` and `last` look back over the whole history.
        levels: `code`; `prefixes`, which end before a `//`, `/` or `.` of the code (in codes with
            blanks only before a `//`); or `both`.
            A prefix stands for all codes that begin with it, also for those that are only in new
            data. Prefixes that stand for the same codes as a longer one are skipped. With
            `prefixes`, codes that have none stand for themselves.
        scaling: Scaling of counts: `none`; `log1p`; `binary`, which is `has` in place of `count`;
            or `tfidf`, the share of the row's events in the window times log((1 + patients) /
            (1 + patients with the code)) + 1.
        min_share: Share of the training patients that must have a code; at least 2 patients must.

    Attributes:
        levels_: Codes and prefixes kept.
        facts_: Codes of the facts kept.
        age_: Median age of the training rows in years, for rows without a birth; None if there are
            no births, so no column either.
        n_features_in_: Number of different codes.
    """

    def __init__(
        self,
        windows: str = "all",
        aggregations: str = "count_recency_sum_mean",
        levels: str = "both",
        scaling: str = "none",
        min_share: float = 0.001,
    ) -> None:
        self.windows = windows
        self.aggregations = aggregations
        self.levels = levels
        self.scaling = scaling
        self.min_share = min_share

    def fit(self, X: "EventRows", y: Any = None) -> Self:  # noqa: ARG002
        """Choose the codes.

        Raises:
            ValueError: If an argument is none of its choices.
        """
        choices = {
            "windows": WINDOWS,
            "aggregations": AGGREGATIONS,
            "levels": LEVELS,
            "scaling": SCALINGS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}"
                )
        # All rows of a patient start at the same event, so the longest of them has all events.
        by_length = np.lexsort((X.stop, X.start))
        is_longest = np.diff(X.start[by_length], append=-1) != 0
        patients = X.take(by_length[is_longest])
        history, facts, _ = _parts(patients)
        least = max(2, ceil(self.min_share * len(patients)))
        vocabulary = X.codes
        frequency = facts.n_rows_with(facts.code, len(vocabulary))
        self.facts_ = [vocabulary[i] for i in np.flatnonzero(frequency >= least)]
        value = X.events["value"].to_numpy()[history.position]
        seen = np.bincount(history.code, minlength=len(vocabulary)) > 0
        codes = [code for code, is_seen in zip(vocabulary, seen, strict=True) if is_seen]
        self.levels_ = [
            level
            for depth, names in _different_names(codes, self.levels)
            if (level := _Level.learn(depth, names, vocabulary, history, value, least)).names
        ]
        ages = _ages(_parts(X)[2], X)
        self.age_ = None if np.isnan(ages).all() else float(np.nanmedian(ages))
        self.n_features_in_ = len(vocabulary)
        return self

    def transform(self, X: "EventRows") -> sparse.csr_array:
        """Shape (rows, columns), float32."""
        events, facts, births = _parts(X)
        ages = np.empty((len(X), 0))
        if self.age_ is not None:
            ages = np.nan_to_num(_ages(births, X), nan=self.age_)[:, None]
        until = _microseconds(X.rows["prediction_time"])
        history = _History(events, until, X.events["value"].to_numpy())
        rows = np.column_stack((ages, *self._of_rows(history)))
        n_events = rows[:, ages.shape[1] + 1 :: 2]
        blocks = [sparse.csr_array(rows.astype(np.float32)), self._fact_columns(X, facts)]
        for level in self.levels_:
            blocks.extend(self._blocks(level, X.codes, history, n_events))
        made = sparse.csr_array(sparse.hstack(blocks, format="csr"))
        made.eliminate_zeros()
        return made

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the columns, such as `RR//resp rate: mean, 30 days`."""
        names = [] if self.age_ is None else ["age, years"]
        names.append("history, days")
        names += [
            f"{what}{_ending(window)}"
            for window in WINDOWS[self.windows]
            for what in ("events", "days with events")
        ]
        names += [f"{code}: is" for code in self.facts_]
        names += [
            f"{level.names[i]}{'*' if level.depth else ''}: {aggregation}{_ending(window)}"
            for level in self.levels_
            for window in WINDOWS[self.windows]
            for aggregation, members in self._plan(level, window)
            for i in np.flatnonzero(members)
        ]
        return np.array(names, dtype=object)

    def _of_rows(self, history: "_History") -> Iterator[NDArray[np.floating[Any]]]:
        """Yield the days since the first event, and for each window its events and their days."""
        events = history.events
        first, last = events.offsets[:-1], events.offsets[1:] - 1
        has_any = first <= last
        days = np.zeros(len(has_any))
        days[has_any] = (history.until[has_any] - events.time[first[has_any]]) / _DAY
        yield days
        day = events.time // _DAY
        # A window ends with the last event, so it has the last one of each of its days.
        is_last_of_day = np.ones(len(day), dtype=bool)
        np.not_equal(day[1:], day[:-1], out=is_last_of_day[:-1])
        is_last_of_day[last[has_any]] = True
        for window in WINDOWS[self.windows]:
            if window is ALL:
                yield np.diff(events.offsets).astype(np.float64)
                yield events.n_where(is_last_of_day).astype(np.float64)
            else:
                inside = history.age <= window * _DAY
                yield events.n_where(inside).astype(np.float64)
                yield events.n_where(inside & is_last_of_day).astype(np.float64)

    def _fact_columns(self, X: "EventRows", facts: "_Events") -> sparse.csr_array:
        column = _columns(self.facts_, X.codes)[facts.code]
        facts, column = facts.where(column >= 0), column[column >= 0]
        cells = Cells.of(column, facts.offsets, len(self.facts_))
        ones = np.ones(len(cells.column), dtype=np.float32)
        return sparse.csr_array((ones, cells.column, cells.offsets), shape=(len(X), cells.width))

    def _plan(self, level: "_Level", window: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield the aggregations of a window, and which codes of the level have columns of them."""
        chosen = AGGREGATIONS[self.aggregations]
        if self.scaling == "binary":
            chosen = ("has", *(name for name in chosen if name not in {"has", "count"}))
        if window is not ALL:
            chosen = tuple(name for name in chosen if name not in _OF_LAST)
        every = np.ones(len(level.names), dtype=bool)
        of_values = [name for name in chosen if name not in _OF_EVENTS]
        yield from ((name, every) for name in chosen if name in _OF_EVENTS)
        if of_values:
            yield "values", level.is_mixed
        yield from ((name, level.has_values) for name in of_values)

    def _blocks(
        self,
        level: "_Level",
        vocabulary: Sequence[str],
        history: "_History",
        n_events: NDArray[np.float64],
    ) -> Iterator[sparse.csr_array]:
        """Yield the matrix of each window and aggregation, in the order of the names."""
        column = level.columns(vocabulary)[history.events.code]
        kept = np.flatnonzero(column >= 0)
        offsets = np.searchsorted(kept, history.events.offsets)
        cells = Cells.of(column[kept], offsets, len(level.names))
        ordered = _OrderedEvents(cells, kept[cells.order], history)
        for i, window in enumerate(WINDOWS[self.windows]):
            inside = None if window is ALL else ordered.age <= window * _DAY
            groups = events_of_cells = _Groups.of(ordered, inside)
            for aggregation, members in self._plan(level, window):
                if aggregation not in _OF_EVENTS and groups is events_of_cells:
                    is_used = ~np.isnan(ordered.value)
                    if not level.has_values.all():
                        is_used &= level.has_values[cells.column[cells.of_event]]
                    groups = _Groups.of(ordered, is_used if inside is None else is_used & inside)
                made = groups.aggregate(aggregation)
                if aggregation == "count" and self.scaling == "log1p":
                    made = np.log1p(made)
                elif aggregation == "count" and self.scaling == "tfidf":
                    row = np.searchsorted(cells.offsets, groups.cell, side="right") - 1
                    made /= n_events[row, i]
                    made *= level.rarity[cells.column[groups.cell]]
                yield _block(cells, groups.cell, made, members)


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of rows: row i has those from offset i to i + 1, in order of time.

    Attributes:
        position: Position in the table of events, shape (events,).
        code: Position in the vocabulary, shape (events,).
        time: Microseconds since 1970, shape (events,).
        offsets: First event of each row and, at the end, the number of events, shape (rows + 1,).
    """

    position: NDArray[np.int64]
    code: NDArray[np.integer[Any]]
    time: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Self:
        """Return some of the events, of the same rows."""
        if mask.all():
            return self
        kept = np.flatnonzero(mask)
        offsets = np.searchsorted(kept, self.offsets)
        return type(self)(self.position[kept], self.code[kept], self.time[kept], offsets)

    def n_where(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count some of the events, by row."""
        return np.diff(np.searchsorted(np.flatnonzero(mask), self.offsets))

    def n_rows_with(self, column: NDArray[np.integer[Any]], width: int) -> NDArray[np.int64]:
        """Count the rows with an event of each column; -1 is none."""
        events = self.where(column >= 0)
        column = column[column >= 0]
        parts = (np.ones(len(column), dtype=bool), column.astype(np.int32), events.offsets)
        by_column = sparse.csr_array(parts, shape=(len(self.offsets) - 1, width)).tocsc()
        row, ends = by_column.indices, by_column.indptr
        is_repeated = row[1:] == row[:-1]
        is_repeated[ends[1:-1][(ends[1:-1] > 0) & (ends[1:-1] < len(row))] - 1] = False
        repeated = np.searchsorted(np.flatnonzero(is_repeated) + 1, ends)
        return np.diff(ends) - np.diff(repeated)


def _parts(X: "EventRows") -> tuple[_Events, _Events, _Events]:
    """Return the events of rows that have a time, the facts, and the births."""
    position = positions(X.start, X.stop)
    code = X.events["code"].cat.codes.to_numpy()[position]
    time = _microseconds(X.events["time"])[position]
    events = _Events(position, code, time, offsets_of(X.stop - X.start))
    births = [i for i, code in enumerate(X.codes) if is_birth_code(code)]
    is_birth, has_time = np.isin(code, births), time != _NO_TIME
    return (
        events.where(has_time & ~is_birth),
        events.where(~has_time & ~is_birth),
        events.where(has_time & is_birth),
    )


def _microseconds(times: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.to_numpy().astype("datetime64[us]", copy=False)
    return numbers.view(np.int64)


def _ages(births: _Events, X: "EventRows") -> NDArray[np.float64]:
    """Return the years since the first birth of each row, NaN without one."""
    ages = np.full(len(X), np.nan)
    has_birth = np.diff(births.offsets) > 0
    born = births.time[births.offsets[:-1][has_birth]]
    ages[has_birth] = (_microseconds(X.rows["prediction_time"])[has_birth] - born) / _YEAR
    return ages


def _ending(window: int | None) -> str:
    return "" if window is ALL else f", {window} days"


def _columns(names: Sequence[str], named: Sequence[str | None]) -> NDArray[np.int32]:
    """Return the position of each in `names`, -1 where it is not there."""
    position: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    return np.array([position.get(name, -1) for name in named], dtype=np.int32)


def _path(code: str) -> list[str]:
    """Return the prefixes of a code that end before a separator, and the code itself."""
    separators = _SEPARATORS_OF_TEXT if " " in code else _SEPARATORS
    ends = [found.start() for found in separators.finditer(code) if found.start() > 0]
    return [*(code[:end] for end in ends), code]


def _names_at(depth: int, codes: Sequence[str]) -> Sequence[str | None]:
    """Return each code at depth 0, otherwise its prefix of that number or None.

    A code with one prefix less is there itself, since others may begin with it.
    """
    if depth == 0:
        return codes
    return [path[depth - 1] if len(path := _path(code)) >= depth else None for code in codes]


def _different_names(codes: Sequence[str], levels: str) -> Iterator[tuple[int, list[str]]]:
    """Yield codes and prefixes that stand for different sets of codes, by their depth."""
    if levels != "prefixes":
        yield 0, list(codes)
    if levels == "code":
        return
    paths = [list(enumerate(_path(code), 1)) for code in codes]
    n_codes = Counter(name for path in paths for name in path)
    prefixes = {name for path in paths for name in path[:-1] or path}
    repeated = {
        name
        for path in paths
        for name, longer in pairwise(path)
        if longer in prefixes and n_codes[name] == n_codes[longer]
    }
    least = 2 if levels == "both" else 1
    kept = sorted(name for name in prefixes - repeated if n_codes[name] >= least)
    for depth, names in groupby(kept, key=itemgetter(0)):
        yield depth, [name for _, name in names]


@dataclass(frozen=True, slots=True)
class _Level:
    """Codes, or prefixes that end before the separator of one number.

    Attributes:
        depth: Number of the separator; 0 for codes.
        names: Those that enough patients of the training rows have, n of them, sorted.
        has_values: Whether values of the training rows differ, shape (n,).
        is_mixed: Whether some events of those have a value and some have none, shape (n,).
        rarity: Inverse document frequency among the training patients, shape (n,).
    """

    depth: int
    names: list[str]
    has_values: NDArray[np.bool_]
    is_mixed: NDArray[np.bool_]
    rarity: NDArray[np.float64]

    @classmethod
    def learn(  # noqa: PLR0917
        cls,
        depth: int,
        names: Sequence[str],
        vocabulary: Sequence[str],
        patients: "_Events",
        value: NDArray[np.float64],
        least: int,
    ) -> Self:
        """Choose the names that so many patients have, by all of their events."""
        column = _columns(names, _names_at(depth, vocabulary))[patients.code]
        frequency = patients.n_rows_with(column, len(names))
        kept = np.flatnonzero(frequency >= least)
        is_valued = ~np.isnan(value)
        is_named = column >= 0
        bare = column[is_named & ~is_valued]
        column, value = column[is_named & is_valued], value[is_named & is_valued]
        a_value = np.zeros(len(names))
        a_value[column] = value
        has_values = np.bincount(column[value != a_value[column]], minlength=len(names)) > 0
        is_bare = np.bincount(bare, minlength=len(names)) > 0
        n_patients = len(patients.offsets) - 1
        rarity = np.log((1 + n_patients) / (1 + frequency)) + 1
        return cls(
            depth,
            [names[i] for i in kept.tolist()],
            has_values[kept],
            (has_values & is_bare)[kept],
            rarity[kept],
        )

    def columns(self, vocabulary: Sequence[str]) -> NDArray[np.int32]:
        """Return the column of each code of a vocabulary, -1 where it has none."""
        return _columns(self.names, _names_at(self.depth, vocabulary))


@dataclass(frozen=True)
class _History:
    """Events of rows that have a time, with their ages and values.

    Attributes:
        events: The events.
        until: Prediction time of each row, shape (rows,).
        values: Values of the table of events, NaN without one.
    """

    events: _Events
    until: NDArray[np.int64]
    values: NDArray[np.float64]

    @cached_property
    def age(self) -> NDArray[np.int64]:
        """Microseconds before the prediction time, shape (events,)."""
        return np.repeat(self.until, np.diff(self.events.offsets)) - self.events.time


@dataclass(frozen=True)
class _OrderedEvents:
    """Events in the order of their cells.

    Attributes:
        cells: The cells.
        position: Position in the history of each event, shape (events,).
        history: The events of the rows.
    """

    cells: Cells
    position: NDArray[np.int64]
    history: _History

    @cached_property
    def age(self) -> NDArray[np.int64]:
        """Microseconds before the prediction time, shape (events,)."""
        return self.history.age[self.position]

    @cached_property
    def value(self) -> NDArray[np.float64]:
        """Values, NaN without one, shape (events,)."""
        return self.history.values[self.history.events.position[self.position]]


@dataclass(frozen=True)
class _Groups:
    """Some events in the order of their cells; each cell that has any is a group.

    Attributes:
        cell: Cell of each group, shape (groups,).
        first: First event of each group, shape (groups,).
        ordered: All events of the cells.
        events: Positions of the events among all, shape (events,); None for all.
    """

    cell: NDArray[np.int64]
    first: NDArray[np.int64]
    ordered: _OrderedEvents
    events: NDArray[np.int64] | None

    @classmethod
    def of(cls, ordered: _OrderedEvents, mask: NDArray[np.bool_] | None) -> Self:
        """Group some of the events; None for all."""
        cells = ordered.cells
        if mask is None or mask.all():
            return cls(np.arange(len(cells.first)), cells.first, ordered, None)
        events = np.flatnonzero(mask)
        cell = cells.of_event[events]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        return cls(cell[first], first, ordered, events)

    @cached_property
    def age(self) -> NDArray[np.int64]:
        """Microseconds before the prediction time, shape (events,)."""
        return self.ordered.age if self.events is None else self.ordered.age[self.events]

    @cached_property
    def value(self) -> NDArray[np.float64]:
        """Values, NaN without one, shape (events,)."""
        return self.ordered.value if self.events is None else self.ordered.value[self.events]

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """Events of each group, shape (groups,)."""
        n_events = len(self.ordered.position if self.events is None else self.events)
        return np.diff(self.first, append=n_events)

    @cached_property
    def of_event(self) -> NDArray[np.int64]:
        """Group of each event, shape (events,)."""
        return np.repeat(np.arange(len(self.first)), self.count)

    @cached_property
    def _sum(self) -> NDArray[np.float64]:
        return self._total(self.value)

    def aggregate(self, aggregation: str) -> NDArray[np.float64]:
        """Return the value of each group."""
        last = self.first + self.count - 1
        made: NDArray[np.float64]
        match aggregation:
            case "has":
                made = np.ones(len(self.first))
            case "count" | "values":
                made = self.count.astype(np.float64)
            case "recency":
                made = 1 / (1 + self.age[last] / _DAY)
            case "sum":
                made = self._sum
            case "mean":
                made = self._sum / self.count
            case "min":
                made = np.minimum.reduceat(self.value, self.first)
            case "max":
                made = np.maximum.reduceat(self.value, self.first)
            case "last":
                made = self.value[last]
            case _:
                made = self._slope()
        return made

    def _slope(self) -> NDArray[np.float64]:
        """Return the least-squares slope per day, 0 where all events are within an hour."""
        # Days since the first event of the group are 0 for all of them at the same time, exactly.
        day = (self.age[self.first][self.of_event] - self.age) / _DAY
        day -= (self._total(day) / self.count)[self.of_event]
        above = self.value - (self._sum / self.count)[self.of_event]
        spread = self._total(day * day)
        is_long = self.age[self.first] - self.age[self.first + self.count - 1] >= _HOUR
        slope = np.zeros(len(spread))
        return np.divide(self._total(day * above), spread, out=slope, where=is_long)

    def _total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the events of each group one after the other, whatever other rows there are."""
        total = np.bincount(self.of_event, values, minlength=len(self.first))
        return total.astype(np.float64, copy=False)


def _block(
    cells: Cells,
    cell: NDArray[np.int64],
    values: NDArray[np.float64],
    members: NDArray[np.bool_],
) -> sparse.csr_array:
    """Return the matrix of the values of some cells, with the columns of some codes."""
    column = cells.column[cell]
    if not members.all():
        is_member = members[column]
        cell, values, column = cell[is_member], values[is_member], column[is_member]
        column = (np.cumsum(members, dtype=np.int32) - 1)[column]
    offsets = np.searchsorted(cell, cells.offsets).astype(np.int32)
    single = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
    return sparse.csr_array((single, column, offsets), shape=(len(offsets) - 1, int(members.sum())))
