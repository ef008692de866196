"""Using what a study found: its final model, and predictions with it."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prefect_tune.flows.reading.lookup import find_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.wording import UnknownName
from prefect_tune.storage.key import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.libraries import algorithms_of, check_libraries
from prefect_tune.tasks.data.columns import read_rows
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_features
from prefect_tune.tasks.data.row_reader import UnreadableCell, unreadable_text
from prefect_tune.tasks.data.split import TEST, load_split
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of

_LOGGER = logging.getLogger(__name__)
_SHOWN_CELLS = 20


def final_model(store: ArtifactStore, study: str) -> tuple[Any, dict[str, Any]]:
    """Return the final model of a study, which trials it comes from, and its test loss.

    Raises:
        UnknownName: If there is no such study.
        BadInput: If it has no model yet, one that needs a package that is not here, or one that
            does not meet constraints set since.
        RecordDamaged: If the model's record is damaged.
    """
    stored = find_study(store, study)
    space = StudyPlan.from_stored(stored).problem.find_space()  # may bring code
    if not store.records.exists(model_record(study)):
        raise BadInput(
            f"study {study!r} has no final model, as a run fits one at its end; continue the "
            f"study with `prefect-tune run ... --study {study}`"
        )
    try:
        parts = store.records.get(model_record(study))
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the final model of study {study!r} needs {error.name}, which is not installed here"
        ) from error
    except RecordDamaged as error:
        if isinstance(error.__cause__, OSError):  # also where a library's own files do not load
            check_libraries(f"the final model of study {study!r}", algorithms_of(space))
        raise
    _check_constraints(store, study, parts["about"])
    tested = {name: stored.result.get(name) for name in ("test_loss", "test_loss_undefined")}
    return parts["model"], {**parts["about"], **tested}


def predict(
    store: ArtifactStore,
    study: str,
    data: str,
    labels: str | None,
    *,
    skip_bad_rows: bool = False,
) -> pd.DataFrame:
    """Predict new rows: `prediction`, and `probability_<class>` where the model gives it.

    Rows of events also have their patient and prediction time. Rows without any event get what the
    training rows have: the shares of the classes and the most frequent one, or the mean.

    Args:
        store: Where the study is.
        study: Its name.
        data: The new rows: a file or folder.
        labels: For events: patients and prediction times.
        skip_bad_rows: Whether rows of a table with cells that cannot be read get no prediction,
            rather than stop the others.

    Returns:
        The predictions, a row for each row of the data.

    Raises:
        UnknownName, BadInput: If the study has no model, or the data cannot be used.
        InvalidPredictions: If the model does not predict one of its classes, or a finite number,
            for each row.
    """
    model, about = final_model(store, study)
    dataset = load_dataset(store, about["dataset"])
    plan = StudyPlan.from_stored(find_study(store, study))
    X = read_features(data, labels, dataset, plan.source.format, plan.source.gaps)
    frame, reader = pd.DataFrame(index=pd.RangeIndex(len(X))), dataset.row_reader
    cells: list[UnreadableCell] = []
    if isinstance(X, EventRows):
        frame = X.rows.copy()
    elif reader is not None:
        X, cells = read_rows(X, reader, data)
    if cells and not skip_bad_rows:
        remedy = "predict the others with --skip-bad-rows"
        raise BadInput(unreadable_text(cells, data), remedy=remedy)
    classes = dataset.learned_classes
    found = predictions_of(model, X, classes, methods=("predict_proba",))
    if isinstance(X, EventRows) and (is_empty := X.start == X.stop).any():
        training = load_split(store, plan.problem.split).fold != TEST
        balanced = balanced_weight(store, study, plan, about)
        found = _with_prior(found, is_empty, dataset.y[training], len(classes), balanced)
    named = np.array(dataset.classes)
    frame["prediction"] = named[found.label] if dataset.classes else found.label
    if found.score is not None:
        columns = {
            f"probability_{label}": probability
            for label, probability in zip(dataset.classes, found.score.T, strict=True)
        }
        frame = pd.concat([frame, pd.DataFrame(columns)], axis=1)
    return _without(cells, frame) if cells else frame


def _without(cells: Sequence[UnreadableCell], frame: pd.DataFrame) -> pd.DataFrame:
    """Return predictions without those of rows with unreadable cells, and name these rows."""
    for cell in cells[:_SHOWN_CELLS]:
        _LOGGER.warning(
            f"row {cell.row + 1} has no prediction: column {cell.column} holds {cell.value!r}, "
            f"not {cell.expected}"
        )
    if (more := len(cells) - _SHOWN_CELLS) > 0:
        _LOGGER.warning(f"{more} more cells cannot be read; their rows have no prediction")
    nullable = frame.convert_dtypes(convert_string=False, convert_floating=False)
    nullable.loc[np.unique([cell.row for cell in cells])] = None
    return nullable


def is_balanced(document: Mapping[str, Any], space: Space) -> bool:
    """Return whether a configuration weights classes in training, so that all count alike."""
    try:
        pipeline = space.pipeline(Configuration.from_json(document, space).path)
    except (UnknownName, ValueError):  # the space has changed since
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
    """Return the weight of the members of a final model that weighted classes for balance."""
    weights = {member["trial"]: float(member["weight"]) for member in about["members"]}
    space = plan.problem.find_space()
    with documents_of(study):
        trials = map(TrialView, Ledger(store.database).each_trial(study))
        return sum(
            weights[trial.number]
            for trial in trials
            if trial.number in weights and is_balanced(trial.configuration, space)
        )


def _with_prior(
    found: Predictions,
    rows: NDArray[np.bool_],
    y: NDArray[Any],
    n_classes: int,
    balanced: float,
) -> Predictions:
    """Return predictions in which some rows have the prior of the training rows.

    Args:
        found: Predictions of n rows.
        rows: Whether each row gets the prior, shape (n,).
        y: Positions of the classes, or the numbers, of the training rows.
        n_classes: Number of classes; 0 if numbers are predicted.
        balanced: Weight of members of the model whose classes weigh the same.
    """
    label, score = found.label.copy(), found.score
    if not n_classes:
        label[rows] = y.mean()
        return Predictions(label, score)
    shares = np.bincount(y, minlength=n_classes) / len(y)
    label[rows] = shares.argmax()
    if score is not None:
        prior = (1 - balanced) * shares + balanced / n_classes
        score = np.where(rows[:, None], prior, score)
    return Predictions(label, score)


def _check_constraints(store: ArtifactStore, study: str, about: Mapping[str, Any]) -> None:
    """Check that the final model meets the constraints set since it was fitted.

    Raises:
        BadInput: If one of its members does not.
    """
    ledger = Ledger(store.database)
    plan = StudyPlan.from_stored(find_study(store, study))
    constraints = [bounded.constraint for bounded in plan.options.bounds]
    if not constraints:
        return
    members = {about["trial"], *(member["trial"] for member in about["members"])}
    with documents_of(study):
        trials = [(t.number, t.quantities) for t in map(TrialView, ledger.trials(study))]
    for number, quantities in trials:
        above = [c.name for c in constraints if c.excess(quantities) > 0]
        if number in members and above:
            raise BadInput(
                f"the final model of study {study!r} comes from trial {number}, which does "
                f"not meet the constraints set since ({', '.join(above)}), and no other took its "
                "place",
                remedy="run the study on, or with the constraints it had",
            )
