"""Blocks of columns made of patient events: one aggregation in one window of one level of codes.

A row's cells depend only on its patient, so blocks are the same in every fold and configuration.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
NAMES_OF_PIECE = 1 << 21
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

    def columns_named(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the position of each name, -1 for others."""
        return np.array([self._position.get(name, -1) for name in names], dtype=np.int64)

    @cached_property
    def _position(self) -> dict[str, int]:
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
        return X.once("vocabulary", lambda: cls(X.codes, X.parents()))

    @cached_property
    def paths(self) -> list[list[str]]:
        """Prefixes of each code that end before a separator, shortest first, and the code."""
        made = []
        for code in self.codes:
            separators = _SEPARATORS_OF_TEXT if " " in code else _SEPARATORS
            ends = [found.start() for found in separators.finditer(code) if found.start() > 0]
            made.append([*(code[:end] for end in ends), code])
        return made

    @cached_property
    def depths(self) -> range:
        """Numbers of the levels of prefixes; the last level has only the longest codes."""
        return range(1, max(map(len, self.paths), default=0) + 1)

    def level(self, number: int) -> NameLevel:
        """Return a level by its number, as in a block."""
        if number in self._levels:
            return self._levels[number]
        if number == CODE:
            names = [[code] for code in self.codes]
        elif number == PARENTS:
            names = self._parents()
        else:
            names = [path[number - 1 : number] for path in self.paths]
        return self._levels.setdefault(number, NameLevel.of(names))

    def _parents(self) -> list[list[str]]:
        """Return each code's parents that have columns, and the code if it is such a parent."""
        every = {parent for parents in self.parents.values() for parent in parents}
        of_codes = [
            list(dict.fromkeys([*((code,) if code in every else ()), *self.parents.get(code, ())]))
            for code in self.codes
        ]
        kept = self.kept
        if kept is None:
            kept = frozenset(different_parents(dict(enumerate(of_codes)), self.parents))
        return [[name for name in names if name in kept] for names in of_codes]


def different_parents(
    names_of_codes: Mapping[int, Sequence[str]], parents: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the parents of two or more codes, sorted; for each set of codes only the nearest."""
    children: defaultdict[str, list[int]] = defaultdict(list)
    for code, names in names_of_codes.items():
        for name in names:
            children[name].append(code)
    nearest = {
        tuple(children[name]): name
        for name in sorted(children, key=lambda name: (len(parents.get(name, ())), name))
    }
    return sorted(name for codes, name in nearest.items() if len(codes) > 1)


def blocks_of(
    X: "EventRows", wanted: Sequence[Block], vocabulary: Vocabulary, follow: Sequence[Block] = ()
) -> Iterator[Mapping[Block, Matrix]]:
    """Yield float32 blocks of consecutive rows; shared ones, read on access, have all n rows.

    Shapes are (n, 2) or (n, names of the level). `follow` are blocks of the same rows that are
    needed next; shared blocks are made together.
    """
    every = [*dict.fromkeys((*wanted, *follow))]
    shared = None if X.shared is None else X.shared.blocks(X, every)
    yield from make_blocks(X, wanted, vocabulary) if shared is None else (shared,)


def make_blocks(
    X: "EventRows", wanted: Sequence[Block], vocabulary: Vocabulary
) -> Iterator[dict[Block, Matrix]]:
    """Yield blocks of consecutive rows, made in one pass over a bounded number of event names."""
    levels = {block.level: vocabulary.level(block.level) for block in wanted}
    most_names = max(int(np.diff(level.offsets).max(initial=1)) for level in levels.values())
    for rows in X.pieces(max(1, NAMES_OF_PIECE // most_names)):
        events, facts, births = _parts(rows)
        made: dict[Block, Matrix] = {}
        for block in wanted:
            if block == PERSON:
                of_rows = births.age_at_first(np.nan) / _YEAR, events.age_at_first(0.0) / DAY
                made[block] = np.column_stack(of_rows).astype(np.float32)
            elif block == FACTS:
                cells = Cells.of(facts.code.astype(np.int32), facts.offsets, len(vocabulary.codes))
                made[block] = _matrix(cells, np.ones(len(cells.column)))
            elif block.is_dense:
                made[block] = _activity(events, block.window).astype(np.float32)
        value = X.events["value"].to_numpy()
        for number, level in levels.items():
            of_level = [b for b in wanted if b.level == number and b not in made]
            made |= _of_level(events, value, level, of_level)
        yield made


def joined(pieces: Iterable[Mapping[Block, Matrix]]) -> Mapping[Block, Matrix]:
    """Return blocks of all rows."""
    first, *others = pieces
    if not others:
        return first
    made: dict[Block, Matrix] = {}
    for block in first:
        parts = [first[block], *(piece[block] for piece in others)]
        if block.is_dense:
            made[block] = np.concatenate(parts)
        else:
            made[block] = sparse.csr_array(sparse.vstack(parts, format="csr"))
            made[block].has_canonical_format = True
    return made


def _of_level(
    events: "_Events", values: NDArray[np.float64], level: NameLevel, wanted: Sequence[Block]
) -> Iterator[tuple[Block, Matrix]]:
    """Yield blocks of one level; `values` are the values of all events, NaN if none."""
    if (np.diff(level.offsets) == 1).all():  # each code has one name
        position, column = np.arange(len(events.code)), level.columns[events.code]
        offsets = events.offsets
    else:
        start, stop = level.offsets[events.code], level.offsets[events.code + 1]
        position = np.repeat(np.arange(len(events.code)), stop - start)
        column = level.columns[positions(start, stop)]
        offsets = np.searchsorted(position, events.offsets)
    every = Cells.of(column, offsets, len(level.names))
    position = position[every.order]
    age, value = events.age[position], values[events.position[position]]
    groups: defaultdict[tuple[int | None, bool], list[Block]] = defaultdict(list)
    for block in wanted:
        groups[block.window, block.aggregation not in OF_EVENTS].append(block)
    for (window, is_of_values), blocks in groups.items():
        is_used = np.ones(len(age), dtype=bool) if window is ALL else age <= window * DAY
        if is_of_values:
            is_used &= ~np.isnan(value)
        used = slice(None) if is_used.all() else np.flatnonzero(is_used)
        cells = every if isinstance(used, slice) else every.take(used)
        total = cells.total(value[used]) if is_of_values else np.empty(0)
        for block in blocks:
            found = _aggregate(block.aggregation, cells, age[used], value[used], total)
            yield block, _matrix(cells, found)


def _aggregate(
    aggregation: str,
    cells: Cells,
    age: NDArray[np.int64],
    value: NDArray[np.float64],
    total: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a number for each cell, from ages and values of its events and from their sum."""
    last = cells.first + cells.count - 1
    made: NDArray[np.float64]
    match aggregation:
        case "has":
            made = np.ones(len(cells.first))
        case "count" | "values":
            made = cells.count.astype(np.float64)
        case "recency":
            made = 1 / (1 + age[last] / DAY)
        case "sum":
            made = total
        case "mean":
            made = total / cells.count
        case "min":
            made = np.minimum.reduceat(value, cells.first)
        case "max":
            made = np.maximum.reduceat(value, cells.first)
        case "last":
            made = value[last]
        case _:  # the least-squares slope per day, 0 if all events are within an hour
            # For events at the same time, days since the first event of the cell are exactly 0.
            day = (age[cells.first][cells.of_event] - age) / DAY
            day -= (cells.total(day) / cells.count)[cells.of_event]
            above = value - (total / cells.count)[cells.of_event]
            spread = cells.total(day * day)
            is_long = age[cells.first] - age[last] >= _HOUR
            made = np.zeros(len(spread))
            np.divide(cells.total(day * above), spread, out=made, where=is_long)
    return made


def _matrix(cells: Cells, values: NDArray[np.float64]) -> sparse.csr_array:
    single = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
    shape = len(cells.offsets) - 1, cells.width
    made = sparse.csr_array((single, cells.column, cells.offsets), shape=shape, copy=True)
    made.has_canonical_format = True
    made.eliminate_zeros()
    return made


def _activity(events: "_Events", window: int | None) -> NDArray[np.int64]:
    """Return the numbers of events, and of days with events, of each row in a window."""
    # A window ends with the last event, so it contains the last event of each of its days.
    is_last_of_day = np.diff(events.time // DAY, append=0) != 0
    is_last_of_day[events.offsets[1:][np.diff(events.offsets) > 0] - 1] = True
    inside = np.ones(len(events.age), bool) if window is ALL else events.age <= window * DAY
    numbers = [np.flatnonzero(inside), np.flatnonzero(inside & is_last_of_day)]
    return np.column_stack([np.diff(np.searchsorted(n, events.offsets)) for n in numbers])


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of rows, in order of time: row i has the events from offset i to i + 1.

    `position` is in the table of events, `code` in the vocabulary; `time` is in microseconds since
    1970, and `age` in microseconds before the prediction time. All four have shape (events,), and
    `offsets` has shape (rows + 1,).
    """

    position: NDArray[np.int64]
    code: NDArray[np.integer[Any]]
    time: NDArray[np.int64]
    age: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def where(self, mask: NDArray[np.bool_]) -> Self:
        if mask.all():
            return self
        kept = np.flatnonzero(mask)
        offsets = np.searchsorted(kept, self.offsets)
        columns = self.position[kept], self.code[kept], self.time[kept], self.age[kept]
        return type(self)(*columns, offsets)

    def age_at_first(self, default: float) -> NDArray[np.float64]:
        """Return the age of each row's first event in microseconds, or the default without one."""
        ages, has_any = np.full(len(self.offsets) - 1, default), np.diff(self.offsets) > 0
        ages[has_any] = self.age[self.offsets[:-1][has_any]]
        return ages


def _parts(X: "EventRows") -> tuple[_Events, _Events, _Events]:
    """Return the rows' events that have a time, the facts, and the births."""
    position, lengths = positions(X.start, X.stop), X.stop - X.start
    code = X.events["code"].cat.codes.to_numpy()[position]
    time = _microseconds(X.events["time"])[position]
    age = np.repeat(_microseconds(X.rows["prediction_time"]), lengths) - time
    events = _Events(position, code, time, age, offsets_of(lengths))
    is_birth, has_time = np.isin(code, X.births), time != _NO_TIME
    return (
        events.where(has_time & ~is_birth),
        events.where(~has_time & ~is_birth),
        events.where(has_time & is_birth),
    )


def _microseconds(times: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.to_numpy().astype("datetime64[us]", copy=False)
    return numbers.view(np.int64)
