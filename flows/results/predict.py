"""The final model of a study, and predictions with the model."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.study.facts import ModelFacts
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.documents import UnknownName
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.tasks.bad_input import BadInput, need_column
from prefect_tune.tasks.catalogue.spaces import algorithms_of, check_libraries
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_features
from prefect_tune.tasks.data.row_reader import UnreadableCell, unreadable_text
from prefect_tune.tasks.data.schema import read_rows, unseen_values
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

_LOGGER = logging.getLogger(__name__)


def final_model(
    store: ArtifactStore, study: str, record: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the final model of a study, and a description with trials and test loss.

    `record` is the record id of a champion's model, or None for the study's current model. Raises
    `UnknownName` if the study does not exist, `BadInput` if the study has no model or a package is
    missing, and `RecordDamaged` if the record is damaged.
    """
    opened = open_study(store, study)
    space = opened.plan.problem.find_space()  # registers user code
    record = record or model_record(study)
    if not store.records.exists(record):
        raise BadInput(
            f"study {study!r} has no final model; `prefect-tune show {study}` prints the reason"
        )
    try:
        parts = store.records.get(record)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the final model of study {study!r} needs {error.name}, which is not installed here"
        ) from error
    except RecordDamaged as error:
        # ImportError is also raised if files of an installed library do not load.
        if isinstance(error.__cause__, OSError):
            check_libraries(f"the final model of study {study!r}", algorithms_of(space))
        raise
    about, own = parts["about"], model_record(study)
    is_current = record == own or (
        store.records.exists(own)
        and store.records.parts(own)["model"].digest == store.records.parts(record)["model"].digest
    )  # the study still has the same model
    facts = opened.facts.model if is_current else ModelFacts()
    tested = {"test_loss": facts.test_loss, "test_loss_undefined": facts.test_loss_undefined}
    return parts["model"], {**about, **tested}


def predict(
    store: ArtifactStore,
    study: str,
    data: str,
    labels: str | None,
    *,
    skip_bad_rows: bool = False,
    record: str | None = None,
    ids: Sequence[str] = (),
) -> pd.DataFrame:
    """Return predictions for new rows: `prediction`, and `probability_<class>` if available.

    The result has one row for each row of the data, in the same order. The first columns are the
    `ids` of a table or, for events, patient and prediction time. A row without any event gets the
    most frequent class of the training rows, with the class frequencies as probabilities, or, for
    regression, the mean. Raises `UnknownName` or `BadInput` if the study has no model or the data
    cannot be used, and `InvalidPredictions` if a prediction is neither a known class nor a finite
    number.

    Args:
        store: Store of the study.
        study: Name of the study.
        data: File or folder with the new rows.
        labels: File with patients and prediction times; for events only.
        skip_bad_rows: Whether to skip table rows with unreadable cells instead of raising an error.
        record: Record id of a champion's model; None for the study's current model.
        ids: Columns that identify the rows of a table.
    """
    model, about = final_model(store, study, record)
    dataset = load_dataset(store, about["dataset"])
    plan = open_study(store, study).plan
    X = read_features(data, labels, dataset, plan.source.format, plan.source.gaps)
    frame, reader = pd.DataFrame(index=pd.RangeIndex(len(X))), dataset.row_reader
    cells: list[UnreadableCell] = []
    unseen: dict[str, int] = {}
    table = X.rows if isinstance(X, EventRows) else X
    for name in ids:
        need_column(name, table.columns, data)
    given = table[list(ids)].reset_index(drop=True)
    if isinstance(X, EventRows):
        frame = X.rows.copy()
    elif reader is not None:
        X, cells = read_rows(X, reader, data)
        unseen = {name: len(values) for name, values in unseen_values(X, reader).items()}
    if cells and not skip_bad_rows:
        remedy = "use --skip-bad-rows to predict the other rows"
        raise BadInput(unreadable_text(cells, data), remedy=remedy)
    classes = dataset.learned_classes
    found = predictions_of(model, X, classes, methods=("predict_proba",))
    if isinstance(X, EventRows) and (is_empty := X.start == X.stop).any():
        balanced = balanced_weight(store, study, plan, about)
        y = dataset.y[load_split(store, plan.problem.split).is_training]
        label, score = found.label.copy(), found.score
        if len(classes):
            shares = np.bincount(y, minlength=len(classes)) / len(y)
            label[is_empty] = shares.argmax()
            if score is not None:
                prior = (1 - balanced) * shares + balanced / len(classes)
                score = np.where(is_empty[:, None], prior, score)
        else:
            label[is_empty] = y.mean()
        found = Predictions(label, score)
    named = np.array(dataset.classes)
    columns = {"prediction": named[found.label] if dataset.classes else found.label}
    if found.score is not None:
        names = [f"probability_{label}" for label in dataset.classes]
        columns |= dict(zip(names, found.score.T, strict=True))
    frame = pd.concat([frame, pd.DataFrame(columns)], axis=1)
    if cells:
        _LOGGER.warning(f"rows without a prediction: {unreadable_text(cells, data)}")
        whole = frame.select_dtypes(["integer", "bool"]).convert_dtypes()
        frame = frame.astype(whole.dtypes.to_dict())
        frame.loc[np.unique([cell.row for cell in cells])] = None
    if twice := [name for name in ids if name in frame]:
        reason = "the predictions already have a column of this name"
        raise BadInput(reason, option="id", value=twice[0], remedy="omit or rename the column")
    frame = pd.concat([given, frame], axis=1)
    frame.attrs = {UNSEEN: unseen}
    return frame


UNSEEN = "unseen_values"
"""Attribute of predictions that counts, by column, the values that no training row has."""


def is_balanced(document: Mapping[str, Any], space: Space) -> bool:
    """Return whether a configuration trains with balanced class weights."""
    try:
        pipeline = space.pipeline(Configuration.from_json(document, space).path)
    except (UnknownName, ValueError):  # the space has changed
        return False
    step, model = pipeline[-1]
    chosen = document.get(step.name, {}).get("hyperparameters", {})
    if any(algorithm.class_weights for _, algorithm in pipeline) and model.flags.weights != "none":
        return True
    return any(
        name.rsplit(".", 1)[-1] == "class_weight" and str(value).startswith("balanced")
        for name, value in {**model.fixed, **chosen}.items()
    )


def balanced_weight(
    store: ArtifactStore, study: str, plan: StudyPlan, about: Mapping[str, Any]
) -> float:
    """Return the total weight of the members trained with balanced class weights."""
    weights = {member["trial"]: float(member["weight"]) for member in about["members"]}
    space = plan.problem.find_space()
    trial = open_study(store, study).trial
    return sum(
        weight
        for number, weight in weights.items()
        if is_balanced(trial(number).configuration, space)
    )
