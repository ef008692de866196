"""The split of a data set: test rows, and a fold for every other row.

A study creates and stores its split once. Folds are stratified by class and keep rows of a group
together. With three or more classes, a class with fewer rows than folds is used for training only.
Low-fidelity evaluations (`Query.subset`) use nested, stratified subsets of the training rows.

If rows were copied, for example by a join or by oversampling, a model could learn the labels of
test rows. Therefore all copies of a row stay on one side of the split. In a table with few possible
rows, however, equal rows occur by chance. A table with chance repeats also contains rows that
differ from a repeated row in only one column, and each value of a repeated row also occurs in other
rows. Copied rows show neither sign of chance.
"""

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    train_test_split,
)

from prefect_tune.optimizers.space.configuration import ROWS_PER_CLASS
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import content_digest, split_record
from prefect_tune.storage.matrices import canonical
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import (
    SINGLE,
    SIX_DIGITS,
    Dataset,
    Hashes,
    column_hashes,
    labeled_ids,
    value_bits,
)

Groups = NDArray[np.int64] | None
"""Group of each row, shape (n,), or None; rows of a group stay together."""
Rows = NDArray[np.intp]
"""Positions of rows in the data set."""
Strata = NDArray[np.int32]
"""Class or stratum of each row, shape (n,)."""
Folds = NDArray[np.int16]
"""Fold number of each row, shape (n,)."""


def nested_subset(strata: Strata, groups: Groups, share: float, rng: Generator) -> Rows:
    """Return the positions of a random subset, in order.

    Groups are taken in one random order for all classes, until each class has its share of rows.
    For equal states of `rng`, a smaller subset is therefore contained in a larger one. If each
    group has rows of only one class, a class exceeds its share by at most one group; if groups are
    mixed, the excess may be larger.

    Args:
        strata: Class or stratum of each row, shape (n,).
        groups: Group of each row, shape (n,), or None; rows of a group stay together.
        share: Fraction of each class's rows to take, in (0, 1]; at least `ROWS_PER_CLASS` rows are
            taken.
        rng: Random generator for the order.
    """
    names = np.arange(len(strata)) if groups is None else groups
    units, unit = np.unique(names, return_inverse=True)
    priority = rng.permutation(len(units))
    is_taken = np.zeros(len(units), dtype=bool)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        members = members[np.argsort(priority[unit[members]])]
        wanted = max(ROWS_PER_CLASS, round(share * len(members)))
        is_taken[unit[members[:wanted]]] = True
    return np.flatnonzero(is_taken[unit])


_REPEATED_SHARE = 0.05
"""Minimum fraction of repeated rows for which rows count as copied."""
_DISTINCT_SHARE = 0.05
"""Fraction of distinct rows below which a table has few possible rows, so equal rows are not
copies."""
_DEVIATIONS = 3
"""Number of standard deviations by which the count of test rows equal to training rows must exceed
its expectation."""


def copied_rows(dataset: Dataset) -> Rows | None:
    """Return the number of the distinct row that each row copies, shape (n,).

    Returns None unless many rows were copied. Test rows given by the user never count as copies of
    training rows.
    """
    if not isinstance(dataset.X, pd.DataFrame):
        return None
    ids = labeled_ids(dataset, None)
    if dataset.is_test is not None:
        ids = ids * np.uint64(2) + dataset.is_test.astype(np.uint64)
    _, first, number, counts = np.unique(
        ids, return_index=True, return_inverse=True, return_counts=True
    )
    is_repeated = counts > 1
    is_rare = counts[is_repeated].sum() < _REPEATED_SHARE * len(ids)
    if is_rare or len(first) < _DISTINCT_SHARE * len(ids):
        return None
    hashes = [column_hashes(dataset, str(name), None)[first] for name in dataset.X]
    hashes.append(value_bits(pd.Series(dataset.y), None)[first])
    row = np.sum(hashes, axis=0, dtype=np.uint64)
    is_near = np.any([_are_repeated(row - one) for one in hashes], axis=0)
    has_own_value = ~np.all([_are_repeated(one) for one in hashes], axis=0)
    n_honest = (is_near & ~has_own_value)[is_repeated].sum()
    return None if 2 * n_honest > is_repeated.sum() else number


def equal_test_rows(
    dataset: Dataset, is_test: NDArray[np.bool_], is_training: NDArray[np.bool_]
) -> NDArray[np.bool_] | None:
    """Return whether each row is a test row equal to a training row to six digits, shape (n,).

    Returns None if repetitions within the training rows explain the number of equal test rows.
    """
    if not isinstance(dataset.X, pd.DataFrame) or not is_test.any():
        return None
    is_equal = np.zeros(len(dataset), dtype=bool)
    for precision in (SINGLE, SIX_DIGITS):  # float32 and float64 may round to different digits
        ids = labeled_ids(dataset, precision)
        is_equal |= is_test & np.isin(ids, ids[is_training])
    if not (n_equal := int(is_equal.sum())):
        return None
    n_repeated = _are_repeated(ids[is_training]).sum() + 1
    expected = is_test.sum() * n_repeated / is_training.sum()
    is_explained = n_equal <= expected + _DEVIATIONS * np.sqrt(expected)
    return None if is_explained and copied_rows(dataset) is None else is_equal


def _are_repeated(ids: Hashes) -> NDArray[np.bool_]:
    """Return whether each id occurs more than once, shape (n,)."""
    return pd.Series(ids).duplicated(keep=False).to_numpy()


TEST = -1
"""Fold number of test rows."""
LEARN = -2
"""Fold number of rows that every fold trains on: rare classes, and all rows left by a hold-out.
"""
SKIPPED = -3
"""Fold number of unused rows: rows in the gap, and older rows of groups with test rows."""
REFIT = 1000
"""Fold number for training on all training rows and holding out the test rows."""
_TWO = 2
"""Number of classes at which every part needs all classes, because a single class teaches
nothing."""
_HELD_OUT_ROWS, _HELD_OUT_RAREST, _HELD_OUT_GROUPS = 10_000, 200, 500
"""Minimum numbers for a part that is held out once: rows, rows of the rarest class, and groups."""
_MOST_HELD_OUT = 0.2
_MOST_PARTS = 20
"""Maximum number of parts into which groups are divided to draw a test part, which consists of some
of these parts."""
_MOST_UNITS = 3000
"""Maximum number of groups that are stratified one by one. More groups are stratified in as many
bundles, because scikit-learn takes up to a millisecond per group."""
_DRAWS = 20
"""Number of random assignments of groups to parts; the most balanced assignment is used."""


@dataclass(frozen=True)
class Split:
    """A partition of the rows.

    Attributes:
        fold: Fold that holds out each row, or a constant such as `TEST`, shape (n,).
        n_folds: Number of folds.
        seed: Seed for drawing subsets.
        trains: Whether each fold trains on each row, shape (n, n_folds), if folds look forward in
            time; None if each fold trains on all training rows that it does not hold out.
        gap_seconds: Seconds between training and held-out rows; None unless folds look forward.
        equal: Whether each row is a test row that equals a training row, shape (n,); None if equal
            rows are explained by chance (see `equal_test_rows`).
        n_copied: Number of rows copied from other rows; 0 if the split was loaded from a store.
    """

    fold: Folds
    n_folds: int
    seed: int
    trains: NDArray[np.bool_] | None = None
    gap_seconds: float | None = None
    equal: NDArray[np.bool_] | None = None
    n_copied: int = 0

    def digest(self) -> str:
        """Return the digest of the content."""
        parts = [self.fold.astype("<i2").tobytes(), str(self.seed).encode()]
        if self.trains is not None:
            parts += [f"gap {self.gap_seconds}".encode(), np.packbits(self.trains).tobytes()]
        if self.equal is not None:
            parts += [b"equal", np.packbits(self.equal).tobytes()]
        return content_digest("split", parts)

    @property
    def is_training(self) -> NDArray[np.bool_]:
        """Whether the final model trains on each row, shape (n,)."""
        return (self.fold != TEST) & (self.fold != SKIPPED)

    def held_out(self, fold: int) -> Rows:
        """Return the rows that a fold holds out, in order; for `REFIT`, the test rows."""
        return np.flatnonzero(self.fold == (TEST if fold == REFIT else fold))

    def n_training(self, fold: int) -> int:
        """Return the number of rows that a fold trains on."""
        return int(np.count_nonzero(self._trains(fold)))

    def rare_classes(self, y: Strata) -> Strata:
        """Return the sorted classes used in training but never held out; `y` has shape (n,)."""
        return np.setdiff1d(y[self.fold == LEARN], y[(self.fold >= 0) | (self.fold == TEST)])

    def evaluated_rows(self, fold: int, y: Strata, share: float, groups: Groups) -> Rows:
        """Return the rows on which a fold is evaluated, in order: the held-out rows, or a subset.

        Args:
            fold: Number of the fold.
            y: Class or stratum of every row of the data set, shape (n,).
            share: Fraction of the rows to take, in (0, 1].
            groups: Group of every row of the data set, shape (n,), or None.
        """
        return self._subset(self.held_out(fold), y, share, (fold, 0, 1), groups)

    def training(
        self, fold: int, y: Strata, subset: float = 1.0, draw: int = 0, groups: Groups = None
    ) -> Rows:
        """Return the rows that a fold trains on, in order; see `nested_subset` for subsets.

        Args:
            fold: Number of the fold.
            y: Class or stratum of every row of the data set, shape (n,).
            subset: Fraction of the rows to take, in (0, 1].
            draw: Number of the draw. Subsets of one draw are nested; different draws are
                independent.
            groups: Group of every row of the data set, shape (n,), or None.
        """
        return self._subset(np.flatnonzero(self._trains(fold)), y, subset, (fold, draw), groups)

    def _trains(self, fold: int) -> NDArray[np.bool_]:
        """Return whether a fold trains on each row, shape (n,)."""
        if self.trains is not None and fold != REFIT:
            return self.trains[:, fold]
        return self.is_training & (self.fold != fold)

    def _subset(
        self, rows: Rows, y: Strata, share: float, key: tuple[int, ...], groups: Groups
    ) -> Rows:
        if share == 1.0:
            return rows
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
        return rows[nested_subset(y[rows], None if groups is None else groups[rows], share, rng)]


def make_split(
    dataset: Dataset,
    n_folds: int | None,
    test_size: float | None,
    seed: int,
    holdout: float | None = None,
) -> Split:
    """Create a stratified split; rows of a group, and copies of a row, stay together.

    Args:
        dataset: Data set to split; rows given as test rows become the test part.
        n_folds: Number of folds; None if `holdout` is given.
        test_size: Fraction of test rows to draw, 0 for no test rows; None if test rows were given.
        seed: Source of randomness.
        holdout: Fraction of the training rows to hold out once instead of cross-validating.

    Raises:
        BadInput: If a number is out of range, or if a part has too few rows or classes.
    """
    if (n_folds is None) == (holdout is None):
        raise BadInput(
            f"--folds {n_folds} cannot be combined with --holdout {holdout}: rows are held out "
            "either by cross-validation or once; use only one of them"
        )
    if (copied := _distinct(dataset)) is not None:
        distinct, number = copied
        with suppress(BadInput):  # if distinct rows are too few, copies are treated as other rows
            split = make_split(distinct, n_folds, test_size, seed, holdout)
            n_copied = len(number) - len(distinct)
            return replace(split, fold=split.fold[number], n_copied=n_copied)
    needed, parts = _needed(dataset, n_folds, test_size)
    rare = _scarce_classes(dataset, needed)
    while True:  # repeat until each fold trains on all classes
        free = _without_classes(dataset, np.arange(len(dataset)), rare)
        _check_enough(dataset, free, needed, parts)
        fold = np.full(len(dataset), LEARN, dtype=np.int16)
        fold[free] = TEST
        try:
            training = free[~dataset.given_test_rows[free]]
            if dataset.is_test is None and test_size:
                training = np.setdiff1d(free, _part(dataset, free, test_size, seed))
            fold[training] = _folds(dataset, training, n_folds or 1, holdout, seed + 1)
        except ValueError as error:
            into = f"{n_folds} folds" if holdout is None else f"a hold-out part of {holdout}"
            raise BadInput(
                f"the rows cannot be split into {into} and a test part of {test_size}: {error}"
            ) from error
        unlearned = _unlearned_classes(dataset, fold)
        if not len(unlearned):
            break
        rare = np.union1d(rare, unlearned)
    _check_parts(dataset, fold)
    return Split(fold, 1 if n_folds is None else n_folds, seed)


def share_held_out_once(dataset: Dataset, test_size: float | None, n_folds: int) -> float | None:
    """Return the fraction of training rows to hold out once; None if cross-validation is needed.

    A single held-out part is enough if it contains 10,000 rows, 200 rows of the rarest class and
    500 groups, and leaves four fifths of the rows for training. If the predictions of two pipelines
    differ on one row in twenty, the standard error of the difference between their losses is then
    0.22 percentage points (the square root of 0.05 / 10,000). The part contains a tenth of the
    rows, but at least 10,000 and at most 40,000.

    Args:
        dataset: Data set with the rows.
        test_size: Fraction of test rows that will be drawn; None if test rows were given.
        n_folds: Number of folds of the alternative cross-validation; classes too rare for the folds
            do not count.
    """
    is_learned = ~dataset.given_test_rows
    n_rows = float(is_learned.sum()) * (1 - (test_size or 0.0))
    share = min(max(_HELD_OUT_ROWS, n_rows / 10), 4 * _HELD_OUT_ROWS) / max(n_rows, 1.0)
    if share > _MOST_HELD_OUT:
        return None
    part = share * (1 - (test_size or 0.0))
    rarest = inf
    if dataset.classes:
        counts = np.bincount(dataset.y[is_learned].astype(np.intp), minlength=len(dataset.classes))
        needed, _ = _needed(dataset, n_folds, test_size)
        is_rare = np.isin(np.arange(len(counts)), _scarce_classes(dataset, needed))
        rarest = min(counts[~is_rare | (len(counts) <= _TWO)], default=inf)
    n_groups = inf if dataset.groups is None else len(np.unique(dataset.groups[is_learned]))
    has_enough = part * rarest >= _HELD_OUT_RAREST and part * n_groups >= _HELD_OUT_GROUPS
    return float(f"{share:.3g}") if has_enough else None


def is_enough_held_out(dataset: Dataset, rows: Rows) -> bool:
    """Return whether rows suffice for holding out once; half of the intended number is enough."""
    counts = np.bincount(dataset.y[rows].astype(np.intp)) if dataset.classes else np.empty(0)
    n_groups = inf if dataset.groups is None else len(np.unique(dataset.groups[rows]))
    is_diverse = min(counts[counts > 0], default=inf) >= _HELD_OUT_RAREST
    return is_diverse and n_groups >= _HELD_OUT_GROUPS and 2 * len(rows) >= _HELD_OUT_ROWS


def split_again(dataset: Dataset, split: Split) -> Split:
    """Return another split with the same test rows: other folds, or another hold-out part.

    The seed of `split` determines the new split.

    Raises:
        BadInput: If a fold would not train on all classes, or if groups cannot be divided
            differently.
    """
    if (copied := _distinct(dataset)) is not None:
        distinct, number = copied
        first = np.unique(number, return_index=True)[1]
        if np.array_equal(split.fold[first][number], split.fold):
            again = split_again(distinct, replace(split, fold=split.fold[first], equal=None))
            return replace(again, fold=again.fold[number])
    fold = split.fold.copy()
    rare = split.rare_classes(dataset.strata) if dataset.classes else np.empty(0, dtype=np.int32)
    rows = _without_classes(dataset, np.flatnonzero(fold != TEST), rare)
    seed = int(np.random.SeedSequence(split.seed, spawn_key=(1,)).generate_state(1)[0])
    holdout = float((fold[rows] == 0).mean()) if (fold[rows] == LEARN).any() else None
    if dataset.groups is None:
        fold[rows] = _folds(dataset, rows, split.n_folds, holdout, seed)
    else:
        fold[rows] = _dealt_again(dataset, rows, split, holdout, seed)
    for position in _unlearned_classes(dataset, fold):
        raise BadInput(f"a fold would have no training row of class {dataset.classes[position]!r}")
    _check_parts(dataset, fold)
    return Split(fold, split.n_folds, split.seed)


def _distinct(dataset: Dataset) -> tuple[Dataset, Rows] | None:
    """Return the distinct rows, and which of them each row copies; None if no rows were copied."""
    if dataset.groups is not None or (number := copied_rows(dataset)) is None:
        return None
    first = np.unique(number, return_index=True)[1]
    is_test = None if dataset.is_test is None else dataset.is_test[first]
    X, y = dataset.rows(first), dataset.y[first]
    return replace(dataset, X=X, y=y, is_test=is_test, times=None, aside=None, ids=None), number


def _dealt_again(
    dataset: Dataset, rows: Rows, split: Split, holdout: float | None, seed: int
) -> Folds:
    """Divide the groups of the given rows differently; return each row's fold, shape (rows,).

    `StratifiedGroupKFold` does not help, because its shuffling affects only groups with equal
    classes. Out of several random draws, the draw with the most even strata is used.
    """
    strata, groups = dataset.strata[rows], dataset.groups
    assert groups is not None  # noqa: S101 - the caller's duty
    shares = np.bincount(strata) / len(strata)
    found: list[tuple[float, Folds]] = []
    for draw in range(seed, seed + _DRAWS):
        shared = {"random_state": draw % 2**32}
        splitter = (
            GroupKFold(split.n_folds, shuffle=True, **shared)
            if holdout is None
            else GroupShuffleSplit(1, test_size=holdout, **shared)
        )
        fold = np.full(len(rows), LEARN, dtype=np.int16)
        for number, (_, held_out) in enumerate(splitter.split(strata, strata, groups[rows])):
            fold[held_out] = number
        parts = [np.bincount(strata[fold == k], minlength=len(shares)) for k in np.unique(fold)]
        unevenness = max(float(np.abs(part / part.sum() - shares).max()) for part in parts)
        # Parts are renumbered in the order of their first rows, because the original numbers are
        # arbitrary.
        if not np.array_equal(pd.factorize(fold)[0], pd.factorize(split.fold[rows])[0]):
            found.append((unevenness, fold))
    if not found:
        raise BadInput("the groups can be distributed over the folds in one way only")
    return min(found, key=lambda one: one[0])[1]


def import_split(split: Split, store: ArtifactStore) -> str:
    """Store a split as a record, and return its digest."""
    digest = split.digest()
    record = split_record(digest)
    if not store.records.is_whole(record):
        arrays = {"fold": split.fold, "trains": split.trains, "equal": split.equal}
        about = {"n_folds": split.n_folds, "seed": split.seed, "gap_seconds": split.gap_seconds}
        parts = {name: canonical(part) for name, part in arrays.items() if part is not None}
        store.records.put(record, {**parts, "about": about})
    return digest


@lru_cache(maxsize=4)
def load_split(store: ArtifactStore, digest: str) -> Split:
    """Load a split by its digest, once per process.

    Raises:
        RecordDamaged: If the record is missing or damaged.
    """
    parts = dict(store.records.get(split_record(digest)))
    return Split(**parts.pop("about"), **parts)


def _folds(dataset: Dataset, rows: Rows, n_folds: int, holdout: float | None, seed: int) -> Folds:
    """Return the fold that holds out each of the given rows, shape (rows,)."""
    fold = np.full(len(dataset), LEARN, dtype=np.int16)
    if holdout is not None:
        fold[_part(dataset, rows, holdout, seed)] = 0
        return fold[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `_check_parts` reports classes too rare for the folds
        for number, held_out in enumerate(_stratified_parts(dataset, n_folds, seed, rows)):
            fold[held_out] = number
    return fold[rows]


def _stratified_parts(dataset: Dataset, n_parts: int, seed: int, rows: Rows) -> list[Rows]:
    """Divide rows, or groups of rows, into stratified parts; return the rows of each part.

    Groups with rows of the same class are spread over the bundles, the rarest class first.
    """
    kind = StratifiedKFold if dataset.groups is None else StratifiedGroupKFold
    groups, y = None if dataset.groups is None else dataset.groups[rows], dataset.strata[rows]
    if groups is not None and len(np.unique(groups)) > _MOST_UNITS:
        order = np.lexsort((np.random.default_rng(seed).random(len(rows)), np.bincount(y)[y]))
        groups = pd.factorize(groups[order])[0][np.argsort(order)] % _MOST_UNITS
    splitter = kind(n_parts, shuffle=True, random_state=seed)
    return [rows[held_out] for _, held_out in splitter.split(rows, y, groups)]


def _part(dataset: Dataset, rows: Rows, size: float, seed: int) -> Rows:
    """Draw a stratified fraction of rows; with groups, the fraction is approximate."""
    if dataset.groups is None:
        y, n = dataset.strata[rows], ceil(size * len(rows))
        # scikit-learn stratifies only if both sides have at least one row per class.
        has_room = len(dataset.classes) <= _TWO or min(n, len(rows) - n) >= len(np.unique(y))
        stratify = y if has_room else None
        return train_test_split(rows, test_size=size, stratify=stratify, random_state=seed)[1]
    groups, y = dataset.groups[rows], dataset.strata[rows]
    fewest = min(len(np.unique(groups[y == c])) for c in np.unique(y))
    n_parts = min(
        range(2, min(fewest, _MOST_PARTS) + 1),
        key=lambda n: (round(abs(max(1, round(size * n)) / n - size), 6), n),
    )
    n_taken = max(1, round(size * n_parts))
    return np.concatenate(_stratified_parts(dataset, n_parts, seed, rows)[:n_taken])


def _check_parts(dataset: Dataset, fold: Folds) -> None:
    """Raise `BadInput` if a held-out part has one class, or if a part lacks one of two classes."""
    names = {TEST: "the test part", LEARN: "the part to learn from"}
    for part in np.unique(fold):
        missing = np.setdiff1d(np.arange(len(dataset.classes)), dataset.y[fold == part])
        has_enough = len(dataset.classes) - len(missing) >= _TWO
        if not len(missing) or has_enough or (part == LEARN and len(dataset.classes) > _TWO):
            continue
        if part == TEST and dataset.is_test is not None:
            raise BadInput("the given test rows have only one class; two are needed")
        where = names.get(int(part), f"fold {part}")
        raise _too_rare(dataset, int(missing[0]), f"{where} would have no row of the class")


def _check_enough(dataset: Dataset, free: Rows, needed: int, parts: str) -> None:
    """Raise `BadInput` if too few rows, groups or classes remain for the split."""
    units, of = _units(dataset)
    rows = free[~dataset.given_test_rows[free]]
    n_units = len(np.unique(units[rows]))
    if not dataset.classes and n_units < needed:
        raise BadInput(f"the data has {n_units} {of}, but {parts} need {needed}")
    left = np.unique(dataset.y[rows])
    if dataset.classes and len(left) < _TWO:
        counts = _units_of_classes(dataset)
        counts[left.astype(np.intp)] = -1
        raise _too_rare(dataset, int(counts.argmax()), f"{parts} need {needed}")


def _too_rare(dataset: Dataset, position: int, why: str) -> BadInput:
    n, (_, of) = int(_units_of_classes(dataset)[position]), _units(dataset)
    number = f"{n} {of}" if n != 1 else f"1 {of.removesuffix('s')}"
    label = dataset.classes[position]
    is_number = isinstance(label, int | float) and not isinstance(label, bool)
    as_numbers = ", or use regression with --metric r2" if is_number else ""
    return BadInput(
        f"class {label!r} has {number} to learn from, but {why}",
        remedy=f"use fewer --folds, use --holdout, or leave out the rows of this class{as_numbers}",
    )


def _needed(dataset: Dataset, n_folds: int | None, test_size: float | None) -> tuple[int, str]:
    """Return the number of rows or groups that a class needs, and a description of the parts."""
    parts = "a training part and a hold-out part" if n_folds is None else f"{n_folds} folds"
    is_drawn = dataset.is_test is None and test_size != 0
    return (n_folds or 2) + is_drawn, parts + " and the test part" * is_drawn


def _units(dataset: Dataset) -> tuple[NDArray[np.int64], str]:
    """Return the unit (row or group) of each row, shape (n,), and the noun for units."""
    if dataset.groups is None:
        return np.arange(len(dataset)), "rows"
    return dataset.groups, "groups"


def _units_of_classes(dataset: Dataset) -> NDArray[np.intp]:
    """Return each class's number of training rows or groups of training rows, shape (c,)."""
    is_learned = ~dataset.given_test_rows
    y, units = dataset.y[is_learned].astype(np.int64), _units(dataset)[0][is_learned]
    n_units = int(units.max(initial=0)) + 1
    return np.bincount(np.unique(y * n_units + units) // n_units, minlength=len(dataset.classes))


def _scarce_classes(dataset: Dataset, needed: int) -> Strata:
    if not dataset.classes:
        return np.empty(0, dtype=np.int32)
    return np.flatnonzero(_units_of_classes(dataset) < needed).astype(np.int32)


def _without_classes(dataset: Dataset, rows: Rows, classes: Strata) -> Rows:
    """Return the rows in groups without training rows of the given classes."""
    if not len(classes):
        return rows
    units, _ = _units(dataset)
    is_kept_back = np.isin(dataset.y, classes) & ~dataset.given_test_rows
    return rows[~np.isin(units[rows], units[is_kept_back])]


def _unlearned_classes(dataset: Dataset, fold: Folds) -> Strata:
    """Return the sorted classes that some fold lacks in training; empty for two classes."""
    unlearned: Strata = np.empty(0, dtype=np.int32)
    if len(dataset.classes) > _TWO:
        wanted = np.unique(dataset.y[~dataset.given_test_rows]).astype(np.int32)
        for part in np.unique(fold[fold >= 0]):
            missing = np.setdiff1d(wanted, dataset.y[(fold != TEST) & (fold != part)])
            unlearned = np.union1d(unlearned, missing)
    return unlearned
