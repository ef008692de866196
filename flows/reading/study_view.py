"""A study, read in one pass over its trials; what `show --json` prints.

Light to import, and quick: neither the space nor the history is built. The trials that lead are
those that the running process recorded; nothing is ranked here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect_tune.flows.reading.lookup import find_study, leader_of
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.store_location import store_options
from prefect_tune.flows.study.finalists import Look
from prefect_tune.flows.study.lease import is_being_run
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.text import LossWords, counted
from prefect_tune.optimizers.converter import from_document, json_values, to_document
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.ledger import Ledger, StoredStudy
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.plugins import UsedPlugin


@dataclass(frozen=True, slots=True)
class ChosenTrial:
    """A trial that leads, is the model, or is nearest to the constraints.

    Attributes:
        trial: Its number.
        loss: Its loss.
        fidelity: The part of the whole evaluation that it ran; empty for all of it.
        constraints: Measured quantities by name.
        configuration: Algorithm and hyperparameters by step.
    """

    trial: int
    loss: float
    fidelity: str
    constraints: Mapping[str, float]
    configuration: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WeightedTrial:
    """A trial in the final model, and its weight."""

    trial: int
    weight: float


@dataclass(frozen=True, slots=True)
class Ensemble:
    """An ensemble, or a single trial that was preferred to one.

    Attributes:
        kind: `single`, `greedy`, `agnostic`, or `method` if the method chose the weights.
        members: Trials and weights.
        losses: Loss on the held-out rows, for greedy selection at each size; empty if not known.
        nested: By kind of ensemble, its loss on rows that did not decide its weights.
    """

    kind: str
    members: tuple[WeightedTrial, ...]
    losses: tuple[float, ...] = ()
    nested: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether there is more than one member."""
        return len(self.members) > 1

    @property
    def heaviest(self) -> list[WeightedTrial]:
        """The members, the heaviest first."""
        return sorted(self.members, key=lambda member: (-member.weight, member.trial))


@dataclass(frozen=True, slots=True)
class FailedRefit:
    """Trials that could not be refitted as the model, and the reason."""

    trials: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Replaced:
    """The trials that were chosen first as the model, and why they were replaced.

    Attributes:
        trials: Numbers of its trials.
        reason: Why it was replaced.
        failures: All failed refits.
    """

    trials: tuple[int, ...]
    reason: str
    failures: tuple[FailedRefit, ...]


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Use of the cache by a study.

    Attributes:
        hits: Steps, counted per fold, that were loaded; a passthrough counts as neither.
        misses: Steps, counted per fold, that were computed.
        size_bytes: Size of the study's artifacts in the cache now.
        seconds_saved: Seconds that hits saved; negative if loading took longer.
    """

    hits: int
    misses: int
    size_bytes: int
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class StudySeconds:
    """Time of a study.

    Attributes:
        total: Time spent.
        budget: Time allowed; None if it is not bounded.
        over_budget: Time spent beyond the budget; None if it is not bounded.
        evaluating: Sum over the trials.
        asking: Time in which the method chose configurations.
    """

    total: float
    budget: float | None
    over_budget: float | None
    evaluating: float
    asking: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView:
    """A study as people and programs see it; the fields are those of `show --json`.

    Attributes:
        study: Name.
        method: Name of the method.
        metric: Name of the metric.
        space: Name of the space.
        data: The data, as given.
        store_options: Words by which a command finds the store.
        state: running, complete, interrupted or failed.
        n_trials: Trials that have ended.
        n_stopped: Trials that ended with a loss from a part of the evaluation.
        n_failed: Failed trials.
        n_waiting: Trials that run or wait.
        n_begun: Configurations begun.
        incumbent: The trial that leads.
        finalists: Trials evaluated on a second split, the best first.
        plugins: Plugins that the study uses.
        constraints: Bounds by quantity.
        nearest_infeasible: The trial nearest to the constraints, if none leads.
        model_trial: The trial that is the final model; None if several are.
        model_is_partial: Whether the model ran in part, as no full trial meets the constraints.
        ensemble: The final model, if it is an ensemble or was preferred to one.
        instead_of: The first choice, if it could not be the model.
        no_model: Why the last run ended without a model.
        model_of_folds: Whether the model averages the models of the folds, for lack of time.
        model_subset: Share of the training rows that the model was fitted on.
        test_loss: Loss of the model on the test rows.
        test_loss_undefined: Why that loss is undefined.
        single_best_test_loss: Test loss of the best trial alone.
        single_best_test_loss_undefined: Why that loss is undefined.
        holdout: Share of held-out rows; None for cross-validation.
        chance_loss: Loss of guessing.
        decisions: Decisions of the method.
        notes: Warnings of its runs.
        cache: Use of the cache.
        seconds: Time spent.
    """

    study: str
    method: str
    metric: str
    space: str
    data: str
    store_options: tuple[str, ...]
    state: str
    n_trials: int
    n_stopped: int
    n_failed: int
    n_waiting: int
    n_begun: int
    incumbent: ChosenTrial | None
    finalists: tuple[Look, ...]
    plugins: tuple[UsedPlugin, ...]
    constraints: Mapping[str, float]
    nearest_infeasible: ChosenTrial | None
    model_trial: ChosenTrial | None
    model_is_partial: bool
    ensemble: Ensemble | None
    instead_of: Replaced | None
    no_model: str | None
    model_of_folds: bool
    model_subset: float
    test_loss: float | None
    test_loss_undefined: str | None
    single_best_test_loss: float | None
    single_best_test_loss_undefined: str | None
    holdout: float | None
    chance_loss: float | None
    decisions: Mapping[str, Any]
    notes: tuple[str, ...]
    cache: CacheUse
    seconds: StudySeconds

    @property
    def losses(self) -> LossWords:
        """The words for its losses."""
        return LossWords(self.metric)

    @property
    def n_full(self) -> int:
        """Trials with the loss of the whole evaluation."""
        return self.n_trials - self.n_stopped - self.n_failed

    @property
    def has_ensemble(self) -> bool:
        """Whether the final model is an ensemble of several trials."""
        return self.ensemble is not None and self.ensemble.has_several

    @property
    def has_model(self) -> bool:
        """Whether there is a final model of the last run."""
        return (self.model_trial is not None or self.has_ensemble) and not self.no_model

    @property
    def has_other_model(self) -> bool:
        """Whether the final model is one trial, and not the one that leads."""
        model, best = self.model_trial, self.incumbent
        return model is not None and best is not None and model.trial != best.trial

    @property
    def method_notes(self) -> Sequence[str]:
        """Notes of the method on its search."""
        return self.decisions.get("notes", ())

    def decision_lines(self) -> list[str]:
        """Return what the method decided, and how many configurations its race ended."""
        lines, method = [], METHODS.get(self.method)
        if (race := self.decisions.get("race")) is not None:
            begun = counted(race["begun"], "configuration")
            lines.append(f"race: of {begun} {race['stopped']:,} ended early, clearly behind")
        return lines if method is None else [*lines, *method.decision_lines(self.decisions)]

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; an ensemble without losses has no keys for them."""
        document = json_values(to_document(self))
        if self.ensemble is not None and not self.ensemble.losses:
            for name in ("losses", "nested"):
                document.get("ensemble", {}).pop(name)
        return document


def read_study(
    store: ArtifactStore, name: str, *collectors: Callable[[TrialView], None]
) -> StudyView:
    """Read a study in one pass over its trials, in constant memory.

    Args:
        store: The store of the study.
        name: Its name.
        collectors: Each takes every trial, in the same pass.

    Raises:
        UnknownName: If there is no such study.
        DatabaseDamaged: If its documents are not as they were written.
    """
    stored = find_study(store, name)
    plan, result = StudyPlan.from_stored(stored), stored.result
    ledger = Ledger(store.database)
    sums = _Sums(plan, result, best := leader_of(ledger, stored))
    with documents_of(name):
        for document in ledger.each_trial(name):
            trial = TrialView(document)
            sums.add(trial)
            for collect in collectors:
                collect(trial)
        incumbent, budget = sums.chosen(best), plan.options.budget
        model = sums.chosen(sums.alone)
        return StudyView(
            study=stored.name,
            method=plan.method,
            metric=plan.metric,
            space=plan.space,
            data=plan.source.data,
            store_options=tuple(store_options(store.address)),
            state=_state(store, stored),
            n_trials=sum(n for state, n in sums.states.items() if state.is_told),
            n_stopped=sums.states[TrialState.STOPPED],
            n_failed=sums.states[TrialState.FAILED],
            n_waiting=sum(n for state, n in sums.states.items() if not state.is_told),
            n_begun=len(sums.configurations),
            incumbent=incumbent,
            finalists=from_document(tuple[Look, ...], result.get("finalists") or ()),
            plugins=plan.problem.plugins,
            constraints={bound.constraint.name: bound.constraint.bound for bound in sums.bounds},
            nearest_infeasible=None if incumbent else sums.chosen(result.get("nearest_trial")),
            model_trial=model,
            model_is_partial=model is not None and not sums.is_full_model and not sums.n_qualified,
            **_final_model(result),
            holdout=plan.options.holdout,
            chance_loss=plan.chance_loss,
            decisions=result.get("decisions", {}),
            notes=tuple(note["text"] for note in result.get("notes", ())),
            cache=sums.cache_use(store.index.bytes_present(sums.keys, name)),
            seconds=StudySeconds(
                stored.seconds,
                budget,
                None if budget is None else max(stored.seconds - budget, 0.0),
                sums.cost_seconds,
                ledger.asking_seconds(name),
            ),
        )


class _Sums:
    """Sums over the trials of a study, and the trials that are shown: best, nearest, model."""

    def __init__(self, plan: StudyPlan, result: Mapping[str, Any], best: int | None) -> None:
        members = [member["trial"] for member in result.get("members") or ()]
        self.alone = members[0] if len(members) == 1 else None
        self.bounds = plan.options.bounds
        self.states: Counter[TrialState] = Counter()
        self.configurations: set[bytes] = set()
        self.keys: set[str] = set()
        self.cost_seconds = 0.0
        self.n_qualified = 0
        self.is_full_model = False
        self._plan, self._constraints = plan, [bound.constraint for bound in self.bounds]
        self._shown: dict[int | None, ChosenTrial | None] = dict.fromkeys(
            (best, result.get("nearest_trial"), self.alone)
        )
        self._hits = self._misses = 0
        self._seconds_saved = 0.0

    def add(self, trial: TrialView) -> None:
        """Add a trial."""
        self.states[trial.state] += 1
        self.configurations.add(trial.configuration_text)
        self.cost_seconds += trial.cost_seconds
        if trial.is_full and violation(self._constraints, trial.quantities) <= 0:
            self.n_qualified += 1
        if trial.number == self.alone:
            self.is_full_model = trial.is_full
        if trial.number in self._shown and trial.has_loss:
            self._shown[trial.number] = ChosenTrial(
                trial.number,
                trial.loss,
                trial.fidelity(self._plan),
                dict(trial.quantities),
                trial.configuration,
            )
        for step in trial.all_steps:
            self.keys.add(step["key"])
            if step["hit"]:
                self._hits += 1
                self._seconds_saved += step["seconds"] - step["load_seconds"]
            else:
                self._misses += 1

    def chosen(self, number: int | None) -> ChosenTrial | None:
        """Return the trial of that number, one of those that are shown."""
        return self._shown[number]

    def cache_use(self, size_bytes: int) -> CacheUse:
        """Return what the cache did; it holds `size_bytes` of the study now."""
        return CacheUse(self._hits, self._misses, size_bytes, self._seconds_saved)


def _state(store: ArtifactStore, stored: StoredStudy) -> str:
    """Return the state of a study; one whose process was killed while running is interrupted."""
    is_cut = stored.state == "running" and not is_being_run(store, stored.name)
    return "interrupted" if is_cut else stored.state


def _final_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a view that describe the final model and its test losses."""
    ensemble, test_loss = result.get("ensemble"), result.get("test_loss")
    alone = result.get("single_best_test_loss", test_loss if ensemble is None else None)
    return {
        "ensemble": None if ensemble is None else from_document(Ensemble, ensemble),
        "instead_of": _replaced(result.get("instead_of")),
        "no_model": result.get("no_model"),
        "model_of_folds": bool(result.get("of_folds")),
        "model_subset": result.get("fitted_subset", 1.0),
        "test_loss": test_loss,
        "test_loss_undefined": result.get("test_loss_undefined"),
        "single_best_test_loss": alone,
        "single_best_test_loss_undefined": result.get("single_best_test_loss_undefined"),
    }


def _replaced(document: Mapping[str, Any] | None) -> Replaced | None:
    """Return the first choice, from the result's document with its members and failures."""
    if not document:
        return None
    failures = from_document(tuple[FailedRefit, ...], document.get("failures", []))
    members = from_document(tuple[WeightedTrial, ...], document["members"])
    reason = failures[0].reason if failures else "the refit failed"
    return Replaced(tuple(member.trial for member in members), reason, failures)
