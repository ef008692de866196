"""Splits by time: test rows are the newest, and held-out rows are newer than training rows.

The training rows are divided by time into blocks with about equal numbers of rows. The oldest block
is used for training only. Each other block is held out by one fold, which trains on older rows,
except for rows in the gap before the block and rows of groups that occur in the block. Fold 0 holds
out the newest block. Rows with equal times stay together. Test rows are treated like a held-out
block: rows in the gap before the test rows, and older rows of groups with test rows, are not used.
For test rows given by the user, this rule applies only if they are newer than all other rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, row_ids
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.schema import time_text
from prefect_tune.tasks.data.split import (
    LEARN,
    SKIPPED,
    TEST,
    Rows,
    Split,
    equal_test_rows,
    is_enough_held_out,
    make_split,
    share_held_out_once,
    split_again,
)

_FEWEST_ROWS, _FEWEST_HELD_OUT = 5, 2
"""Minimum number of rows in a training part and in a held-out part."""
_TWO = 2
_FINAL = "the final model"
_SHIFT = 0.5
"""Shift of the boundaries in another split, in blocks."""

Mask = NDArray[np.bool_]
"""Mask of the rows that belong to a part, shape (n,)."""


def study_split(  # noqa: PLR0917 - the options of a split
    dataset: Dataset,
    n_folds: int | None,
    test_size: float | None,
    seed: int,
    holdout: float | None = None,
    gap_seconds: float | None = None,
    fixed: Sequence[str] | None = None,
) -> Split:
    """Create the split of a study; see `make_split` for most arguments and all errors.

    If `gap_seconds` is given, folds look forward in time, with this gap before held-out rows. If
    `fixed` is given, row ids computed from the columns in `fixed` (see `row_ids`) choose the test
    rows, unless test rows are given or are the newest rows. With `fixed`, a row is a test row if
    its id is in the first fraction `test_size` of all possible ids. Thus no training row ever
    becomes a test row in later data.
    """
    if gap_seconds is not None:
        split = _forward_split(dataset, n_folds, test_size, seed, holdout, gap_seconds)
    elif fixed is not None and dataset.is_test is None and test_size:
        is_test = row_ids(dataset, fixed) < np.uint64(int(test_size * 2**64))
        split = make_split(replace(dataset, is_test=is_test), n_folds, None, seed, holdout)
    else:
        split = make_split(dataset, n_folds, test_size, seed, holdout)
    is_by_rows = dataset.groups is None and dataset.ids is None and dataset.is_test is None
    if is_by_rows and gap_seconds is None:
        return split  # equal rows occur on both sides only by chance
    return replace(split, equal=equal_test_rows(dataset, split.fold == TEST, split.is_training))


def another_split(dataset: Dataset, split: Split) -> Split:
    """Return another split with the same test rows and shifted blocks of time."""
    if split.gap_seconds is None:
        return split_again(dataset, split)
    times, rows = times_of(dataset), np.flatnonzero(split.is_training)
    if split.n_folds > 1:
        n_blocks = split.n_folds + 1 + _SHIFT
        shares = [(number + _SHIFT) / n_blocks for number in range(1, split.n_folds + 1)]
        starts = _starts(times[rows], shares)
    else:  # half a block of rows after the held-out block stays unused
        size = float((split.fold[rows] == 0).mean())
        starts = _starts(times[rows], [1 - (1 + _SHIFT) * size, 1 - _SHIFT * size])
    fold = split.fold.copy()
    again = _folded(dataset, fold, rows, starts, split)
    if np.array_equal(again.fold, split.fold):
        raise BadInput("the times of the rows allow only one split")
    return again


def holdout_share(
    dataset: Dataset, test_size: float | None, n_folds: int, gap_seconds: float | None
) -> float | None:
    """Return `share_held_out_once`, or None if the newest rows have too few classes or groups."""
    share = share_held_out_once(dataset, test_size, n_folds)
    if share is None or gap_seconds is None:
        return share
    try:
        split = _forward_split(dataset, None, test_size, 0, share, gap_seconds)
    except BadInput:
        return None
    return share if is_enough_held_out(dataset, split.held_out(0)) else None


def _forward_split(  # noqa: PLR0917 - as above
    dataset: Dataset,
    n_folds: int | None,
    test_size: float | None,
    seed: int,
    holdout: float | None,
    gap_seconds: float,
) -> Split:
    times = times_of(dataset)
    if gap_seconds and times.dtype.kind == "f":
        raise BadInput(
            "the times are numbers without a unit",
            option="gap",
            value=f"{gap_seconds:g}s",
            remedy="omit --gap, or write times as dates or as seconds since 1970",
        )
    fold = np.full(len(dataset), LEARN, dtype=np.int16)
    if dataset.is_test is not None:
        fold[dataset.is_test] = TEST
    elif test_size:
        (start,) = _starts(times, [1 - test_size])
        fold[times >= start] = TEST
    is_test = fold == TEST
    if is_test.any() and times[is_test].min() > times[~is_test].max(initial=times.min()):
        trains = _older(dataset, times, is_test, gap_seconds)
        fold[~is_test & ~trains] = SKIPPED
    split = Split(fold, n_folds or 1, seed, None, gap_seconds)
    rows = np.flatnonzero(split.is_training)
    _check_parts(dataset, [(_FINAL, split.is_training, fold == TEST)])
    n_blocks = split.n_folds + 1
    shares = [number / n_blocks for number in range(1, n_blocks)]
    starts = _starts(times[rows], shares if holdout is None else [1 - holdout])
    return _folded(dataset, fold, rows, starts, split)


def _folded(
    dataset: Dataset, fold: NDArray[np.int16], rows: Rows, starts: NDArray[Any], split: Split
) -> Split:
    times, gap_seconds = times_of(dataset), split.gap_seconds or 0.0
    block = np.searchsorted(starts, times[rows], side="right")
    fold[rows] = np.where((block > 0) & (block <= split.n_folds), split.n_folds - block, LEARN)
    trains = np.zeros((len(fold), split.n_folds), dtype=bool)
    for number in range(split.n_folds):
        older = _older(dataset, times, fold == number, gap_seconds)
        trains[:, number] = older & split.is_training
    made = replace(split, fold=fold, trains=trains)
    parts = [(f"fold {k}", trains[:, k], fold == k) for k in range(split.n_folds)]
    _check_parts(dataset, parts)
    return made


def times_of(dataset: Dataset) -> NDArray[Any]:
    """Return the time of each row, shape (n,), if folds look forward in time."""
    if dataset.times is not None:
        return dataset.times
    assert isinstance(dataset.X, EventRows)  # noqa: S101 - the caller's duty
    return dataset.X.rows["prediction_time"].to_numpy().astype("datetime64[us]")


def _older(dataset: Dataset, times: NDArray[Any], held_out: Mask, gap_seconds: float) -> Mask:
    """Return the rows older than the gap before held-out rows, except held-out groups."""
    if not held_out.any():
        return ~held_out
    start = times[held_out].min()
    gap = np.timedelta64(round(gap_seconds * 1e6), "us") if times.dtype.kind == "M" else 0.0
    is_older: Mask = times < start - gap
    if dataset.groups is not None:
        is_older &= ~np.isin(dataset.groups, np.unique(dataset.groups[held_out]))
    return is_older


def _starts(times: NDArray[Any], shares: Sequence[float]) -> NDArray[Any]:
    """Return the first time of each block, in order, chosen to match the fractions of rows."""
    values, counts = np.unique(times, return_counts=True)
    n_older = np.cumsum(counts)[:-1]
    if len(n_older) < len(shares):
        raise BadInput(
            f"the rows have {len(values)} different times, but folds ordered by time need at "
            f"least {len(shares) + 1}",
            remedy="use fewer --folds, or more precise times",
        )
    chosen: list[int] = []
    for number, share in enumerate(shares):
        low = chosen[-1] + 1 if chosen else 0
        high = len(n_older) - (len(shares) - number - 1)
        distance = np.abs(n_older[low:high] - share * len(times))
        chosen.append(low + int(distance.argmin()))
    return values[np.array(chosen) + 1]


def _check_parts(dataset: Dataset, parts: Sequence[tuple[str, Mask, Mask]]) -> None:
    """Raise `BadInput` if a part has too few rows or classes to train on or to hold out."""
    times = times_of(dataset)
    for name, trained, held_out in parts:
        newer = times[held_out] if held_out.any() else times
        first, last = time_text(newer.min()), time_text(newer.max())
        before = f" on rows before {first}" if held_out.any() else ""
        tested = "the test part" if name == _FINAL else name
        for part, fewest, what in (
            (trained, _FEWEST_ROWS, f"{name} would train{before}"),
            (held_out, _FEWEST_HELD_OUT, f"{tested} holds out the rows of {first} to {last}"),
        ):
            n_rows, found = int(part.sum()), np.unique(dataset.y[part])
            if part is held_out and not n_rows:
                continue
            if n_rows < fewest:
                why = f"only {n_rows} rows (at least {fewest} are needed)"
            elif dataset.classes and len(found) < _TWO:
                why = f"all {n_rows} rows are of class {dataset.classes[int(found[0])]!r}"
            else:
                continue
            raise BadInput(
                f"{what}: {why}",
                remedy="use fewer --folds, a smaller --gap, or another --test-size or --holdout"
                + (", or omit --group" if dataset.groups is not None else ""),
            )
