"""Using what a study found: its final model, and predictions with it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.flows.study.documents import TrialDocument, documents_of
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.key import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.libraries import algorithms_of, check_libraries
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.reading import read_features
from prefect_tune.tasks.data.table import like_training
from prefect_tune.tasks.objective.predictions import predictions_of


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


def predict(store: ArtifactStore, study: str, data: str, labels: str | None) -> pd.DataFrame:
    """Predict new rows: `prediction`, and `probability_<class>` where the model gives it.

    Rows of events also have their patient and prediction time.

    Raises:
        UnknownName, BadInput: If the study has no model, or the data cannot be used.
        InvalidPredictions: If the model does not predict one of its classes, or a finite number,
            for each row.
    """
    model, about = final_model(store, study)
    dataset = load_dataset(store, about["dataset"])
    chosen = StudyPlan.from_stored(find_study(store, study)).source.format
    X = read_features(data, labels, dataset, chosen)
    frame = pd.DataFrame(index=pd.RangeIndex(len(X)))
    if isinstance(X, EventRows):
        frame = X.rows.copy()
    elif isinstance(dataset.X, pd.DataFrame):
        X = like_training(X, dataset.X)
    classes = np.array(dataset.classes)
    found = predictions_of(model, X, classes, methods=("predict_proba",))
    frame["prediction"] = classes[found.label] if dataset.classes else found.label
    if found.score is not None:
        for label, probability in zip(dataset.classes, found.score.T, strict=True):
            frame[f"probability_{label}"] = probability
    return frame


def _check_constraints(store: ArtifactStore, study: str, about: Mapping[str, Any]) -> None:
    """Check that the final model meets the constraints set since it was fitted.

    Raises:
        BadInput: If one of its members does not.
    """
    ledger = Ledger(store.database)
    constraints = [b.constraint for b in StudyPlan.from_stored(find_study(store, study)).bounds]
    if not constraints:
        return
    members = {about["trial"], *(member["trial"] for member in about["members"])}
    with documents_of(study):
        trials = [(t.number, t.quantities) for t in map(TrialDocument, ledger.trials(study))]
    for number, quantities in trials:
        above = [c.name for c in constraints if c.excess(quantities) > 0]
        if number in members and above:
            raise BadInput(
                f"the final model of study {study!r} comes from trial {number}, which does "
                f"not meet the constraints set since ({', '.join(above)}), and no other took its "
                "place",
                remedy="run the study on, or with the constraints it had",
            )
