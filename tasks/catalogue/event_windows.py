"""Matrices built from patient events, as in clinical modeling: windows, recency, values, age.

A block of columns is one aggregation, such as `count`, over one time window, for all codes of one
level. Cells without an event are 0; a code's column `has` or `count` shows whether a 0 is a value.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows
import re
from collections.abc import Iterable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from prefect_tune.tasks.catalogue.construction import Cells, offsets_of
from prefect_tune.tasks.data.events import positions

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows


ALL = None
"""The window that reaches back to the first event."""
CODE = 0
"""Level of the codes themselves; level 1 contains the shortest prefixes of codes, level 2 the next
longer prefixes, and so on."""
PARENTS = -1
"""Level of parents, which come from a table of codes."""
OF_EVENTS = ("has", "count", "recency")
"""Aggregations that need no values."""
OF_LAST = ("recency", "last")
"""Aggregations of the last event, which are equal in all windows that contain the event."""

_SEPARATORS, _SEPARATORS_OF_TEXT = re.compile(r"[/.]+"), re.compile(r"//+")
_HOUR = 3_600_000_000
DAY = 24 * _HOUR
"""One day in microseconds."""
_YEAR = 365.25 * DAY
_NO_TIME = np.iinfo(np.int64).min
NAMES_OF_PIECE = 1 << 21
"""Maximum number of event names sorted at once, which bounds the memory."""
_LARGEST = 1e18
"""Limit to which values are clipped, so that sums of squares fit into float32."""

Matrix = Any
"""A dense array or a CSR array, float32."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of columns.

    Attributes:
        aggregation: Name of the aggregation. With one column per code: `has`, `count`, `recency`,
            `values` (number of events with a value), `sum`, `mean`, `min`, `max`, `last`, `slope`,
            or `is` for static events. Without codes: `person` (age in years, NaN without a birth,
            and days since the first event) or `activity` (number of events, and number of days with
            events).
        window: Days to look back; None for the whole history.
        level: Level of the names: 0 for codes, -1 for parents of codes, or the number of a level of
            prefixes.
    """

    aggregation: str
    window: int | None = ALL
    level: int = CODE

    @property
    def is_dense(self) -> bool:
        """Whether the columns describe a whole row instead of a code."""
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
    """The names of a level (codes, prefixes or parents), and the codes covered by each name.

    Attributes:
        names: Distinct names, sorted.
        offsets: Position of each code's first name in `columns` and, at the end, the length of
            `columns`.
        columns: Positions in `names` of the names of all codes, code by code.
    """

    names: list[str]
    offsets: NDArray[np.int64]
    columns: NDArray[np.int32]

    @classmethod
    def of(cls, names_of_codes: Sequence[Sequence[str]]) -> Self:
        """Build a level from the names of each code."""
        names = sorted({name for of_code in names_of_codes for name in of_code})
        position = {name: i for i, name in enumerate(names)}
        columns = [position[name] for of_code in names_of_codes for name in of_code]
        lengths = np.fromiter(map(len, names_of_codes), np.int64, len(names_of_codes))
        return cls(names, offsets_of(lengths), np.array(columns, dtype=np.int32))

    def names_of(self, code: int) -> list[str]:
        """Return the names of a code, given its position in the vocabulary."""
        columns = self.columns[self.offsets[code] : self.offsets[code + 1]]
        return [self.names[i] for i in columns.tolist()]

    def columns_named(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the position of each name in `self.names`; -1 if missing."""
        return np.array([self._position.get(name, -1) for name in names], dtype=np.int64)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}


@dataclass(frozen=True)
class Vocabulary:
    """All names of codes: the sorted codes, their prefixes and their parents.

    `parents` maps each code to all its ancestors. `kept` lists the parents that have columns. If
    `kept` is None, all parents of two or more codes have columns, one parent for each distinct set
    of codes.
    """

    codes: Sequence[str]
    parents: Mapping[str, Sequence[str]]
    kept: frozenset[str] | None = None
    _levels: dict[int, NameLevel] = field(default_factory=dict)

    @classmethod
    def of(cls, X: "EventRows", learned: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Return the vocabulary of events; parents in `learned` override the table of codes."""
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
        """Numbers of the prefix levels; only codes with the most separators have the last level."""
        return range(1, max(map(len, self.paths), default=0) + 1)

    def level(self, number: int) -> NameLevel:
        """Return a level by its number (see `Block.level`)."""
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
        """Return parents with columns for each code, and the code itself if it is a parent."""
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
    """Return the sorted parents of two or more codes, only the nearest of equal sets."""
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
    """Yield float32 blocks of consecutive rows; shared blocks contain all n rows at once.

    Shapes are (n, 2) or (n, number of names in the level). `follow` names blocks needed next for
    the same rows, so that all shared blocks can be computed together.
    """
    every = [*dict.fromkeys((*wanted, *follow))]
    shared = None if X.shared is None else X.shared.blocks(X, every)
    yield from make_blocks(X, wanted, vocabulary) if shared is None else (shared,)


def make_blocks(
    X: "EventRows", wanted: Sequence[Block], vocabulary: Vocabulary
) -> Iterator[dict[Block, Matrix]]:
    """Yield blocks of consecutive rows; the number of event names per piece is bounded."""
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
    """Join blocks of consecutive rows to blocks of all rows."""
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
    """Yield the blocks of one level; `values` contains the values of all events, NaN if missing."""
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
    """Return each cell's aggregation from the ages, values and total value of its events."""
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
            # If all events of a cell are simultaneous, the days are exactly 0.
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
    """Return each row's number of events and number of days with events in a window."""
    # A window ends with the last event, so the last event of each day in a window counts.
    is_last_of_day = np.diff(events.time // DAY, append=0) != 0
    is_last_of_day[events.offsets[1:][np.diff(events.offsets) > 0] - 1] = True
    inside = np.ones(len(events.age), bool) if window is ALL else events.age <= window * DAY
    numbers = [np.flatnonzero(inside), np.flatnonzero(inside & is_last_of_day)]
    return np.column_stack([np.diff(np.searchsorted(n, events.offsets)) for n in numbers])


@dataclass(frozen=True, slots=True)
class _Events:
    """Events of rows in order of time: row i has the events from offset i to offset i + 1.

    `position` is an index into the table of events, and `code` an index into the vocabulary; `time`
    is in microseconds since 1970, and `age` in microseconds before the prediction time. All arrays
    have shape (events,), except `offsets`, which has shape (rows + 1,).
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
        """Return the age of each row's first event in microseconds, or `default` without events."""
        ages, has_any = np.full(len(self.offsets) - 1, default), np.diff(self.offsets) > 0
        ages[has_any] = self.age[self.offsets[:-1][has_any]]
        return ages


def _parts(X: "EventRows") -> tuple[_Events, _Events, _Events]:
    """Return the rows' timed events, static events, and births."""
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


WINDOWS: Mapping[str, tuple[int | None, ...]] = {
    "all": (ALL,),
    "30": (30, ALL),
    "30_365": (30, 365, ALL),
    "7_30_90_365_1095": (7, 30, 90, 365, 1095, ALL),
}
"""Sets of windows by name, each window given by its length in days."""
AGGREGATIONS: Mapping[str, tuple[str, ...]] = {
    "count": ("count",),
    "count_recency": ("count", "recency"),
    "count_sum_mean": ("count", "sum", "mean"),
    "count_recency_sum_mean": ("count", "recency", "sum", "mean"),
    "count_recency_mean_min_max_last": ("count", "recency", "mean", "min", "max", "last"),
    "every": ("has", "count", "recency", "sum", "mean", "min", "max", "last", "slope"),
}
"""Sets of aggregations by name."""
LEVELS = ("code", "prefixes", "both", "parents", "all")
SCALINGS = ("none", "log1p", "binary", "tfidf")
_CHOICES: Mapping[str, Collection[str]] = {
    "windows": WINDOWS,
    "aggregations": AGGREGATIONS,
    "levels": LEVELS,
    "scaling": SCALINGS,
}
PARENT_ENDING = " and below"
"""Suffix of a parent's name in column names."""
_ENDINGS = {CODE: "", PARENTS: PARENT_ENDING}
"""Suffixes of names in column names, by level; prefixes get an asterisk."""

_LEAST_PATIENTS = 2


class EventWindows(TransformerMixin, BaseEstimator):
    """Aggregations of each code in windows that look back from the prediction time.

    A code gets columns if enough training patients have the code. Further columns are the age at
    the prediction time, the days since the first event, and, for each window, the number of events
    and the number of days with events. Static events (events without a time) also get a column for
    each code that at least two patients have. Births are used only for the age. Aggregations of
    values get columns only if the values of a code differ between events of the training rows;
    events without a value are ignored in these columns. Among simultaneous events, the last event
    in the data counts as last.

    Args:
        windows: Name of a set in `WINDOWS`. An event whose age equals the length of a window is
            inside the window.
        aggregations: Name of a set in `AGGREGATIONS`. `recency` is 1 / (1 + days since the last
            event). `slope` is the least-squares slope of values per day, 0 if all events are less
            than an hour apart. `recency` and `last` always use the whole history.
        levels: Names to aggregate: `code`; `prefixes` of codes, which end before a `//`, `/` or `.`
            (in codes with blanks, only before a `//`); `both`; `parents`, for codes and their
            ancestors in the data's table of codes; or `all`, for codes, prefixes and ancestors. A
            prefix covers all codes that begin with the prefix, including codes in new data, and a
            parent covers all its descendants. If two prefixes cover the same codes, only the longer
            prefix is used; parents of a single code are skipped. With `prefixes`, a code without a
            prefix is used as is.
        scaling: Scaling of counts: `none`; `log1p`; `binary`, which replaces `count` with `has`; or
            `tfidf`, the code's fraction of all events of the row in the window, times log((1 +
            patients) / (1 + patients with the code)) + 1.
        min_share: Minimum fraction of training patients that must have a code, but at least 2
            patients; does not apply to static events.

    Attributes:
        levels_: Chosen codes, prefixes and parents.
        parents_: Chosen parents of each code, including the code itself if it is a parent.
        facts_: Chosen codes of static events.
        age_: Median age of the training rows in years; None, and no age column, if no birth is
            known.
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
        """Choose the codes; raise `ValueError` if an argument is not one of its choices."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
        vocabulary, numbers = Vocabulary.of(X), list[int]()
        if self.levels != "prefixes":
            numbers.append(CODE)
        if self.levels in ("prefixes", "both", "all"):
            numbers += vocabulary.depths[:-1] or vocabulary.depths
        if self.levels in ("parents", "all"):
            numbers.append(PARENTS)
        has_values = "values" in self._aggregations(ALL)
        names = ("count", *(("values", "min", "max") if has_values else ()))
        of_codes = (Block(name, ALL, number) for number in numbers for name in names)
        wanted = [*dict.fromkeys((PERSON, FACTS, Block("count"), *of_codes))]
        blocks = joined(blocks_of(X, wanted, vocabulary, self._needed(numbers)))
        patients = X.longest_rows()

        def of_patients(name: str, number: int) -> Any:
            block = blocks[Block(name, ALL, number)]
            # If each patient has one row, all rows are used; the order of rows does not matter
            # below.
            return block if len(patients) == block.shape[0] else block[patients]

        least = max(_LEAST_PATIENTS, ceil(self.min_share * len(patients)))
        is_fact = _n_cells(of_patients(FACTS.aggregation, CODE)) >= _LEAST_PATIENTS
        self.facts_ = [vocabulary.codes[i] for i in np.flatnonzero(is_fact).tolist()]
        seen = np.flatnonzero(_n_cells(of_patients("count", CODE)))
        self.levels_ = []
        for number, columns in self._different_names(vocabulary, seen):
            count, *of_values = (_chosen(of_patients(name, number), columns) for name in names)
            differs = is_mixed = np.zeros(len(columns), dtype=bool)
            if of_values:
                values, low, high = of_values
                differs = _extremes(low, values, "min") < _extremes(high, values, "max")
                n_events, n_values = (
                    np.bincount(one.indices, one.data, minlength=len(columns))
                    for one in (count, values)
                )
                is_mixed = differs & (n_events > n_values)
            frequency = _n_cells(count)
            kept = frequency >= least
            if kept.any():
                known = vocabulary.level(number).names
                rarity = np.log((1 + len(patients)) / (1 + frequency[kept])) + 1
                kept_names = [known[i] for i in columns[kept].tolist()]
                level = _Level(number, kept_names, differs[kept], is_mixed[kept], rarity)
                self.levels_.append(level)
        kept_parents = {n for one in self.levels_ if one.number == PARENTS for n in one.names}
        self.parents_ = {
            code: [n for n in vocabulary.level(PARENTS).names_of(i) if n in kept_parents]
            for i, code in enumerate(vocabulary.codes if kept_parents else ())
        }
        ages = blocks[PERSON][:, 0]
        self.age_ = None if np.isnan(ages).all() else float(np.nanmedian(ages))
        self.n_features_in_ = len(vocabulary.codes)
        return self

    def transform(self, X: "EventRows") -> sparse.csr_array:
        """Return a float32 matrix, shape (rows, columns); raise `TypeError` unless X has events."""
        if not hasattr(X, "events"):
            raise TypeError(
                f"this model needs patient events read by prefect-tune, not a {type(X).__name__}; "
                "use `prefect-tune predict STUDY`"
            )
        vocabulary = Vocabulary.of(X, getattr(self, "parents_", None))
        wanted = self._needed([level.number for level in self.levels_])
        # Blocks of all rows would take much more memory than the chosen columns.
        pieces = [
            sparse.hstack([*self._columns(vocabulary, blocks)], format="csr")
            for blocks in blocks_of(X, wanted, vocabulary)
        ]
        matrix = sparse.csr_array(pieces[0] if len(pieces) == 1 else sparse.vstack(pieces, "csr"))
        matrix.eliminate_zeros()
        return matrix

    def _columns(
        self, vocabulary: Vocabulary, blocks: Mapping[Block, Matrix]
    ) -> Iterator[sparse.csr_array]:
        """Yield the columns of rows and static events, then those of each block of codes."""
        age, history = blocks[PERSON].T
        of_rows = [] if self.age_ is None else [np.where(np.isnan(age), np.float32(self.age_), age)]
        of_rows.append(history)
        for window in WINDOWS[self.windows]:
            of_rows.extend(blocks[Block("activity", window)].T)
        yield sparse.csr_array(np.column_stack(of_rows))
        yield _chosen(blocks[FACTS], vocabulary.level(CODE).columns_named(self.facts_))
        for level in self.levels_:
            columns = vocabulary.level(level.number).columns_named(level.names)
            for window in WINDOWS[self.windows]:
                for aggregation, members in self._plan(level, window):
                    of_events = "count" if aggregation == "has" else aggregation
                    block = blocks[Block(of_events, window, level.number)]
                    made = _chosen(block, columns[members])
                    if aggregation == "has":
                        made.data[:] = 1
                    elif aggregation == "count" and self.scaling == "log1p":
                        made.data = np.log1p(made.data)
                    elif aggregation == "count" and self.scaling == "tfidf":
                        n_events = blocks[Block("activity", window)][:, 0]
                        made.data /= np.repeat(n_events, np.diff(made.indptr))
                        made.data *= level.rarity[members].astype(np.float32)[made.indices]
                    yield made

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
            f"{level.names[i]}{_ENDINGS.get(level.number, '*')}: {aggregation}{_ending(window)}"
            for level in self.levels_
            for window in WINDOWS[self.windows]
            for aggregation, members in self._plan(level, window)
            for i in np.flatnonzero(members)
        ]
        return np.array(names, dtype=object)

    def _aggregations(self, window: int | None) -> list[str]:
        """Return the aggregations of a window; `values` precedes the aggregations of values."""
        chosen = AGGREGATIONS[self.aggregations]
        if self.scaling == "binary":
            chosen = ("has", *(name for name in chosen if name not in {"has", "count"}))
        if window is not ALL:
            chosen = tuple(name for name in chosen if name not in OF_LAST)
        of_values = [name for name in chosen if name not in OF_EVENTS]
        of_events = [name for name in chosen if name in OF_EVENTS]
        return [*of_events, *(["values", *of_values] if of_values else [])]

    def _plan(self, level: "_Level", window: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield the aggregations of a window, each with a mask of the codes that have a column."""
        every = np.ones(len(level.names), dtype=bool)
        members = {**dict.fromkeys(OF_EVENTS, every), "values": level.is_mixed}
        for name in self._aggregations(window):
            yield name, members.get(name, level.has_values)

    def _needed(self, numbers: Sequence[int]) -> list[Block]:
        """Return the blocks needed for the columns of these levels."""
        needed = [PERSON, FACTS]
        for window in WINDOWS[self.windows]:
            needed.append(Block("activity", window))
            # `has` needs no separate block, because `has` and `count` have the same cells.
            names = dict.fromkeys("count" if n == "has" else n for n in self._aggregations(window))
            needed += [Block(name, window, number) for number in numbers for name in names]
        return needed

    def _different_names(
        self, vocabulary: Vocabulary, seen: NDArray[np.intp]
    ) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield, for each level, the positions of names that cover distinct sets of the seen codes.

        Parents cover two or more codes.
        """
        if self.levels != "prefixes":
            yield CODE, seen
        if self.levels in ("prefixes", "both", "all"):
            yield from _different_prefixes(vocabulary, seen, 1 if self.levels == "prefixes" else 2)
        if self.levels in ("parents", "all"):
            level = vocabulary.level(PARENTS)
            names_of_codes = {code: level.names_of(code) for code in seen.tolist()}
            names = different_parents(names_of_codes, vocabulary.parents)
            yield PARENTS, level.columns_named(names)


@dataclass(frozen=True, slots=True)
class _Level:
    """The sorted names of one level that enough training patients have.

    `has_values` marks names with differing values, and `is_mixed` marks the subset of these names
    for which some events have no value. `rarity` is the inverse document frequency among the
    training patients.
    """

    number: int
    names: list[str]
    has_values: NDArray[np.bool_]
    is_mixed: NDArray[np.bool_]
    rarity: NDArray[np.float64]


def _ending(window: int | None) -> str:
    return "" if window is ALL else f", {window} days"


def _chosen(block: Any, columns: NDArray[np.int64]) -> sparse.csr_array:
    column_of = np.full(block.shape[1], -1, dtype=np.int32)
    is_there = columns >= 0
    column_of[columns[is_there]] = np.flatnonzero(is_there)
    column = column_of[block.indices]
    kept = np.flatnonzero(column >= 0)
    offsets = np.searchsorted(kept, block.indptr).astype(np.int32)
    shape = (block.shape[0], len(columns))
    return sparse.csr_array((block.data[kept], column[kept], offsets), shape=shape)


def _n_cells(block: Any) -> NDArray[np.int64]:
    return np.bincount(block.indices, minlength=block.shape[1])


def _extremes(block: Any, values: Any, name: str) -> NDArray[np.float32]:
    """Return the smallest or largest value of each column; 0 for an empty column.

    Blocks do not store zeros, so a column that has fewer cells in `block` than in `values` contains
    a 0.
    """
    least: np.ufunc = getattr(np, f"{name}imum")
    found = getattr(block, name)(axis=0, explicit=True).toarray()
    return np.where(_n_cells(block) < _n_cells(values), least(found, np.float32(0)), found)


def _different_prefixes(
    vocabulary: Vocabulary, seen: NDArray[np.intp], least: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield prefixes of at least `least` codes, unless a longer prefix covers the same codes."""
    paths = [[*enumerate(vocabulary.paths[code], 1)] for code in seen.tolist()]
    n_codes = Counter(chain.from_iterable(paths))
    # A code without a prefix is used as is.
    prefixes = {prefix for path in paths for prefix in path[:-1] or path}
    repeated = {
        shorter
        for path in paths
        for shorter, longer in pairwise(path)
        if longer in prefixes and n_codes[shorter] == n_codes[longer]
    }
    names = defaultdict[int, list[str]](list)
    for number, name in prefixes - repeated:
        if n_codes[number, name] >= least:
            names[number].append(name)
    for number in sorted(names):
        yield number, np.sort(vocabulary.level(number).columns_named(names[number]))
