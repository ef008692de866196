"""Blocks of columns made of patient events: one aggregation in one window of one level of codes.

A row's cells depend only on its patient, so blocks are the same in every fold and configuration.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from prefect_tune.tasks.catalogue.construction import Cells, offsets_of
from prefect_tune.tasks.data.events import positions

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows

ALL = None
"""Window that reaches back to the first event."""
CODE = 0
"""Level of the codes; level 1 has their first prefixes, level 2 the next ones, ..."""
PARENTS = -1
"""Level of the parents that a table of codes names."""
OF_EVENTS = ("has", "count", "recency")
"""Aggregations that need no values."""
OF_LAST = ("recency", "last")
"""Aggregations of the last event, which is the same in every window that contains it."""

_SEPARATORS, _SEPARATORS_OF_TEXT = re.compile(r"[/.]+"), re.compile(r"//+")
_HOUR = 3_600_000_000
DAY = 24 * _HOUR
"""One day in microseconds."""
_YEAR = 365.25 * DAY
_NO_TIME = np.iinfo(np.int64).min
NAMES_OF_PIECE = 1 << 23
"""Most event names sorted at once; these are in consecutive rows."""
_LARGEST = 1e18
"""Values are clipped to this, so that sums of their squares fit into float32."""

Matrix = Any
"""An array or a CSR array of float32."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of columns.

    Attributes:
        aggregation: One of `has`, `count`, `recency`, `values` (events with a value), `sum`,
            `mean`, `min`, `max`, `last` and `slope`, with a column for each code. Or, without a
            level, `is` (facts), `person` (age in years, NaN without a birth, and days since the
            first event) or `activity` (numbers of events, and of days with events).
        window: Days to look back; None for the whole history.
        level: Number of the prefixes of codes; 0 for the codes, -1 for their parents.
    """

    aggregation: str
    window: int | None = ALL
    level: int = CODE

    @property
    def is_dense(self) -> bool:
        """Whether its columns describe the row rather than a code."""
        return self.aggregation in ("person", "activity")

    def __str__(self) -> str:
        words = [self.aggregation]
        if self.window is not ALL:
            words.append(f"{self.window} days")
        if self.level:
            words.append("parents" if self.level == PARENTS else f"prefixes {self.level}")
        return ", ".join(words)

    def lineage(self) -> dict[str, Any]:
        """Return the block's part of an artifact's lineage, as JSON values."""
        return {"aggregation": self.aggregation, "window": self.window, "level": self.level}


PERSON, FACTS = Block("person"), Block("is")


@dataclass(frozen=True)
class NameLevel:
    """The names of a level, and the codes that each stands for.

    Attributes:
        names: Distinct names, sorted.
        offsets: First name of each code in `columns` and, at the end, the length of `columns`.
        columns: Positions of the names of all codes, code by code.
    """

    names: list[str]
    offsets: NDArray[np.int64]
    columns: NDArray[np.int32]

    @classmethod
    def of(cls, names_of_codes: Sequence[Sequence[str]]) -> Self:
        """Make a level from the names of each code."""
        names = sorted({name for of_code in names_of_codes for name in of_code})
        position = {name: i for i, name in enumerate(names)}
        columns = [position[name] for of_code in names_of_codes for name in of_code]
        lengths = np.fromiter(map(len, names_of_codes), np.int64, len(names_of_codes))
        return cls(names, offsets_of(lengths), np.array(columns, dtype=np.int32))

    def names_of(self, code: int) -> list[str]:
        """Return the names of a code, given by its position in the vocabulary."""
        columns = self.columns[self.offsets[code] : self.offsets[code + 1]]
        return [self.names[i] for i in columns.tolist()]

    @cached_property
    def position(self) -> dict[str, int]:
        """Position of each name."""
        return {name: i for i, name in enumerate(self.names)}


@dataclass(frozen=True)
class Vocabulary:
    """Codes by all their names: the sorted codes, their prefixes and their parents.

    `parents` are all ancestors. `kept` are the parents that have columns; None stands for all
    parents of distinct sets of two or more codes.
    """

    codes: Sequence[str]
    parents: Mapping[str, Sequence[str]]
    kept: frozenset[str] | None = None
    _levels: dict[int, NameLevel] = field(default_factory=dict)

    @classmethod
    def of(cls, X: "EventRows", learned: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Return the vocabulary of events; `learned` parents take precedence over its table."""
        if learned and X.shared is None:
            kept = frozenset(parent for parents in learned.values() for parent in parents)
            return cls(X.codes, {**X.parents(), **learned}, kept)
        known: tuple[Any, Any, Self] | None = X.of_events.get("vocabulary")
        if known is None or known[0] is not X.events or known[1] is not X.code_table:
            known = X.events, X.code_table, cls(X.codes, X.parents())
            X.of_events["vocabulary"] = known
        return known[2]

    @cached_property
    def paths(self) -> list[list[str]]:
        """Prefixes of each code, shortest first, and the code."""
        return [_path(code) for code in self.codes]

    @cached_property
    def depths(self) -> range:
        """Numbers of the levels of prefixes; the last level has only the longest codes."""
        return range(1, max(map(len, self.paths), default=0) + 1)

    def level(self, number: int) -> NameLevel:
        """Return a level by its number, as in a block."""
        if number not in self._levels:
            self._levels[number] = NameLevel.of(list(self._names(number)))
        return self._levels[number]

    def _names(self, number: int) -> Iterator[Sequence[str]]:
        """Yield each code's names at a level; the level after its prefixes has the code itself."""
        if number == CODE:
            yield from ((code,) for code in self.codes)
        elif number == PARENTS:
            yield from self._parents()
        else:
            yield from (path[number - 1 : number] for path in self.paths)

    def _parents(self) -> list[list[str]]:
        """Return each code's parents that have columns, and the code if it is such a parent."""
        every = {parent for parents in self.parents.values() for parent in parents}
        of_codes = [
            list(dict.fromkeys([*((code,) if code in every else ()), *self.parents.get(code, ())]))
            for code in self.codes
        ]
        kept = self.kept
        if kept is None:
            children: defaultdict[str, list[int]] = defaultdict(list)
            for number, names in enumerate(of_codes):
                for name in names:
                    children[name].append(number)
            kept = frozenset(different_parents(children, self.parents))
        return [[name for name in names if name in kept] for names in of_codes]


def different_parents(
    children: Mapping[str, Sequence[int]], parents: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the parents of two or more codes, sorted; for each set of codes only the nearest."""
    nearest = {
        tuple(children[name]): name
        for name in sorted(children, key=lambda name: (len(parents.get(name, ())), name))
    }
    return sorted(name for codes, name in nearest.items() if len(codes) > 1)


def blocks_of(
    X: "EventRows", wanted: Sequence[Block], vocabulary: Vocabulary, follow: Sequence[Block] = ()
) -> Mapping[Block, Matrix]:
    """Return float32 blocks of n rows, shared ones or blocks made in one pass over the events.

    Shapes are (n, 2) or (n, names of the level). Shared blocks are read on access. `follow` are
    blocks of the same rows that are needed next; the same pass makes them.
    """
    if X.shared is not None:
        shared = X.shared.blocks(X, [*dict.fromkeys((*wanted, *follow))])
        if shared is not None:
            return shared
    return {
        block: made for part in make_blocks(X, wanted, vocabulary) for block, made in part.items()
    }


def make_blocks(
    X: "EventRows", wanted: Sequence[Block], vocabulary: Vocabulary
) -> Iterator[dict[Block, Matrix]]:
    """Yield blocks of all rows, level by level, from one pass over their events."""
    if not wanted:
        return
    events, facts, births = _parts(X)
    until = _microseconds(X.rows["prediction_time"])
    history = _History(events, until, X.events["value"].to_numpy())
    of_rows: dict[Block, Matrix] = {}
    of_codes = []
    for block in wanted:
        if block == PERSON:
            columns = (_ages(births, X), _days_of_history(history))
            of_rows[block] = np.column_stack(columns).astype(np.float32)
        elif block == FACTS:
            cells = Cells.of(facts.code.astype(np.int32), facts.offsets, len(vocabulary.codes))
            ones = np.ones(len(cells.column), dtype=np.float32)
            of_rows[block] = _matrix(ones, cells.column, cells.offsets, cells.width)
        elif block.is_dense:
            of_rows[block] = _activity(history, block.window).astype(np.float32)
        else:
            of_codes.append(block)
    yield of_rows
    of_codes.sort(key=attrgetter("level"))
    for number, of_level in groupby(of_codes, attrgetter("level")):
        level, blocks = vocabulary.level(number), list(of_level)
        pieces = [_of_level(piece, level, blocks) for piece in history.pieces(level)]
        yield {block: _stacked([piece.pop(block) for piece in pieces]) for block in blocks}


def _stacked(pieces: Sequence[sparse.csr_array]) -> sparse.csr_array:
    if len(pieces) == 1:
        return pieces[0]
    made = sparse.csr_array(sparse.vstack(pieces, format="csr"))
    made.has_canonical_format = True
    return made


def _of_level(
    history: "_History", level: NameLevel, wanted: Sequence[Block]
) -> dict[Block, Matrix]:
    events = history.events
    if (np.diff(level.offsets) == 1).all():  # each code has one name
        position, column = np.arange(len(events.code)), level.columns[events.code]
        offsets = events.offsets
    else:
        start, stop = level.offsets[events.code], level.offsets[events.code + 1]
        position = np.repeat(np.arange(len(events.code)), stop - start)
        column = level.columns[positions(start, stop)]
        offsets = np.searchsorted(position, events.offsets)
    cells = Cells.of(column, offsets, len(level.names))
    ordered = _OrderedEvents(cells, position[cells.order], history)
    made: dict[Block, Matrix] = {}
    for window in dict.fromkeys(block.window for block in wanted):
        inside = None if window is ALL else ordered.age <= window * DAY
        groups: dict[bool, _Groups] = {}
        for block in wanted:
            if block.window != window:
                continue
            of_values = block.aggregation not in OF_EVENTS
            if of_values not in groups:
                used = inside
                if of_values:
                    used = ~np.isnan(ordered.value)
                    used = used if inside is None else used & inside
                groups[of_values] = _Groups.of(ordered, used)
            group = groups[of_values]
            made[block] = _sparse(cells, group.cell, group.aggregate(block.aggregation))
    return made


def _sparse(cells: Cells, cell: NDArray[np.int64], values: NDArray[np.float64]) -> sparse.csr_array:
    offsets = np.searchsorted(cell, cells.offsets).astype(np.int32)
    single = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
    return _matrix(single, cells.column[cell], offsets, cells.width)


def _matrix(
    values: NDArray[np.float32], columns: NDArray[np.int32], offsets: NDArray[np.int32], width: int
) -> sparse.csr_array:
    made = sparse.csr_array((values, columns, offsets), shape=(len(offsets) - 1, width))
    made.has_canonical_format = True
    made.eliminate_zeros()
    return made


def _days_of_history(history: "_History") -> NDArray[np.float64]:
    """Return the days since the first event of each row, 0 without an event."""
    events = history.events
    first, has_any = events.offsets[:-1], np.diff(events.offsets) > 0
    days = np.zeros(len(has_any))
    days[has_any] = (history.until[has_any] - events.time[first[has_any]]) / DAY
    return days


def _activity(history: "_History", window: int | None) -> NDArray[np.int64]:
    """Return the numbers of events, and of days with events, of each row in a window."""
    events = history.events
    day = events.time // DAY
    # A window ends with the last event, so it contains the last event of each of its days.
    is_last_of_day = np.ones(len(day), dtype=bool)
    np.not_equal(day[1:], day[:-1], out=is_last_of_day[:-1])
    has_any = np.diff(events.offsets) > 0
    is_last_of_day[events.offsets[1:][has_any] - 1] = True
    if window is ALL:
        return np.column_stack((np.diff(events.offsets), events.n_where(is_last_of_day)))
    inside = history.age <= window * DAY
    return np.column_stack((events.n_where(inside), events.n_where(inside & is_last_of_day)))


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of rows, in order of time: row i has the events from offset i to i + 1.

    `position` is in the table of events, `code` in the vocabulary; `time` is in microseconds since
    1970. All three have shape (events,), and `offsets` has shape (rows + 1,).
    """

    position: NDArray[np.int64]
    code: NDArray[np.integer[Any]]
    time: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Self:
        if mask.all():
            return self
        kept = np.flatnonzero(mask)
        offsets = np.searchsorted(kept, self.offsets)
        return type(self)(self.position[kept], self.code[kept], self.time[kept], offsets)

    def of_rows(self, first: int, last: int) -> Self:
        start, stop = self.offsets[first], self.offsets[last]
        offsets = self.offsets[first : last + 1] - start
        return type(self)(
            self.position[start:stop], self.code[start:stop], self.time[start:stop], offsets
        )

    def n_where(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.diff(np.searchsorted(np.flatnonzero(mask), self.offsets))


def _parts(X: "EventRows") -> tuple[_Events, _Events, _Events]:
    """Return the rows' events that have a time, the facts, and the births."""
    position = positions(X.start, X.stop)
    code = X.events["code"].cat.codes.to_numpy()[position]
    time = _microseconds(X.events["time"])[position]
    events = _Events(position, code, time, offsets_of(X.stop - X.start))
    is_birth, has_time = np.isin(code, X.births), time != _NO_TIME
    return (
        events.where(has_time & ~is_birth),
        events.where(~has_time & ~is_birth),
        events.where(has_time & is_birth),
    )


def _microseconds(times: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.to_numpy().astype("datetime64[us]", copy=False)
    return numbers.view(np.int64)


def _ages(births: _Events, X: "EventRows") -> NDArray[np.float64]:
    """Return the years since the first birth of each row, NaN without a birth."""
    ages = np.full(len(X), np.nan)
    has_birth = np.diff(births.offsets) > 0
    born = births.time[births.offsets[:-1][has_birth]]
    ages[has_birth] = (_microseconds(X.rows["prediction_time"])[has_birth] - born) / _YEAR
    return ages


def _path(code: str) -> list[str]:
    """Return the prefixes of a code that end before a separator, and the code itself."""
    separators = _SEPARATORS_OF_TEXT if " " in code else _SEPARATORS
    ends = [found.start() for found in separators.finditer(code) if found.start() > 0]
    return [*(code[:end] for end in ends), code]


@dataclass(frozen=True)
class _History:
    """Timed events of rows, prediction times of the rows, and values of events (NaN if none)."""

    events: _Events
    until: NDArray[np.int64]
    values: NDArray[np.float64]

    @cached_property
    def age(self) -> NDArray[np.int64]:
        return np.repeat(self.until, np.diff(self.events.offsets)) - self.events.time

    def pieces(self, level: NameLevel) -> Iterator[Self]:
        """Yield the rows in pieces of bounded numbers of names of a level, or all rows at once."""
        n_names = np.diff(level.offsets)[self.events.code]
        offsets = self.events.offsets
        before = np.append(0, np.cumsum(n_names))[offsets]
        if before[-1] <= NAMES_OF_PIECE:
            yield self
            return
        piece = before[:-1] // NAMES_OF_PIECE
        bounds = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(piece)]
        for first, last in pairwise(bounds):
            yield type(self)(self.events.of_rows(first, last), self.until[first:last], self.values)


@dataclass(frozen=True)
class _OrderedEvents:
    """Events sorted by cell; `position` is each event's position in the history."""

    cells: Cells
    position: NDArray[np.int64]
    history: _History

    @cached_property
    def age(self) -> NDArray[np.int64]:
        return self.history.age[self.position]

    @cached_property
    def value(self) -> NDArray[np.float64]:
        return self.history.values[self.history.events.position[self.position]]


@dataclass(frozen=True)
class _Groups:
    """Some events sorted by cell; each non-empty cell is a group.

    `cell` and `first` (event) have shape (groups,). `events` are positions among all events, shape
    (events,); None for all.
    """

    cell: NDArray[np.int64]
    first: NDArray[np.int64]
    ordered: _OrderedEvents
    events: NDArray[np.int64] | None

    @classmethod
    def of(cls, ordered: _OrderedEvents, mask: NDArray[np.bool_] | None) -> Self:
        cells = ordered.cells
        if mask is None or mask.all():
            return cls(np.arange(len(cells.first)), cells.first, ordered, None)
        events = np.flatnonzero(mask)
        cell = cells.of_event[events]
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        return cls(cell[first], first, ordered, events)

    @cached_property
    def age(self) -> NDArray[np.int64]:
        return self.ordered.age if self.events is None else self.ordered.age[self.events]

    @cached_property
    def value(self) -> NDArray[np.float64]:
        return self.ordered.value if self.events is None else self.ordered.value[self.events]

    @cached_property
    def count(self) -> NDArray[np.int64]:
        n_events = len(self.ordered.position if self.events is None else self.events)
        return np.diff(self.first, append=n_events)

    @cached_property
    def of_event(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.first)), self.count)

    @cached_property
    def _sum(self) -> NDArray[np.float64]:
        return self._total(self.value)

    def aggregate(self, aggregation: str) -> NDArray[np.float64]:
        last = self.first + self.count - 1
        made: NDArray[np.float64]
        match aggregation:
            case "has":
                made = np.ones(len(self.first))
            case "count" | "values":
                made = self.count.astype(np.float64)
            case "recency":
                made = 1 / (1 + self.age[last] / DAY)
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
        """Return the least-squares slope per day, 0 if all events are within an hour."""
        # For events at the same time, days since the first event of the group are exactly 0.
        day = (self.age[self.first][self.of_event] - self.age) / DAY
        day -= (self._total(day) / self.count)[self.of_event]
        above = self.value - (self._sum / self.count)[self.of_event]
        spread = self._total(day * day)
        is_long = self.age[self.first] - self.age[self.first + self.count - 1] >= _HOUR
        slope = np.zeros(len(spread))
        return np.divide(self._total(day * above), spread, out=slope, where=is_long)

    def _total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over the events of each group in order, independent of other rows."""
        total = np.bincount(self.of_event, values, minlength=len(self.first))
        return total.astype(np.float64, copy=False)
