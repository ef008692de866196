"""A study read in one pass over its trials: the content of `show --json`.

The module is cheap to import and fast, because it builds neither the space nor the history. Readers
never rank trials, because the process that runs a study records the incumbent.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from prefect_tune.flows.options.store_location import store_options
from prefect_tune.flows.reading.commands import continue_command
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.facts import ModelFacts, Recheck, StudyFacts
from prefect_tune.flows.study.plan import StudyPlan, documents_of
from prefect_tune.flows.wording.text import LossWords, counted, counts_text, number_text
from prefect_tune.optimizers.documents import json_values, to_document
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.optimizers.trials.objective import violation
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.series import SeriesTable
from prefect_tune.tasks.data.source import FRAME
from prefect_tune.tasks.problem import UsedPlugin


@dataclass(frozen=True, slots=True)
class ChosenTrial:
    """A trial to show: the incumbent, the model, or the trial nearest to the constraints."""

    trial: int
    loss: float
    fidelity: str
    constraints: Mapping[str, float]
    configuration: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Use of the cache by a study.

    Attributes:
        hits: Number of steps loaded from the cache, counted per fold, without steps that do
            nothing.
        misses: Number of computed steps, counted per fold.
        size_bytes: Current size of the study's step results in the cache.
        seconds_saved: Time saved by hits; negative if loading took longer than computing.
    """

    hits: int
    misses: int
    size_bytes: int
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class StudySeconds:
    """Time of a study.

    Attributes:
        over_budget: Seconds beyond the time budget; None if the study has no time budget.
    """

    total: float
    budget: float | None
    over_budget: float | None
    evaluating: float
    asking: float


@dataclass(frozen=True, slots=True)
class SeriesPlace:
    """Place of a study in its series. `champion` is the study of the current champion, if any."""

    name: str
    run: int
    champion: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView(ModelFacts):
    """A study and its final model. `show --json` prints the same fields.

    Attributes:
        data: Data of the study, as given by the user.
        store_options: Command-line options that select the store.
        resume_command: Command that resumes the study; empty if the data was a DataFrame.
        state: State of the study: running, complete, interrupted or failed.
        n_trials: Number of trials that have ended.
        n_complete: Number of complete trials, including partial trials.
        n_partial: Number of complete trials below full fidelity.
        n_waiting: Number of running and waiting trials.
        n_begun: Number of configurations started.
        finalists: Trials evaluated on a second split, the best trial first.
        constraints: Bounds of the constraints, by quantity.
        nearest_infeasible: Trial that comes closest to meeting the constraints, if there is no
            incumbent.
        model_trial: Trial of the final model; None if the model has several trials.
        model_is_partial: Whether the model is from a partial trial, because no full trial meets the
            constraints.
        no_model: Reason why the latest run ended without a model.
        holdout: Share of held-out rows; None for cross-validation.
        notes: Warnings of all runs.
        series: Place of the study in a series, if any.
    """

    study: str
    method: str
    metric: str
    space: str
    data: str
    is_of_events: bool = False
    store_options: tuple[str, ...]
    resume_command: str
    state: str
    n_trials: int
    n_complete: int
    n_partial: int
    n_failed: int
    n_waiting: int
    n_begun: int
    incumbent: ChosenTrial | None
    finalists: tuple[Recheck, ...]
    plugins: tuple[UsedPlugin, ...]
    constraints: Mapping[str, float]
    nearest_infeasible: ChosenTrial | None
    model_trial: ChosenTrial | None
    model_is_partial: bool
    no_model: str | None
    holdout: float | None
    chance_loss: float | None
    decisions: Mapping[str, Any]
    notes: tuple[str, ...]
    cache: CacheUse
    seconds: StudySeconds
    series: SeriesPlace | None = None

    @property
    def losses(self) -> LossWords:
        """Formatter of losses in the study's metric."""
        return LossWords(self.metric)

    @property
    def counts(self) -> str:
        """Numbers of configurations and trials, as text."""
        return counts_text(self.n_begun, self.n_trials, self.n_partial, self.n_failed)

    @property
    def has_ensemble(self) -> bool:
        """Whether the final model is an ensemble of several trials."""
        return self.ensemble is not None and self.ensemble.has_several

    @property
    def has_model(self) -> bool:
        """Whether the latest run has a final model."""
        return (self.model_trial is not None or self.has_ensemble) and not self.no_model

    @property
    def has_other_model(self) -> bool:
        """Whether the final model is a single trial other than the incumbent."""
        model, best = self.model_trial, self.incumbent
        return model is not None and best is not None and model.trial != best.trial

    @property
    def uselessness(self) -> str:
        """Sentence that calls the model useless; empty if the model is useful."""
        check, losses = self.usefulness, self.losses
        if check is None or not check.is_useless:
            return ""
        verdict = "the model is no" if check.gain <= 0 else "it is uncertain that the model is"
        return (
            f"{verdict} better than a constant prediction: {losses.named(check.loss)} on the "
            f"{check.rows} rows, constant {losses.of(check.constant_loss)} (gain "
            f"{number_text(check.gain)}, 95% interval {number_text(check.low)} to "
            f"{number_text(check.high)})"
        )

    @property
    def baseline(self) -> str:
        """Text with the score of the best constant prediction; empty if the score is undefined."""
        check = self.usefulness
        loss, rows = (check.constant_loss, check.rows) if check else (self.chance_loss, "training")
        return "" if loss is None else f"baseline on the {rows} rows: {self.losses.of(loss)}"

    @property
    def rare_recall(self) -> str:
        """Sentence about the recall of the rare class; empty if no class is rare."""
        check = self.usefulness
        if check is None or check.rare_class is None or not check.n_rare:
            return ""
        return (
            f"recall of the rare class {check.rare_class!r}: {check.n_found / check.n_rare:.0%} "
            f"({check.n_found} of {check.n_rare} {check.rows} rows)"
        )

    @property
    def method_notes(self) -> Sequence[str]:
        """Notes that the method has reported."""
        return self.decisions.get("notes", ())

    def decision_lines(self) -> list[str]:
        """Return lines on the method's decisions and the configurations that its race stopped."""
        lines, method = [], METHODS.get(self.method)
        if (race := self.decisions.get("race")) is not None:
            begun = counted(race["begun"], "configuration")
            behind = "stopped early, clearly behind after a partial trial"
            lines.append(f"race: {race['stopped']:,} of {begun} {behind}")
        named = self.losses.named
        return [*lines, *(method.decision_lines(self.decisions, named) if method else ())]

    def to_json(self) -> dict[str, Any]:
        """Return all fields of the view as JSON values."""
        return {"study": self.study, **json_values(to_document(self))}


def read_study(
    store: ArtifactStore, name: str, *collectors: Callable[[TrialView], None]
) -> StudyView:
    """Read a study in one pass over its trials, in constant memory. Collectors receive each trial.

    Raises `UnknownName` if the study does not exist, and `DatabaseDamaged` if stored documents were
    changed or damaged.
    """
    study = open_study(store, name)
    plan, facts = study.plan, study.facts
    sums, place = _Sums(plan, facts), None
    if plan.options.series is not None:
        series = SeriesTable(store.database).find(plan.options.series)
        run = None if series is None else series.run_of(name)
        if series is not None and run is not None:
            champion = None if series.champion is None else series.champion.study
            place = SeriesPlace(series.name, run.number, champion)
    with documents_of(name):
        for trial in study.trials():
            sums.add(trial)
            for collect in collectors:
                collect(trial)
        incumbent, budget = sums.shown[facts.best_trial], plan.options.budget
        seconds, asking = study.row.seconds, study.ledger.asking_seconds(name)
        over = None if budget is None else max(seconds - budget, 0.0)
        size = store.index.bytes_present(sums.keys, name)
        model, location = sums.shown[sums.alone], store_options(store.address)
        resumed = shlex.join([*continue_command(plan, name), *location])
        of_model = {one.name: getattr(facts.model, one.name) for one in fields(ModelFacts)}
        return StudyView(
            **of_model,
            study=name,
            method=plan.method,
            metric=plan.metric,
            space=plan.space,
            data=plan.source.data,
            is_of_events=plan.source.labels is not None or plan.source.data.startswith("cohort:"),
            store_options=tuple(location),
            resume_command="" if plan.source.data.startswith(FRAME) else resumed,
            state=study.state,
            n_trials=sum(n for state, n in sums.states.items() if state.is_told),
            n_complete=sums.states[TrialState.COMPLETE],
            n_partial=sums.n_partial,
            n_failed=sums.states[TrialState.FAILED],
            n_waiting=sum(n for state, n in sums.states.items() if not state.is_told),
            n_begun=len(sums.configurations),
            incumbent=incumbent,
            finalists=facts.finalists,
            plugins=plan.problem.plugins,
            constraints={bound.constraint.name: bound.constraint.bound for bound in sums.bounds},
            nearest_infeasible=None if incumbent else sums.shown[facts.nearest_trial],
            model_trial=model,
            model_is_partial=model is not None and not sums.is_full_model and not sums.n_qualified,
            no_model=facts.no_model,
            holdout=plan.options.holdout,
            chance_loss=plan.chance_loss,
            decisions=facts.decisions,
            notes=tuple(notice.text for notice in facts.notices),
            cache=CacheUse(sums.hits, sums.misses, size, sums.seconds_saved),
            seconds=StudySeconds(seconds, budget, over, sums.cost_seconds, asking),
            series=place,
        )


class _Sums:
    """Collects sums over the trials of a study, and the trials to show."""

    def __init__(self, plan: StudyPlan, facts: StudyFacts) -> None:
        members = [member.trial for member in facts.model.members]
        self.alone = members[0] if len(members) == 1 else None
        self.bounds = plan.options.bounds
        self.states: Counter[TrialState] = Counter()
        self.configurations: set[bytes] = set()
        self.keys: set[str] = set()
        self.cost_seconds = 0.0
        self.n_partial = self.n_qualified = 0
        self.is_full_model = False
        self._plan, self._constraints = plan, [bound.constraint for bound in self.bounds]
        self.shown: dict[int | None, ChosenTrial | None] = dict.fromkeys(
            (facts.best_trial, facts.nearest_trial, self.alone)
        )
        self.hits = self.misses = 0
        self.seconds_saved = 0.0

    def add(self, trial: TrialView) -> None:
        self.states[trial.state] += 1
        self.n_partial += trial.is_partial
        self.configurations.add(trial.configuration_text)
        self.cost_seconds += trial.cost_seconds
        if trial.is_full and violation(self._constraints, trial.quantities) <= 0:
            self.n_qualified += 1
        if trial.number == self.alone:
            self.is_full_model = trial.is_full
        if trial.number in self.shown and trial.has_loss:
            part, measured = self._plan.whole.part(trial.query), dict(trial.quantities)
            n, loss = trial.number, trial.loss
            self.shown[n] = ChosenTrial(n, loss, part, measured, trial.configuration)
        for step in trial.all_steps:
            self.keys.add(step["key"])
            if step["hit"]:
                self.hits += 1
                self.seconds_saved += step["seconds"] - step["load_seconds"]
            else:
                self.misses += 1
