"""Comparison of a series' champion with a challenger, on rows used to train neither of them.

Both models predict test rows of the challenger's data. The champion reads these rows with its own
schema, and classes are matched by label. Rows used to train the champion, or to promote it, are
excluded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import (
    Dataset,
    Label,
    common_columns,
    identity_columns,
    label_text,
    load_dataset,
    row_ids,
    settled_columns,
)
from prefect_tune.tasks.data.schema import like_training
from prefect_tune.tasks.data.split import REFIT, TEST, load_split
from prefect_tune.tasks.final.refit import predicted, reason_of
from prefect_tune.tasks.objective.comparison import (
    LEAST_ROWS,
    PairedComparison,
    paired_comparison,
)
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.problem import Problem, StudyContext, open_store
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.trial.evaluate import load, retry_through_outages
from prefect_tune.tasks.user_code import exits_as_errors


@dataclass(frozen=True, slots=True)
class StudyModel:
    """A final model in the store: the record with the model, and the problem of its study."""

    record: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """Rules of a comparison.

    Attributes:
        identity: Columns that identify a row (see `row_ids`); if empty, all common columns are
            used.
        excludes_test_rows: Whether test rows of the champion's study are excluded, because they
            were used to promote the champion.
        margin: Improvement in loss that a promotion must exceed.
        level: Largest p-value at which the challenger is promoted.
        decision: Number of the decision, used with the study's seed to seed random numbers.
    """

    identity: tuple[str, ...]
    excludes_test_rows: bool
    margin: float
    level: float
    decision: int


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Outcome of a comparison.

    If `compared` is None, there were too few rows or a `problem` occurred.
    """

    n_rows: int
    compared: PairedComparison | None = None
    problem: str = ""


def compared(
    context: StudyContext, champion: StudyModel, challenger: StudyModel, rules: DecisionRules
) -> ModelComparison:
    """Load the challenger's data, and compare two models on fresh test rows.

    Raises `StoreLost` if the store becomes unusable. Models may run users' code, so any other error
    becomes the outcome's `problem`.
    """
    retry_through_outages(lambda: load(context, ()))
    store = open_store(context.store)
    try:
        with exits_as_errors(), one_thread():
            return retry_through_outages(lambda: _compared(store, champion, challenger, rules))
    except Exception as error:  # any error, such as a missing library
        if isinstance(error, StoreLost) and not isinstance(error, RecordDamaged):
            raise
        return ModelComparison(0, problem=reason_of(error))


def _compared(
    store: ArtifactStore, champion: StudyModel, challenger: StudyModel, rules: DecisionRules
) -> ModelComparison:
    now, before = (load_dataset(store, m.problem.dataset) for m in (challenger, champion))
    rows, ids = fresh_rows(store, champion.problem, challenger.problem, rules)
    if len(rows) < LEAST_ROWS:
        return ModelComparison(len(rows))
    old, new = (_model(store, one) for one in (champion, challenger))
    comparison = paired_comparison(
        challenger.problem.find_metric(),
        predictions_on(old, before, now, rows),
        predicted(new, now, rows),
        now.y[rows],
        ids,
        n_classes=len(now.classes),
        margin=rules.margin,
        level=rules.level,
        rng=np.random.default_rng([challenger.problem.seed, rules.decision]),
    )
    return ModelComparison(len(rows), comparison)


def fresh_rows(
    store: ArtifactStore, champion: Problem, challenger: Problem, rules: DecisionRules
) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Return the positions and ids of the challenger's test rows that neither model has seen.

    A row with the same id as a training row also counts as seen.
    """
    now, before = (load_dataset(store, one.dataset) for one in (challenger, champion))
    split, names = load_split(store, challenger.split), rules.identity
    if not names and identity_columns(now):  # used if no columns were fixed for the series
        names = common_columns(before, now)
    names = settled_columns(before, now, names)
    all_ids, known = row_ids(now, names), row_ids(before, names)
    if not rules.excludes_test_rows:
        known = known[load_split(store, champion.split).fold != TEST]
    rows = split.held_out(REFIT)
    # Test rows given by the user may equal training rows of the challenger.
    is_fresh = ~np.isin(all_ids[rows], np.append(known, all_ids[split.is_training]))
    return rows[is_fresh], all_ids[rows][is_fresh]


def _model(store: ArtifactStore, model: StudyModel) -> Any:
    model.problem.find_space()  # imports the user's classes, needed to unpickle the model
    return store.records.get(model.record, ["model"])["model"]


def predictions_on(
    model: Any, trained_on: Dataset, dataset: Dataset, rows: NDArray[np.intp]
) -> Predictions:
    """Return a model's predictions for rows of a data set other than the model's own.

    Raises `BadInput` if the model cannot read the rows, and `ValueError` if the predictions are
    unusable.
    """
    X = dataset.rows(rows)
    if isinstance(X, pd.DataFrame):
        reader = trained_on.row_reader
        assert reader is not None  # noqa: S101 - both are tables
        X = like_training(X, reader, f"the fresh rows of {dataset.name}")
    found = predictions_of(model, X, trained_on.learned_classes)
    return matched(found, trained_on.classes, dataset.classes)


def matched(found: Predictions, learned: Sequence[Label], classes: Sequence[Label]) -> Predictions:
    """Convert predictions of `learned` classes to predictions of `classes`, matched by label.

    A class that was not learned gets probability 0. A learned class missing from `classes` is
    dropped, and the remaining probabilities of each row are rescaled to sum to 1. Raises
    `ValueError` if no class matches, or if a model without scores predicts a dropped class.
    """
    if tuple(learned) == tuple(classes) and [*map(type, learned)] == [*map(type, classes)]:
        return found
    known = {label_text(label): position for position, label in enumerate(classes)}
    place = np.array([known.get(label_text(label), -1) for label in learned], dtype=np.int32)
    if (place < 0).all():
        raise ValueError(
            f"the champion knows none of the classes: it learned {learned[0]!r}, but the data has "
            f"{classes[0]!r}"
        )
    label, is_known = place[found.label], place >= 0
    if found.score is None:
        if (label < 0).any():
            gone = learned[int(found.label[label < 0][0])]
            raise ValueError(f"the champion predicts class {gone!r}, which the data does not have")
        return Predictions(label)
    lowest = 0.0 if found.are_probabilities else float(np.finfo(np.float64).min)
    score = np.full((len(label), len(classes)), lowest)
    score[:, place[is_known]] = found.score[:, is_known]
    if found.are_probabilities:
        total = score.sum(axis=1, keepdims=True)
        share = np.full_like(score, 1 / len(classes))
        score = np.divide(score, total, out=share, where=total > 0)
    return Predictions(np.where(label >= 0, label, score.argmax(axis=1)).astype(np.int32), score)
