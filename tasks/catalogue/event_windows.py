"""From patient events to a matrix as clinical modellers build one: windows, recency, values, age.

A block of columns is one aggregation of the events of one level of codes in one window. Cells
without an event are 0; the column `has` or `count` of a code shows whether 0 is a value.
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
    joined,
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
_CHOICES: Mapping[str, Collection[str]] = {
    "windows": WINDOWS,
    "aggregations": AGGREGATIONS,
    "levels": LEVELS,
    "scaling": SCALINGS,
}
PARENT_ENDING = " and below"
"""Ending of a parent's name in column names."""
_ENDINGS = {CODE: "", PARENTS: PARENT_ENDING}
"""Endings of column names by level; prefixes have an asterisk."""

_LEAST_PATIENTS = 2


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
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
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
            # With one row each, the order does not matter below.
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
        """Return the matrix, shape (rows, columns), float32; TypeError unless X has events."""
        if not hasattr(X, "events"):
            raise TypeError(
                f"features of patient events are made of rows as prefect-tune reads them, not of a "
                f"{type(X).__name__}; predict new files with `prefect-tune predict STUDY`"
            )
        vocabulary = Vocabulary.of(X, getattr(self, "parents_", None))
        wanted = self._needed([level.number for level in self.levels_])
        # All columns of all rows would take much more memory than the chosen ones.
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
        """Yield the columns of rows and facts, then the columns of each block of codes."""
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
        """Return the aggregations of a window; if any are of values, the first is `values`."""
        chosen = AGGREGATIONS[self.aggregations]
        if self.scaling == "binary":
            chosen = ("has", *(name for name in chosen if name not in {"has", "count"}))
        if window is not ALL:
            chosen = tuple(name for name in chosen if name not in OF_LAST)
        of_values = [name for name in chosen if name not in OF_EVENTS]
        of_events = [name for name in chosen if name in OF_EVENTS]
        return [*of_events, *(["values", *of_values] if of_values else [])]

    def _plan(self, level: "_Level", window: int | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield the aggregations of a window, with a mask of the codes that have such a column."""
        every = np.ones(len(level.names), dtype=bool)
        members = {**dict.fromkeys(OF_EVENTS, every), "values": level.is_mixed}
        for name in self._aggregations(window):
            yield name, members.get(name, level.has_values)

    def _needed(self, numbers: Sequence[int]) -> list[Block]:
        """Return the blocks of the columns of some levels."""
        needed = [PERSON, FACTS]
        for window in WINDOWS[self.windows]:
            needed.append(Block("activity", window))
            # A block of counts has the same cells as `has`.
            names = dict.fromkeys("count" if n == "has" else n for n in self._aggregations(window))
            needed += [Block(name, window, number) for number in numbers for name in names]
        return needed

    def _different_names(
        self, vocabulary: Vocabulary, seen: NDArray[np.intp]
    ) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield the names of each level, by position, that stand for distinct sets of codes seen.

        Parents stand for two or more codes.
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
    """Sorted names of one level that enough patients of the training rows have.

    `has_values` marks names whose values differ, and `is_mixed` names for which some events have no
    value. `rarity` is the inverse document frequency among the training patients.
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
    """Return the smallest or largest value of each column, 0 without any.

    A block does not store zeros, so a column with fewer cells than values has a value of 0.
    """
    least: np.ufunc = getattr(np, f"{name}imum")
    found = getattr(block, name)(axis=0, explicit=True).toarray()
    return np.where(_n_cells(block) < _n_cells(values), least(found, np.float32(0)), found)


def _different_prefixes(
    vocabulary: Vocabulary, seen: NDArray[np.intp], least: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield prefixes of at least `least` codes; skip one with the same codes as a longer one."""
    paths = [[*enumerate(vocabulary.paths[code], 1)] for code in seen.tolist()]
    n_codes = Counter(chain.from_iterable(paths))
    # A code without a prefix stands for itself.
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
