"""A study summed up, as the plain values that `show --json` prints.

Light to import, and quick: it reads the ledger's documents and builds neither space nor history.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.documents import Standing, TrialDocument, documents_of
from prefect_tune.flows.study.lease import is_being_run
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore


def summarize(
    store: ArtifactStore, name: str, also: Callable[[TrialDocument], None] = lambda _: None
) -> dict[str, Any]:
    """Return study, method, state, trials, incumbent, ensemble, test losses, cache and seconds.

    Args:
        store: Where the study is.
        name: Its name.
        also: Is given each trial, so that whoever needs them too reads them in the same pass.

    Raises:
        UnknownName: If there is no such study.
    """
    stored = find_study(store, name)
    ledger = Ledger(store.database)
    plan = StudyPlan.from_stored(stored)
    constraints = [bounded.constraint for bounded in plan.options.bounds]
    members = [member["trial"] for member in stored.result.get("members") or ()]
    summed = _Summed(Standing(constraints), alone=members[0] if len(members) == 1 else None)
    incumbent, budget = stored.result.get("incumbent"), plan.options.budget
    with documents_of(name):
        for document in ledger.each_trial(name):
            trial = TrialDocument(document)
            summed.add(trial, incumbent)
            also(trial)
    return {
        "study": stored.name,
        "method": plan.method,
        "metric": plan.metric,
        "space": plan.space,
        "data": plan.source.data,
        "store_options": store_options(store.address),
        "state": _state(store, stored),
        "n_trials": sum(n for state, n in summed.states.items() if state.is_told),
        "n_stopped": summed.states[TrialState.STOPPED],
        "n_failed": summed.states[TrialState.FAILED],
        "n_waiting": sum(n for state, n in summed.states.items() if not state.is_told),
        "n_begun": len(summed.configurations),
        "incumbent": _in_brief(summed.incumbent, plan),
        "finalists": stored.result.get("finalists", []),
        "plugins": [asdict(plugin) for plugin in plan.problem.plugins],
        "constraints": {c.name: c.bound for c in constraints},
        "nearest_infeasible": _in_brief(summed.nearest_infeasible, plan),
        "model_trial": _in_brief(summed.model, plan),
        "model_is_partial": summed.has_partial_model,
        **_final_model(stored.result),
        "holdout": plan.options.holdout,
        "chance_loss": plan.chance_loss,
        "decisions": stored.result.get("decisions", {}),
        "notes": [note["text"] for note in stored.result.get("notes", ())],
        "cache": summed.cache_use(store.index.bytes_present(summed.keys, name)),
        "seconds": {
            "total": stored.seconds,
            "budget": budget,
            "over_budget": None if budget is None else max(stored.seconds - budget, 0.0),
            "evaluating": summed.cost_seconds,
            "asking": ledger.asking_seconds(name),
        },
    }


@dataclass
class _Summed:
    """Sums over the trials of a study, of which only the best are held.

    Attributes:
        standing: The best of them.
        states: How many are in each state.
        configurations: Those begun.
        keys: Of all that their steps made or were served, of failed trials too.
        hits: Steps of folds that were served; a passthrough counts as neither hit nor miss.
        misses: Steps of folds that were made.
        seconds_saved: What hits saved.
        cost_seconds: What the trials took.
        said: The trial that the method has chosen, where it is not the best full one.
        alone: Number of the trial that is the final model; None if there is no model, or several
            trials make it up.
        model: That trial.
    """

    standing: Standing
    alone: int | None = None
    model: TrialDocument | None = None
    states: Counter[TrialState] = field(default_factory=Counter)
    configurations: set[bytes] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    hits: int = 0
    misses: int = 0
    seconds_saved: float = 0.0
    cost_seconds: float = 0.0
    said: TrialDocument | None = None

    @property
    def incumbent(self) -> TrialDocument | None:
        """The trial that the method has chosen: the best full one, unless it said another."""
        return self.said or self.standing.incumbent

    @property
    def nearest_infeasible(self) -> TrialDocument | None:
        """The trial that is nearest to the constraints, if none that meets them was chosen."""
        return None if self.said else self.standing.nearest_infeasible

    @property
    def has_partial_model(self) -> bool:
        """Whether the model comes from a partial evaluation, as no full one qualifies."""
        model = self.model
        return self.standing.incumbent is None and model is not None and not model.is_full

    def add(self, trial: TrialDocument, said: int | None) -> None:
        """Take a trial; `said` is the number of the one that the method has chosen."""
        self.standing.add(trial)
        self.states[trial.state] += 1
        self.configurations.add(trial.configuration_text)
        self.cost_seconds += trial.cost_seconds
        if trial.number == said:
            self.said = trial
        if trial.number == self.alone:
            self.model = trial
        for step in trial.all_steps:
            self.keys.add(step["key"])
            if step["hit"]:
                self.hits += 1
                self.seconds_saved += step["seconds"] - step["load_seconds"]
            else:
                self.misses += 1

    def cache_use(self, size_bytes: int) -> dict[str, Any]:
        """Return the use of the cache as JSON values, `size_bytes` being what it holds now."""
        return {
            "hits": self.hits,
            "misses": self.misses,
            "size_bytes": size_bytes,
            "seconds_saved": self.seconds_saved,
        }


def _state(store: ArtifactStore, stored: StoredStudy) -> str:
    """Return where a study stands; one whose process was killed while running is interrupted."""
    is_cut = stored.state == "running" and not is_being_run(store, stored.name)
    return "interrupted" if is_cut else stored.state


def _final_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model is made of, its test loss, and that of the best trial alone.

    `test_loss_undefined` has the reason if the test rows leave the loss undefined. `instead_of` has
    the trials that were chosen first, and why they could not be the model. `no_model` has the
    reason if the last run ended without a model. `model_of_folds` says whether the model is the
    mean of those of the folds, for lack of time to fit on all training rows, and `model_subset` on
    which share of them it was fitted.
    """
    ensemble, test_loss = result.get("ensemble"), result.get("test_loss")
    alone = result.get("single_best_test_loss", test_loss if ensemble is None else None)
    return {
        "ensemble": ensemble,
        "instead_of": _instead_of(result.get("instead_of")),
        "no_model": result.get("no_model"),
        "model_of_folds": bool(result.get("of_folds")),
        "model_subset": result.get("fitted_subset", 1.0),
        "test_loss": test_loss,
        "test_loss_undefined": result.get("test_loss_undefined"),
        "single_best_test_loss": alone,
        "single_best_test_loss_undefined": result.get("single_best_test_loss_undefined"),
    }


def _instead_of(replaced: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the trials that were chosen first, the reason against them, and all failed refits."""
    if not replaced:
        return None
    failures = replaced.get("failures", [])
    return {
        "trials": [member["trial"] for member in replaced["members"]],
        "reason": failures[0]["reason"] if failures else "the refit failed",
        "failures": failures,
    }


def _in_brief(trial: TrialDocument | None, plan: StudyPlan) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "trial": trial.number,
        "loss": trial.loss,
        "fidelity": fidelity_text(trial.document["query"], plan.options.folds, plan.options.epochs),
        "constraints": dict(trial.quantities),
        "configuration": trial.configuration,
    }
