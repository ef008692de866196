"""From patient events to a matrix as clinical modellers build one: windows, recency, values, age.

A block of columns is one aggregation of the events of one level of codes in one window. Cells
without an event are 0; the column `has` or `count` of a code shows whether 0 is a value.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from prefect_tune.tasks.catalogue.event_blocks import (
    ALL,
    CODE,
    FACTS,
    OF_EVENTS,
    OF_LAST,
    PARENTS,
    PERSON,
    Block,
    Matrix,
    Vocabulary,
    blocks_of,
    different_parents,
)

if TYPE_CHECKING:
    from prefect_tune.tasks.data.events import EventRows

WINDOWS: Mapping[str, tuple[int | None, ...]] = {
    "all": (ALL,),
    "30": (30, ALL),
    "30_365": (30, 365, ALL),
    "7_30_90_365_1095": (7, 30, 90, 365, 1095, ALL),
}
"""Lengths of the windows in days, by set."""
AGGREGATIONS: Mapping[str, tuple[str, ...]] = {
    "count": ("count",),
    "count_recency": ("count", "recency"),
    "count_sum_mean": ("count", "sum", "mean"),
    "count_recency_sum_mean": ("count", "recency", "sum", "mean"),
    "count_recency_mean_min_max_last": ("count", "recency", "mean", "min", "max", "last"),
    "every": ("has", "count", "recency", "sum", "mean", "min", "max", "last", "slope"),
}
"""Aggregations by set."""
LEVELS = ("code", "prefixes", "both", "parents", "all")
SCALINGS = ("none", "log1p", "binary", "tfidf")
PARENT_ENDING = " and below"
"""Ending of a parent's name in column names."""
_ENDINGS = {CODE: "", PARENTS: PARENT_ENDING}
"""Endings of column names by level; prefixes have an asterisk."""

_LEAST_PATIENTS = 2
_EVENTS_OF_PIECE = 1 << 22
"""Events of rows that are transformed at once."""


class EventWindows(TransformerMixin, BaseEstimator):
    """Aggregations of each code in windows that look back from the prediction time.

    A code has columns if enough training patients have it. Further columns are the age at the
    prediction time, the days since the first event, and the numbers of events and of days with
    events in each window. Each fact, a code of events without a time that at least two patients
    have, is a column, too. Births count for the age only. Values have columns if they differ
    between events of the training rows; these columns ignore events without a value. If events are
    simultaneous, the last one in the data counts as the last.

    Args:
        windows: Name of a set of windows in `WINDOWS`. A window includes events exactly as old as
            its length.
        aggregations: Name of a set of aggregations in `AGGREGATIONS`. `recency` is 1 / (1 + days
            since the last event). `slope` is the least-squares slope of the values per day, 0 if
            they are less than an hour apart. `recency` and `last` look back over the whole history.
        levels: `code`; `prefixes`, which end before a `//`, `/` or `.` of the code (in codes with
            blanks only before a `//`); `both`; `parents`, the codes and the ancestors in the data's
            table of codes; or `all` three. A prefix stands for all codes that begin with it, even
            in new data, and a parent for all codes below it. Prefixes that stand for the same codes
            as a longer one are skipped, and so are parents of only one code. With `prefixes`, codes
            without a prefix stand for themselves.
        scaling: Scaling of counts: `none`; `log1p`; `binary`, which replaces `count` by `has`; or
            `tfidf`, the share of the row's events in the window times log((1 + patients) / (1 +
            patients with the code)) + 1.
        min_share: Share of the training patients, at least 2, that must have a code of timed
            events.

    Attributes:
        levels_: Codes, prefixes and parents kept.
        parents_: Parents kept for each code of the data, including the code if it is a parent.
        facts_: Codes of the facts kept.
        age_: Median age of the training rows in years; None, without an age column, if no birth is
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
        """Choose the codes; ValueError if an argument is not one of its choices."""
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
        vocabulary = Vocabulary.of(X)
        wanted, follow = self._learned_from(vocabulary), self._needed(self._numbers(vocabulary))
        blocks = blocks_of(X, [*wanted], vocabulary, [*follow])
        # All rows of a patient start at the same event, so the longest row has all events.
        by_length = np.lexsort((X.stop, X.start))
        patients = by_length[np.diff(X.start[by_length], append=-1) != 0]
        least = max(_LEAST_PATIENTS, ceil(self.min_share * len(patients)))
        n_with_fact = _n_cells(blocks[FACTS][patients])
        is_fact = n_with_fact >= _LEAST_PATIENTS
        self.facts_ = [vocabulary.codes[i] for i in np.flatnonzero(is_fact).tolist()]
        seen = np.flatnonzero(_n_cells(blocks[Block("count")][patients]))
        self.levels_ = [
            level
            for number, columns in _different_names(vocabulary, seen, self.levels)
            if (level := _Level.learn(vocabulary, blocks, number, columns, patients, least)).names
        ]
        self.parents_ = self._parents(vocabulary)
        ages = blocks[PERSON][:, 0]
        self.age_ = None if np.isnan(ages).all() else float(np.nanmedian(ages))
        self.n_features_in_ = len(vocabulary.codes)
        return self

    def transform(self, X: "EventRows") -> sparse.csr_array:
        """Return the matrix, shape (rows, columns), float32; TypeError unless X has events."""
        if not hasattr(X, "events"):
            raise TypeError(
                f"features of patient events are made of rows as prefect-tune reads them, not of a "
                f"{type(X).__name__}; predict new files with `prefect-tune predict STUDY`"
            )
        # Unshared blocks take much more memory than the columns chosen from them.
        if X.shared is None and (pieces := _pieces(X)):
            return sparse.csr_array(sparse.vstack(list(map(self._transform, pieces)), format="csr"))
        return self._transform(X)

    def _transform(self, X: "EventRows") -> sparse.csr_array:
        vocabulary = Vocabulary.of(X, getattr(self, "parents_", None))
        blocks = blocks_of(X, [*self._transformed_from()], vocabulary)
        age, history = blocks[PERSON].T
        rows = [] if self.age_ is None else [np.where(np.isnan(age), np.float32(self.age_), age)]
        rows.append(history)
        for window in WINDOWS[self.windows]:
            rows.extend(blocks[Block("activity", window)].T)
        made = [sparse.csr_array(np.column_stack(rows))]
        made.append(_chosen(blocks[FACTS], _columns(vocabulary.level(CODE).position, self.facts_)))
        for level in self.levels_:
            made.extend(self._of_level(level, vocabulary, blocks))
        matrix = sparse.csr_array(sparse.hstack(made, format="csr"))
        matrix.eliminate_zeros()
        return matrix

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

    def _chosen_aggregations(self, window: int | None) -> tuple[str, ...]:
        chosen = AGGREGATIONS[self.aggregations]
        if self.scaling == "binary":
            chosen = ("has", *(name for name in chosen if name not in {"has", "count"}))
        if window is not ALL:
            chosen = tuple(name for name in chosen if name not in OF_LAST)
        return chosen

    def _plan(self, level: "_Level", window: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield the aggregations of a window, with a mask of the codes that have such a column."""
        chosen = self._chosen_aggregations(window)
        every = np.ones(len(level.names), dtype=bool)
        of_values = [name for name in chosen if name not in OF_EVENTS]
        yield from ((name, every) for name in chosen if name in OF_EVENTS)
        if of_values:
            yield "values", level.is_mixed
        yield from ((name, level.has_values) for name in of_values)

    def _parents(self, vocabulary: Vocabulary) -> dict[str, list[str]]:
        kept = {name for level in self.levels_ if level.number == PARENTS for name in level.names}
        if not kept:
            return {}
        level = vocabulary.level(PARENTS)
        named = {code: level.names_of(i) for i, code in enumerate(vocabulary.codes)}
        return {code: [n for n in names if n in kept] for code, names in named.items()}

    def _numbers(self, vocabulary: Vocabulary) -> Iterator[int]:
        if self.levels != "prefixes":
            yield CODE
        if self.levels in ("prefixes", "both", "all"):
            yield from vocabulary.depths[:-1] or vocabulary.depths
        if self.levels in ("parents", "all"):
            yield PARENTS

    def _learned_from(self, vocabulary: Vocabulary) -> dict[Block, None]:
        wanted = dict.fromkeys((PERSON, FACTS, Block("count")))
        names = ["count"]
        if any(name not in OF_EVENTS for name in self._chosen_aggregations(ALL)):
            names += ["values", "min", "max"]
        for number in self._numbers(vocabulary):
            wanted |= {Block(name, ALL, number): None for name in names}
        return wanted

    def _transformed_from(self) -> dict[Block, None]:
        of_rows = dict.fromkeys((PERSON, FACTS))
        return of_rows | self._needed(level.number for level in self.levels_)

    def _needed(self, numbers: Iterable[int]) -> dict[Block, None]:
        every, needed = list(numbers), dict[Block, None]()
        for window in WINDOWS[self.windows]:
            needed[Block("activity", window)] = None
            chosen = self._chosen_aggregations(window)
            if any(name not in OF_EVENTS for name in chosen):
                chosen = (*chosen, "values")
            # A block of counts has the same cells as `has`.
            names = dict.fromkeys("count" if name == "has" else name for name in chosen)
            needed |= {Block(name, window, number): None for number in every for name in names}
        return needed

    def _of_level(
        self, level: "_Level", vocabulary: Vocabulary, blocks: Mapping[Block, Matrix]
    ) -> Iterator[sparse.csr_array]:
        columns = _columns(vocabulary.level(level.number).position, level.names)
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


@dataclass(frozen=True, slots=True)
class _Level:
    """Sorted names of one level that enough patients of the training rows have.

    `has_values` marks names whose values differ, and `is_mixed` names for which some events have no
    value. `rarity` is the inverse document frequency among the training patients.
    """

    number: int
    names: list[str]
    has_values: NDArray[np.bool_]
    is_mixed: NDArray[np.bool_]
    rarity: NDArray[np.float64]

    @classmethod
    def learn(  # noqa: PLR0917
        cls,
        vocabulary: Vocabulary,
        blocks: Mapping[Block, Matrix],
        number: int,
        columns: NDArray[np.intp],
        patients: NDArray[np.intp],
        least: int,
    ) -> Self:
        """Choose columns of a level that occur in at least `least` patients, over all events."""

        def of(aggregation: str) -> Any:
            block = blocks[Block(aggregation, ALL, number)]
            is_one_each = len(patients) == block.shape[0]  # the order does not matter below
            return _chosen(block if is_one_each else block[patients], columns)

        count = of("count")
        frequency = _n_cells(count)
        has_values = is_mixed = np.zeros(len(columns), dtype=bool)
        if Block("values", ALL, number) in blocks:
            values, low, high = of("values"), of("min"), of("max")
            n_valued = _n_cells(values)
            smallest = _extremes(low, n_valued, np.minimum)
            has_values = smallest < _extremes(high, n_valued, np.maximum)
            is_mixed = has_values & (_sums(count) > _sums(values))
        rarity = np.log((1 + len(patients)) / (1 + frequency)) + 1
        names, kept = vocabulary.level(number).names, frequency >= least
        return cls(
            number,
            [names[i] for i in columns[kept].tolist()],
            has_values[kept],
            is_mixed[kept],
            rarity[kept],
        )


def _pieces(X: "EventRows") -> list["EventRows"]:
    """Return the rows in pieces of a bounded number of events; empty if they are few."""
    n_events = np.cumsum(X.stop - X.start)
    if not len(n_events) or n_events[-1] <= _EVENTS_OF_PIECE:
        return []
    of_row = n_events // _EVENTS_OF_PIECE
    return [
        X.take(rows) for rows in np.split(np.arange(len(X)), np.flatnonzero(np.diff(of_row)) + 1)
    ]


def _ending(window: int | None) -> str:
    return "" if window is ALL else f", {window} days"


def _columns(position: Mapping[str, int], names: Sequence[str]) -> NDArray[np.int64]:
    return np.array([position.get(name, -1) for name in names], dtype=np.int64)


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


def _sums(block: Any) -> NDArray[np.float64]:
    sums = np.bincount(block.indices, block.data, minlength=block.shape[1])
    return sums.astype(np.float64, copy=False)


def _extremes(block: Any, n_cells: NDArray[np.int64], least: np.ufunc) -> NDArray[np.float32]:
    """Return the smallest or largest non-zero value of each column, 0 without any."""
    by_column = block.tocsc()
    n_found = np.diff(by_column.indptr)
    found = np.zeros(len(n_cells), dtype=np.float32)
    first = by_column.indptr[:-1][n_found > 0]
    if len(first):
        found[n_found > 0] = least.reduceat(by_column.data, first)
    return np.where(n_found < n_cells, least(found, np.float32(0)), found)


def _different_names(
    vocabulary: Vocabulary, seen: NDArray[np.intp], levels: str
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield the names of each level, by position, that stand for distinct sets of codes seen."""
    if levels != "prefixes":
        yield CODE, seen
    if levels in ("prefixes", "both", "all"):
        yield from _different_prefixes(vocabulary, seen, 1 if levels == "prefixes" else 2)
    if levels in ("parents", "all"):
        yield PARENTS, _different_parents(vocabulary, seen)


def _different_prefixes(
    vocabulary: Vocabulary, seen: NDArray[np.intp], least: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield prefixes of at least `least` codes; skip one with the same codes as a longer one."""
    next_name = np.full(len(seen), -1)  # name of each code at the next level; -1 if it has none
    is_next_prefix = n_next_codes = np.zeros(1, dtype=np.int64)
    found: list[tuple[int, NDArray[np.intp]]] = []
    for number in reversed(vocabulary.depths):
        level = vocabulary.level(number)
        has_name = level.offsets[seen + 1] > level.offsets[seen]
        name = np.full(len(seen), -1)
        name[has_name] = level.columns[level.offsets[seen[has_name]]]
        n_codes = np.bincount(name[has_name], minlength=len(level.names))
        has_longer = next_name >= 0
        # A code without a prefix stands for itself.
        is_prefix, is_repeated = np.zeros((2, len(level.names)), dtype=bool)
        is_prefix[name[has_name & (has_longer | (number == 1))]] = True
        shorter, longer = name[has_longer], next_name[has_longer]
        is_same = is_next_prefix[longer] & (n_codes[shorter] == n_next_codes[longer])
        is_repeated[shorter[is_same]] = True
        found.append((number, np.flatnonzero(is_prefix & ~is_repeated & (n_codes >= least))))
        next_name = name
        is_next_prefix, n_next_codes = is_prefix, n_codes
    yield from ((number, columns) for number, columns in reversed(found) if len(columns))


def _different_parents(vocabulary: Vocabulary, seen: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the parents of distinct sets of two or more of the codes seen."""
    level = vocabulary.level(PARENTS)
    children: defaultdict[str, list[int]] = defaultdict(list)
    for code in seen.tolist():
        for name in level.names_of(code):
            children[name].append(code)
    names = different_parents(children, vocabulary.parents)
    return np.array([level.position[name] for name in names], dtype=np.intp)
