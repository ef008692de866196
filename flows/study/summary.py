"""A study summed up, as the plain values that `show --json` prints.

Light to import, and quick: it reads the ledger's documents and builds neither space nor history.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from prefect_tune.flows.study.documents import Standing, TrialDocument, standing_of
from prefect_tune.flows.study.lease import is_being_run
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.rendering import fidelity_text
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore

__all__ = ["summarize"]

_ASK = "ask"
"""Kind of the events that say how long an ask took; `Asked.kind`."""


def summarize(store: ArtifactStore, name: str) -> dict[str, Any]:
    """Return study, method, state, trials, incumbent, ensemble, test losses, cache and seconds.

    Raises:
        UnknownName: If there is no such study.
    """
    stored = find_study(store, name)
    ledger = Ledger(store.database)
    trials = [TrialDocument(document) for document in ledger.trials(name)]
    plan = StudyPlan.from_stored(stored)
    constraints = [bounded.constraint for bounded in plan.bounds]
    standing = standing_of(trials, constraints)
    return {
        "study": stored.name,
        "method": plan.method,
        "metric": plan.metric,
        "space": plan.space,
        "data": plan.source.data,
        "state": _state(store, stored),
        "n_trials": sum(t.state.is_told for t in trials),
        "n_stopped": sum(t.state == TrialState.STOPPED for t in trials),
        "n_failed": sum(t.state == TrialState.FAILED for t in trials),
        "n_waiting": sum(not t.state.is_told for t in trials),
        "n_begun": len({t.configuration_text for t in trials}),
        "incumbent": _in_brief(_incumbent(stored, trials, standing), plan),
        "constraints": {c.name: c.bound for c in constraints},
        "nearest_infeasible": _in_brief(standing.nearest_infeasible, plan),
        **_final_model(stored.result),
        "holdout": plan.holdout,
        "chance_loss": plan.chance_loss,
        "decisions": stored.result.get("decisions", {}),
        "cache": _cache(store, name, trials),
        "seconds": {
            "total": stored.seconds,
            "evaluating": sum(t.cost_seconds for t in trials),
            "asking": sum(e.body["seconds"] for e in ledger.events(name, _ASK)),
        },
    }


def _state(store: ArtifactStore, stored: StoredStudy) -> str:
    """Return where a study stands; one whose process was killed while running is interrupted."""
    is_cut = stored.state == "running" and not is_being_run(store, stored.name)
    return "interrupted" if is_cut else stored.state


def _incumbent(
    stored: StoredStudy, trials: Sequence[TrialDocument], standing: Standing
) -> TrialDocument | None:
    """Return the trial that the method has chosen: the best full one, unless it said another."""
    said = stored.result.get("incumbent")
    return standing.incumbent if said is None else next(t for t in trials if t.number == said)


def _final_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ensemble if there is one, the test loss of the model, and of the best trial."""
    ensemble, test_loss = result.get("ensemble"), result.get("test_loss")
    if ensemble is not None:
        ensemble = {"kind": "greedy", **ensemble}  # 0.1 had no other
    alone = result.get("single_best_test_loss", test_loss if ensemble is None else None)
    return {"ensemble": ensemble, "test_loss": test_loss, "single_best_test_loss": alone}


def _in_brief(trial: TrialDocument | None, plan: StudyPlan) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "trial": trial.number,
        "loss": trial.loss,
        "fidelity": fidelity_text(trial.document["query"], plan.folds, plan.epochs),
        "constraints": dict(trial.quantities),
        "configuration": trial.configuration,
    }


def _cache(store: ArtifactStore, study: str, trials: Sequence[TrialDocument]) -> dict[str, Any]:
    """Return what the cache did for trials; a passthrough step counts as neither hit nor miss."""
    steps = [step for trial in trials for step in trial.steps]
    hits = [step for step in steps if step["hit"]]
    return {
        "hits": len(hits),
        "misses": len(steps) - len(hits),
        "size_bytes": store.index.bytes_present((step["key"] for step in steps), study),
        "seconds_saved": sum(step["seconds"] - step["load_seconds"] for step in hits),
    }
