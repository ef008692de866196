"""What came of a study, as the plain values that `show --json` and `trials --json` print."""

from collections.abc import Sequence
from typing import Any

from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.study import read_trials, study_lease
from prefect_tune.optimizers.events import Asked
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.objective.quantity import QuantityBound
from prefect_tune.tasks.problem import Problem

__all__ = ["summarize"]


def summarize(store: ArtifactStore, name: str) -> dict[str, Any]:
    """Study, method, state, trials, incumbent, test loss, cache and seconds.

    Raises:
        UnknownName: If there is no such study.
    """
    stored = find_study(store, name)
    ledger = Ledger(store.database)
    problem = Problem.from_json(stored.problem)
    trials = read_trials(ledger, name, problem.find_space())
    history = History(
        [
            QuantityBound.from_json(document).constraint
            for document in stored.settings.get("constraint") or ()
        ]
    )
    for trial in trials:
        history.record(trial)
    incumbent = history.incumbent
    return {
        "study": stored.name,
        "method": stored.settings["method"],
        "metric": problem.metric,
        "space": problem.space,
        "data": stored.settings["source"]["data"],
        "state": _state(store, stored),
        "n_trials": sum(t.is_told for t in trials),
        "n_failed": len(history.failed),
        "n_waiting": sum(not t.is_told for t in trials),
        "incumbent": None if incumbent is None else _incumbent(incumbent),
        "constraints": {c.name: c.bound for c in history.constraints},
        "nearest_infeasible": None
        if incumbent is not None or history.nearest_infeasible is None
        else _incumbent(history.nearest_infeasible),
        "ensemble": stored.result.get("ensemble"),
        "test_loss": stored.result.get("test_loss"),
        "holdout": stored.settings["holdout"],
        "chance_loss": stored.settings["chance_loss"],
        "decisions": stored.result.get("decisions", {}),
        "cache": _cache(store, trials),
        "seconds": {
            "total": stored.seconds,
            "evaluating": sum(t.cost_seconds for t in trials),
            "asking": sum(e.body["seconds"] for e in ledger.events(name) if e.kind == Asked.kind),
        },
    }


def _state(store: ArtifactStore, stored: StoredStudy) -> str:
    """Where a study stands; one that was running when its process was killed is interrupted."""
    holder = store.leases.holder(study_lease(stored.name))
    is_running = holder is not None and not holder.is_dead
    return "interrupted" if stored.state == "running" and not is_running else stored.state


def _incumbent(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "loss": trial.loss,
        "constraints": dict(trial.evaluation.constraints) if trial.evaluation else {},
        "configuration": trial.query.configuration.to_json(),
    }


def _cache(store: ArtifactStore, trials: Sequence[Trial]) -> dict[str, Any]:
    """What the cache did for these trials; a step that hands on what it got counts as neither."""
    steps = [step for trial in trials if trial.evaluation for step in trial.evaluation.steps]
    hits = [step for step in steps if step.hit]
    keys = list({step.key for step in steps})
    return {
        "hits": len(hits),
        "misses": len(steps) - len(hits),
        "size_bytes": sum(e.size_bytes for e in store.index.entries(keys).values() if e.is_present),
        "seconds_saved": sum(step.seconds - step.load_seconds for step in hits),
    }
