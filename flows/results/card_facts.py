"""The facts of a model card: target, inputs, quality (also by class or quarter), and search."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from prefect_tune.flows.reading.lookup import find_study
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.results.exported import Exported
from prefect_tune.flows.results.predict import is_balanced
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.optimizers.space.space import Space
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.split import REFIT, Split, load_split
from prefect_tune.tasks.fitting.final_scoring import predicted
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.two_classes import auroc_with_interval

_PARTS = 4


def by_class(
    y: NDArray[Any], predictions: Predictions, classes: Sequence[Any]
) -> list[dict[str, Any]]:
    """Return rows, recall, error and precision of each class, as JSON values.

    Recall and error are shares of the rows of the class, in percent; precision is the share of what
    is predicted as it that is of it. None where that is a share of nothing.

    Args:
        y: Positions of the true classes, shape (n,).
        predictions: For the same rows.
        classes: All classes as the user wrote them.

    >>> found = by_class(np.array([0, 0, 1]), Predictions(np.array([0, 1, 1])), ("no", "yes"))
    >>> found[0]
    {'class': 'no', 'rows': 2, 'recall': 50.0, 'error': 50.0, 'precision': 100.0}
    """
    rows = []
    for position, label in enumerate(classes):
        true, said = y == position, predictions.label == position
        recall = _percent((true & said).sum(), true.sum())
        rows.append(
            {
                "class": label,
                "rows": int(true.sum()),
                "recall": recall,
                "error": None if recall is None else 100 - recall,
                "precision": _percent((true & said).sum(), said.sum()),
            }
        )
    return rows


def by_quarter(y: NDArray[Any], predictions: Predictions) -> list[dict[str, Any]]:
    """Return range, rows and errors of each quarter of the true numbers, the smallest first.

    A mean error above 0 says that numbers of that quarter are predicted too large.

    Args:
        y: True numbers, shape (n,).
        predictions: For the same rows.

    >>> found = by_quarter(np.arange(8.0), Predictions(np.full(8, 3.0)))
    >>> found[0]
    {'from': 0.0, 'to': 1.0, 'rows': 2, 'mean_absolute_error': 2.5, 'mean_error': 2.5}
    """
    quarters = np.array_split(np.argsort(y, kind="stable"), _PARTS)
    return [
        {
            "from": float(y[rows].min()),
            "to": float(y[rows].max()),
            "rows": len(rows),
            "mean_absolute_error": float(np.abs(predictions.label[rows] - y[rows]).mean()),
            "mean_error": float((predictions.label[rows] - y[rows]).mean()),
        }
        for rows in quarters
        if len(rows)
    ]


def _percent(part: np.intp, whole: np.intp) -> float | None:
    return float(100 * part / whole) if whole else None


_SURE = 0.95


def card_facts(store: ArtifactStore, exported: Exported) -> dict[str, Any]:
    """Return all that a model card says, as JSON values.

    Args:
        store: Where the study is.
        exported: Its final model.

    Raises:
        RecordDamaged: If the study's data is not there any more.
    """
    study = exported.study
    stored = find_study(store, study)
    plan, summary = StudyPlan.from_stored(stored), read_study(store, study).to_json()
    dataset = load_dataset(store, plan.problem.dataset)
    split = load_split(store, plan.problem.split)
    numbers = set(exported.trials)
    with documents_of(study):
        found = map(TrialView, Ledger(store.database).each_trial(study))
        trials = {trial.number: trial for trial in found if trial.number in numbers}
    return {
        "study": study,
        "written_by": f"prefect-tune {version('prefect-tune')}",
        "model": _model(exported, summary, trials, plan.problem.find_space()),
        "target": {
            "name": plan.source.target,
            "kind": dataset.target,
            "classes": list(dataset.classes),
        },
        "data": _data(plan, dataset, split),
        "losses": _losses(plan, summary, dataset, split, exported),
        "constraints": _constraints(plan, trials),
        "search": _search(plan, summary),
        "loading": {
            name: value for name, value in exported.to_json().items() if name not in exported.about
        },
        "versions": dict(stored.result.get("versions", {})),
    }


def _model(
    exported: Exported,
    summary: Mapping[str, Any],
    trials: Mapping[int, TrialView],
    space: Space,
) -> dict[str, Any]:
    members = [
        {
            **member,
            "loss": trials[member["trial"]].loss,
            "configuration": dict(trials[member["trial"]].configuration),
            "balanced": is_balanced(trials[member["trial"]].configuration, space),
        }
        for member in exported.about["members"]
    ]
    ensemble = summary["ensemble"]
    kind = ensemble["kind"] if ensemble and len(members) > 1 else "single"
    return {
        "kind": kind,
        "class": type(exported.model).__name__,
        "members": members,
        "of_folds": exported.about.get("of_folds", False),
        "subset": exported.about.get("subset", 1.0),
    }


def _data(plan: StudyPlan, dataset: Dataset, split: Split) -> dict[str, Any]:
    n_test = len(split.held_out(REFIT))
    return {
        "name": plan.data_name,
        "source": plan.source.data,
        "kind": dataset.kind,
        "digest": plan.problem.dataset,
        "rows": len(dataset),
        "training_rows": len(dataset) - n_test,
        "test_rows": n_test,
        "dropped": [name for name in plan.source.drop if name not in plan.source.aside],
        "aside": list(plan.source.aside),
        "group": plan.source.group,
        "folds": plan.options.folds,
        "holdout": plan.options.holdout,
        "test_file": plan.source.test,
        "columns": _columns(dataset),
        **_events(dataset),
    }


def _columns(dataset: Dataset) -> list[dict[str, Any]]:
    """Return name, type, share of gaps, and range or number of categories of each feature."""
    if not isinstance(dataset.X, pd.DataFrame):
        return []
    return [_column(str(name), dataset.X[name]) for name in dataset.X]


def _column(name: str, column: pd.Series) -> dict[str, Any]:
    gaps = float(column.isna().mean())
    if isinstance(column.dtype, pd.CategoricalDtype):
        return {
            "name": name,
            "type": "category",
            "gaps": gaps,
            "categories": [str(c) for c in column.cat.categories],
        }
    is_known = bool(column.notna().any())
    ends = [float(column.min()), float(column.max())] if is_known else None
    return {"name": name, "type": "number", "gaps": gaps, "range": ends}


def _events(dataset: Dataset) -> dict[str, Any]:
    if not isinstance(dataset.X, EventRows):
        return {}
    patients = dataset.X.rows["subject_id"].nunique()
    return {"codes": len(dataset.X.codes), "patients": int(patients)}


def _losses(
    plan: StudyPlan, summary: Mapping[str, Any], dataset: Dataset, split: Split, exported: Exported
) -> dict[str, Any]:
    metric, rows = plan.problem.find_metric(), split.held_out(REFIT)
    incumbent, ensemble = summary["model_trial"] or summary["incumbent"], summary["ensemble"]
    held_out = (ensemble or {}).get("losses")
    losses = {
        "metric": metric.name,
        "unit": metric.unit,
        "guessing": plan.chance_loss,
        "best_trial": incumbent["trial"] if incumbent else None,
        "cross_validated": incumbent["loss"] if incumbent else None,
        "fidelity": incumbent["fidelity"] if incumbent else "",
        "held_out": held_out[-1] if held_out and len(exported.trials) > 1 else None,
        "test": exported.about["test_loss"],
        "test_undefined": summary["test_loss_undefined"],
        "test_score": _score(metric, exported.about["test_loss"]),
        "single_best_test": summary["single_best_test_loss"],
        "test_error": None,
        "test_auroc": None,
        "by_class": [],
        "by_quarter": [],
    }
    predictions = _test_predictions(exported, dataset, rows)
    if predictions is not None:
        y = dataset.y[rows]
        if dataset.classes:
            losses["by_class"] = by_class(y, predictions, dataset.classes)
            losses["test_error"] = _share_of_errors(y, predictions)
        if len(dataset.classes) == 2 and predictions.score is not None:
            groups = None if dataset.groups is None else dataset.groups[rows]
            score = predictions.score[:, metric.positive]
            auroc = auroc_with_interval(y == metric.positive, score, groups, plan.seed)
            losses["test_auroc"] = None if auroc is None else asdict(auroc)
        if not dataset.classes:
            losses["by_quarter"] = by_quarter(y, predictions)
    return losses


def _test_predictions(
    exported: Exported, dataset: Dataset, rows: NDArray[np.intp]
) -> Predictions | None:
    """Return what a model predicts of the test rows; None if it cannot, or there are none."""
    try:
        return predicted(exported.model, dataset, rows) if len(rows) else None
    except Exception:  # the reason is that of the undefined test loss
        return None


def _score(metric: Metric, loss: float | None) -> dict[str, Any] | None:
    """Return a loss as others know it: by the name of a score or of an error, as it grows."""
    if loss is None:
        return None
    name = (metric.declared.score or metric.name).removeprefix("neg_")
    return {"type": name, "value": loss if metric.declared.is_error else metric.score(loss)}


def _share_of_errors(y: Any, predictions: Predictions) -> dict[str, float]:
    """Return the share of wrong predictions in percent, and what is as sure as 95 % of such rows.

    The interval is Wilson's.
    """
    n_wrong = int(np.sum(predictions.label != y))
    interval = binomtest(n_wrong, len(y)).proportion_ci(_SURE, method="wilson")
    return {
        "percent": 100 * n_wrong / len(y),
        "low": 100 * float(interval.low),
        "high": 100 * float(interval.high),
    }


def _constraints(plan: StudyPlan, trials: Mapping[int, TrialView]) -> list[dict[str, Any]]:
    return [
        {
            "quantity": bounded.quantity.text,
            "bound": bounded.bound,
            "measured": {
                n: trial.quantities.get(bounded.quantity.text) for n, trial in trials.items()
            },
        }
        for bounded in plan.options.bounds
    ]


def _search(plan: StudyPlan, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": plan.method,
        "options": dict(plan.options.option),
        "space": plan.space,
        "race": plan.options.race,
        "epochs": plan.options.epochs,
        "seed": plan.seed,
        "budget_trials": plan.options.trials,
        "budget_seconds": plan.options.budget,
        "configurations": summary["n_begun"],
        "trials": summary["n_trials"],
        "failed": summary["n_failed"],
        "seconds": summary["seconds"]["total"],
        "finalists": len(summary["finalists"]),
    }
