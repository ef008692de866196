"""The part of a program that splits rows as a study did: test rows, then folds or one part."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prefect_tune.optimizers.space.fidelity import ROWS_PER_CLASS
from prefect_tune.optimizers.space.query import Query
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import TEST, Split, group_parts

__all__ = ["Shares", "Splitting"]

_MODULE = "sklearn.model_selection"


@dataclass(frozen=True, slots=True)
class Shares:
    """How the rows of a study are split.

    Attributes:
        folds: Folds of cross-validation; None with a `holdout`.
        holdout: Share of the training rows held out instead.
        test_size: Share of test rows, 0 for none; None where a file named them.
    """

    folds: int | None
    holdout: float | None
    test_size: float | None


@dataclass(frozen=True)
class Splitting:
    """How a program splits the rows of a table.

    Attributes:
        dataset: The rows.
        split: Their split in the study.
        shares: What it was made by.
        query: What the trial evaluated.
    """

    dataset: Dataset
    split: Split
    shares: Shares
    query: Query

    @property
    def arguments(self) -> str:
        """Arguments of the function `split`."""
        return "y" if self.dataset.groups is None else "y, groups"

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """By module, the names that it imports."""
        names = set()
        is_drawn = bool(self.shares.test_size) or self.shares.holdout is not None
        if self.dataset.groups is not None:
            names.add("StratifiedGroupKFold")
        else:
            names |= {"train_test_split"} if is_drawn else set()
            names |= {"StratifiedKFold"} if self.shares.folds is not None else set()
        return {_MODULE: tuple(sorted(names))}

    def functions(self) -> Iterator[str]:
        """Yield the lines of the functions that split the rows."""
        seed = self.split.seed
        yield f"def split({self.arguments}):"
        yield '    """Yield the training and the held-out rows of each fold, as in the study."""'
        yield "    rows = np.arange(len(y))"
        if not self.dataset.classes:
            test = ', load(TEST)[TARGET].to_numpy("float64")'
            more = test if self.dataset.is_test is not None else ""
            yield f"    targets = {f'np.concatenate([y{more}])' if more else 'y'}"
        yield f"    strata = {self._strata()}"
        if self.shares.test_size:
            yield from self._test_rows(self.shares.test_size, seed)
        if self.shares.folds is None:
            yield from self._one_part(seed + 1)
        else:
            yield from self._folds(self.shares.folds, seed + 1)
        if self.query.subset < 1:
            yield ""
            yield ""
            yield from self._subset(seed)

    def _strata(self) -> str:
        if self.dataset.classes:
            return "y"
        n_strata = int(self.dataset.strata.max()) + 1
        rank = 'np.argsort(np.argsort(targets, kind="stable"), kind="stable")'
        return f"({rank} * {n_strata} // len(targets))[: len(y)]"

    def _test_rows(self, size: float, seed: int) -> Iterator[str]:
        if self.dataset.groups is None:
            given = f"rows, test_size={size}, stratify=strata, random_state={seed}"
            yield f"    test = train_test_split({given})[1]"
        else:
            n_parts, n_taken = group_parts(self.dataset, np.arange(len(self.dataset)), size)
            yield f"    parts = {_grouped(n_parts, seed)}"
            yield "    held_out = [part for _, part in parts.split(y, strata, groups)]"
            yield f"    test = np.concatenate(held_out[:{n_taken}])"
        yield "    rows = np.setdiff1d(rows, test)"

    def _one_part(self, seed: int) -> Iterator[str]:
        size = self.shares.holdout or 0.0
        if self.dataset.groups is None:
            given = f"rows, test_size={size}, stratify=strata[rows], random_state={seed}"
            yield f"    held_out = train_test_split({given})[1]"
        else:
            training = np.flatnonzero(self.split.fold != TEST)
            n_parts, n_taken = group_parts(self.dataset, training, size)
            yield f"    parts = {_grouped(n_parts, seed)}"
            yield "    of_rows = parts.split(rows, strata[rows], groups[rows])"
            yield f"    held_out = rows[np.concatenate([p for _, p in of_rows][:{n_taken}])]"
        yield "    train = np.setdiff1d(rows, held_out)"
        yield f"    yield {self._taken('train', '0')}, np.sort(held_out)"

    def _folds(self, n_folds: int, seed: int) -> Iterator[str]:
        if self.dataset.groups is None:
            yield f"    folds = StratifiedKFold({n_folds}, shuffle=True, random_state={seed})"
            parts = "folds.split(rows, strata[rows])"
        else:
            yield f"    folds = {_grouped(n_folds, seed)}"
            parts = "folds.split(rows, strata[rows], groups[rows])"
        asked = self.query.folds
        if asked is None and self.query.subset == 1:
            yield f"    for train, held_out in {parts}:"
            yield "        yield rows[train], rows[held_out]"
            return
        yield f"    for fold, (train, held_out) in enumerate({parts}):"
        if asked is not None:
            yield f"        if fold < {asked}:  # of {n_folds}: the trial saw no more"
            yield f"            yield {self._taken('rows[train]', 'fold')}, rows[held_out]"
        else:
            yield f"        yield {self._taken('rows[train]', 'fold')}, rows[held_out]"

    def _taken(self, rows: str, fold: str) -> str:
        """Return the rows to train on, of some."""
        if self.query.subset == 1:
            return rows
        more = "" if self.dataset.groups is None else ", groups"
        return f"subset({rows}, strata, {fold}{more})"

    def _subset(self, seed: int) -> Iterator[str]:
        """Yield the function that takes a part of the rows, as `nested_subset` does."""
        is_grouped = self.dataset.groups is not None
        key = f"spawn_key=(fold, {self.query.subset_draw})"
        yield f"def subset(rows, strata, fold{', groups' if is_grouped else ''}):"
        yield f'    """Return {self.query.subset:.4g} of some rows, by stratum, as in the study."""'
        yield f"    rng = np.random.default_rng(np.random.SeedSequence({seed}, {key}))"
        names = "groups[rows]" if is_grouped else "np.arange(len(rows))"
        yield f"    units, unit = np.unique({names}, return_inverse=True)"
        yield "    priority = rng.permutation(len(units))"
        yield "    is_taken = np.zeros(len(units), dtype=bool)"
        yield "    for stratum in np.unique(strata[rows]):"
        yield "        members = np.flatnonzero(strata[rows] == stratum)"
        yield "        members = members[np.argsort(priority[unit[members]])]"
        share = f"round({self.query.subset!r} * len(members))"
        yield f"        wanted = max({ROWS_PER_CLASS}, {share})"
        yield "        is_taken[unit[members[:wanted]]] = True"
        yield "    return rows[is_taken[unit]]"


def _grouped(n_parts: int, seed: int) -> str:
    return f"StratifiedGroupKFold({n_parts}, shuffle=True, random_state={seed})"
